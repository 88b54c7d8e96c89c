//! The rate that an arbiter grants a slice, and changes of the rate limit in the ledger.

use gpuslice_policy::arbiter::grant_word;
use gpuslice_policy::compute::limiter::token_bucket::{self, RateLimit};
use gpuslice_policy::time::{GpuTime, Monotonic};

#[cfg(all(test, loom))]
use crate::sync::atomics::broken::{self, Break};
use crate::{
    compute::rate_limit::{latest_payable, rate_limit, rate_limit_of},
    layout::{DeviceEntry, Layout},
    sync::{atomics::full_fence, futex},
};

impl<const DEVICES: usize, const SLOTS: usize, const SHARES: usize> Layout<DEVICES, SLOTS, SHARES> {
    /// Returns the rate limit of a device now: the grant of the arbiter while it is valid, else the slice's own rate limit.
    /// For a device that does not exist, the lowest rate and no burst.
    pub(crate) fn rate_limit(&self, device: usize) -> RateLimit {
        let grant = self.time(device).map_or(0, |time| time.control.0.grant.get());
        self.devices.get(device).map_or_else(
            || rate_limit(1, GpuTime::ZERO),
            |entry| grant_word::decode(grant, rate_limit_of(entry)).0,
        )
    }

    /// Scales `paid_until` from the old rate limit to the new one. The GPU time that the slice owes or has saved up stays
    /// the same. Wakes all sleepers, because their deadlines may be wrong now.
    pub(crate) fn change_rate_limit(
        &self,
        device: usize,
        (old, new): (RateLimit, RateLimit),
        clock: impl Fn() -> Monotonic,
    ) {
        let Some(time) = self.time(device) else { return };
        if old == new {
            return;
        }
        time.paid.0.change_at(clock, |until, now| {
            token_bucket::change(until.min(latest_payable(old, now)), now, old, new)
        });
        full_fence();
        futex::wake_all(&time.wake_seq.0);
    }

    /// Writes the grant of the arbiter, and scales `paid_until` to it.
    ///
    /// The two words change one after the other, and a process may pay in between. If the rate falls, `paid_until` is
    /// scaled first; otherwise the grant is written first. In this order only the one payment in between is too small. In
    /// the other order the process would pay at the new rate, and the payment would then be scaled again. If the rate falls
    /// to a twentieth, that payment is twenty times too large.
    ///
    /// Another process may write or expire the grant at the same time. Then one of the two compare-and-swaps fails, and its
    /// process takes its scaling back.
    pub(crate) fn set_grant(&self, device: usize, new: u64, clock: impl Fn() -> Monotonic) {
        let (Some(time), Some(entry)) = (self.time(device), self.devices.get(device)) else { return };
        let (grant, own) = (&time.control.0.grant, rate_limit_of(entry));
        let before = grant.get();
        let change = (grant_word::decode(before, own).0, grant_word::decode(new, own).0);
        let falls = falls(change);
        if falls {
            self.change_rate_limit(device, change, &clock);
        }
        let is_written = grant.replace(before, new);
        match (is_written, falls) {
            (true, false) => self.change_rate_limit(device, change, clock),
            (false, true) => self.change_rate_limit(device, (change.1, change.0), clock),
            _ => {}
        }
    }

    /// Changes the slice's own rate limit to `new`, and scales `paid_until` to it, in the order of
    /// [`set_grant`](Self::set_grant). `write` writes `new` and returns the rate limit before. A grant of the arbiter ends.
    ///
    /// Another process may change the rate limit at the same time. Each `write` returns the rate limit that it replaces:
    /// the one of the other process, or the one before both. So the scalings of both processes follow the order of their
    /// writes.
    pub(crate) fn set_own_rate_limit(
        &self,
        device: usize,
        new: RateLimit,
        clock: impl Fn() -> Monotonic,
        write: impl FnOnce(&DeviceEntry) -> RateLimit,
    ) {
        let Some(entry) = self.devices.get(device) else { return };
        self.set_grant(device, 0, &clock);
        // This word is 0, unless an arbiter has written another grant since.
        let grant = self.time(device).map_or(0, |time| time.control.0.grant.get());
        let change = |old, new| {
            let change = (grant_word::decode(grant, old).0, grant_word::decode(grant, new).0);
            self.change_rate_limit(device, change, &clock);
        };
        let expected = rate_limit_of(entry);
        if falls((expected, new)) {
            change(expected, new);
            change(write(entry), expected);
        } else {
            change(write(entry), new);
        }
    }

    /// Removes a grant that is too old, and scales `paid_until` back to the slice's own rate limit.
    ///
    /// The grant stays valid until a process notices its age, so that all processes pay by the same rate limit. One process
    /// wins the compare-and-swap, and only this process scales.
    pub(crate) fn expire_grant(&self, device: usize, clock: impl Fn() -> Monotonic) {
        let Some(time) = self.time(device) else { return };
        let grant = time.control.0.grant.get();
        if grant != 0 && grant_word::is_stale(grant, clock()) && time.control.0.grant.replace(grant, 0) {
            let own = self.devices.get(device).map_or_else(|| rate_limit(1, GpuTime::ZERO), rate_limit_of);
            self.change_rate_limit(device, (grant_word::decode(grant, own).0, own), clock);
        }
    }
}

/// Tells whether a change lowers the rate. Then `paid_until` is scaled before the new rate is written.
fn falls((old, new): (RateLimit, RateLimit)) -> bool {
    #[cfg(all(test, loom))]
    if broken::is(Break::RateFirst) {
        return false;
    }
    new.rate() < old.rate()
}
