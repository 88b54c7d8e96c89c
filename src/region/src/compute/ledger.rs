//! Grants GPU time to processes, and settles the time that they have used.
//!
//! One word of a device, `paid_until`, is the instant up to which the slice's GPU time is paid. Processes change it by
//! compare-and-swap only, so no update is lost, no process holds a lock, and nothing needs repair after a death.
//! `gpuslice_policy::compute` computes the new value, and the order in which processes get time.
//!
//! *Sleep.* A process that must wait publishes that it is about to sleep, executes a full fence, and tries once more.
//! Then it publishes its deadline and sleeps on the device's futex.
//!
//! *Wake-up.* A process that lowers `paid_until` executes a full fence, and wakes all sleepers if any deadline is now too
//! late. The process whose fence comes second sees the other's write. So no wake-up is lost.
//!
//! Other processes may write anything into the words. Each process that reads a debt beyond the largest one reduces it to
//! the largest.

use core::cell::Cell;

use gpuslice_policy::compute::attribution::correction;
use gpuslice_policy::compute::attribution::source::Measured;
use gpuslice_policy::compute::coupling::ThrottledLaunch;
use gpuslice_policy::compute::limiter::fair_queue::{self, Ask};
use gpuslice_policy::compute::limiter::lease;
use gpuslice_policy::compute::limiter::overdraft;
use gpuslice_policy::compute::limiter::token_bucket;
use gpuslice_policy::time::{GpuTime, GpuTimeChange, Monotonic, WallTime};

use crate::{
    compute::rate_limit::{latest_payable, load_repaired},
    layout::{
        Layout,
        compute_words::{DeviceTime, PaidWords, ProcessTime},
        constants::WHOLE_SHARE,
    },
    sync::{atomics::full_fence, futex},
};

/// The most tries of a payment while other processes pay at the same instant. After them the caller tries again.
const PAYMENT_TRIES: u32 = 64;
/// Bits of `DeviceEntry::sharing` that are zero if no other slice has a part in this slice's rate.
const DIVIDES: u64 = 0xffff;
/// The deadline of a process that tries once more before it sleeps. Any process that lowers `paid_until` wakes it.
const ABOUT_TO_SLEEP: Monotonic = Monotonic::NEVER;

impl ProcessTime {
    /// Tells whether the process waits for GPU time.
    pub(crate) fn waits(&self, now: Monotonic) -> bool {
        !self.requested_ns.get().is_zero()
            && self.sleep_deadline.observe().saturating_add(fair_queue::STOPPED_AFTER) > now
    }
}

impl PaidWords {
    /// Changes the instant up to which time is paid.
    pub(crate) fn change(&self, now: Monotonic, next: impl Fn(Monotonic) -> Monotonic) {
        self.change_at(|| now, |until, _| next(until));
    }

    /// Changes the instant up to which time is paid. `next` gets this instant, and the present instant, which is read
    /// second.
    ///
    /// Example: a process is stopped for a second after it has read the clock, and others pay meanwhile. The
    /// compare-and-swap then fails, and the process reads both instants again. With the old reading of the clock, the
    /// second would count as debt.
    pub(crate) fn change_at(
        &self,
        clock: impl Fn() -> Monotonic,
        next: impl Fn(Monotonic, Monotonic) -> Monotonic,
    ) {
        let read_at = Cell::new(Monotonic::BEGIN);
        let until = self.until.change(|until| {
            read_at.set(clock());
            next(until, read_at.get())
        });
        self.note_free(until, read_at.get());
    }

    /// Updates the instant from which time is free, after a process has paid until `until`.
    fn note_free(&self, until: Monotonic, now: Monotonic) {
        self.free_from.change(|free_from| token_bucket::free_from(free_from, until, now));
    }
}

impl<const DEVICES: usize, const SLOTS: usize, const SHARES: usize> Layout<DEVICES, SLOTS, SHARES> {
    /// Returns the words of a device. `None` for a device that does not exist: its words may have no space in the file.
    pub(crate) fn time(&self, device: usize) -> Option<&DeviceTime<SLOTS>> {
        self.time.get(device).filter(|_| device < self.device_count())
    }

    /// Returns the words of a device, and the words of a process on the device.
    pub(crate) fn process_time(
        &self,
        device: usize,
        slot: usize,
    ) -> Option<(&DeviceTime<SLOTS>, &ProcessTime)> {
        let time = self.time(device)?;
        Some((time, time.processes.get(slot)?))
    }

    /// Tells whether launches on a device need GPU time from the ledger. They do if the share is less than the whole, or if other
    /// slices have a part in the rate.
    #[inline]
    pub(crate) fn is_paced(&self, device: usize) -> bool {
        self.devices.get(device).is_none_or(|entry| {
            entry.cores_permille.get() < WHOLE_SHARE || entry.sharing.get() & DIVIDES != 0
        })
    }

