//! What lives in a context, and what happens when it ends?

use gpuslice_driver::types::{Status, status};

use crate::engine::ClientId;
use crate::local::Local;
use crate::os::clock;
use crate::process::thread_state;
use crate::simulation::Simulation;
use crate::state::device_time;
use crate::state::layout::Kind;
use crate::status::{Outcome, statuses};

/// A context.
#[derive(Debug)]
pub(crate) struct Context {
    /// The simulation's number of its device.
    pub(crate) device: usize,
    /// Whether it is the device's primary one.
    pub(crate) primary: bool,
    /// Flags it was made with.
    pub(crate) flags: u32,
    /// The version that `cuCtxGetApiVersion` tells.
    pub(crate) version: u32,
    /// Its number, never used twice.
    pub(crate) number: u64,
    /// Limits by `CUlimit`.
    pub(crate) limits: [u64; LIMITS],
    /// Device memory of the context itself.
    pub(crate) charged: u64,
    /// How the device's time knows it.
    pub(crate) client: ClientId,
    /// `CUfunc_cache`.
    pub(crate) cache: u32,
    /// `CUsharedconfig`.
    pub(crate) banks: u32,
    /// Uses through `cuCtxAttach`.
    pub(crate) attached: u32,
}

/// Values of `CUlimit`.
pub(crate) const LIMITS: usize = 10;
/// The values that limits begin with: stack, printf buffer, heap, nesting depth, pending launches, granularity
/// of the second-level cache, persisting second-level cache, heap of shared memory, and the two that follow.
pub(crate) const DEFAULT_LIMITS: [u64; LIMITS] = [1024, 1 << 20, 8 << 20, 2, 2048, 64, 0, 0, 0, 0];

/// The primary context of a device.
#[derive(Debug, Default)]
pub(crate) struct Primary {
    /// Its handle once it was ever retained: it stays the same.
    pub(crate) handle: u64,
    /// Uses.
    pub(crate) uses: u32,
    /// Flags for when it is made.
    pub(crate) flags: u32,
}

/// What limits cost in device memory beyond what the defaults cost: buffers in full, stacks for every thread
/// that can be resident, room for launches that wait.
pub(crate) fn limits_cost(limits: &[u64; LIMITS]) -> u64 {
    const THREADS: u64 = 132 * 2048;
    /// What a launch costs that a kernel made and that has not begun.
    const LAUNCH: u64 = 4096;
    let [stack, printf, heap, _, pending, ..] = *limits;
    let [default_stack, default_printf, default_heap, _, default_pending, ..] = DEFAULT_LIMITS;
    let stacks = stack.saturating_sub(default_stack).saturating_mul(THREADS);
    let buffers = printf.saturating_sub(default_printf).saturating_add(heap.saturating_sub(default_heap));
    let launches = pending.saturating_sub(default_pending).saturating_mul(LAUNCH);
    let sum = stacks.saturating_add(buffers).saturating_add(launches);
    sum.checked_next_multiple_of(2 << 20).unwrap_or(u64::MAX)
}

impl Local {
    /// Makes a context on a device. The caller chooses what becomes current.
    pub(crate) fn make_context(
        &mut self,
        simulation: &Simulation,
        device: usize,
        flags: u32,
        primary: bool,
    ) -> Result<Context, Status> {
        let bytes = simulation.settings.context_bytes;
        simulation.grow(device, Kind::Context, bytes)?;
        let mut state = simulation.shared.lock();
        let number = device_time::process_number(simulation.serial);
        let client = state.engine(device).add_client(number, clock::now());
        if let Some(usage) = state.usage(simulation.slot, device).filter(|_| client.is_ok()) {
            usage.contexts = usage.contexts.saturating_add(1);
            usage.contexts_made = usage.contexts_made.saturating_add(1);
        }
        drop(state);
        let Ok(client) = client else {
            simulation.shrink(device, Kind::Context, bytes);
            return Err(status::OUT_OF_MEMORY);
        };
        self.contexts_made += 1;
        Ok(Context {
            device,
            primary,
            flags,
            version: 3020,
            number: self.contexts_made,
            limits: DEFAULT_LIMITS,
            charged: bytes,
            client,
            cache: 0,
            banks: 0,
            attached: 1,
        })
    }

    /// The primary context of a device, by this process's number. Its handle is the same for ever.
    pub(crate) fn primary(&mut self, device: i32) -> Result<&mut Primary, Status> {
        let ordinal = usize::try_from(device).map_err(|_| statuses::INVALID_DEVICE)?;
        let primary = self.primaries.get_mut(ordinal).ok_or(statuses::INVALID_DEVICE)?;
        if primary.handle == 0 {
            primary.handle = self.contexts.reserve();
        }
        Ok(primary)
    }

    /// The current context.
    pub(crate) fn current(&self) -> Result<(u64, &Context), Status> {
        let handle = thread_state::current();
        if handle == 0 {
            return Err(status::INVALID_CONTEXT);
        }
        let handle = self.resolved(handle);
        Ok((handle, self.contexts.get(handle).map_err(|_| statuses::CONTEXT_IS_DESTROYED)?))
    }

    /// A context by handle; 0 is the current one.
    pub(crate) fn context(&self, handle: u64) -> Result<(u64, &Context), Status> {
        if handle == 0 {
            return self.current();
        }
        let handle = self.resolved(handle);
        Ok((handle, self.contexts.get(handle).map_err(|_| status::INVALID_CONTEXT)?))
    }

    /// Refuses a handle that cannot be made current. A primary context's handle always can: a thread may keep it
    /// current over a reset, and then every call that needs the context answers 709 until it is retained again.
    pub(crate) fn can_be_current(&self, handle: u64) -> Outcome {
        if handle == 0 {
            return Err(status::INVALID_CONTEXT);
        }
        if self.primaries.iter().any(|primary| primary.handle == handle) {
            return Ok(());
        }
        self.context(handle).map(|_| ())
    }

    /// Ends a context and everything that lives in it.
    pub(crate) fn end_context(&mut self, simulation: &Simulation, handle: u64) -> Outcome {
        let context = self.contexts.remove(handle).map_err(|_| status::INVALID_CONTEXT)?;
        self.unload_all_of(simulation, handle);
        self.end_greens_of(simulation, handle);
        self.end_arrays_of(simulation, handle);
        self.end_graph_memory_of(simulation, handle);
        self.end_blocks_of(simulation, handle, context.device);
        self.close_borrowed_of(simulation, handle);
        self.end_memory_of(simulation, handle);
        self.end_streams_of(handle);
        self.peers.retain(|(one, other)| *one != handle && *other != handle);
        let mut state = simulation.shared.lock();
        let gone = device_time::remove_client(state.engine(context.device), context.client);
        state.refund(simulation.slot, context.device, Kind::Context, context.charged);
        if let Some(usage) = state.usage(simulation.slot, context.device) {
            usage.remember(&gone);
            usage.contexts = usage.contexts.saturating_sub(1);
        }
        Ok(())
    }
}
