//! Makes and ends contexts, and finds the current context.

use gpuslice_driver::types::{Status, status};

use super::objects::ProcessObjects;
use super::simulation::Simulation;
use super::thread_state;
use crate::model::contexts::{Context, DEFAULT_LIMITS, Primary};
use crate::os::clock;
use crate::state::device_time;
use crate::state::layout::MemoryKind;
use crate::status::{Outcome, statuses};

impl ProcessObjects {
    /// Makes a context on a device. It is for the caller to make a context current.
    pub(crate) fn make_context(
        &mut self,
        simulation: &Simulation,
        device: usize,
        flags: u32,
        primary: bool,
    ) -> Result<Context, Status> {
        let bytes = simulation.settings.context_bytes;
        simulation.grow(device, MemoryKind::Context, bytes)?;
        let mut state = simulation.shared.lock();
        let number = device_time::process_number(simulation.serial);
        let client = state.engine(device).add_client(number, clock::now());
        if let Some(usage) = state.usage(simulation.slot, device).filter(|_| client.is_ok()) {
            usage.contexts = usage.contexts.saturating_add(1);
            usage.contexts_made = usage.contexts_made.saturating_add(1);
        }
        drop(state);
        let Ok(client) = client else {
            simulation.shrink(device, MemoryKind::Context, bytes);
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

    /// Returns the primary context of a device. `device` is the number that this process gives to the device.
    pub(crate) fn primary(&mut self, device: i32) -> Result<&mut Primary, Status> {
        let ordinal = usize::try_from(device).map_err(|_| statuses::INVALID_DEVICE)?;
        let primary = self.primaries.get_mut(ordinal).ok_or(statuses::INVALID_DEVICE)?;
        if primary.handle == 0 {
            primary.handle = self.contexts.reserve();
        }
        Ok(primary)
    }

    /// Returns the current context of this thread.
    pub(crate) fn current(&self) -> Result<(u64, &Context), Status> {
        let handle = thread_state::current();
        if handle == 0 {
            return Err(status::INVALID_CONTEXT);
        }
        let handle = self.resolved(handle);
        Ok((handle, self.contexts.get(handle).map_err(|_| statuses::CONTEXT_IS_DESTROYED)?))
    }

    /// Returns the context that a handle stands for. Handle 0 means the current context.
    pub(crate) fn context(&self, handle: u64) -> Result<(u64, &Context), Status> {
        if handle == 0 {
            return self.current();
        }
        let handle = self.resolved(handle);
        Ok((handle, self.contexts.get(handle).map_err(|_| status::INVALID_CONTEXT)?))
    }

    /// Fails if a handle may not be made current.
    ///
    /// The handle of a primary context always may. A thread may keep such a handle current while another thread resets the
    /// context. After that, every call that needs the context returns 709 until someone retains the context again.
    pub(crate) fn can_be_current(&self, handle: u64) -> Outcome {
        if handle == 0 {
            return Err(status::INVALID_CONTEXT);
        }
        if self.primaries.iter().any(|primary| primary.handle == handle) {
            return Ok(());
        }
        self.context(handle).map(|_| ())
    }

    /// Ends a context, and everything that belongs to it.
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
        state.refund(simulation.slot, context.device, MemoryKind::Context, context.charged);
        if let Some(usage) = state.usage(simulation.slot, context.device) {
            usage.remember(&gone);
            usage.contexts = usage.contexts.saturating_sub(1);
        }
        Ok(())
    }
}
