//! Launches of kernels and graphs.
//!
//! Most launches come through here. A key consists of numbers that are at hand, so nothing is looked up.

use super::graph::launched;
use crate::compute::{Launch, LaunchKind};
use crate::driver_calls::streams::Stream;
use crate::hooks::gpu_time::{gate, gate_all};
use crate::hooks::hooked_call::HookedCall;
use core::ffi::c_uint;
use core::ptr;
use gpuslice_driver::arguments::read_in;
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{CUDA_LAUNCH_PARAMS, CUfunction, CUgraphExec, CUlaunchConfig, CUstream, Status};
use gpuslice_policy::compute::cost::estimate::{Key, LaunchShape};

/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`: the launch may begin before the one ahead of it has ended.
const SERIALIZATION: c_uint = 6;
/// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT`: other launches may begin before this one has ended.
const EVENT: c_uint = 7;
/// Most attributes of one launch that the hook reads: more than there are.
const ATTRIBUTES: c_uint = 64;
/// Most devices of one launch that the hook reads: more than a process has.
const DEVICES: c_uint = 64;

/// Returns the stream of a call whose null stream is the legacy default stream.
pub(crate) fn legacy(handle: CUstream) -> Stream {
    Stream::named(handle, false)
}

/// Returns the stream of a call whose null stream is the thread's own.
pub(crate) fn per_thread(handle: CUstream) -> Stream {
    Stream::named(handle, true)
}

#[inline]
fn kernel_of(
    function: CUfunction,
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    stream: Stream,
) -> Launch {
    let shape = LaunchShape { function: function.addr() as u64, grid, block, shared };
    Launch { key: Key::kernel(&shape), kind: LaunchKind::Kernel, stream }
}

