//! May this process use GPU time now, and what is paid for it?
//!
//! One word of a device says until when the slice's time is paid; it is changed by compare-and-swap alone, so nothing
//! is lost and nobody holds anything. What it becomes, and whose turn it is, `gpuslice_policy::compute` says. Who has
//! to wait says until when it sleeps, looks once more, and sleeps on the device's bell. Who makes the word smaller
//! looks who sleeps longer than it now has to, and rings. Between saying and looking stand full fences on both sides,
//! so one of the two sees the other.
//!
//! Words may say anything: a debt beyond what can be owed is brought down to it by whoever reads it.

use gpuslice_policy::compute::{
    bucket, lease,
    source::{Measured, Source},
    step::Kept,
    trim,
    turn::{self, Ask},
};

use crate::{
    compute::terms::{latest_payable, load_repaired},
    layout::{
        Layout,
        compute_words::{DeviceTime, PaidWords, ProcessTime},
        constants::WHOLE_SHARE,
    },
    sync::{atomics::full_fence, futex},
};

/// How often a payment is tried while others pay at the same instant, before it is left to the caller.
const TRIES: u32 = 64;
/// Bits of [`DeviceEntry::sharing`] that are zero where others have no part in what the slice may use.
const DIVIDES: u64 = 0xffff;
/// What a process says while it looks once more before it sleeps: whoever makes room then rings.
const ABOUT_TO_SLEEP: u64 = u64::MAX;

/// Who should have looked for so long, in nanoseconds, does not wait: it is stopped, or dead.
const STALLED_AFTER: u64 = 10_000_000;

impl ProcessTime {
    /// Whether the process waits for the share.
    pub(crate) fn waits(&self, now: u64) -> bool {
        self.requested_ns.get() > 0 && self.sleep_deadline.observe().saturating_add(STALLED_AFTER) > now
    }
}

impl PaidWords {
    /// Changes until when time is paid.
    pub(crate) fn change(&self, now: u64, next: impl Fn(u64) -> u64) {
        self.note_free(self.until.change(next), now);
    }

    /// Time is paid until this instant from now on.
    fn note_free(&self, until: u64, now: u64) {
        self.free_from.change(|free_from| bucket::free_from(free_from, until, now));
    }
}

impl<const DEVICES: usize, const SLOTS: usize, const SHARES: usize> Layout<DEVICES, SLOTS, SHARES> {
    /// The words of a device, if it is in use: those of others may have no space.
    pub(crate) fn time(&self, device: usize) -> Option<&DeviceTime<SLOTS>> {
        self.time.get(device).filter(|_| device < self.device_count())
    }

    /// The words of a process on a device, and the device's.
    pub(crate) fn process_time(
        &self,
        device: usize,
        slot: usize,
    ) -> Option<(&DeviceTime<SLOTS>, &ProcessTime)> {
        let time = self.time(device)?;
        Some((time, time.processes.get(slot)?))
    }

    /// Whether launches on a device are paid for: less than the whole is the slice's, or others divide it with the slice.
    #[inline]
    pub(crate) fn is_paced(&self, device: usize) -> bool {
        self.devices.get(device).is_none_or(|entry| {
            entry.cores_permille.get() < WHOLE_SHARE || entry.sharing.get() & DIVIDES != 0
        })
    }

    /// How much a process takes at least: more where turns or neighbours make each taking dear.
    pub(crate) fn least_lease(&self, device: usize, slot: usize, now: u64) -> lease::Least {
        // With what a lease has left a launch on one device would go, and wait for the one on another that has nothing left.
        if self.is_coupled(device, now) {
            return lease::Least { time: lease::LEAST, is_alone: true };
        }
        let terms = self.terms(device);
        let Some(time) = self.time(device) else {
            return lease::Least { time: lease::size(terms), is_alone: true };
        };
        let others =
            || self.requests(time).enumerate().filter(|(other, _)| *other != slot).map(|(_, ask)| ask);
        let is_trimmed = trim::factor_of(time.control.0.correction_millionths.get()) < trim::ONE;
        // Neighbours that nobody sees cost a turn once, whatever is done in it.
        let measured = Measured::of_word(time.control.0.measure_source.get());
        let is_blind = measured.source == Source::Whole || measured.why.is_some();
        let waiting = others().filter(|ask| ask.wants > 0).count();
        let is_alone = waiting == 0 && others().all(|ask| ask.served == 0);
        let time = match waiting {
            0 if is_trimmed || is_blind => lease::turn(terms),
            0 if is_alone => lease::alone(terms),
            0 => lease::size(terms),
            _ => lease::turn_among(terms, waiting.saturating_add(1)),
        };
        lease::Least { time, is_alone }
    }

