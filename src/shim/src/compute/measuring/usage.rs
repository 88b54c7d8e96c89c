//! Work in flight: what the process has queued on each device, and when it is expected to end.

use crate::compute::limiter::device::DeviceLimiter;
use crate::compute::measuring::device_usage::PendingBatch;
use crate::compute::state::Compute;
use crate::os::clock::now;
use core::sync::atomic::Ordering;
use gpuslice_policy::compute::cost::estimate::Key;
use gpuslice_policy::compute::measuring::batch::Run;

impl Compute {
    pub(crate) fn began(&self) {
        self.under_way.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn ended(&self) {
        self.under_way.fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether a run is open or a flight has not landed.
    pub(crate) fn is_anything_under_way(&self) -> bool {
        self.under_way.load(Ordering::Acquire) != 0
    }

    /// A closed run is on its way.
    pub(crate) fn sent_off(&self, flight: PendingBatch) {
        if let Some(pacer) = self.pacers.get(flight.device) {
            let prepaid = flight.run.prepaid();
            let before = pacer.queued.fetch_add(prepaid, Ordering::Relaxed);
            if before == 0 || pacer.queues_little() {
                self.queue_grows(pacer, flight.device, (before, prepaid));
            }
        }
        self.began();
        self.meter.send_off(flight);
        self.helper.wake();
    }

    /// A stream is predicted to be busy until then.
    pub(crate) fn is_busy_until(&self, device: usize, until: u64) {
        if let Some(pacer) = self.pacers.get(device) {
            pacer.until.fetch_max(until, Ordering::Relaxed);
        }
    }

    /// There is something in a queue that was empty, or one that others leave little room for has become longer.
    #[cold]
    #[inline(never)]
    pub(crate) fn queue_grows(&self, pacer: &DeviceLimiter, device: usize, (before, prepaid): (u64, u64)) {
        if before == 0 {
            // Who gives way to this slice is to see at once that it has work, not at the helper's next round.
            self.member().set_queued(pacer.place.device, prepaid);
        }
        if pacer.queues_little() {
            let now = now();
            self.expect_end(
                device,
                now.saturating_add(self.queue_lasts(device, now)).saturating_add(prepaid),
            );
        }
    }

    /// What is queued is expected to have ended then.
    pub(crate) fn expect_end(&self, device: usize, at: u64) {
        if let Some(ends) = self.queue_ends.get(device) {
            ends.store(at, Ordering::Relaxed);
        }
    }

    /// How long it is until then, in nanoseconds.
    pub(crate) fn queue_lasts(&self, device: usize, now: u64) -> u64 {
        self.queue_ends.get(device).map_or(0, |ends| ends.load(Ordering::Relaxed).saturating_sub(now))
    }

    /// It has ended then, or nobody will see its end.
    pub(crate) fn landed(&self, flight: &PendingBatch, ended: u64) {
        if let Some(pacer) = self.pacers.get(flight.device) {
            pacer.landings.fetch_add(1, Ordering::Relaxed);
            let left = pacer.less_queued(flight.queued());
            if pacer.queues_little() {
                self.expect_end(flight.device, ended.saturating_add(left));
            }
        }
        self.ended();
    }

    /// It waits for something else than the GPU: nobody is to wait for it.
    pub(crate) fn set_aside(&self, device: usize, run: &Run, keeps_others: bool) {
        let Some(pacer) = self.pacers.get(device) else { return };
        pacer.less_queued(run.prepaid());
        if keeps_others {
            run.parts().for_each(|part| pacer.unknown.lock().done(&part.key));
        }
    }

    /// It is the GPU's to do after all.
    pub(crate) fn is_ahead_again(&self, device: usize, run: &Run) {
        if let Some(pacer) = self.pacers.get(device) {
            pacer.queued.fetch_add(run.prepaid(), Ordering::Relaxed);
        }
    }

    /// A run is not measured: what was prepaid for it stands.
    pub(crate) fn unmeasured(&self, device: usize, run: &Run, is_unknown: bool) {
        let Some(pacer) = self.pacers.get(device) else { return };
        // When it ran nobody knows.
        self.member().settled(pacer.place.device, run.prepaid(), 0);
        self.member().count_launches(pacer.place.device, run.launches().into());
        let blind = self.blind(device);
        if let Some(blind) = blind {
            blind.prepaid(run);
        }
        if blind.is_none_or(|blind| !blind.is_told()) {
            self.member().count_used(pacer.place.device, run.prepaid());
        }
        if is_unknown {
            run.parts().for_each(|part| pacer.unknown.lock().done(&part.key));
        }
    }

    /// A launch of which nothing is known has left.
    pub(crate) fn unknown_left(&self, device: usize, key: &Key) {
        if let Some(pacer) = self.pacers.get(device) {
            let mut unknown = pacer.unknown.lock();
            unknown.add(key);
            self.member().set_unpredicted(pacer.place.device, true);
        }
    }
}
