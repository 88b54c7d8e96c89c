//! Late loading of code, and the calls that it blocks.
//!
//! A real driver takes the lock of the context, waits for the queued work of the GPU, and then loads the code.
//! Meanwhile every other call in the context waits (meta-pytorch/torchcomms#2334). Other contexts and other processes
//! do not wait.

use parking_lot::{Condvar, Mutex};

use crate::os::threads;

/// Contexts into which code is being loaded, each with the loading thread.
#[derive(Debug, Default)]
pub(crate) struct Loading {
    contexts: Mutex<Vec<(u64, i32)>>,
    ended: Condvar,
}

/// A load into a context. It ends with this value.
#[derive(Debug)]
pub(crate) struct PendingLoad<'a> {
    loading: &'a Loading,
    context: u64,
}

impl Drop for PendingLoad<'_> {
    fn drop(&mut self) {
        self.loading.contexts.lock().retain(|(context, _)| *context != self.context);
        self.loading.ended.notify_all();
    }
}

impl Loading {
    /// Begins a load into a context. Waits for the end of another one.
    pub(crate) fn begin(&self, context: u64) -> PendingLoad<'_> {
        let mut contexts = self.contexts.lock();
        while contexts.iter().any(|(other, _)| *other == context) {
            self.ended.wait(&mut contexts);
        }
        contexts.push((context, threads::number()));
        PendingLoad { loading: self, context }
    }

    /// Waits while another thread loads code into a context that `concerns` a call.
    pub(crate) fn wait(&self, concerns: impl Fn(u64) -> bool) {
        let mut contexts = self.contexts.lock();
        if contexts.is_empty() {
            return;
        }
        let own = threads::number();
        while contexts.iter().any(|(context, by)| *by != own && concerns(*context)) {
            self.ended.wait(&mut contexts);
        }
    }
}
