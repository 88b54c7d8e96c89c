//! Reclaims the GPU time of a process that ends, and sums the counters of all processes.
//!
//! Prepaid time of work that cannot have run returns to the slice. A launch without a prediction was prepaid with next to
//! nothing, so the slice is charged for the time for which it may have run.
//!
//! The reaping process holds the join lock. It empties the word before it refunds the time. A process killed in between
//! loses the time, and no time is refunded twice. Counters stay in the slot, and the next process in the slot counts on
//! from them. So nothing moves when a process dies, and no sum ever falls.

use gpuslice_policy::compute::limiter::refund::{self, Work};
use gpuslice_policy::compute::limiter::token_bucket::MOST_DEBT;
use gpuslice_policy::time::{GpuTime, GpuTimeChange, Monotonic, WallTime};

#[cfg(all(test, loom))]
use crate::sync::atomics::broken::{self, Break};
use crate::{
    compute::sampler_lease,
    layout::Layout,
    layout::Slot,
    layout::compute_words::{CouplingWords, DeviceTime, PaidWords, ProcessTime, UNPREDICTED, UsageCounts},
    sync::atomics::Word64,
};

/// GPU time that was used, and related counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeUsed {
    /// GPU time charged. Never falls.
    pub used: GpuTime,
    /// Wall time that launches were throttled. Never falls.
    pub throttled: WallTime,
    /// GPU time of copies. Never falls.
    pub copied: GpuTime,
    /// Predicted GPU time of work under way.
    pub queued: GpuTime,
    /// Launches. Never falls.
    pub launches: u64,
}

impl TimeUsed {
    /// Returns the counters of a slot, summed over all processes that have had the slot.
    fn of_slot(process: &ProcessTime) -> Self {
        Self { queued: process.queued(), ..process.counts.now() }
    }

    /// Returns the counters of the process that has the slot now.
    fn of(process: &ProcessTime) -> Self {
        let [now, before] = [process.counts.now(), process.at_join.now()];
        Self {
            used: now.used.saturating_sub(before.used),
            throttled: now.throttled.saturating_sub(before.throttled),
            copied: now.copied.saturating_sub(before.copied),
            queued: process.queued(),
            launches: now.launches.saturating_sub(before.launches),
        }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
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
    /// The words are emptied before their values are used. If the reaping process is killed in between, the slice loses the
    /// time. The next reaper then finds zero and refunds nothing twice. An unpredicted launch is charged from the instant
    /// at which it may have begun, because the share has paid for it since then.
    pub(crate) fn reclaim_time(&self, slot: usize, now: Monotonic) {
        for device in 0..self.device_count() {
            let Some((time, process)) = self.process_time(device, slot) else { continue };
            let waited = !process.requested_ns.swap(GpuTime::ZERO).is_zero();
            process.sleep_deadline.publish(Monotonic::BEGIN);
            sampler_lease::end_lease(&time.sampler.0, slot);
            let queued = process.queued_ns.swap(0);
            process.spilled_bytes.set(0);
            process.context_bytes.set(0);
            // A process with virtual service would count as one of the processes that share the leases.
            process.virtual_service.clear();
            let (rest, since) = refund_on_death(process, queued, now);
            if rest.is_refund() {
                self.settle_time(device, rest, now);
            } else if !rest.is_none() {
                self.charge_since(device, rest.amount(), (since, now));
                process.counts.charged_ns.add(rest.amount());
            }
            if waited && !rest.is_refund() {
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

    /// Returns the slots whose last process is in the process-number namespace of the process in `slot`. They include
    /// `slot`.
    pub(crate) fn slots_beside(&self, slot: usize) -> impl Iterator<Item = (usize, &Slot)> {
        let namespace = |entry: &Slot| entry.pid_namespace.get();
        let own = self.slots.get(slot).map(namespace);
        let entries = self.slots.iter().take(self.slot_high_water()).enumerate();
        entries.filter(move |(_, entry)| Some(namespace(entry)) == own)
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
        let instants = [
            until,
            free_from,
            last_payment_at,
            throttled_from,
            coupled_until,
            overrun_seen_at,
            overdraft_at,
            overdraft_paid_until,
            &self.control.0.divided_at,
            &self.control.0.programs_at,
        ];
        instants.into_iter().for_each(Word64::clear);
        throttled_until.publish(Monotonic::BEGIN);
        self.virtual_time.0.clear();
        [&self.overlap.0, &self.sampler.0.lease, round, &self.control.0.grant]
            .into_iter()
            .for_each(Word64::clear);
        self.control.0.correction_millionths.set(0);
        self.control.0.measure_source.set(0);
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
        sleep_deadline.publish(Monotonic::BEGIN);
        [virtual_service, requested_ns, unsettled_ns].into_iter().for_each(Word64::clear);
        settled_at.clear();
        [queued_ns, spilled_bytes, context_bytes].into_iter().for_each(Word64::clear);
        if is_first {
            counts.set(&TimeUsed::default());
        }
        at_join.set(&counts.now());
    }
}

impl UsageCounts {
    /// Returns the counters. The result does not include work under way.
    fn now(&self) -> TimeUsed {
        TimeUsed {
            used: self.charged_ns.get(),
            throttled: self.throttled_ns.get(),
            copied: self.copied_ns.get(),
            queued: GpuTime::ZERO,
            launches: self.launches.get(),
        }
    }

    fn set(&self, counts: &TimeUsed) {
        self.charged_ns.set(counts.used);
        self.throttled_ns.set(counts.throttled);
        self.copied_ns.set(counts.copied);
        self.launches.set(counts.launches);
    }
}

/// Returns the charge of a dead process beyond its prepaid time, or the refund. Also returns the instant from which its
/// work may have run. Empties the word of unsettled time.
fn refund_on_death(process: &ProcessTime, queued: u64, now: Monotonic) -> (GpuTimeChange, Monotonic) {
    let outstanding = process.unsettled_ns.swap(GpuTime::ZERO).min(MOST_DEBT);
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
    let since =
        if settled_at == Monotonic::BEGIN && work == Work::Unpredicted { now } else { settled_at.min(now) };
    (refund::on_death(outstanding, work, since, now), since)
}
