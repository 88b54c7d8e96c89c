//! What an arbiter grants a slice, and how a change of the terms reaches the ledger.

use gpuslice_policy::{
    arbiter::word,
    compute::bucket::{self, Terms},
};

#[cfg(all(test, loom))]
use crate::sync::atomics::broken::{self, Break};
use crate::{
    compute::terms::{latest_payable, terms, terms_of},
    layout::Layout,
    sync::{atomics::full_fence, futex},
};

impl<const DEVICES: usize, const SLOTS: usize, const SHARES: usize> Layout<DEVICES, SLOTS, SHARES> {
    /// What the slice may use of a device's time: its own terms, or what it was told for as long as that stands. Nearly
    /// nothing of one that is not there.
    pub(crate) fn terms(&self, device: usize) -> Terms {
        let told = self.time(device).map_or(0, |time| time.control.0.grant.get());
        self.devices.get(device).map_or_else(|| terms(1, 0), |entry| word::granted(told, terms_of(entry)).0)
    }

    /// Other terms: what is owed or saved stays what it was, and who sleeps looks again.
    pub(crate) fn change_terms(&self, device: usize, (old, new): (Terms, Terms), now: u64) {
        let Some(time) = self.time(device) else { return };
        if old == new {
            return;
        }
        let most = latest_payable(old, now);
        time.paid.0.change(now, |until| bucket::change(until.min(most), now, old, new));
        full_fence();
        futex::wake_all(&time.wake_seq.0);
    }

    /// Tells the slice what it may use. What is owed or saved stays what it was.
    ///
    /// The two words change one after the other, and somebody may pay in between. In the order chosen here he pays too
    /// little, once; in the other one he would pay by the new rate and then be changed to it again, twenty times too much
    /// where a rate falls to a twentieth. Somebody else may tell, or forget, at the same time: one of them has done it.
    pub(crate) fn set_grant(&self, device: usize, new: u64, now: u64) {
        let (Some(time), Some(entry)) = (self.time(device), self.devices.get(device)) else { return };
        let (told, own) = (&time.control.0.grant, terms_of(entry));
        let before = told.get();
        let change = (word::granted(before, own).0, word::granted(new, own).0);
        #[cfg(all(test, loom))]
        let falls = change.1.rate() < change.0.rate() && !broken::is(Break::GrantFirst);
        #[cfg(not(all(test, loom)))]
        let falls = change.1.rate() < change.0.rate();
        if falls {
            self.change_terms(device, change, now);
        }
        let is_told = told.replace(before, new);
        match (is_told, falls) {
            (true, false) => self.change_terms(device, change, now),
            (false, true) => self.change_terms(device, (change.1, change.0), now),
            _ => {}
        }
    }

    /// What was told too long ago does not hold any more. Until somebody notices it stands, so that everybody pays by the
    /// same terms; who takes it away, and that is one, changes what is owed.
    pub(crate) fn expire_grant(&self, device: usize, now: u64) {
        let Some(time) = self.time(device) else { return };
        let told = time.control.0.grant.get();
        if word::is_stale(told, now) && time.control.0.grant.replace(told, 0) {
            let own = self.devices.get(device).map_or_else(|| terms(1, 0), terms_of);
            self.change_terms(device, (word::granted(told, own).0, own), now);
        }
    }
}
