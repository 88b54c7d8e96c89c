//! May this process use GPU time now, and what is paid for it?
//!
//! One word of a device says until when the slice's time is paid; it is changed by compare-and-swap alone, so nothing
//! is lost and nobody holds anything. What it becomes, and whose turn it is, `gpuslice_policy::compute` says. Who has
//! to wait says until when it sleeps, looks once more, and sleeps on the device's bell. Who makes the word smaller
//! looks who sleeps longer than it now has to, and rings. Between saying and looking stand full fences on both sides,
//! so one of the two sees the other.
//!
//! Words may say anything: a debt beyond what can be owed is brought down to it by whoever reads it.

use gpuslice_policy::{
    arbiter::word,
    compute::{
        bucket::{self, MOST_DEBT, Terms},
        lease,
        source::{Measured, Source},
        step::{self, Kept, LASTS, Other},
        trim,
        turn::{self, Ask},
    },
    config::Burst,
    units::{Nanos, Permille},
};

#[cfg(all(test, loom))]
use crate::sync::broken::{self, Break};
use crate::{
    bell,
    layout::{DeviceEntry, Layout, WHOLE_SHARE},
    sync::full_fence,
    words::{DeviceTime, Paid, ProcessTime, Step},
};

/// The most GPU time that may be saved up, in nanoseconds.
pub(crate) const MOST_BURST: u64 = Burst::MOST.get();
/// How often a payment is tried while others pay at the same instant, before it is left to the caller.
const TRIES: u32 = 64;
/// Bits of [`DeviceEntry::sharing`] that are zero where others have no part in what the slice may use.
const DIVIDES: u64 = 0xffff;
/// What a process says while it looks once more before it sleeps: whoever makes room then rings.
const ABOUT_TO: u64 = u64::MAX;

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

impl ProcessTime {
    /// Whether the process waits for the share.
    pub(crate) fn waits(&self, now: u64) -> bool {
        self.wants.get() > 0 && self.sleeps_until.observe().saturating_add(turn::OVERDUE) > now
    }
}

impl Paid {
    /// Changes until when time is paid.
    pub(crate) fn change(&self, now: u64, next: impl Fn(u64) -> u64) {
        self.note_free(self.until.change(next), now);
    }

    /// Time is paid until this instant from now on.
    fn note_free(&self, until: u64, now: u64) {
        self.free_from.change(|free_from| bucket::free_from(free_from, until, now));
    }
}

/// What devices in step are to each other.
#[derive(Default)]
struct InStep {
    /// Until when to wait for them.
    wait: u64,
    /// No more is saved up than they have: since when.
    saved: u64,
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

    /// What the slice may use of a device's time: its own terms, or what it was told for as long as that stands. Nearly
    /// nothing of one that is not there.
    pub(crate) fn terms(&self, device: usize) -> Terms {
        let told = self.time(device).map_or(0, |time| time.readings.0.told.get());
        self.devices.get(device).map_or_else(|| terms(1, 0), |entry| word::granted(told, terms_of(entry)).0)
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
        if self.is_in_step(device, now) {
            return lease::Least { time: lease::LEAST, is_alone: true };
        }
        let terms = self.terms(device);
        let Some(time) = self.time(device) else {
            return lease::Least { time: lease::size(terms), is_alone: true };
        };
        let others =
            || self.asks(time, now).enumerate().filter(|(other, _)| *other != slot).map(|(_, ask)| ask);
        let is_trimmed = trim::factor_of(time.readings.0.factor.get()) < trim::ONE;
        // Neighbours that nobody sees cost a turn once, whatever is done in it.
        let measured = Measured::of_word(time.readings.0.meter.get());
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
        self.forget_stale(device, now);
        if process.wants.get() == 0 {
            let (terms, virtual_time) = (self.terms(device), time.virtual_time.0.get());
            process.served.change(|served| turn::start(served, virtual_time, terms, self.asks(time, now)));
        }
        process.wants.set(amount.max(1));
        if self.pay(device, slot, amount, (since, now)).is_err() {
            process.sleeps_until.publish(ABOUT_TO);
            full_fence();
            if let Err(until) = self.pay(device, slot, amount, (since, now)) {
                process.sleeps_until.publish(until);
                return Err(until);
            }
        }
        self.stop_asking(device, slot);
        Ok(())
    }

