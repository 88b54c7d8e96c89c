//! Launches kernels, and computes the number of blocks that fit on a multiprocessor.

use gpuslice_driver::types::*;

use super::submit::{StreamArgument, Wait};
use crate::call::DriverCall;
use crate::hardware::attributes;
use crate::model::clusters::{self, Clusters};
use crate::model::code::Function;
use crate::model::graphs::{Launch, Op};
use crate::model::objects::handle;
use crate::process::host_queue::HostTask;
use crate::status::{Outcome, statuses};

/// Grid, block and shared memory of a launch.
pub(super) type Extent = ([u32; 3], [u32; 3], u32);

/// `CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`.
const CLUSTER_DIMENSION: u32 = 4;

/// `CUlaunchAttribute`, with its number and value as words. So unknown numbers are valid too.
#[repr(C)]
#[derive(Clone, Copy)]
struct Attribute {
    id: u32,
    padding: u32,
    value: [u32; 16],
}

/// Returns the part of the device that a launch fills at its largest, in thousandths.
fn occupancy((grid, block, _): &Extent) -> u16 {
    let product =
        |sizes: &[u32; 3]| sizes.iter().fold(1_u64, |all, size| all.saturating_mul(u64::from(*size)));
    let threads = product(grid).saturating_mul(product(block));
    let all = u64::from(attributes::PROCESSORS) * u64::from(attributes::THREADS_PER_PROCESSOR);
    threads.saturating_mul(1000).div_ceil(all).clamp(1, 1000) as u16
}

fn check((grid, block, shared): &Extent) -> Outcome {
    let [_, grid_y, grid_z] = *grid;
    let threads = block.iter().fold(1_u64, |all, size| all.saturating_mul(u64::from(*size)));
    let zero = grid.iter().chain(block).any(|size| *size == 0);
    let large = grid_y > 65_535 || grid_z > 65_535 || threads > u64::from(attributes::THREADS_PER_BLOCK);
    if zero || large || *shared > attributes::SHARED_OPT_IN { Err(status::INVALID_VALUE) } else { Ok(()) }
}

impl DriverCall {
    /// Checks the arguments of a launch of a function or kernel.
    pub(super) fn launch(
        &self,
        function: CUfunction,
        extent: Extent,
        params: usize,
        extra: usize,
    ) -> Result<Launch, Status> {
        check(&extent)?;
        if params != 0 && extra != 0 {
            return Err(status::INVALID_VALUE);
        }
        let function = self.ready(handle(function))?;
        let objects = self.simulation()?.objects();
        let &Function { ns, is_collective, settings, .. } = objects.code.functions.get(function)?;
        settings.clusters.of_launch(None, extent.0)?;
        let (occupancy, (grid, block, shared)) = (occupancy(&extent), extent);
        Ok(Launch { function, grid, block, shared, params, extra, ns, is_collective, occupancy })
    }

    /// Returns the function of a handle, and loads its code first. The caller must hold no lock.
    pub(super) fn ready(&self, function: u64) -> Result<u64, Status> {
        let simulation = self.simulation()?;
        simulation.make_way_for_code(|objects| objects.context_awaiting_code_of(function));
        simulation.objects().launchable(simulation, function)
    }

    #[allow(clippy::too_many_arguments, reason = "the interface's own")]
    pub(super) fn launch_on(
        &self,
        on: StreamArgument,
        function: CUfunction,
        extent: Extent,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) -> Outcome {
        let launch = self.launch(function, extent, params.addr(), extra.addr())?;
        let simulation = self.simulation()?;
        let (stream, _) = self.stream(on)?;
        {
            let objects = simulation.objects();
            let context = objects.streams.streams.get(stream)?.context;
            if objects.code.functions.get(launch.function)?.context != context {
                return Err(statuses::INVALID_HANDLE);
            }
        }
        self.submit(on, &Op::Kernel(launch), Wait::No)
    }

    pub(super) fn launch_config(
        &self,
        config: *const CUlaunchConfig,
        function: CUfunction,
        params: *mut *mut c_void,
        extra: *mut *mut c_void,
        per_thread: bool,
    ) -> Outcome {
        let config = self.read(config)?;
        let grid = [config.gridDimX, config.gridDimY, config.gridDimZ];
        let block = [config.blockDimX, config.blockDimY, config.blockDimZ];
        let chosen = self.chosen_cluster(&config)?;
        self.clusters(function)?.of_launch(chosen, grid)?;
        let on = StreamArgument(handle(config.hStream), per_thread);
        self.launch_on(on, function, (grid, block, config.sharedMemBytes), params, extra)
    }

    /// Returns the cluster attributes of a function.
    fn clusters(&self, function: CUfunction) -> Result<Clusters, Status> {
        let function = self.ready(handle(function))?;
        let objects = self.simulation()?.objects();
        objects.code.functions.get(function).map(|function| function.settings.clusters)
    }

    /// Returns the cluster dimensions in the attributes of a launch.
    fn chosen_cluster(&self, config: &CUlaunchConfig) -> Result<Option<[u32; 3]>, Status> {
        for index in 0..config.numAttrs as usize {
            let attribute: Attribute = self.read_at(config.attrs.cast(), index)?;
            if attribute.id == CLUSTER_DIMENSION {
                let [width, height, depth, ..] = attribute.value;
                return Ok(Some([width, height, depth]));
            }
        }
        Ok(None)
    }

