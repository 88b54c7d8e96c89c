//! How is a launch paid that its thread's credit does not suffice for, and what does it wait for?
//!
//! For the slice's word, when it is not this process's turn or the share is used up: until the computed instant, or until
//! somebody rings. For work that is queued ahead, and for the measurement of an unknown launch: until the meter has seen
//! something end. Before every wait the thread's runs are closed, or the wait would be charged.

use super::threads::Held;
use super::{Launch, Pacer, clock};
use crate::slice::Slice;
use core::time::Duration;
use gpuslice_policy::compute::cost::Estimate;
use gpuslice_policy::compute::queue::UNKNOWN_WAIT;
use parking_lot::MutexGuard;

/// How long a thread waits for another of its process that asks for both, before it asks beside it. Nobody asks for
/// long without looking again; one that never came back from its wait (`longjmp` out of a signal handler) must not
/// keep the others.
const BESIDE: Duration = Duration::from_millis(100);
/// How long work that is queued ahead is waited for before it is looked at again, whatever the meter says.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Pays for a launch, and waits before. The estimate it was paid by, and whether anything is known of it.
#[cold]
pub(super) fn pay(
    held: &mut Held,
    slice: &'static Slice,
    device: usize,
    launch: &Launch,
) -> Option<(Estimate, bool)> {
    let pacer = slice.compute.pacers.get(device)?;
    let began = clock::now();
    let mut payer = Payer { slice, pacer, device, began, throttled: 0, asking: None };
    let paid = payer.pay(held, launch);
    if payer.throttled > 0 {
        slice.member().stop_asking(pacer.place.device);
        slice.member().count_throttled(pacer.place.device, payer.throttled);
    }
    paid
}

struct Payer {
    slice: &'static Slice,
    pacer: &'static Pacer,
    device: usize,
    began: u64,
    /// For how long it has waited for the share.
    throttled: u64,
    /// Held while this thread asks for its process.
    asking: Option<MutexGuard<'static, ()>>,
}

impl Payer {
    fn pay(&mut self, held: &mut Held, launch: &Launch) -> Option<(Estimate, bool)> {
        let slice = self.slice;
        let compute = &slice.compute;
        loop {
            let known = compute.look_up(held, &launch.key);
            if known.is_none() && !self.may_go_unknown(launch) {
                self.close(held);
                held.meanwhile(|| compute.helper.wait_for_news(slice, Duration::from_nanos(UNKNOWN_WAIT)));
                continue;
            }
            let estimate = known.unwrap_or_else(|| compute.prior(&launch.key));
            if !self.pacer.admits(estimate.charged) {
                self.close(held);
                held.meanwhile(|| compute.helper.wait_for_news(slice, LOOK_AGAIN));
                continue;
            }
            let credit = held.leases.get_mut(self.device)?;
            if known.is_some() && credit.spend(estimate.charged) {
                return Some((estimate, true));
            }
            if self.take(held, estimate.charged) {
                held.leases.get_mut(self.device)?.spend(estimate.charged);
                return Some((estimate, known.is_some()));
            }
        }
    }

    /// Whether a launch of which nothing is known may be under way beside those that are.
    fn may_go_unknown(&self, launch: &Launch) -> bool {
        let is_late = clock::now().saturating_sub(self.began) >= UNKNOWN_WAIT;
        is_late || !self.slice.compute.is_measuring() || self.pacer.unknown.lock().admits(&launch.key)
    }

    /// Takes what lacks of the slice's time, or waits and looks again.
    fn take(&mut self, held: &mut Held, cost: u64) -> bool {
        let (member, device) = (self.slice.member(), self.pacer.place.device);
        if self.asking.is_none() {
            self.asking = self.pacer.asking.try_lock();
        }
        if self.asking.is_none() {
            self.close(held);
            let pacer = self.pacer;
            self.asking = self.timed(|| held.meanwhile(|| pacer.asking.try_lock_for(BESIDE)));
            return false;
        }
        // Read before it is asked, so that no ring is lost in between.
        let bell = member.bell(device);
        let Some(credit) = held.leases.get_mut(self.device) else { return true };
        let lacks = credit.lacks(cost, member.lease_size(device)).max(1);
        let now = clock::now();
        if !self.slice.compute.is_under_way(self.device) {
            member.idle_until_now(device, now);
        }
        match member.take(device, lacks, now) {
            Ok(()) => {
                credit.fill(lacks);
                true
            }
            Err(until) => {
                self.close(held);
                self.timed(|| held.meanwhile(|| member.sleep(device, bell, until)));
                // What the dead ask for is not waited for longer than it takes to notice.
                let _noticed = self.slice.region().reap_if_due(clock::now());
                false
            }
        }
    }

    fn timed<T>(&mut self, wait: impl FnOnce() -> T) -> T {
        let before = clock::now();
        let done = wait();
        self.throttled = self.throttled.saturating_add(clock::now().saturating_sub(before)).max(1);
        done
    }

    /// Closes the thread's runs before it waits.
    fn close(&self, held: &mut Held) {
        held.close_all(self.slice);
    }
}