    /// Returns the conditions that determine the size of a process's leases.
    pub(crate) fn lease_situation(&self, device: usize, slot: usize, now: Monotonic) -> lease::Situation {
        let rate_limit = self.rate_limit(device);
        let is_coupled = self.is_coupled(device, now);
        let Some(time) = self.time(device).filter(|_| !is_coupled) else {
            let (has_cotenants, waiting, is_alone) = (false, 0, true);
            return lease::Situation { rate_limit, is_coupled, has_cotenants, waiting, is_alone };
        };
        let others =
            || self.requests(time, now).enumerate().filter(|(other, _)| *other != slot).map(|(_, ask)| ask);
        let is_corrected =
            correction::factor_of(time.control.0.correction_millionths.get()) < correction::WHOLE_FACTOR;
        // If co-tenants cannot be observed, each turn of a process costs the time of one switch, whatever its length.
        let measured = Measured::of_word(time.control.0.measure_source.get());
        let is_blind = measured.source.is_beside_programs() || measured.why.is_some();
        let waiting = others().filter(|ask| !ask.requested.is_zero()).count();
        let is_alone = waiting == 0 && others().all(|ask| ask.virtual_service.is_zero());
        lease::Situation {
            rate_limit,
            is_coupled,
            has_cotenants: is_corrected || is_blind,
            waiting,
            is_alone,
        }
    }

    /// Takes `amount` of GPU time for `slot`. `Err`: the instant at which to try again. The request then stays published
    /// until the process takes time or withdraws the request.
    ///
    /// `since` is the instant of the caller's first request. One thread of a process calls this function at a time.
    ///
    /// The process first publishes the amount, so that the others know that it waits. If the first payment fails, it
    /// publishes [`ABOUT_TO_SLEEP`], executes a full fence, and tries once more. A refund between the two tries would
    /// otherwise be missed: the refunder would see no sleeper, and the process would sleep for too long.
    ///
    /// For a device that does not exist every request is granted, because no process could ever end the wait.
    pub(crate) fn take_time(
        &self,
        device: usize,
        slot: usize,
        amount: GpuTime,
        (since, now): (Monotonic, Monotonic),
    ) -> Result<(), Monotonic> {
        let Some((time, process)) = self.process_time(device, slot) else { return Ok(()) };
        if process.requested_ns.get().is_zero() {
            let (rate_limit, virtual_time) = (self.rate_limit(device), time.virtual_time.0.get());
            process.virtual_service.change(|served| {
                fair_queue::start(served, virtual_time, rate_limit, self.requests(time, now))
            });
        }
        process.requested_ns.set(amount.max(GpuTime::NANOSECOND));
        if self.pay(device, slot, amount, (since, now)).is_err() {
            process.sleep_deadline.publish(ABOUT_TO_SLEEP);
            full_fence();
            if let Err(until) = self.pay(device, slot, amount, (since, now)) {
                process.sleep_deadline.publish(until);
                return Err(until);
            }
        }
        self.withdraw_request(device, slot);
        Ok(())
    }

    /// Pays for a process if the bucket has time and no other process comes first. `Err`: the instant at which to try
    /// again.
    ///
    /// The compare-and-swap of `paid_until` is the payment. All other words follow it. A process killed in between loses
    /// the time, and unpaid time is never refunded. If other processes win [`PAYMENT_TRIES`] times in a row, the caller
    /// tries again at once.
    fn pay(
        &self,
        device: usize,
        slot: usize,
        amount: GpuTime,
        (since, now): (Monotonic, Monotonic),
    ) -> Result<(), Monotonic> {
        let Some((time, process)) = self.process_time(device, slot) else { return Ok(()) };
        let others = self.coupling_state(device, since, now);
        for _ in 0..PAYMENT_TRIES {
            let rate_limit = self.rate_limit(device);
            let paid_until = load_repaired(time, rate_limit, now);
            let served = process.virtual_service.get();
            let before = fair_queue::before(slot, served, self.requests(time, now));
            let free_since = token_bucket::free_since(paid_until, time.paid.0.free_from.get(), now);
            if let Some(until) = fair_queue::wait(free_since.max(others.wait), before, now, rate_limit) {
                return Err(until);
            }
            let prepaid = token_bucket::prepay(paid_until.max(others.saved), now, amount, rate_limit);
            if time.paid.0.until.replace(paid_until, prepaid) {
                time.paid.0.note_free(prepaid, now);
                // This comes after the payment. A process killed in between loses the time, and no process refunds unpaid
                // time.
                process.unsettled_ns.change(|outstanding| outstanding.saturating_add(amount));
                process.virtual_service.change(|served| served.saturating_add(amount));
                time.virtual_time.0.raise(served);
                self.note_payment(device, ThrottledLaunch { since, until: now, is_overdraft: false });
                return Ok(());
            }
        }
        Err(now)
    }