    /// Pays for a process if it is its turn; else when to look again.
    fn pay(&self, device: usize, slot: usize, amount: u64, (since, now): (u64, u64)) -> Result<(), u64> {
        let Some((time, process)) = self.process_time(device, slot) else { return Ok(()) };
        let others = self.in_step(device, since, now);
        for _ in 0..TRIES {
            let terms = self.terms(device);
            let paid_until = believed(time, terms, now);
            let served = process.served.get();
            let before = turn::before(slot, served, self.asks(time, now));
            let free_since = bucket::free_since(paid_until, time.paid.0.free_from.get(), now);
            if let Some(until) = turn::wait(free_since.max(others.wait), before, now, terms) {
                return Err(until);
            }
            let prepaid = bucket::prepay(paid_until.max(others.saved), now, amount, terms);
            if time.paid.0.until.replace(paid_until, prepaid) {
                time.paid.0.note_free(prepaid, now);
                // After the payment: who is killed in between loses it, and it is never refunded unpaid.
                process.outstanding.change(|outstanding| outstanding.saturating_add(amount));
                process.served.change(|served| served.saturating_add(amount));
                time.virtual_time.0.raise(served);
                self.note_payment(device, Kept { since, until: now, went_ahead: false });
                return Ok(());
            }
        }
        Err(now)
    }

    /// Tells other devices that a process has got through that had been kept.
    fn note_payment(&self, device: usize, kept: Kept) {
        let Some(time) = self.time(device) else { return };
        let step = &time.step.0;
        step.paid_at.set(kept.until);
        if kept.went_ahead {
            step.ahead_at.set(kept.until);
        }
        if step::is_told(kept, self.last_wait(device)) {
            step.kept_since.set(kept.since);
            step.kept_until.publish(kept.until);
        }
    }

    /// A run on a device goes on for far longer than it does: wakes those whom other devices' shares hold back, since it may
    /// wait for them. Once: they look again while it goes on.
    pub(crate) fn note_overdue(&self, device: usize, now: u64) {
        let Some(time) = self.time(device) else { return };
        if step::is_known(time.step.0.overdue_at.swap(now), now) {
            return;
        }
        full_fence();
        for other in self.other_devices(device).filter_map(|other| self.time(other)) {
            self.ring_for(other, |until| until > now);
        }
    }

    /// What was overdue has ended.
    pub(crate) fn forget_overdue(&self, device: usize) {
        if let Some(time) = self.time(device) {
            time.step.0.overdue_at.set(0);
        }
    }

    /// When a run was last seen to be overdue on another device, where one is.
    pub(crate) fn others_overdue(&self, device: usize, now: u64) -> Option<u64> {
        let others = self.other_devices(device).filter_map(|other| self.time(other));
        others.map(|time| time.step.0.overdue_at.get()).filter(|seen| step::is_overdue(*seen, now)).max()
    }

    /// Takes so much for `slot` that the slice owes already, since a run on another device may wait for it, if so much may go
    /// ahead. Not where the run has not been seen since this device's last payment, or what was sent off may be what it waits
    /// for.
    pub(crate) fn go_ahead(&self, device: usize, slot: usize, amount: u64, (since, now): (u64, u64)) -> bool {
        let Some(time) = self.time(device) else { return false };
        let (Step { paid_at, ahead_until, .. }, terms) = (&time.step.0, self.terms(device));
        if self.others_overdue(device, now).is_none_or(|seen| seen <= paid_at.get())
            || !step::is_held_back(believed(time, terms, now), now, terms)
            || self.is_busy(time)
        {
            return false;
        }
        let until = ahead_until.get();
        let next = step::ahead(until, now, amount, terms);
        if next.is_none_or(|next| !ahead_until.replace(until, next)) {
            return false;
        }
        self.owe_time(device, slot, amount, now);
        self.note_payment(device, Kept { since, until: now, went_ahead: true });
        self.stop_asking(device, slot);
        true
    }

