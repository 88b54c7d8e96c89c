//! How often the library asks NVML, and for how long it keeps NVML open.

use crate::driver_calls::nvml::initialization::PART;
use crate::os::clock::now as clock_now;
use core::time::Duration;
use gpuslice_policy::compute::attribution::source::Why;

/// How long NVML stays open while nothing is under way. Opening it takes tens of milliseconds, and a program may pause after each
/// request.
pub(crate) const LINGER: Duration = Duration::from_secs(2);
/// How often the library tries again after NVML failed, in nanoseconds.
pub(crate) const AGAIN: u64 = 5_000_000_000;
/// Longest pause that follows from [`PART`], in nanoseconds.
const LONGEST: u64 = 1_000_000_000;
/// A process of the slice that was silent for this long loses its sampler lease, in nanoseconds.
pub(crate) const PATIENCE: u64 = 1_500_000_000;

/// Returns [`LINGER`] in nanoseconds.
pub(crate) fn linger() -> u64 {
    u64::try_from(LINGER.as_nanos()).unwrap_or(0)
}

/// Returns the instant until which a process leaves NVML alone, after it asked at `asked` and got `why` as a failure. Reads the
/// clock, because the call may have taken long.
pub(crate) fn next_call(asked: u64, why: Option<Why>) -> u64 {
    let end = clock_now();
    let pause = end.saturating_sub(asked).saturating_mul(PART).min(LONGEST);
    end.saturating_add(if why.is_some() { AGAIN } else { pause })
}
