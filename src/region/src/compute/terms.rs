//! The rate and the burst by which GPU time is paid, and the instants that they allow.

use gpuslice_policy::{
    compute::bucket::{MOST_DEBT, Terms},
    config::Burst,
    units::{Nanos, Permille},
};

use crate::layout::{DeviceEntry, compute_words::DeviceTime, constants::WHOLE_SHARE};

/// The most GPU time that may be saved up, in nanoseconds.
pub(crate) const MOST_BURST: u64 = Burst::MOST.get();
/// The terms of an entry, brought into their range: another process may have written anything.
pub(crate) fn terms_of(entry: &DeviceEntry) -> Terms {
    terms(entry.cores_permille.get(), entry.burst.get())
}

/// Terms of these words.
pub(crate) fn terms(permille: u32, burst: u64) -> Terms {
    let thousandths = u16::try_from(permille.clamp(1, WHOLE_SHARE)).ok();
    let rate = thousandths.and_then(Permille::new).unwrap_or(Permille::FULL);
    Terms::new(rate, Nanos::new(burst.min(MOST_BURST)))
}

/// The word, if it can be. Otherwise the most that can be owed is written in its place: a bound that moved on with the
/// clock would never be reached.
pub(crate) fn load_repaired<const SLOTS: usize>(time: &DeviceTime<SLOTS>, terms: Terms, now: u64) -> u64 {
    let (paid_until, most) = (time.paid.0.until.get(), latest_payable(terms, now));
    if paid_until > most {
        let _ = time.paid.0.until.replace(paid_until, most);
    }
    paid_until.min(most)
}

/// As [`believed`], by somebody who may not write.
pub(crate) fn load_clamped<const SLOTS: usize>(time: &DeviceTime<SLOTS>, terms: Terms, now: u64) -> u64 {
    time.paid.0.until.get().min(latest_payable(terms, now))
}

/// The latest instant until which time can be paid: the most that a slice may owe.
pub(crate) fn latest_payable(terms: Terms, now: u64) -> u64 {
    now.saturating_add(terms.wall(MOST_DEBT))
}
