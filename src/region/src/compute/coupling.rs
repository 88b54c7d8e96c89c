//! Couples devices on which kernels wait for each other, and admits overdrafts for such kernels.
//!
//! Example: two GPUs run a collective, and the share of one is used up. The kernel on the other GPU waits for its partner,
//! and uses up its own share without progress. Two measures help:
//!
//! - *Coupling.* A launch that is ready on one coupled device waits until throttled launches on the others are ready
//!   too.
//! - *Peer overdraft.* A batch on another device may run far longer than predicted. A throttled launch is then admitted
//!   early, and the slice owes the GPU time of that launch.
//!
//! The modules `coupling` and `limiter::overdraft` of `gpuslice_policy::compute` make both decisions.

use gpuslice_policy::compute::{
    coupling::{self, COUPLING_LASTS, PeerDevice, ThrottledLaunch},
    limiter::{overdraft, token_bucket},
};
use gpuslice_policy::time::{GpuTime, Monotonic};

#[cfg(all(test, loom))]
use crate::sync::atomics::broken::{self, Break};
use crate::{
    compute::rate_limit::load_repaired,
    layout::{Layout, compute_words::CouplingWords},
    sync::atomics::full_fence,
};

/// State of the devices that are coupled with a device.
#[derive(Default)]
pub(crate) struct CouplingState {
    /// Instant until which a launch waits for these devices.
    pub(crate) wait: Monotonic,
    /// Instant since which time counts as saved. The device may not have more time saved up than these devices have.
    pub(crate) saved: Monotonic,
}

impl<const DEVICES: usize, const SLOTS: usize, const SHARES: usize> Layout<DEVICES, SLOTS, SHARES> {
    /// Publishes a payment, and for how long its launch was throttled. Coupled devices read both.
    pub(crate) fn note_payment(&self, device: usize, kept: ThrottledLaunch) {
        let Some(time) = self.time(device) else { return };
        let step = &time.coupling.0;
        step.last_payment_at.set(kept.until);
        if self.is_coupled(device, kept.until) {
            let others = self.coupled_devices(device, kept.until).filter_map(|other| self.time(other));
            let others = others.map(|other| other.coupling.0.round.get()).max().unwrap_or(0);
            step.round.raise(coupling::next_round(step.round.get(), others));
        }
        if kept.is_overdraft {
            step.overdraft_at.set(kept.until);
        }
        if coupling::should_publish(kept, self.last_throttle(device)) {
            step.throttled_from.set(kept.since);
            step.throttled_until.publish(kept.until);
        }
    }

    /// Publishes that a batch on `device` runs far longer than predicted. Wakes throttled processes on other devices,
    /// since the batch may wait for them.
    ///
    /// Only the first report wakes them. While the overrun goes on, they look at the word again by themselves.
    pub(crate) fn note_overrun(&self, device: usize, now: Monotonic) {
        let Some(time) = self.time(device) else { return };
        if overdraft::is_published(time.coupling.0.overrun_seen_at.swap(now), now) {
            return;
        }
        full_fence();
        for other in self.other_devices(device).filter_map(|other| self.time(other)) {
            self.wake_if_late(other, |until| until > now);
        }
    }

    /// Publishes that the overrunning batch has ended.
    pub(crate) fn clear_overrun(&self, device: usize) {
        if let Some(time) = self.time(device) {
            time.coupling.0.overrun_seen_at.clear();
        }
    }

    /// Returns the latest instant at which a process saw an overrun on another device. `None`: no batch overruns now.
    pub(crate) fn peer_overrun(&self, device: usize, now: Monotonic) -> Option<Monotonic> {
        let others = self.other_devices(device).filter_map(|other| self.time(other));
        others
            .map(|time| time.coupling.0.overrun_seen_at.get())
            .filter(|seen| overdraft::overrun_continues(*seen, now))
            .max()
    }

