//! Reclaims the GPU time of a process that ends, and sums the counters of all processes.
//!
//! Prepaid time that cannot have run returns to the slice. A launch without a prediction was prepaid with next to
//! nothing, so the slice is charged for the time that it may have run.
//!
//! The reaping process holds the join lock. It empties the word before it refunds the time: a process killed in between
//! loses the time, and no time is refunded twice. Counters stay in the slot, and the next process in the slot counts on
//! from them. So nothing moves when a process dies, and no sum ever falls.

use gpuslice_policy::compute::limiter::refund::{self, Work};
use gpuslice_policy::compute::limiter::token_bucket::MOST_DEBT;

#[cfg(all(test, loom))]
use crate::sync::atomics::broken::{self, Break};
use crate::{
    compute::sampler_lease,
    layout::Layout,
    layout::compute_words::{CouplingWords, DeviceTime, PaidWords, ProcessTime, UNPREDICTED, UsageCounts},
    sync::atomics::Word64,
};

/// GPU time that was used, and related counters. All but `launches` are in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeUsed {
    /// GPU time charged. Never falls.
    pub used: u64,
    /// Wall time that launches were throttled. Never falls.
    pub throttled: u64,
    /// GPU time of copies. Never falls.
    pub copied: u64,
    /// Predicted GPU time of work under way.
    pub queued: u64,
    /// Launches. Never falls.
    pub launches: u64,
}

impl TimeUsed {
    fn new([used, throttled, copied, launches]: [u64; 4], queued: u64) -> Self {
        Self { used, throttled, copied, queued, launches }
    }

    /// Returns the counters of a slot, over all processes that had it.
    fn of_slot(process: &ProcessTime) -> Self {
        Self::new(process.counts.now(), process.queued())
    }

    /// Returns the counters of the process that has the slot now.
    fn of(process: &ProcessTime) -> Self {
        let [mut counts, before] = [process.counts.now(), process.at_join.now()];
        counts.iter_mut().zip(before).for_each(|(count, before)| *count = count.saturating_sub(before));
        Self::new(counts, process.queued())
    }

    fn plus(self, other: Self) -> Self {
        Self {
            used: self.used.saturating_add(other.used),
            throttled: self.throttled.saturating_add(other.throttled),
            copied: self.copied.saturating_add(other.copied),
            queued: self.queued.saturating_add(other.queued),
            launches: self.launches.saturating_add(other.launches),
        }
    }
}

impl<const DEVICES: usize, const SLOTS: usize, const SHARES: usize> Layout<DEVICES, SLOTS, SHARES> {
    /// Refunds the unsettled time of the process in `slot` on all devices, ends its requests, and wakes the processes
    /// that may go on. Needs the join lock.
    ///
    /// The words are emptied before their values are used. If the reaping process is killed in between, the slice loses
    /// the time; the next reaper finds zero and refunds nothing twice. An unpredicted launch is charged as of the
    /// instant at which it may have begun: wall time has paid for it since then.
    pub(crate) fn reclaim_time(&self, slot: usize, now: u64) {
        for device in 0..self.device_count() {
            let Some((time, process)) = self.process_time(device, slot) else { continue };
            let waited = process.requested_ns.swap(0) > 0;
            process.sleep_deadline.publish(0);
            sampler_lease::end_lease(&time.sampler.0, slot);
            let queued = process.queued_ns.swap(0);
            process.spilled_bytes.set(0);
            process.context_bytes.set(0);
            // A process with service counts as one of the processes that share the lease.
            process.virtual_service.set(0);
            let (rest, since) = refund_on_death(process, queued, now);
            if rest > 0 {
                // As of that instant: the clock has paid for the time since the launch.
                self.settle_time(device, rest, since);
                process.counts.charged_ns.add(rest.unsigned_abs());
            } else if rest < 0 {
                self.settle_time(device, rest, now);
            }
            if waited && rest >= 0 {
                self.wake(device, now);
            }
        }
    }

    /// Prepares the words of a slot for the next process. `is_first`: no process has had the slot in this epoch, and
    /// its words are undefined.
    pub(crate) fn reset_time(&self, slot: usize, is_first: bool) {
        for device in 0..self.device_count() {
            if let Some((_, process)) = self.process_time(device, slot) {
                process.begin(is_first);
            }
        }
    }

