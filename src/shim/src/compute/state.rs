//! State of the GPU time of this process: measuring, threads and co-tenants together.

use super::cotenants::state::CotenantState;
use super::measuring::state::MeasuringState;
use super::measuring::usage::UsageState;
use super::threads::registry::ThreadRegistry;
use super::threads::slot::OwnerGuard;
use crate::memory::loaded_symbols::LoadedSymbols;
use crate::slice::handle::Slice;
use crate::slice::settings;
use core::ops::Deref;
use gpuslice_policy::config::CoreMeter;

/// State of the GPU time that a process uses. It is made once.
///
/// It is never dropped because the worker, the C library's destructors and the slots of threads keep references to it. A forked
/// child makes its own: the parent's other threads do not exist in the child, and locks that they held stay locked there.
#[derive(Debug)]
pub(crate) struct Compute {
    measuring: MeasuringState,
    pub(super) threads: ThreadRegistry,
    pub(super) cotenants: CotenantState,
    /// True if copies are paced: `GPU_CORE_COPIES`.
    pub(super) paces_copies: bool,
    /// Code that was launched before, by context. The driver has loaded it.
    pub(super) launched: LoadedSymbols,
}

impl Deref for Compute {
    type Target = MeasuringState;

    #[inline]
    fn deref(&self) -> &MeasuringState {
        &self.measuring
    }
}

impl Compute {
    /// Makes the state before any launch. `of_this_process` finds the state of the calling process, also in a forked child.
    pub(crate) fn new(slice: &'static Slice, of_this_process: fn() -> Option<&'static UsageState>) -> Self {
        let config = settings::settings().map(|settings| &settings.config);
        let has_events = config.is_none_or(|config| config.core_meter != CoreMeter::Nvml);
        let usage = UsageState::new(slice, of_this_process, has_events);
        Self {
            threads: ThreadRegistry::default(),
            cotenants: CotenantState::new(usage.limiters.len()),
            measuring: MeasuringState::new(usage),
            paces_copies: config.is_some_and(|config| config.core_copies),
            launched: LoadedSymbols::default(),
        }
    }

    /// Returns the part that needs no meter.
    pub(crate) fn usage(&self) -> &UsageState {
        &self.measuring
    }

    /// Acquires the calling thread's state. Returns `None` inside a launch of this thread that is under way. The caller then
    /// forwards the call to the driver and changes nothing.
    #[inline]
    pub(super) fn acquire_own(&'static self) -> Option<OwnerGuard> {
        self.threads.acquire_own(&self.measuring)
    }
}
