//! What are green contexts: parts of a device's multiprocessors, in which the primary context can be used?
//!
//! A green context keeps the primary context alive and takes a little memory of its own. What is made while one is
//! current lives in the primary context. Kernels run as if they had the whole device.

use gpuslice_driver::types::{Status, status};

use crate::hardware::attributes::PROCESSORS;
use crate::local::Local;
use crate::objects::{Objects, Tag};
use crate::simulation::Simulation;
use crate::state::layout::Kind;
use crate::status::{Outcome, statuses};

/// Multiprocessors of a partition at the least, and what its number is a multiple of.
pub(crate) const PARTITION: u32 = 8;
/// The same where multiprocessors need not be scheduled together.
const LOOSE_PARTITION: u32 = 2;
/// `CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING`.
const IGNORE_COSCHEDULING: u32 = 1;

/// A green context.
#[derive(Debug)]
pub(crate) struct Green {
    /// The primary context that it is of.
    pub(crate) context: u64,
    /// Its multiprocessors.
    pub(crate) processors: u32,
    /// Its number, never used twice.
    pub(crate) number: u64,
    /// This process's number of its device.
    ordinal: i32,
    /// The handle by which it is used as a context; 0 while nobody has asked for it.
    view: u64,
    /// Device memory that it takes.
    charged: u64,
}

/// All green contexts.
#[derive(Debug)]
pub(crate) struct Greens {
    pub(crate) greens: Objects<Green>,
    /// Green contexts by the handles by which they are used as contexts.
    views: Objects<u64>,
    /// What green contexts are made from: multiprocessors.
    pub(crate) descriptors: Objects<u32>,
}

impl Greens {
    pub(crate) fn new() -> Self {
        Self {
            greens: Objects::new(Tag::Green),
            views: Objects::new(Tag::View),
            descriptors: Objects::new(Tag::Descriptor),
        }
    }
}

/// How many groups of at least `least` multiprocessors, at most `wanted`, can be made of `all`; and how many each has.
pub(crate) fn split(all: u32, wanted: u32, least: u32, flags: u32) -> Result<(u32, u32), Status> {
    let unit = if flags & IGNORE_COSCHEDULING == 0 { PARTITION } else { LOOSE_PARTITION };
    let each = least.max(1).checked_next_multiple_of(unit).filter(|each| *each <= all);
    let each = each.ok_or(status::INVALID_VALUE)?;
    Ok((wanted.min(all / each), each))
}

impl Local {
    /// The context that a handle means: a green context's is the primary one.
    pub(crate) fn resolved(&self, context: u64) -> u64 {
        let green = self.greens.views.get(context).and_then(|green| self.greens.greens.get(*green));
        green.map_or(context, |green| green.context)
    }

    /// The green context that a context's handle stands for.
    pub(crate) fn green_of(&self, context: u64) -> Option<&Green> {
        self.greens.views.get(context).and_then(|green| self.greens.greens.get(*green)).ok()
    }

    /// Makes a green context in the primary context, which the caller has retained for it.
    pub(crate) fn make_green(
        &mut self,
        simulation: &Simulation,
        ordinal: i32,
        processors: u32,
    ) -> Result<u64, Status> {
        let context = self.primary(ordinal)?.handle;
        let (device, charged) = (self.contexts.get(context)?.device, simulation.settings.green_bytes);
        simulation.grow(device, Kind::Context, charged)?;
        self.contexts_made += 1;
        let number = self.contexts_made;
        Ok(self.greens.greens.add(Green { context, processors, number, ordinal, view: 0, charged }))
    }

    /// Ends a green context, and its use of the primary context.
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
            simulation.shrink(device, Kind::Context, green.charged);
        }
    }

    /// Ends the green contexts of a primary context that ends, and their uses of it.
    pub(crate) fn end_greens_of(&mut self, simulation: &Simulation, context: u64) {
        for green in self.greens.greens.matching(|green| green.context == context) {
            let ordinal = self.greens.greens.get(green).map(|green| green.ordinal);
            if let Ok(primary) = ordinal.and_then(|ordinal| self.primary(ordinal)) {
                primary.uses = primary.uses.saturating_sub(1);
            }
            self.drop_green(simulation, green);
        }
    }

    /// The handle by which a green context is used as a context.
    pub(crate) fn green_view(&mut self, handle: u64) -> Result<u64, Status> {
        let green = self.greens.greens.get_mut(handle).map_err(|_| status::INVALID_CONTEXT)?;
        if green.view == 0 {
            green.view = self.greens.views.add(handle);
        }
        Ok(green.view)
    }

    /// The multiprocessors that a descriptor stands for.
    pub(crate) fn described(&self, descriptor: u64) -> Result<u32, Status> {
        self.greens.descriptors.get(descriptor).copied().map_err(|_| status::INVALID_VALUE)
    }

    /// The multiprocessors of a context: a green one's share, or all.
    pub(crate) fn processors(&self, context: u64) -> Result<u32, Status> {
        self.context(context)?;
        let handle = if context == 0 { crate::process::thread_state::current() } else { context };
        Ok(self.green_of(handle).map_or(PROCESSORS, |green| green.processors))
    }

    /// Gives back a use of a primary context; the last one ends it.
    pub(crate) fn release_primary(&mut self, simulation: &Simulation, ordinal: i32) -> Outcome {
        let primary = self.primary(ordinal)?;
        primary.uses = primary.uses.checked_sub(1).ok_or(status::INVALID_CONTEXT)?;
        let (handle, uses) = (primary.handle, primary.uses);
        // A reset may have ended it before.
        let is_over = uses > 0 || self.contexts.get(handle).is_err();
        if is_over { Ok(()) } else { self.end_context(simulation, handle) }
    }

    /// Takes a use of a device's primary context, which is made if it does not live.
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

/// A resource that is of no kind that is known here.
pub(crate) const INVALID_RESOURCE: Status = statuses::INVALID_RESOURCE_TYPE;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_as_large_as_the_hardware_wants_them() {
        assert_eq!(split(132, 4, 10, 0), Ok((4, 16)));
        assert_eq!(split(132, 100, 1, 0), Ok((16, 8)));
        assert_eq!(split(132, 100, 1, IGNORE_COSCHEDULING), Ok((66, 2)));
        assert_eq!(split(132, 1, 133, 0), Err(status::INVALID_VALUE));
    }
}
