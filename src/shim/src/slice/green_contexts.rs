//! Green contexts: parts of a device that are used like contexts. All of a device live in its primary context.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use core::sync::atomic::{AtomicBool, Ordering};
use gpuslice_driver::types::CUdevice;
use parking_lot::Mutex;

/// A green context.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Green {
    /// Its handle.
    pub(crate) handle: usize,
    /// The handle by which it is used as a context; 0 while nobody has asked for it.
    pub(crate) view: usize,
    /// Its device.
    pub(crate) device: CUdevice,
}

/// The green contexts of this process.
#[derive(Debug, Default)]
pub(crate) struct GreenContexts {
    all: Mutex<Vec<Green>>,
    /// True if there ever was a green context: every allocation asks.
    any: AtomicBool,
}

impl GreenContexts {
    /// A green context was made.
    pub(crate) fn add(&self, green: Green) {
        self.all.lock().push(green);
        // Relaxed: who uses a handle got it from the thread that was here.
        self.any.store(true, Ordering::Relaxed);
    }

    /// A green context has a handle as a context.
    pub(crate) fn note_view(&self, handle: usize, view: usize) {
        if let Some(green) = self.all.lock().iter_mut().find(|green| green.handle == handle) {
            green.view = view;
        }
    }

    /// Takes a green context out that is about to end.
    pub(crate) fn take(&self, handle: usize) -> Option<Green> {
        let mut greens = self.all.lock();
        let place = greens.iter().position(|green| green.handle == handle)?;
        Some(greens.swap_remove(place))
    }

    /// The device whose primary context is meant by the handle of a green one.
    pub(crate) fn device_of_view(&self, view: usize) -> Option<CUdevice> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        self.all.lock().iter().find(|green| green.view == view).map(|green| green.device)
    }

    /// The green contexts of a primary context that was reset are gone.
    pub(crate) fn forget_of(&self, device: CUdevice) {
        self.all.lock().retain(|green| green.device != device);
    }
}