    /// What devices in step with this one are to a process that has waited since an instant.
    fn in_step(&self, device: usize, since: u64, now: u64) -> InStep {
        if !self.is_in_step(device, now) {
            return InStep::default();
        }
        let others = self.other_devices(device).filter(|other| self.is_in_step(*other, now));
        others.filter_map(|other| self.seen_by_others(other, now)).fold(InStep::default(), |all, other| {
            let wait = step::wait(&other, since, now).unwrap_or(0);
            InStep { wait: all.wait.max(wait), saved: all.saved.max(step::saved(&other, now)) }
        })
    }

    /// Whether a device goes in step with others.
    pub(crate) fn is_in_step(&self, device: usize, now: u64) -> bool {
        self.time(device).is_some_and(|time| step::holds(time.step.0.lasts_until.get(), now))
    }

    /// What a device does.
    fn seen_by_others(&self, device: usize, now: u64) -> Option<Other> {
        let time = self.time(device)?;
        let processes = || time.processes.iter().take(self.claimed());
        Some(Other {
            paid_until: believed(time, self.terms(device), now),
            is_asked: processes().any(|process| process.waits(now)),
            is_busy: self.is_busy(time),
            ended: processes().map(|process| process.settled_at.get()).max().unwrap_or(0),
            paid_at: time.step.0.paid_at.get(),
        })
    }

    /// How long a device's share kept a launch last. While one writes that it is shorter than it was, never longer.
    pub(crate) fn last_wait(&self, device: usize) -> Kept {
        let Some(time) = self.time(device) else { return Kept::default() };
        let Step { kept_since, kept_until, ahead_at, .. } = &time.step.0;
        #[cfg(all(test, loom))]
        if broken::is(Break::TornBelieved) {
            let since = kept_since.get();
            return Kept { since, until: kept_until.observe(), went_ahead: false };
        }
        // In this order: who reads a new one reads since when, too.
        let until = kept_until.observe();
        Kept { since: kept_since.get(), until, went_ahead: until == ahead_at.get() }
    }

    /// From now on for a while these devices go in step.
    pub(crate) fn go_in_step(&self, devices: [usize; 2], now: u64) {
        for time in devices.into_iter().filter_map(|device| self.time(device)) {
            time.step.0.lasts_until.set(now.saturating_add(LASTS));
        }
    }

    /// A process has let go what the slice has nothing left for: it is owed.
    pub(crate) fn owe_time(&self, device: usize, slot: usize, amount: u64, now: u64) {
        let Some((_, process)) = self.process_time(device, slot) else { return };
        self.settle_time(device, i64::try_from(amount).unwrap_or(i64::MAX), now);
        // In the order of a payment.
        process.outstanding.change(|outstanding| outstanding.saturating_add(amount));
        process.served.change(|served| served.saturating_add(amount));
    }

    /// A process does not wait any more.
    pub(crate) fn stop_asking(&self, device: usize, slot: usize) {
        if let Some((_, process)) = self.process_time(device, slot) {
            process.wants.set(0);
            process.sleeps_until.publish(0);
        }
    }

    /// What was measured differs from what was prepaid. A refund wakes those who sleep too long by it.
    pub(crate) fn settle_time(&self, device: usize, difference: i64, now: u64) {
        let Some(time) = self.time(device) else { return };
        let terms = self.terms(device);
        let most = most(terms, now);
        time.paid.0.change(now, |until| bucket::settle(until.min(most), now, difference, terms));
        if difference < 0 {
            self.wake(device, now);
        }
    }

    /// Other terms: what is owed or saved stays what it was, and who sleeps looks again.
    pub(crate) fn change_terms(&self, device: usize, (old, new): (Terms, Terms), now: u64) {
        let Some(time) = self.time(device) else { return };
        if old == new {
            return;
        }
        let most = most(old, now);
        time.paid.0.change(now, |until| bucket::change(until.min(most), now, old, new));
        full_fence();
        bell::ring(&time.bell.0);
    }

