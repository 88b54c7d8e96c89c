//! Primary contexts of devices, and the number of retains by the program.
//!
//! Only the last release ends a primary context. Before a call that may end a context, the library removes its
//! contents from their tables (`memory::context_teardown`). That takes long for many objects, so the library does it
//! for the last release only.
//!
//! A primary context has the same handle and the same addresses each time that it is made. So a thread that retains or releases
//! it holds the lock of the device until the library has recorded the call's changes. Otherwise one thread could make the context
//! again before another thread has recorded its end. Then the library could not tell the contents of the two contexts apart.

use core::time::Duration;
use gpuslice_driver::types::CUdevice;
use parking_lot::{Mutex, ReentrantMutex, ReentrantMutexGuard};

/// Number of locks. Devices share a lock if their numbers have the same remainder modulo this number.
const LOCKS: usize = 16;
/// Longest wait for a lock. The driver needs a few seconds at most to make a context. But it may call the program back meanwhile,
/// and the program may then wait for a thread that waits here. So the wait must end.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// Primary contexts that the program has retained.
#[derive(Debug, Default)]
pub(crate) struct PrimaryContexts {
    all: Mutex<Vec<Primary>>,
    locks: [ReentrantMutex<()>; LOCKS],
}

/// Lock of a device: while a thread holds it, no other thread makes or ends the device's primary context. `None` if
/// the wait for it timed out.
pub(crate) type PrimaryGuard<'a> = Option<ReentrantMutexGuard<'a, ()>>;

#[derive(Debug, Clone, Copy)]
struct Primary {
    context: usize,
    device: CUdevice,
    /// Number of retains that the program has not released.
    retains: u64,
}

impl PrimaryContexts {
    /// Waits until no other thread makes or ends the primary context of a device. The driver may call the program back in the
    /// middle of a call, so one thread may take the lock twice.
    pub(crate) fn lock(&self, device: CUdevice) -> PrimaryGuard<'_> {
        let lock = usize::try_from(device).ok().and_then(|device| self.locks.get(device.checked_rem(LOCKS)?));
        lock.and_then(|lock| lock.try_lock_for(LOCK_TIMEOUT))
    }

    /// Counts a retain by the program.
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

    /// Returns the primary context of a device, if the program has retained it.
    pub(crate) fn of(&self, device: CUdevice) -> Option<usize> {
        self.all.lock().iter().find(|primary| primary.device == device).map(|primary| primary.context)
    }

    /// Returns true if the program holds the primary context of a device.
    pub(crate) fn is_held(&self, device: CUdevice) -> bool {
        self.all.lock().iter().any(|primary| primary.device == device && primary.retains > 0)
    }

    /// Counts a release by the program, before the call of the driver. Returns true if it may be the last release.
    pub(crate) fn releases(&self, device: CUdevice) -> bool {
        let mut all = self.all.lock();
        let Some(known) = all.iter_mut().find(|primary| primary.device == device) else { return true };
        known.retains = known.retains.saturating_sub(1);
        known.retains == 0
    }

    /// Takes a counted release back, because the driver did not release the context.
    pub(crate) fn keeps(&self, device: CUdevice) {
        if let Some(known) = self.all.lock().iter_mut().find(|primary| primary.device == device) {
            known.retains = known.retains.saturating_add(1);
        }
    }
}
