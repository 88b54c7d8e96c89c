//! The clock of the regions.

use rustix::time::{ClockId, clock_gettime};

/// The monotonic clock, on which regions have their instants, in nanoseconds.
pub(super) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let [seconds, rest] = [time.tv_sec, time.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}