    /// Takes so much GPU time for `slot`, or says when it has to look again.
    ///
    /// One thread of a process at a time. Of a device that is not there everything is granted: nobody could ever say
    /// that the wait is over.
    pub(crate) fn take_time(
        &self,
        device: usize,
        slot: usize,
        amount: u64,
        (since, now): (u64, u64),
    ) -> Result<(), u64> {
        let Some((time, process)) = self.process_time(device, slot) else { return Ok(()) };
        self.expire_grant(device, now);
        if process.requested_ns.get() == 0 {
            let (terms, virtual_time) = (self.terms(device), time.virtual_time.0.get());
            process
                .virtual_service
                .change(|served| turn::start(served, virtual_time, terms, self.requests(time)));
        }
        process.requested_ns.set(amount.max(1));
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

    /// Pays for a process if it is its turn; else when to look again.
    fn pay(&self, device: usize, slot: usize, amount: u64, (since, now): (u64, u64)) -> Result<(), u64> {
        let Some((time, process)) = self.process_time(device, slot) else { return Ok(()) };
        let others = self.coupling_state(device, since, now);
        for _ in 0..TRIES {
            let terms = self.terms(device);
            let paid_until = load_repaired(time, terms, now);
            let served = process.virtual_service.get();
            let before = turn::before(slot, served, self.requests(time));
            let free_since = bucket::free_since(paid_until, time.paid.0.free_from.get(), now);
            if let Some(until) = turn::wait(free_since.max(others.wait), before, now, terms) {
                return Err(until);
            }
            let prepaid = bucket::prepay(paid_until.max(others.saved), now, amount, terms);
            if time.paid.0.until.replace(paid_until, prepaid) {
                time.paid.0.note_free(prepaid, now);
                // After the payment: who is killed in between loses it, and it is never refunded unpaid.
                process.unsettled_ns.change(|outstanding| outstanding.saturating_add(amount));
                process.virtual_service.change(|served| served.saturating_add(amount));
                time.virtual_time.0.raise(served);
                self.note_payment(device, Kept { since, until: now, went_ahead: false });
                return Ok(());
            }
        }
        Err(now)
    }

    /// A process has let go what the slice has nothing left for: it is owed.
    pub(crate) fn overdraw(&self, device: usize, slot: usize, amount: u64, now: u64) {
        let Some((_, process)) = self.process_time(device, slot) else { return };
        self.settle_time(device, i64::try_from(amount).unwrap_or(i64::MAX), now);
        // In the order of a payment.
        process.unsettled_ns.change(|outstanding| outstanding.saturating_add(amount));
        process.virtual_service.change(|served| served.saturating_add(amount));
    }

    /// A process does not wait any more.
    pub(crate) fn withdraw_request(&self, device: usize, slot: usize) {
        if let Some((_, process)) = self.process_time(device, slot) {
            process.requested_ns.set(0);
            process.sleep_deadline.publish(0);
        }
    }

    /// What was measured differs from what was prepaid. A refund wakes those who sleep too long by it.
    pub(crate) fn settle_time(&self, device: usize, difference: i64, now: u64) {
        let Some(time) = self.time(device) else { return };
        let terms = self.terms(device);
        let most = latest_payable(terms, now);
        time.paid.0.change(now, |until| bucket::settle(until.min(most), now, difference, terms));
        if difference < 0 {
            self.wake(device, now);
        }
    }

    /// Sets the word back by so much on the clock, but not behind it, and wakes those who may go then.
    pub(crate) fn credit_wall_time(&self, device: usize, gift: u64, now: u64) {
        let Some(time) = self.time(device) else { return };
        let most = latest_payable(self.terms(device), now);
        time.paid.0.change(now, |until| {
            let until = until.min(most);
            until.saturating_sub(gift.min(until.saturating_sub(now)))
        });
        self.wake(device, now);
    }

    /// Rings, if anybody sleeps for longer than the word and its turn ask.
    pub(crate) fn wake(&self, device: usize, now: u64) {
        let Some(time) = self.time(device) else { return };
        full_fence();
        let paid_until = load_repaired(time, self.terms(device), now);
        self.wake_if_late(time, |until| bucket::wakes(until, paid_until, now));
    }

    /// Rings, if anybody sleeps until an instant that is too late. To be called behind a full fence.
    pub(crate) fn wake_if_late(&self, time: &DeviceTime<SLOTS>, is_late: impl Fn(u64) -> bool) {
        let sleepers = time.processes.iter().take(self.slot_high_water());
        if sleepers.map(|process| process.sleep_deadline.observe()).any(is_late) {
            futex::wake_all(&time.wake_seq.0);
        }
    }

    /// Whether a device has work that is not known to have ended.
    pub(crate) fn is_busy(&self, time: &DeviceTime<SLOTS>) -> bool {
        time.processes.iter().take(self.slot_high_water()).any(|process| process.queued() > 0)
    }

    /// All devices in use but this one.
    pub(crate) fn other_devices(&self, device: usize) -> impl Iterator<Item = usize> {
        (0..self.device_count()).filter(move |other| *other != device)
    }

    /// What all processes ask for, by slot.
    fn requests(&self, time: &DeviceTime<SLOTS>) -> impl Iterator<Item = Ask> + Clone {
        let processes = time.processes.iter().take(self.slot_high_water());
        processes
            .map(|process| Ask { served: process.virtual_service.get(), wants: process.requested_ns.get() })
    }
}
