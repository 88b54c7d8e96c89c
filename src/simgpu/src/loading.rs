//! What does code that comes to the device late hold up?
//!
//! A real driver takes its context's lock, waits until the GPU has done what is queued, and then loads. Meanwhile every other
//! call in the context waits (meta-pytorch/torchcomms#2334). Nobody else of the process waits, and no other process does.

use gpuslice_driver::Symbol;
use parking_lot::{Condvar, Mutex};

use crate::local::Local;
use crate::simulation::Simulation;
use crate::thread;

/// Contexts into which code comes, each with the thread that brings it.
#[derive(Debug, Default)]
pub(crate) struct Loading {
    contexts: Mutex<Vec<(u64, i32)>>,
    ended: Condvar,
}

/// Code comes into a context until this ends.
#[derive(Debug)]
struct Coming<'a> {
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
    fn begin(&self, context: u64) -> Coming<'_> {
        let mut contexts = self.contexts.lock();
        while contexts.iter().any(|(other, _)| *other == context) {
            self.ended.wait(&mut contexts);
        }
        contexts.push((context, thread::number()));
        Coming { loading: self, context }
    }

    /// Waits while another thread brings code into one of the contexts that a call concerns.
    fn wait(&self, concerns: impl Fn(u64) -> bool) {
        let mut contexts = self.contexts.lock();
        if contexts.is_empty() {
            return;
        }
        let own = thread::number();
        while contexts.iter().any(|(context, by)| *by != own && concerns(*context)) {
            self.ended.wait(&mut contexts);
        }
    }
}

/// Whether a function needs no lock of a context: it looks at the machine, or at what is current.
fn needs_no_context(name: &str) -> bool {
    let beginnings = [
        "cuInit",
        "cuGet",
        "cuDriver",
        "cuDevice",
        "cuCheckpoint",
        "cuCtxGet",
        "cuCtxSetCurrent",
        "cuCtxPush",
        "cuCtxPop",
    ];
    beginnings.iter().any(|beginning| name.starts_with(beginning))
}

/// Whether a function finds its context by a handle where none is current.
fn has_a_handle(name: &str) -> bool {
    name.starts_with("cuEvent") || name.starts_with("cuStream")
}

impl Local {
    /// The context into which a module's code is still to come.
    pub(crate) fn context_awaiting(&self, module: u64) -> Option<u64> {
        let module = self.code.modules.get(module).ok()?;
        (!module.loaded).then_some(module.context)
    }

    /// The context into which code is still to come before a function, or a kernel in the current context, can run.
    pub(crate) fn context_awaiting_code_of(&self, handle: u64) -> Option<u64> {
        if let Ok(function) = self.code.functions.get(handle) {
            return self.context_awaiting(function.module);
        }
        let library = self.code.kernels.get(handle).ok()?.library;
        let context = self.current().ok()?.0;
        let loaded = self.code.libraries.get(library).ok()?.loaded.get(&context);
        loaded.map_or(Some(context), |module| self.context_awaiting(*module))
    }
}

impl Simulation {
    /// Waits while code comes into the context of a call: the current one, or for an event or stream without one any.
    pub(crate) fn wait_while_loading(&self, symbol: Symbol) {
        if !self.config.loading_waits || needs_no_context(symbol.name()) {
            return;
        }
        let current = thread::current();
        self.loading.wait(|context| context == current || current == 0 && has_a_handle(symbol.name()));
    }

    /// If the code is not there yet that a call wants: waits until all is done that was queued in its context, and lets nobody
    /// else in there meanwhile. `wanted` tells the context. No lock may be held.
    pub(crate) fn make_way_for_code(&self, wanted: impl Fn(&Local) -> Option<u64>) {
        if !self.config.loading_waits || !self.config.lazy {
            return;
        }
        let Some(context) = wanted(&self.local()) else { return };
        let _coming = self.loading.begin(context);
        // Somebody else may have brought it.
        if wanted(&self.local()) == Some(context) {
            let _gone = self.wait_for_context(context);
        }
    }
}
