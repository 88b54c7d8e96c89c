//! Green contexts: parts of a device that a program uses like contexts. All green contexts of a device live in its primary
//! context.
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
    /// Handle of the green context.
    pub(crate) handle: usize,
    /// Handle by which the program uses the green context as a context; 0 until the program asks for that handle.
    pub(crate) context_handle: usize,
    /// Device of the green context.
    pub(crate) device: CUdevice,
}

/// The green contexts of this process.
#[derive(Debug, Default)]
pub(crate) struct GreenContexts {
    all: Mutex<Vec<Green>>,
    /// True once the process has made a green context. Every allocation reads it.
    any: AtomicBool,
}

impl GreenContexts {
    /// Adds a green context that was made.
    pub(crate) fn add(&self, green: Green) {
        self.all.lock().push(green);
        // Relaxed: a thread that uses the handle got it from the thread that stores here.
        self.any.store(true, Ordering::Relaxed);
    }

    /// Notes the handle by which the program uses a green context as a context.
    pub(crate) fn set_context_handle(&self, handle: usize, context_handle: usize) {
        if let Some(green) = self.all.lock().iter_mut().find(|green| green.handle == handle) {
            green.context_handle = context_handle;
        }
    }

    /// Removes a green context that is about to end, and returns it.
    pub(crate) fn take(&self, handle: usize) -> Option<Green> {
        let mut greens = self.all.lock();
        let place = greens.iter().position(|green| green.handle == handle)?;
        Some(greens.swap_remove(place))
    }

    /// Returns the device of the green context with this context handle; `None` for other contexts.
    pub(crate) fn device_of_context_handle(&self, context_handle: usize) -> Option<CUdevice> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        self.all.lock().iter().find(|green| green.context_handle == context_handle).map(|green| green.device)
    }

    /// Forgets the green contexts of a device, because its primary context was reset.
    pub(crate) fn forget_of(&self, device: CUdevice) {
        self.all.lock().retain(|green| green.device != device);
    }
}
