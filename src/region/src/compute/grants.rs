//! The rate that an arbiter grants a slice, and the change of the rate limit in the ledger.

use gpuslice_policy::arbiter::grant_word;
use gpuslice_policy::compute::limiter::token_bucket::{self, RateLimit};
use gpuslice_policy::time::{GpuTime, Monotonic};

#[cfg(all(test, loom))]
use crate::sync::atomics::broken::{self, Break};
use crate::{
    compute::rate_limit::{latest_payable, rate_limit, rate_limit_of},
    layout::Layout,
    sync::{atomics::full_fence, futex},
};

impl<const DEVICES: usize, const SLOTS: usize, const SHARES: usize> Layout<DEVICES, SLOTS, SHARES> {
    /// Returns the rate limit of a device now: the grant of the arbiter while it is valid, else the slice's own rate limit.
    /// Nearly nothing for a device that does not exist.
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
        now: Monotonic,
    ) {
        let Some(time) = self.time(device) else { return };
        if old == new {
            return;
        }
        let most = latest_payable(old, now);
        time.paid.0.change(now, |until| token_bucket::change(until.min(most), now, old, new));
        full_fence();
        futex::wake_all(&time.wake_seq.0);
    }

    /// Writes the grant of the arbiter, and scales `paid_until` to it.
    ///
    /// The two words change one after the other, and a process may pay in between. If the rate falls, `paid_until` is
    /// scaled first; otherwise the grant is written first. In this order the payment in between is too small, once. In
    /// the other order the process would pay at the new rate, and the payment would then be scaled again. If a rate
    /// falls to a twentieth, that is twenty times too much.
    ///
    /// Another process may write or expire the grant at the same time. Then the compare-and-swap fails in one of them,
    /// and that one takes its scaling back.
    pub(crate) fn set_grant(&self, device: usize, new: u64, now: Monotonic) {
        let (Some(time), Some(entry)) = (self.time(device), self.devices.get(device)) else { return };
        let (grant, own) = (&time.control.0.grant, rate_limit_of(entry));
        let before = grant.get();
        let change = (grant_word::decode(before, own).0, grant_word::decode(new, own).0);
        #[cfg(all(test, loom))]
        let falls = change.1.rate() < change.0.rate() && !broken::is(Break::GrantFirst);
        #[cfg(not(all(test, loom)))]
        let falls = change.1.rate() < change.0.rate();
        if falls {
            self.change_rate_limit(device, change, now);
        }
        let is_written = grant.replace(before, new);
        match (is_written, falls) {
            (true, false) => self.change_rate_limit(device, change, now),
            (false, true) => self.change_rate_limit(device, (change.1, change.0), now),
            _ => {}
        }
    }

    /// Removes a grant that is too old, and scales `paid_until` back to the slice's own rate limit.
    ///
    /// The grant stays valid until a process notices its age, so that all processes pay by the same rate limit. One process
    /// wins the compare-and-swap, and only that one scales.
    pub(crate) fn expire_grant(&self, device: usize, now: Monotonic) {
        let Some(time) = self.time(device) else { return };
        let grant = time.control.0.grant.get();
        if grant_word::is_stale(grant, now) && time.control.0.grant.replace(grant, 0) {
            let own = self.devices.get(device).map_or_else(|| rate_limit(1, GpuTime::ZERO), rate_limit_of);
            self.change_rate_limit(device, (grant_word::decode(grant, own).0, own), now);
        }
    }
}