    /// Admits `amount` for `slot` as debt, because a batch on another device may wait for this launch. Returns whether it
    /// was admitted.
    ///
    /// The launch is not admitted in these cases:
    ///
    /// - No overrun was seen since this device's last payment.
    /// - The slice could pay.
    /// - The device has work under way, which may be the work that the batch waits for.
    /// - The budget of overdrafts does not pay for it.
    pub(crate) fn overdraw_for_peer(
        &self,
        device: usize,
        slot: usize,
        amount: GpuTime,
        (since, now): (Monotonic, Monotonic),
    ) -> bool {
        let Some(time) = self.time(device) else { return false };
        let (last_payment_at, rate_limit) = (&time.coupling.0.last_payment_at, self.rate_limit(device));
        if self.peer_overrun(device, now).is_none_or(|seen| seen <= last_payment_at.get())
            || token_bucket::wait(load_repaired(time, rate_limit, now), now).is_none()
            || self.is_busy(time)
            || !self.overdraw(device, slot, amount, now)
        {
            return false;
        }
        self.note_payment(device, ThrottledLaunch { since, until: now, is_overdraft: true });
        self.withdraw_request(device, slot);
        true
    }

    /// Returns the state of the devices coupled with `device`, for a process that has waited since `since`.
    pub(crate) fn coupling_state(&self, device: usize, since: Monotonic, now: Monotonic) -> CouplingState {
        let Some(time) = self.time(device).filter(|_| self.is_coupled(device, now)) else {
            return CouplingState::default();
        };
        let round = time.coupling.0.round.get();
        let others = self.coupled_devices(device, now).filter_map(|other| self.peer_view(other, now));
        others.fold(CouplingState::default(), |all, other| {
            let wait = coupling::wait(&other, round, since, now).unwrap_or_default();
            CouplingState { wait: all.wait.max(wait), saved: all.saved.max(coupling::saved(&other, now)) }
        })
    }

    /// Returns the other devices that are coupled now.
    fn coupled_devices(&self, device: usize, now: Monotonic) -> impl Iterator<Item = usize> + '_ {
        self.other_devices(device).filter(move |other| self.is_coupled(*other, now))
    }

    /// Tells whether a device is coupled with others.
    pub(crate) fn is_coupled(&self, device: usize, now: Monotonic) -> bool {
        self.time(device).is_some_and(|time| coupling::is_coupled(time.coupling.0.coupled_until.get(), now))
    }

    /// Returns the state of a device that coupled devices need.
    fn peer_view(&self, device: usize, now: Monotonic) -> Option<PeerDevice> {
        let time = self.time(device)?;
        let processes = || time.processes.iter().take(self.slot_high_water());
        Some(PeerDevice {
            paid_until: load_repaired(time, self.rate_limit(device), now),
            is_asked: processes().any(|process| process.waits(now)),
            is_busy: self.is_busy(time),
            ended: processes().map(|process| process.settled_at.get()).max().unwrap_or_default(),
            round: time.coupling.0.round.get(),
        })
    }

    /// Returns the last long throttle of a device. While a process writes it, a reader may get a throttle that looks
    /// shorter than it was, never longer.
    pub(crate) fn last_throttle(&self, device: usize) -> ThrottledLaunch {
        let Some(time) = self.time(device) else { return ThrottledLaunch::default() };
        let CouplingWords { throttled_from, throttled_until, overdraft_at, .. } = &time.coupling.0;
        #[cfg(all(test, loom))]
        if broken::is(Break::TornBelieved) {
            let since = throttled_from.get();
            return ThrottledLaunch { since, until: throttled_until.observe(), is_overdraft: false };
        }
        // In this order: a reader that sees the new end also sees the new beginning.
        let until = throttled_until.observe();
        ThrottledLaunch { since: throttled_from.get(), until, is_overdraft: until == overdraft_at.get() }
    }

    /// Couples two devices from now on, for the time `COUPLING_LASTS`.
    pub(crate) fn couple(&self, devices: [usize; 2], now: Monotonic) {
        for time in devices.into_iter().filter_map(|device| self.time(device)) {
            time.coupling.0.coupled_until.set(now.saturating_add(COUPLING_LASTS));
        }
    }
}
