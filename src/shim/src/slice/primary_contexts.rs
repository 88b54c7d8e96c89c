//! Primary contexts of devices, and how often the program retains them.
//!
//! Only the last release ends one. Before a call that may end a context, all its contents leave their tables
//! (`memory::context_teardown`). That takes long for many contents, so it is done for the last release alone.
//!
//! A primary context has the same handle and the same addresses each time that it is made. So a thread that retains or releases
//! it takes a turn, until the call's changes are recorded. Otherwise one thread could make it anew before another has seen that
//! it ended, and their contents could not be told apart.

use core::time::Duration;
use gpuslice_driver::types::CUdevice;
use parking_lot::{Mutex, ReentrantMutex, ReentrantMutexGuard};

/// Devices with this many numbers between them share a turn.
const TURNS: usize = 16;
/// How long somebody waits for his turn. A driver that makes a context needs seconds at the most; one that calls the
/// program back meanwhile, which waits for a thread that waits here, must not hang for ever.
const PATIENCE: Duration = Duration::from_secs(10);

/// The primary contexts that the program has asked for.
#[derive(Debug, Default)]
pub(crate) struct Primaries {
    all: Mutex<Vec<Primary>>,
    turns: [ReentrantMutex<()>; TURNS],
}

/// Nobody else makes or ends the primary context of the device meanwhile.
/// None where that could not be waited for.
pub(crate) type Turn<'a> = Option<ReentrantMutexGuard<'a, ()>>;

#[derive(Debug, Clone, Copy)]
struct Primary {
    context: usize,
    device: CUdevice,
    /// Retains that were not released.
    retains: u64,
}

impl Primaries {
    /// Waits until nobody else makes or ends the primary context of a device. The driver may call back in the middle of it,
    /// so one thread may have its turn twice.
    pub(crate) fn turn(&self, device: CUdevice) -> Turn<'_> {
        let turn = usize::try_from(device).ok().and_then(|device| self.turns.get(device.checked_rem(TURNS)?));
        turn.and_then(|turn| turn.try_lock_for(PATIENCE))
    }

    /// The program has retained it once more.
    pub(crate) fn retained(&self, context: usize, device: CUdevice) {
        let mut all = self.all.lock();
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
        self.all.lock().iter().find(|primary| primary.device == device).map(|primary| primary.context)
    }

    /// Returns true if the program has it.
    pub(crate) fn is_held(&self, device: CUdevice) -> bool {
        self.all.lock().iter().any(|primary| primary.device == device && primary.retains > 0)
    }

    /// The program releases it. Whether that may be the last release.
    pub(crate) fn releases(&self, device: CUdevice) -> bool {
        let mut all = self.all.lock();
        let Some(known) = all.iter_mut().find(|primary| primary.device == device) else { return true };
        known.retains = known.retains.saturating_sub(1);
        known.retains == 0
    }

    /// The driver did not release it.
    pub(crate) fn keeps(&self, device: CUdevice) {
        if let Some(known) = self.all.lock().iter_mut().find(|primary| primary.device == device) {
            known.retains = known.retains.saturating_add(1);
        }
    }
}