    /// Tells the slice what it may use. What is owed or saved stays what it was.
    ///
    /// The two words change one after the other, and somebody may pay in between. In the order chosen here he pays too
    /// little, once; in the other one he would pay by the new rate and then be changed to it again, twenty times too much
    /// where a rate falls to a twentieth. Somebody else may tell, or forget, at the same time: one of them has done it.
    pub(crate) fn tell(&self, device: usize, new: u64, now: u64) {
        let (Some(time), Some(entry)) = (self.time(device), self.devices.get(device)) else { return };
        let (told, own) = (&time.readings.0.told, terms_of(entry));
        let before = told.get();
        let change = (word::granted(before, own).0, word::granted(new, own).0);
        #[cfg(all(test, loom))]
        let falls = change.1.rate() < change.0.rate() && !broken::is(Break::ToldFirst);
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
    pub(crate) fn forget_stale(&self, device: usize, now: u64) {
        let Some(time) = self.time(device) else { return };
        let told = time.readings.0.told.get();
        if word::is_stale(told, now) && time.readings.0.told.replace(told, 0) {
            let own = self.devices.get(device).map_or_else(|| terms(1, 0), terms_of);
            self.change_terms(device, (word::granted(told, own).0, own), now);
        }
    }

    /// Sets the word back by so much on the clock, but not behind it, and wakes those who may go then.
    pub(crate) fn give_time(&self, device: usize, gift: u64, now: u64) {
        let Some(time) = self.time(device) else { return };
        let most = most(self.terms(device), now);
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
        let paid_until = believed(time, self.terms(device), now);
        self.ring_for(time, |until| bucket::wakes(until, paid_until, now));
    }

    /// Rings, if anybody sleeps until an instant that is too late. To be called behind a full fence.
    fn ring_for(&self, time: &DeviceTime<SLOTS>, is_late: impl Fn(u64) -> bool) {
        let sleepers = time.processes.iter().take(self.claimed());
        if sleepers.map(|process| process.sleeps_until.observe()).any(is_late) {
            bell::ring(&time.bell.0);
        }
    }

    /// Whether a device has work that is not known to have ended.
    fn is_busy(&self, time: &DeviceTime<SLOTS>) -> bool {
        time.processes.iter().take(self.claimed()).any(|process| process.queued() > 0)
    }

    /// All devices in use but this one.
    pub(crate) fn other_devices(&self, device: usize) -> impl Iterator<Item = usize> {
        (0..self.device_count()).filter(move |other| *other != device)
    }

    /// What all processes ask for, by slot.
    fn asks(&self, time: &DeviceTime<SLOTS>, now: u64) -> impl Iterator<Item = Ask> + Clone {
        let processes = time.processes.iter().take(self.claimed());
        processes.map(move |process| {
            let ask = Ask { served: process.served.get(), wants: process.wants.get() };
            ask.of_one_that(process.sleeps_until.observe(), now)
        })
    }
}

/// The word, if it can be. Otherwise the most that can be owed is written in its place: a bound that moved on with the
/// clock would never be reached.
pub(crate) fn believed<const SLOTS: usize>(time: &DeviceTime<SLOTS>, terms: Terms, now: u64) -> u64 {
    let (paid_until, most) = (time.paid.0.until.get(), most(terms, now));
    if paid_until > most {
        let _ = time.paid.0.until.replace(paid_until, most);
    }
    paid_until.min(most)
}

/// As [`believed`], by somebody who may not write.
pub(crate) fn credible<const SLOTS: usize>(time: &DeviceTime<SLOTS>, terms: Terms, now: u64) -> u64 {
    time.paid.0.until.get().min(most(terms, now))
}

/// The latest instant until which time can be paid: the most that a slice may owe.
pub(crate) fn most(terms: Terms, now: u64) -> u64 {
    now.saturating_add(terms.wall(MOST_DEBT))
}
