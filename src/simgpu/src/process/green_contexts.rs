//! Green contexts: a green context is some of a device's multiprocessors, with the device's primary context.
//!
//! A green context keeps the primary context alive, and takes a little memory of its own. Objects that the program makes while a
//! green context is current belong to the primary context. In the simulation, kernels run as if they had the whole device.

use gpuslice_driver::types::{Status, status};

use super::objects::ProcessObjects;
use super::simulation::Simulation;
use super::thread_state;
use crate::hardware::attributes::PROCESSORS;
use crate::model::green_contexts::Green;
use crate::state::layout::MemoryKind;
use crate::status::Outcome;

impl ProcessObjects {
    /// Returns the context that a handle stands for. If it is the handle of a green context, that is the primary context.
    pub(crate) fn resolved(&self, context: u64) -> u64 {
        let green = self.greens.views.get(context).and_then(|green| self.greens.greens.get(*green));
        green.map_or(context, |green| green.context)
    }

    /// Returns the green context that a context handle stands for, if it stands for one.
    pub(crate) fn green_of(&self, context: u64) -> Option<&Green> {
        self.greens.views.get(context).and_then(|green| self.greens.greens.get(*green)).ok()
    }

    /// Makes a green context of the primary context. The caller has retained the primary context for this before.
    pub(crate) fn make_green(
        &mut self,
        simulation: &Simulation,
        ordinal: i32,
        processors: u32,
    ) -> Result<u64, Status> {
        let context = self.primary(ordinal)?.handle;
        let (device, charged) = (self.contexts.get(context)?.device, simulation.settings.green_bytes);
        simulation.grow(device, MemoryKind::Context, charged)?;
        self.contexts_made += 1;
        let number = self.contexts_made;
        Ok(self.greens.greens.add(Green { context, processors, number, ordinal, view: 0, charged }))
    }

    /// Ends a green context, and releases the primary context that the green context has retained.
    pub(crate) fn end_green(&mut self, simulation: &Simulation, handle: u64) -> Outcome {
        let green = self.greens.greens.get(handle).map_err(|_| status::INVALID_CONTEXT)?;
        let ordinal = green.ordinal;
        self.drop_green(simulation, handle);
        self.release_primary(simulation, ordinal)
    }

    fn drop_green(&mut self, simulation: &Simulation, handle: u64) {
        let Ok(green) = self.greens.greens.remove(handle) else { return };
        let _ = self.greens.views.remove(green.view);
        if let Ok(device) = simulation.device(green.ordinal) {
            simulation.shrink(device, MemoryKind::Context, green.charged);
        }
    }

    /// Ends the green contexts of a primary context that is ending, and their uses of it.
    pub(crate) fn end_greens_of(&mut self, simulation: &Simulation, context: u64) {
        for green in self.greens.greens.matching(|green| green.context == context) {
            let ordinal = self.greens.greens.get(green).map(|green| green.ordinal);
            if let Ok(primary) = ordinal.and_then(|ordinal| self.primary(ordinal)) {
                primary.uses = primary.uses.saturating_sub(1);
            }
            self.drop_green(simulation, green);
        }
    }

    /// Returns the context handle that stands for a green context. Makes the handle if there is none.
    pub(crate) fn green_view(&mut self, handle: u64) -> Result<u64, Status> {
        let green = self.greens.greens.get_mut(handle).map_err(|_| status::INVALID_CONTEXT)?;
        if green.view == 0 {
            green.view = self.greens.views.add(handle);
        }
        Ok(green.view)
    }

    /// Returns the number of multiprocessors that a descriptor stands for.
    pub(crate) fn described(&self, descriptor: u64) -> Result<u32, Status> {
        self.greens.descriptors.get(descriptor).copied().map_err(|_| status::INVALID_VALUE)
    }

    /// Returns the number of multiprocessors of a context. A context that is not green has all of them.
    pub(crate) fn processors(&self, context: u64) -> Result<u32, Status> {
        self.context(context)?;
        let handle = if context == 0 { thread_state::current() } else { context };
        Ok(self.green_of(handle).map_or(PROCESSORS, |green| green.processors))
    }

    /// Releases a primary context once. The last release ends the context.
    pub(crate) fn release_primary(&mut self, simulation: &Simulation, ordinal: i32) -> Outcome {
        let primary = self.primary(ordinal)?;
        primary.uses = primary.uses.checked_sub(1).ok_or(status::INVALID_CONTEXT)?;
        let (handle, uses) = (primary.handle, primary.uses);
        // A reset may have ended the context already.
        let is_over = uses > 0 || self.contexts.get(handle).is_err();
        if is_over { Ok(()) } else { self.end_context(simulation, handle) }
    }

    /// Retains the primary context of a device once. Makes the context if it does not exist.
    pub(crate) fn retain_primary(&mut self, simulation: &Simulation, ordinal: i32) -> Result<u64, Status> {
        let device = simulation.device(ordinal)?;
        let (made, flags) = self.primary(ordinal).map(|primary| (primary.handle, primary.flags))?;
        if self.contexts.get(made).is_err() {
            let context = self.make_context(simulation, device, flags, true)?;
            self.contexts.put(made, context);
            if let Err(why) = self.load_libraries(simulation, made) {
                self.end_context(simulation, made)?;
                return Err(why);
            }
        }
        let primary = self.primary(ordinal)?;
        primary.uses = primary.uses.saturating_add(1);
        Ok(made)
    }
}
