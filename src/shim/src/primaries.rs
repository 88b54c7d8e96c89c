//! Which context is a device's primary one, and how often has the program asked for it?
//!
//! Only the last release ends it. Before a call that may end a context all that lives in it is taken out of the maps
//! (`endings`), which takes long where that is much: so it is done for the last release alone, as far as it is known here.

use gpuslice_driver::types::CUdevice;
use parking_lot::Mutex;

/// The primary contexts that the program has asked for.
#[derive(Debug, Default)]
pub(crate) struct Primaries(Mutex<Vec<Primary>>);

#[derive(Debug, Clone, Copy)]
struct Primary {
    context: usize,
    device: CUdevice,
    /// Retains that were not released.
    retains: u64,
}

impl Primaries {
    /// The program has retained it once more.
    pub(crate) fn retained(&self, context: usize, device: CUdevice) {
        let mut all = self.0.lock();
        match all.iter_mut().find(|primary| primary.device == device) {
            Some(known) => {
                known.context = context;
                known.retains = known.retains.saturating_add(1);
            }
            None => all.push(Primary { context, device, retains: 1 }),
        }
    }

    /// The context of a device, where it is known.
    pub(crate) fn of(&self, device: CUdevice) -> Option<usize> {
        self.0.lock().iter().find(|primary| primary.device == device).map(|primary| primary.context)
    }

    /// Whether the program has it.
    pub(crate) fn is_held(&self, device: CUdevice) -> bool {
        self.0.lock().iter().any(|primary| primary.device == device && primary.retains > 0)
    }

    /// The program releases it. Whether that may be the last release.
    pub(crate) fn releases(&self, device: CUdevice) -> bool {
        let mut all = self.0.lock();
        let Some(known) = all.iter_mut().find(|primary| primary.device == device) else { return true };
        known.retains = known.retains.saturating_sub(1);
        known.retains == 0
    }

    /// The driver did not release it.
    pub(crate) fn keeps(&self, device: CUdevice) {
        if let Some(known) = self.0.lock().iter_mut().find(|primary| primary.device == device) {
            known.retains = known.retains.saturating_add(1);
        }
    }
}
