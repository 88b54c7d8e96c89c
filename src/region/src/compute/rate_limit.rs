//! The rate limit of a device (rate and burst), and the instants that it allows.

use gpuslice_policy::compute::limiter::token_bucket::{MOST_DEBT, RateLimit};
use gpuslice_policy::config::Burst;
use gpuslice_policy::time::{GpuTime, Monotonic};
use gpuslice_policy::units::Permille;

use crate::layout::{DeviceEntry, compute_words::DeviceTime, constants::WHOLE_SHARE};

/// The largest burst.
pub(crate) const MOST_BURST: GpuTime = Burst::MOST;

/// Returns the rate limit of a device entry, brought into its range, because another process may have written anything.
pub(crate) fn rate_limit_of(entry: &DeviceEntry) -> RateLimit {
    rate_limit(entry.cores_permille.get(), entry.burst.get())
}

/// Returns the rate limit of the words of a device entry, brought into its range.
pub(crate) fn rate_limit(permille: u32, burst: GpuTime) -> RateLimit {
    let thousandths = u16::try_from(permille.clamp(1, WHOLE_SHARE)).ok();
    let rate = thousandths.and_then(Permille::new).unwrap_or(Permille::FULL);
    RateLimit::new(rate, burst.min(MOST_BURST))
}

/// Returns the instant up to which time is paid. If it is later than the largest debt allows, this function also reduces
/// the word to the latest possible instant. If readers only bounded the value, the bound would move on with the clock for
/// ever.
pub(crate) fn load_repaired<const SLOTS: usize>(
    time: &DeviceTime<SLOTS>,
    rate_limit: RateLimit,
    now: Monotonic,
) -> Monotonic {
    let (paid_until, most) = (time.paid.0.until.get(), latest_payable(rate_limit, now));
    if paid_until > most {
        let _ = time.paid.0.until.replace(paid_until, most);
    }
    paid_until.min(most)
}

/// Returns the instant up to which time is paid, bounded as in [`load_repaired`]. For a caller that may not write.
pub(crate) fn load_clamped<const SLOTS: usize>(
    time: &DeviceTime<SLOTS>,
    rate_limit: RateLimit,
    now: Monotonic,
) -> Monotonic {
    time.paid.0.until.get().min(latest_payable(rate_limit, now))
}

/// Returns the latest instant up to which time can be paid: the largest debt of a slice.
pub(crate) fn latest_payable(rate_limit: RateLimit, now: Monotonic) -> Monotonic {
    now.saturating_add(rate_limit.wall(MOST_DEBT))
}