    /// Returns the sums over all processes of a device, including those that have ended.
    pub(crate) fn time_used(&self, device: usize) -> TimeUsed {
        let processes =
            self.time(device).into_iter().flat_map(|time| time.processes.iter().take(self.slot_high_water()));
        processes.map(TimeUsed::of_slot).fold(TimeUsed::default(), TimeUsed::plus)
    }

    /// Returns the GPU time that one process has used on a device.
    pub(crate) fn time_used_by(&self, device: usize, slot: usize) -> TimeUsed {
        self.process_time(device, slot).map_or_else(TimeUsed::default, |(_, process)| TimeUsed::of(process))
    }
}

impl<const SLOTS: usize> DeviceTime<SLOTS> {
    /// Clears all words of a device, and those of the first `slots` processes.
    pub(crate) fn clear(&self, slots: usize) {
        let CouplingWords {
            last_payment_at,
            throttled_from,
            throttled_until,
            coupled_until,
            overrun_seen_at,
            overdraft_at,
            overdraft_paid_until,
            round,
        } = &self.coupling.0;
        let PaidWords { until, free_from } = &self.paid.0;
        let words = [until, free_from, &self.virtual_time.0, &self.overlap.0, &self.sampler.0.lease];
        let step = [
            last_payment_at,
            throttled_from,
            coupled_until,
            overrun_seen_at,
            overdraft_at,
            overdraft_paid_until,
            round,
        ];
        words.into_iter().chain(step).for_each(|word| word.set(0));
        throttled_until.publish(0);
        self.control.0.correction_millionths.set(0);
        self.control.0.measure_source.set(0);
        self.control.0.grant.set(0);
        self.control.0.divided_at.set(0);
        self.history.iter().for_each(|moment| moment.second.publish(0));
        self.intervals.clear();
        self.relayed.clear();
        self.processes.iter().take(slots).for_each(|process| process.begin(true));
    }
}

impl ProcessTime {
    /// Clears the words for the next process of the slot. `is_first`: clears the counters too.
    fn begin(&self, is_first: bool) {
        let Self {
            virtual_service, requested_ns, sleep_deadline, unsettled_ns, settled_at, queued_ns, ..
        } = self;
        let Self { counts, at_join, spilled_bytes, context_bytes, .. } = self;
        sleep_deadline.publish(0);
        let words = [
            virtual_service,
            requested_ns,
            unsettled_ns,
            settled_at,
            queued_ns,
            spilled_bytes,
            context_bytes,
        ];
        words.into_iter().for_each(|word| word.set(0));
        if is_first {
            counts.words().into_iter().for_each(|word| word.set(0));
        }
        at_join.words().into_iter().zip(counts.now()).for_each(|(word, count)| word.set(count));
    }
}

impl UsageCounts {
    fn words(&self) -> [&Word64; 4] {
        [&self.charged_ns, &self.throttled_ns, &self.copied_ns, &self.launches]
    }

    fn now(&self) -> [u64; 4] {
        self.words().map(Word64::get)
    }
}

/// Returns the charge of a dead process beyond its prepaid time, in nanoseconds of GPU time; negative for a refund. Also returns
/// the instant from which its work may have run. Empties the word of unsettled time.
fn refund_on_death(process: &ProcessTime, queued: u64, now: u64) -> (i64, u64) {
    let outstanding = process.unsettled_ns.swap(0).min(MOST_DEBT);
    #[cfg(all(test, loom))]
    if broken::is(Break::UnsettledKept) {
        process.unsettled_ns.set(outstanding);
    }
    let work = match queued {
        0 => Work::None,
        _ if queued & UNPREDICTED == 0 => Work::Predicted,
        _ => Work::Unpredicted,
    };
    let settled_at = process.settled_at.get();
    // A process that was never idle may have launched just now.
    let since = if settled_at == 0 && work == Work::Unpredicted { now } else { settled_at.min(now) };
    (refund::estate(outstanding, work, since, now), since)
}
