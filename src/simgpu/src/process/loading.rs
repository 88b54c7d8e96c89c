//! Late loading of code, and the calls that have to wait for it.
//!
//! To load code, a real driver takes the lock of the context, waits for the queued work of the GPU, and then loads
//! the code. During all this time every other call in the context waits (meta-pytorch/torchcomms#2334). Other
//! contexts and other processes do not wait.

use parking_lot::{Condvar, Mutex};

use crate::os::threads;

/// The contexts into which code is being loaded, each with the thread that loads it.
#[derive(Debug, Default)]
pub(crate) struct Loading {
    contexts: Mutex<Vec<(u64, i32)>>,
    ended: Condvar,
}

/// A load of code into a context. The end of this value is the end of the load.
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
    /// Begins a load into a context. If another thread loads code there, waits for the end of that load first.
    pub(crate) fn begin(&self, context: u64) -> PendingLoad<'_> {
        let mut contexts = self.contexts.lock();
        while contexts.iter().any(|(other, _)| *other == context) {
            self.ended.wait(&mut contexts);
        }
        contexts.push((context, threads::number()));
        PendingLoad { loading: self, context }
    }

    /// Waits as long as another thread loads code into a context for which `concerns` returns true.
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