    /// Charges `amount` for a launch that is admitted although the slice has no time left: the slice owes it. Returns false,
    /// and charges nothing, if the budget of overdrafts does not pay for it.
    ///
    /// A process killed after the payment from the budget loses that part of the budget.
    pub(crate) fn overdraw(&self, device: usize, slot: usize, amount: GpuTime, now: Monotonic) -> bool {
        let Some((time, process)) = self.process_time(device, slot) else { return true };
        let (budget, rate_limit) = (&time.coupling.0.overdraft_paid_until, self.rate_limit(device));
        let is_paid = (0..PAYMENT_TRIES).find_map(|_| {
            let until = budget.get();
            let next = overdraft::admit(until, now, amount, rate_limit);
            next.map_or(Some(false), |next| budget.replace(until, next).then_some(true))
        });
        if is_paid != Some(true) {
            return false;
        }
        self.settle_time(device, GpuTimeChange::charge(amount), now);
        // The words are written in the order of a payment.
        process.unsettled_ns.change(|outstanding| outstanding.saturating_add(amount));
        process.virtual_service.change(|served| served.saturating_add(amount));
        true
    }

    /// Ends the request of a process.
    pub(crate) fn withdraw_request(&self, device: usize, slot: usize) {
        if let Some((_, process)) = self.process_time(device, slot) {
            process.requested_ns.clear();
            process.sleep_deadline.publish(Monotonic::BEGIN);
        }
    }

    /// Charges the difference between measured and prepaid time. A negative difference is a refund: the function then wakes
    /// the processes that would sleep for too long.
    ///
    /// Example: a launch was prepaid with 3 ms and took 2 ms. The difference of -1 ms moves `paid_until` back by the wall
    /// time that 1 ms costs at the slice's rate. The compare-and-swap loop starts from the value that other processes have
    /// written, so no charge and no refund is lost. The word is first limited to the largest debt. Otherwise a refund of an
    /// invalid value would have no effect.
    pub(crate) fn settle_time(&self, device: usize, difference: GpuTimeChange, now: Monotonic) {
        let Some(time) = self.time(device) else { return };
        let rate_limit = self.rate_limit(device);
        let most = latest_payable(rate_limit, now);
        time.paid.0.change(now, |until| token_bucket::settle(until.min(most), now, difference, rate_limit));
        if difference.is_refund() {
            self.wake(device, now);
        }
    }

    /// Charges `amount` for work that began at the earlier instant `since`. The share has paid for the work since then.
    pub(crate) fn charge_since(&self, device: usize, amount: GpuTime, (since, now): (Monotonic, Monotonic)) {
        let Some(time) = self.time(device) else { return };
        let rate_limit = self.rate_limit(device);
        time.paid.0.change(now, |until| token_bucket::charge_since(until, (since, now), amount, rate_limit));
    }

    /// Lowers `paid_until` by `wall`, but not below the present instant. Wakes the processes that may go on.
    pub(crate) fn credit_wall_time(&self, device: usize, wall: WallTime, clock: impl Fn() -> Monotonic) {
        let Some(time) = self.time(device) else { return };
        let rate_limit = self.rate_limit(device);
        time.paid.0.change_at(&clock, |until, now| {
            let until = until.min(latest_payable(rate_limit, now));
            until.saturating_sub(wall.min(until.since(now)))
        });
        self.wake(device, clock());
    }

    /// Wakes all sleepers if one of them sleeps for longer than `paid_until` and its turn require.
    ///
    /// The fence orders the caller's change of `paid_until` before the reading of the deadlines. A process that goes to
    /// sleep writes its deadline, executes a fence, and reads `paid_until`. One of the two processes sees the write of the
    /// other. Either this function wakes the sleeper, or the sleeper does not go to sleep.
    pub(crate) fn wake(&self, device: usize, now: Monotonic) {
        let Some(time) = self.time(device) else { return };
        full_fence();
        let paid_until = load_repaired(time, self.rate_limit(device), now);
        self.wake_if_late(time, |until| token_bucket::wakes(until, paid_until, now));
    }

    /// Wakes all sleepers of a device if `is_late` holds for any of their deadlines. The caller has executed a full fence.
    pub(crate) fn wake_if_late(&self, time: &DeviceTime<SLOTS>, is_late: impl Fn(Monotonic) -> bool) {
        let sleepers = time.processes.iter().take(self.slot_high_water());
        if sleepers.map(|process| process.sleep_deadline.observe()).any(is_late) {
            futex::wake_all(&time.wake_seq.0);
        }
    }

    /// Tells whether a device has work that is not known to have ended.
    pub(crate) fn is_busy(&self, time: &DeviceTime<SLOTS>) -> bool {
        time.processes.iter().take(self.slot_high_water()).any(|process| !process.queued().is_zero())
    }

    /// Returns all valid devices except `device`.
    pub(crate) fn other_devices(&self, device: usize) -> impl Iterator<Item = usize> {
        (0..self.device_count()).filter(move |other| *other != device)
    }

    /// Returns the requests of all processes, by slot.
    fn requests(&self, time: &DeviceTime<SLOTS>, now: Monotonic) -> impl Iterator<Item = Ask> + Clone {
        let processes = time.processes.iter().take(self.slot_high_water());
        processes.map(move |process| {
            let ask =
                Ask { virtual_service: process.virtual_service.get(), requested: process.requested_ns.get() };
            ask.of_one_that(process.sleep_deadline.observe(), now)
        })
    }
}
