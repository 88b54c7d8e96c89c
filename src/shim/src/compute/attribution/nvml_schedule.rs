//! The schedule of questions to NVML, and the time for which the library keeps NVML open.

use crate::driver_calls::nvml::initialization::NVML_PART;
use crate::os::clock::now as clock_now;
use gpuslice_policy::compute::attribution::source::Why;
use gpuslice_policy::time::{Monotonic, WallTime};

/// Time for which NVML stays open while nothing is under way. Opening it takes tens of milliseconds, and a program may pause
/// after each request.
pub(crate) const LINGER: WallTime = WallTime::from_millis(2_000);
/// Time after which the library tries again if NVML failed.
pub(crate) const RETRY_NVML: WallTime = WallTime::from_millis(5_000);
/// Longest pause that follows from [`NVML_PART`].
const LONGEST_PAUSE: WallTime = WallTime::from_millis(1_000);
/// A process of the slice that was silent for this long loses its sampler lease.
pub(crate) const SAMPLER_SILENCE: WallTime = WallTime::from_millis(1_500);

/// Returns the instant until which a process leaves NVML alone, after it asked at `asked` and got `why` as a failure. Reads the
/// clock, because the call may have taken long. Example: a question of 10 ms is followed by a pause of 200 ms. All processes of
/// the machine share NVML's lock, so each question delays the others.
pub(crate) fn next_call(asked: Monotonic, why: Option<Why>) -> Monotonic {
    let end = clock_now();
    let pause = end.since(asked).saturating_mul(NVML_PART).min(LONGEST_PAUSE);
    end.saturating_add(if why.is_some() { RETRY_NVML } else { pause })
}
