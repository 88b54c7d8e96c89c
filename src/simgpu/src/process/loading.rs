//! What does code that comes to the device late hold up?
//!
//! A real driver takes its context's lock, waits until the GPU has done what is queued, and then loads. Meanwhile every other
//! call in the context waits (meta-pytorch/torchcomms#2334). Nobody else of the process waits, and no other process does.

use parking_lot::{Condvar, Mutex};

use crate::os::threads;

/// Contexts into which code comes, each with the thread that brings it.
#[derive(Debug, Default)]
pub(crate) struct Loading {
    contexts: Mutex<Vec<(u64, i32)>>,
    ended: Condvar,
}

/// Code comes into a context until this ends.
#[derive(Debug)]
pub(crate) struct Coming<'a> {
    loading: &'a Loading,
    context: u64,
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        self.loading.contexts.lock().retain(|(context, _)| *context != self.context);
        self.loading.ended.notify_all();
    }
}

impl Loading {
    /// Begins to bring code into a context, once nobody else does.
    pub(crate) fn begin(&self, context: u64) -> Coming<'_> {
        let mut contexts = self.contexts.lock();
        while contexts.iter().any(|(other, _)| *other == context) {
            self.ended.wait(&mut contexts);
        }
        contexts.push((context, threads::number()));
        Coming { loading: self, context }
    }

    /// Waits while another thread brings code into one of the contexts that a call concerns.
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