    /// Returns the number of a launch's blocks that one multiprocessor holds.
    fn resident_blocks(&self, function: CUfunction, config: &CUlaunchConfig) -> Result<u32, Status> {
        let block = [config.blockDimX, config.blockDimY, config.blockDimZ];
        let threads = block.iter().fold(1_u32, |all, size| all.saturating_mul(*size));
        let threads = c_int::try_from(threads).map_err(|_| status::INVALID_VALUE)?;
        self.resident(function, threads, config.sharedMemBytes as usize)
    }

    /// Returns the largest cluster that a launch can choose, in blocks. Returns 0 if not even one block fits.
    pub(super) fn potential_cluster(
        &self,
        function: CUfunction,
        config: *const CUlaunchConfig,
    ) -> Result<u32, Status> {
        let resident = self.resident_blocks(function, &self.read(config)?)?;
        let size = self.clusters(function)?.potential();
        Ok(if clusters::active(size, resident) > 0 { size } else { 0 })
    }

    /// Returns the number of a launch's clusters that run at the same time.
    pub(super) fn active_clusters(
        &self,
        function: CUfunction,
        config: *const CUlaunchConfig,
    ) -> Result<u32, Status> {
        let config = self.read(config)?;
        let resident = self.resident_blocks(function, &config)?;
        let grid = [config.gridDimX, config.gridDimY, config.gridDimZ];
        let size = self.clusters(function)?.of_launch(self.chosen_cluster(&config)?, grid)?;
        Ok(clusters::active(size.ok_or(status::INVALID_VALUE)?, resident))
    }

    pub(super) fn launch_classic(
        &self,
        function: CUfunction,
        width: c_int,
        height: c_int,
        stream: CUstream,
    ) -> Outcome {
        let (block, shared) = {
            let objects = self.simulation()?.objects();
            objects.code.functions.get(handle(function)).map(|function| (function.block, function.shared))?
        };
        let size = |value: c_int| u32::try_from(value).map_err(|_| status::INVALID_VALUE);
        let grid = [size(width)?, size(height)?, 1];
        let none = core::ptr::null_mut();
        self.launch_on(StreamArgument::legacy(stream), function, (grid, block, shared), none, none)
    }

    /// Launches one kernel on each of several devices. The launches do not wait for each other.
    pub(super) fn launch_multi(&self, list: *mut CUDA_LAUNCH_PARAMS, count: c_uint) -> Outcome {
        for index in 0..count as usize {
            let one = self.read_at(list, index)?;
            let grid = [one.gridDimX, one.gridDimY, one.gridDimZ];
            let block = [one.blockDimX, one.blockDimY, one.blockDimZ];
            let extent = (grid, block, one.sharedMemBytes);
            self.launch_on(
                StreamArgument::legacy(one.hStream),
                one.function,
                extent,
                one.kernelParams,
                core::ptr::null_mut(),
            )?;
        }
        Ok(())
    }

    pub(super) fn host_function(&self, on: StreamArgument, function: CUhostFn, data: *mut c_void) -> Outcome {
        if function.is_none() {
            return Err(status::INVALID_VALUE);
        }
        self.submit(on, &Op::Host(function, data.expose_provenance()), Wait::No)
    }

    pub(super) fn callback(
        &self,
        on: StreamArgument,
        callback: CUstreamCallback,
        data: *mut c_void,
        flags: c_uint,
    ) -> Outcome {
        if callback.is_none() || flags != 0 {
            return Err(status::INVALID_VALUE);
        }
        let simulation = self.simulation()?;
        let (stream, place) = self.stream(on)?;
        let context = {
            let mut objects = simulation.objects();
            objects.refuse_capturing(stream)?;
            objects.streams.streams.get(stream)?.context
        };
        self.queue_host_task(
            simulation,
            context,
            place,
            HostTask::Callback(callback, on.0, data.expose_provenance()),
        )
    }

    /// Returns the number of blocks of this size that one multiprocessor holds.
    pub(super) fn resident(&self, function: CUfunction, block: c_int, shared: usize) -> Result<u32, Status> {
        self.ready(handle(function))?;
        let block =
            u32::try_from(block).ok().filter(|size| (1..=attributes::THREADS_PER_BLOCK).contains(size));
        let block = block.ok_or(status::INVALID_VALUE)?;
        let warps = attributes::THREADS_PER_PROCESSOR / (block.next_multiple_of(32));
        let by_shared = match u32::try_from(shared).unwrap_or(u32::MAX) {
            0 => u32::MAX,
            // Every block needs a kilobyte more than it requests.
            bytes => attributes::SHARED_PER_PROCESSOR / bytes.saturating_add(1024),
        };
        Ok(warps.min(by_shared).min(attributes::BLOCKS_PER_PROCESSOR))
    }

    pub(super) fn best_block(
        &self,
        grid: *mut c_int,
        block: *mut c_int,
        function: CUfunction,
        shared: usize,
        limit: c_int,
    ) -> Outcome {
        let limit = if limit <= 0 { 1024 } else { limit.min(1024) };
        let blocks = self.resident(function, limit, shared)?;
        self.write(block, limit)?;
        self.write(grid, (blocks * attributes::PROCESSORS) as c_int)
    }

    pub(super) fn set_parameter(&self, function: CUfunction) -> Outcome {
        self.simulation()?.objects().code.functions.get(handle(function)).map(|_| ())
    }
}