/// Declares the hooks of the calls that name grid, block, shared memory and stream one by one.
macro_rules! kernels {
    ($( $(#[$about:meta])* $on:ident $name:ident: $real:ident; )*) => { $(
        $(#[$about])*
        #[inline]
        pub(crate) fn $name(call: &HookedCall<real::$real>) -> Status {
            let (function, x, y, z, block_x, block_y, block_z, shared, stream, ..) = call.arguments();
            let launch = || kernel_of(function, [x, y, z], [block_x, block_y, block_z], shared, $on(stream));
            gate(launch, || call.forward())
        }
    )* };
}

kernels! {
    /// `cuLaunchKernel`.
    legacy kernel: cuLaunchKernel;
    /// `cuLaunchKernel_ptsz`.
    per_thread kernel_per_thread: cuLaunchKernel_ptsz;
    /// `cuLaunchCooperativeKernel`.
    legacy cooperative: cuLaunchCooperativeKernel;
    /// `cuLaunchCooperativeKernel_ptsz`.
    per_thread cooperative_per_thread: cuLaunchCooperativeKernel_ptsz;
}

/// `cuLaunchKernelEx`.
#[inline]
pub(crate) fn configured(call: &HookedCall<real::cuLaunchKernelEx>) -> Status {
    let (config, function, ..) = call.arguments();
    // SAFETY: `configured_on` requires that `config` is null or readable with its attributes, and so does the driver.
    unsafe { configured_on(legacy, config, function, || call.forward()) }
}

/// `cuLaunchKernelEx_ptsz`.
#[inline]
pub(crate) fn configured_per_thread(call: &HookedCall<real::cuLaunchKernelEx_ptsz>) -> Status {
    let (config, function, ..) = call.arguments();
    // SAFETY: `configured_on` requires that `config` is null or readable with its attributes, and so does the driver.
    unsafe { configured_on(per_thread, config, function, || call.forward()) }
}

/// Makes a launch that is described in memory. The hook reads only those of its attributes by which it overlaps others.
///
/// # Safety
/// `config` is null or valid for reads, and so are its attributes.
#[inline]
unsafe fn configured_on(
    on: impl FnOnce(CUstream) -> Stream,
    config: *const CUlaunchConfig,
    function: CUfunction,
    call: impl FnOnce() -> Status,
) -> Status {
    // SAFETY: by this function's contract `config` is null or valid.
    let Some(config) = (unsafe { read_in(config) }) else { return call() };
    let grid = [config.gridDimX, config.gridDimY, config.gridDimZ];
    let block = [config.blockDimX, config.blockDimY, config.blockDimZ];
    let launch = || {
        let launch = kernel_of(function, grid, block, config.sharedMemBytes, on(config.hStream));
        // SAFETY: `is_chained` requires readable attributes. By this function's contract they are.
        let kind = if unsafe { is_chained(&config) } { LaunchKind::Chained } else { LaunchKind::Kernel };
        Launch { kind, ..launch }
    };
    gate(launch, call)
}

/// An attribute of a launch as the driver lays it out. Its value is a union of 64 bytes.
#[repr(C)]
#[derive(Clone, Copy)]
struct Attribute {
    id: c_uint,
    padding: c_uint,
    value: [c_uint; 16],
}

/// Returns true if a launch may overlap one beside it in its stream: its attributes allow that, or name an event.
///
/// # Safety
/// The configuration has as many attributes as it says, as the driver API requires of its caller.
unsafe fn is_chained(config: &CUlaunchConfig) -> bool {
    let attributes = config.attrs.cast::<Attribute>();
    (0..config.numAttrs.min(ATTRIBUTES) as usize).any(|at| {
        // SAFETY: by this function's contract there are `numAttrs` entries, and `at` is below that number.
        let attribute = unsafe { read_in(attributes.wrapping_add(at)) };
        attribute.is_some_and(|Attribute { id, value: [low, high, ..], .. }| {
            (id == SERIALIZATION && low != 0) || (id == EVENT && (low | high) != 0)
        })
    })
}

/// `cuLaunchCooperativeKernelMultiDevice`: a kernel on each of several streams.
pub(crate) fn on_all_devices(call: &HookedCall<real::cuLaunchCooperativeKernelMultiDevice>) -> Status {
    let (list, count, _) = call.arguments();
    // SAFETY: `read_in` requires a readable entry. The program's list has `count` entries, and `index` is below that number.
    let one = |index: usize| unsafe { read_in(list.wrapping_add(index)) };
    let launches = || -> Vec<Launch> {
        let entries = (0..count.min(DEVICES) as usize).filter(|_| !list.is_null()).filter_map(one);
        entries.map(|one| on_one_device(&one)).collect()
    };
    gate_all(launches, || call.forward())
}

fn on_one_device(one: &CUDA_LAUNCH_PARAMS) -> Launch {
    let grid = [one.gridDimX, one.gridDimY, one.gridDimZ];
    let block = [one.blockDimX, one.blockDimY, one.blockDimZ];
    kernel_of(one.function, grid, block, one.sharedMemBytes, legacy(one.hStream))
}

/// `cuLaunch`. Block and shared memory were set before and belong to the function; the driver does not tell them.
pub(crate) fn single(call: &HookedCall<real::cuLaunch>) -> Status {
    let (function,) = call.arguments();
    gate(|| kernel_of(function, [1; 3], [0; 3], 0, legacy(ptr::null_mut())), || call.forward())
}

/// `cuLaunchGrid`.
pub(crate) fn grid(call: &HookedCall<real::cuLaunchGrid>) -> Status {
    let (function, width, height) = call.arguments();
    let shape = [width.unsigned_abs(), height.unsigned_abs(), 1];
    let launch = || kernel_of(function, shape, [0; 3], 0, legacy(ptr::null_mut()));
    gate(launch, || call.forward())
}

/// `cuLaunchGridAsync`.
pub(crate) fn grid_async(call: &HookedCall<real::cuLaunchGridAsync>) -> Status {
    let (function, width, height, stream) = call.arguments();
    let shape = [width.unsigned_abs(), height.unsigned_abs(), 1];
    let launch = || kernel_of(function, shape, [0; 3], 0, legacy(stream));
    gate(launch, || call.forward())
}

/// `cuGraphLaunch`. The memory of its allocations was reserved when the graph was instantiated.
#[inline]
pub(crate) fn graph(call: &HookedCall<real::cuGraphLaunch>) -> Status {
    let (executable, stream) = call.arguments();
    let code = gate(|| graph_of(executable, legacy(stream)), || call.forward());
    launched(executable, code)
}

/// `cuGraphLaunch_ptsz`.
#[inline]
pub(crate) fn graph_per_thread(call: &HookedCall<real::cuGraphLaunch_ptsz>) -> Status {
    let (executable, stream) = call.arguments();
    let code = gate(|| graph_of(executable, per_thread(stream)), || call.forward());
    launched(executable, code)
}

#[inline]
fn graph_of(executable: CUgraphExec, stream: Stream) -> Launch {
    Launch { key: Key::graph(executable.addr() as u64), kind: LaunchKind::Graph, stream }
}
