//! Calls that must wait because code is loaded late. [`Loading`](super::loading::Loading) knows which loads are going on.

use gpuslice_driver::Symbol;

use super::objects::ProcessObjects;
use super::simulation::Simulation;
use super::thread_state;

/// Returns true if a function takes no lock of a context. It asks about the machine, or changes which context is current.
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

/// Returns true if a function can find its context by a handle, without a current context.
fn has_a_handle(name: &str) -> bool {
    name.starts_with("cuEvent") || name.starts_with("cuStream")
}

impl ProcessObjects {
    /// Returns the context into which the code of a module must still be loaded. Returns `None` if the code is loaded.
    pub(crate) fn context_awaiting(&self, module: u64) -> Option<u64> {
        let module = self.code.modules.get(module).ok()?;
        (!module.loaded).then_some(module.context)
    }

    /// Returns the context into which code must still be loaded before a function can run, or a kernel in the current context.
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
    /// Waits as long as another thread loads code into the context of a call. That is the current context. If there is none, a
    /// call for an event or a stream waits for a load into any context.
    pub(crate) fn wait_while_loading(&self, symbol: Symbol) {
        if !self.config.loading_waits || needs_no_context(symbol.name()) {
            return;
        }
        let current = thread_state::current();
        self.loading.wait(|context| context == current || current == 0 && has_a_handle(symbol.name()));
    }

    /// If a call must load code into a context, waits until the queued work of the context is done. During that time other calls
    /// in the context wait. `wanted` returns the context. The caller may hold no lock.
    pub(crate) fn make_way_for_code(&self, wanted: impl Fn(&ProcessObjects) -> Option<u64>) {
        if !self.config.loading_waits || !self.config.lazy {
            return;
        }
        let Some(context) = wanted(&self.objects()) else { return };
        let _coming = self.loading.begin(context);
        // During the wait for its turn, another thread may have loaded the code.
        if wanted(&self.objects()) == Some(context) {
            let _gone = self.wait_for_context(context);
        }
    }
}
