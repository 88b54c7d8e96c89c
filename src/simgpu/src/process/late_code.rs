//! Calls that wait for late loading of code. [`Loading`](super::loading::Loading) keeps track of it.

use gpuslice_driver::Symbol;

use super::objects::ProcessObjects;
use super::simulation::Simulation;
use super::thread_state;

/// Returns true if a function needs no lock of a context: it queries the machine, or changes which context is current.
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

/// Returns true if a function can find its context by a handle.
fn has_a_handle(name: &str) -> bool {
    name.starts_with("cuEvent") || name.starts_with("cuStream")
}

impl ProcessObjects {
    /// Returns the context of a module whose code is not loaded yet.
    pub(crate) fn context_awaiting(&self, module: u64) -> Option<u64> {
        let module = self.code.modules.get(module).ok()?;
        (!module.loaded).then_some(module.context)
    }

    /// Returns the context into which code must be loaded before a function, or a kernel in the current context, can run.
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
    /// Waits while code is loaded into the context of a call. That is the current context. For an event or stream
    /// without a current context it is any context.
    pub(crate) fn wait_while_loading(&self, symbol: Symbol) {
        if !self.config.loading_waits || needs_no_context(symbol.name()) {
            return;
        }
        let current = thread_state::current();
        self.loading.wait(|context| context == current || current == 0 && has_a_handle(symbol.name()));
    }

    /// Waits for the queued work of a context if a call must load code into it, and blocks other calls there
    /// meanwhile. `wanted` gives the context. No lock may be held.
    pub(crate) fn make_way_for_code(&self, wanted: impl Fn(&ProcessObjects) -> Option<u64>) {
        if !self.config.loading_waits || !self.config.lazy {
            return;
        }
        let Some(context) = wanted(&self.objects()) else { return };
        let _coming = self.loading.begin(context);
        // Another thread may have loaded it.
        if wanted(&self.objects()) == Some(context) {
            let _gone = self.wait_for_context(context);
        }
    }
}
