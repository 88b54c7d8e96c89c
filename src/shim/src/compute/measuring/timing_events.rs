//! Timing events of this process: the choice to use them, and the reaction to an event that fails.
//!
//! Example: `cuEventRecord` fails because the program has destroyed its context. Other contexts are not affected, so
//! the library keeps using events. After a failure of another kind it uses no events for a second, and charges launches
//! by estimates and NVML.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use crate::driver_calls::events::Events;
use crate::os::clock::now;
use crate::os::messages;
use crate::os::time_word::TimeWord;
use core::sync::atomic::{AtomicBool, Ordering};
use gpuslice_driver::types::{Status, status};
use gpuslice_policy::config::LogLevel;
use gpuslice_policy::time::{Monotonic, WallTime};

/// Time for which the library uses no events after a failure.
const AFTER_FAILURE: WallTime = WallTime::from_millis(1_000);

/// `CUDA_ERROR_DEINITIALIZED`: the process ends.
const DEINITIALIZED: Status = 4;
/// `CUDA_ERROR_CONTEXT_IS_DESTROYED`.
const DESTROYED: Status = 709;
/// `CUDA_ERROR_INVALID_HANDLE`: the stream has ended.
const NO_SUCH_STREAM: Status = 400;
/// From `CUDA_ERROR_ILLEGAL_ADDRESS` to `CUDA_ERROR_LAUNCH_FAILED`: a kernel has broken its context, and every later call
/// in that context fails. Other contexts still work.
const BROKEN: [Status; 9] = [700, 702, 710, 714, 715, 716, 717, 718, 719];

/// State of the timing events.
#[derive(Debug)]
pub(crate) struct TimingEvents {
    /// Events that are not in use, by context.
    pub(crate) pools: Events,
    /// True if GPU time is measured by events at all.
    pub(crate) is_enabled: bool,
    /// True if a launch returns when its kernel has ended: `CUDA_LAUNCH_BLOCKING`.
    pub(crate) launches_block: bool,
    /// Instant of the last failure; the beginning of the clock before the first. Any thread that uses events writes it.
    failed_at: TimeWord<Monotonic>,
    has_warned: AtomicBool,
    /// Time for which an event occupies its stream; zero before it was measured. Each poll writes it, launching threads read it.
    cost: TimeWord<WallTime>,
}

impl TimingEvents {
    /// Makes the state before the first event. `is_enabled`: GPU time is measured by events.
    pub(crate) fn new(is_enabled: bool) -> Self {
        Self {
            pools: Events::default(),
            is_enabled,
            launches_block: launches_block(),
            failed_at: TimeWord::zero(),
            has_warned: AtomicBool::new(false),
            cost: TimeWord::zero(),
        }
    }

    /// Returns true if events are to be recorded: they are enabled and have not failed lately.
    pub(crate) fn are_used(&self) -> bool {
        let failed_at = self.failed_at.get();
        self.is_enabled && (failed_at == Monotonic::BEGIN || now().since(failed_at) >= AFTER_FAILURE)
    }

    /// Returns true if events are enabled and have failed lately.
    pub(crate) fn are_failing(&self) -> bool {
        self.is_enabled && !self.are_used()
    }

    /// Returns how long an event occupies its stream.
    pub(crate) fn cost(&self) -> WallTime {
        self.cost.get()
    }

    /// Sets how long an event occupies its stream.
    pub(crate) fn set_cost(&self, cost: WallTime) {
        self.cost.set(cost);
    }

    /// Notes that an event could not be made, recorded or read. The library keeps using events if the status concerns only one
    /// stream, one context, or the end of the process. Otherwise events would never measure a program that destroys contexts in a
    /// loop.
    pub(crate) fn fail(&self, code: Status) {
        let is_of_one =
            matches!(code, status::INVALID_CONTEXT | status::CAPTURE_INVALIDATED | NO_SUCH_STREAM)
                || BROKEN.contains(&code);
        if is_of_one || matches!(code, DEINITIALIZED | DESTROYED) {
            return;
        }
        self.failed_at.set(now());
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            let text = format_args!(
                "gpuslice: timing events fail (status {code}): what launches cost is taken from estimates and from NVML meanwhile."
            );
            messages::say(LogLevel::Warn, &text);
        }
    }
}

/// Returns true if `CUDA_LAUNCH_BLOCKING` asks the driver to block in each launch. Developers set it to find a fault.
fn launches_block() -> bool {
    std::env::var_os("CUDA_LAUNCH_BLOCKING").is_some_and(|value| !value.is_empty() && value != "0")
}
