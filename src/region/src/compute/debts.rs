//! GPU time that a slice owes when its last process ends.
//!
//! Example: a program with a share of 10 % runs one kernel of 300 ms and ends. The slice then owes 270 ms of GPU time,
//! which its share pays in 2.7 s. The next program of the slice initialises the region again, and its first launch waits
//! for the rest of those 2.7 s. If the first program used the burst, the next one gets no burst until the share has saved
//! it up.
//!
//! The header keeps one entry for each device: `paid_until` and the rate limit by which it was paid. The process that
//! initialises the region writes the entries. The process that adds a device takes the entry of the device. If the next
//! program does not use a device, the entry stays for a later program. The debt is GPU time, so at another share the same
//! debt takes another time on the clock.
//!
//! `paid_until` is an instant of the monotonic clock, which starts again at each boot. A region on a disk outlives a
//! boot. The header therefore names the boot in which its entries were written, and entries of another boot are
//! dropped.

use gpuslice_policy::compute::limiter::token_bucket::{self, RateLimit};
use gpuslice_policy::time::{Monotonic, WallTime};

use crate::{
    compute::rate_limit::{latest_payable, load_clamped, rate_limit, rate_limit_of},
    layout::{Debt, Layout},
    slots::identity::Boot,
};

impl<const DEVICES: usize, const SLOTS: usize, const SHARES: usize> Layout<DEVICES, SLOTS, SHARES> {
    /// Writes the debt of each device into the header. Needs the join lock, and that no process of the slice is alive.
    ///
    /// The caller empties the device table afterwards. A process killed in between leaves the table, and the next
    /// process writes the same entries again.
    pub(crate) fn keep_debts(&self, boot: Boot, now: Monotonic) {
        if self.is_of_another_boot(boot) {
            self.header.debts.iter().for_each(|debt| debt.paid_until.clear());
            // This comes before the boot is written: a process killed in between must not leave instants of another boot that
            // count as this boot's.
            self.header.device_count.publish(0);
        }
        self.header.boot.iter().zip(boot).for_each(|(word, value)| word.set(value));
        for device in 0..self.device_count() {
            self.expire_grant(device, || now);
            let (Some(time), Some(entry)) = (self.time(device), self.devices.get(device)) else { continue };
            let uuid = entry.uuid.each_ref().map(|word| word.get());
            let known = self.header.debts.iter().find(|debt| debt.is_of(uuid));
            let Some(debt) =
                known.or_else(|| self.header.debts.iter().min_by_key(|debt| debt.paid_until.get()))
            else {
                continue;
            };
            let rate_limit = self.rate_limit(device);
            // In this order: a process killed in between leaves an empty entry.
            debt.paid_until.clear();
            debt.uuid.iter().zip(uuid).for_each(|(word, value)| word.set(value));
            debt.cores_permille.set(u32::from(rate_limit.rate().get()));
            debt.burst.set(rate_limit.burst());
            debt.paid_until.set(load_clamped(time, rate_limit, now));
        }
    }

    /// Takes over the debt of a device that is added, at the rate limit that the device has from now on. Needs the join
    /// lock, and that the device's words are clear.
    pub(crate) fn take_debt(&self, device: usize, now: Monotonic) {
        let (Some(time), Some(entry)) = (self.time.get(device), self.devices.get(device)) else { return };
        let uuid = entry.uuid.each_ref().map(|word| word.get());
        let Some(debt) = self.header.debts.iter().find(|debt| debt.is_of(uuid)) else { return };
        let (paid_until, old) = debt.read(now);
        if paid_until > Monotonic::BEGIN {
            let new = rate_limit_of(entry);
            time.paid.0.change(now, |_| token_bucket::change(paid_until, now, old, new));
            // This comes after the device has the debt: a process killed in between leaves both, and the next process writes the
            // entry again.
            debt.paid_until.clear();
        }
    }

    /// Returns the wall time until the slice has paid its debts and saved up its burst. After that time a new region would
    /// grant the slice no more than this region does. Zero: this is so already.
    pub(crate) fn paid_in(&self, boot: Boot, now: Monotonic) -> WallTime {
        if self.is_of_another_boot(boot) {
            return WallTime::ZERO;
        }
        let left = |(paid_until, rate_limit): (Monotonic, RateLimit)| match paid_until {
            Monotonic::BEGIN => WallTime::ZERO,
            _ => paid_until.saturating_add(rate_limit.wall(rate_limit.burst())).since(now),
        };
        let devices = (0..self.device_count()).filter_map(|device| {
            let rate_limit = self.rate_limit(device);
            self.time(device).map(|time| (load_clamped(time, rate_limit, now), rate_limit))
        });
        let kept = self.header.debts.iter().map(|debt| debt.read(now));
        devices.chain(kept).map(left).max().unwrap_or_default()
    }

    /// Tells whether the instants in the region belong to another boot than `boot`. `false` if one of the two boots is not
    /// known. The largest debt bounds the instants then.
    fn is_of_another_boot(&self, boot: Boot) -> bool {
        let found = self.header.boot.each_ref().map(|word| word.get());
        found != boot && found != [0, 0] && boot != [0, 0]
    }
}

impl Debt {
    /// Tells whether the entry is of this device and not empty.
    fn is_of(&self, uuid: [u64; 2]) -> bool {
        self.paid_until.get() > Monotonic::BEGIN && self.uuid.each_ref().map(|word| word.get()) == uuid
    }

    /// Returns `paid_until`, limited to the largest debt, and the rate limit by which it was paid.
    fn read(&self, now: Monotonic) -> (Monotonic, RateLimit) {
        let rate_limit = rate_limit(self.cores_permille.get(), self.burst.get());
        (self.paid_until.get().min(latest_payable(rate_limit, now)), rate_limit)
    }
}
