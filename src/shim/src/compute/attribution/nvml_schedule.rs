//! The schedule of questions to NVML, and the time for which the library keeps NVML open.

use crate::driver_calls::nvml::initialization::NVML_PART;
use crate::os::clock::now as clock_now;
use gpuslice_policy::compute::attribution::source::Why;
use gpuslice_policy::time::{Monotonic, WallTime};

/// Time for which NVML stays open while no work is under way. Opening it takes tens of milliseconds, and a program may pause
/// often, for example after each request that it serves.
pub(crate) const LINGER: WallTime = WallTime::from_millis(2_000);
/// Time after which the library tries again if NVML failed.
pub(crate) const RETRY_NVML: WallTime = WallTime::from_millis(5_000);
/// Longest pause that follows from [`NVML_PART`].
const LONGEST_PAUSE: WallTime = WallTime::from_millis(1_000);
/// A process of the slice that was silent for this long loses its sampler lease.
pub(crate) const SAMPLER_SILENCE: WallTime = WallTime::from_millis(1_500);

/// Returns the instant before which a process does not ask NVML again. It asked at `asked`, and `why` is the failure, if any.
/// Example: after a question of 10 ms it pauses for 200 ms, because all processes of the machine share NVML's lock. The function
/// reads the clock, because the question may have taken long.
pub(crate) fn next_call(asked: Monotonic, why: Option<Why>) -> Monotonic {
    let end = clock_now();
    let pause = end.since(asked).saturating_mul(NVML_PART).min(LONGEST_PAUSE);
    end.saturating_add(if why.is_some() { RETRY_NVML } else { pause })
}
