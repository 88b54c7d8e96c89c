//! Grants and denies reservations of device memory.
//!
//! No total is stored. Each process has one word for each device, and the slice holds the sum of the words.
//!
//! *Grant.* A process adds the bytes to its own word, executes a full fence, and sums all words. Of two reservations, the
//! one with the later fence sees both. Two reservations that do not fit together are therefore never granted together. The
//! next process that needs the bytes clears the words of a dead process. Nothing is locked, so nothing else needs repair.
//!
//! *Denial.* Two reservations may see each other and both be withdrawn although one would fit. A denial is therefore final
//! only if there was an instant at which the request did not fit. [`snapshot`](Layout::snapshot) reads all words twice. A
//! word with the same value in both readings and no pending reservation held that value between the readings. The sum of
//! those words is a lower bound of the bytes held at that instant. A request that exceeds the limit beside this bound is
//! denied. In all other cases the process waits for a random time and tries again, for a bounded total.
//!
//! One reading is not enough: it may count bytes twice that one process frees and another reserves. Two readings miss a
//! word that changes, and changes back, between them.
//!
//! The ledger cannot deny a [`charge`](Layout::charge): the driver has taken those bytes already.

use core::ops::Range;

#[cfg(all(test, loom))]
use crate::sync::atomics::broken::{self, Break};
use crate::{
    layout::constants::NO_LIMIT,
    layout::{Layout, held_at},
    slots::roster::Reaped,
    sync::atomics::{Held, HeldWord, fence_after_change, full_fence, read_fence},
};

/// A reservation that was not granted. Nothing was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason.
    pub why: RefusalReason,
    /// Bytes requested.
    pub asked: u64,
    /// Bytes that the slice held when the reservation was denied.
    pub held: u64,
    /// Bytes that the slice may hold. Without a limit 2^48 - 1, the largest number that a word can count.
    pub limit: u64,
}

/// Reason for which a reservation was not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalReason {
    /// The request alone exceeds the limit.
    TooLarge,
    /// There was an instant during the call at which the request did not fit.
    Full,
    /// The tries ran out before the ledger could tell whether the request fits. Other processes reserved and freed without
    /// pause, or one of them stopped with a pending reservation.
    Contended,
}

/// Services that a reservation needs when it is not granted at once. Tests and models replace them.
pub(crate) trait ReserveEnv {
    /// Reaps dead processes.
    fn reap(&mut self) -> Reaped;

    /// Waits before the next try. `false`: there is no further try.
    fn wait(&mut self) -> bool;
}

impl<const DEVICES: usize, const SLOTS: usize, const SHARES: usize> Layout<DEVICES, SLOTS, SHARES> {
    /// Reserves `asked` bytes on `device` for `slot`, unless the slice would hold more than its limit.
    ///
    /// The first try costs one atomic addition, a fence, and a reading of the row. If it fails, the function reaps dead
    /// processes once and tries again. After that, each round takes a [`snapshot`](Self::snapshot). If its lower bound
    /// proves that the request does not fit, the request is denied. Otherwise the function waits and tries again.
    ///
    /// The function reaps before the snapshot, so that bytes of reaped processes do not count against the request. While
    /// another process reaps, no denial is final. A process that stops with a pending reservation can delay others until
    /// their waits run out. It cannot make the ledger grant too much.
    pub(crate) fn reserve(
        &self,
        device: usize,
        slot: usize,
        asked: u64,
        env: &mut impl ReserveEnv,
    ) -> Result<(), Refusal> {
        let mut reaped = false;
        loop {
            // Without a limit, the largest number that a word can count is the limit.
            let limit = self.memory_limit(device).min(Held::MOST_BYTES);
            let refusal = |why, held| Refusal { why, asked, held, limit };
            if asked > limit {
                return Err(refusal(RefusalReason::TooLarge, self.held(device)));
            }
            if self.attempt(device, slot, asked, limit) {
                return Ok(());
            }
            if !reaped {
                let found = env.reap();
                reaped = found != Reaped::UnderWay;
                if matches!(found, Reaped::Dead(_)) {
                    continue;
                }
            }
            // This comes after the reaping: bytes that another process reaped meanwhile must not count.
            let (lower_bound, held) = self.snapshot(device);
            if reaped && lower_bound.saturating_add(asked) > limit {
                return Err(refusal(RefusalReason::Full, held));
            }
            if !env.wait() {
                return Err(refusal(RefusalReason::Contended, held));
            }
        }
    }

    /// Makes one try: adds the bytes, sums the row, and grants or withdraws the reservation.
    fn attempt(&self, device: usize, slot: usize, asked: u64, limit: u64) -> bool {
        let Some(word) = self.word(device, slot) else { return false };
        let Some(own) = word.enter(asked) else { return false };
        fence_after_change();
        // A lost region reads as zeroes, so its limit is 0. The limit is read again after the words. Otherwise words that
        // were lost during the sum would count as free memory.
        let held = self.held_beside(device, slot, own);
        if held <= limit.min(self.memory_limit(device)) {
            word.grant();
            self.note_peak(device, held);
            return true;
        }
        word.withdraw(asked);
        false
    }

    /// Raises the peak to `held`. The peak is usually higher already, and then nothing is written.
    fn note_peak(&self, device: usize, held: u64) {
        if let Some(entry) = self.devices.get(device)
            && entry.peak.get() < held
        {
            entry.peak.raise(held);
        }
    }

    /// Reads the words of a device twice (a double collect). Returns a lower bound of the bytes held at one instant, and the sum
    /// of one reading.
    fn snapshot(&self, device: usize) -> (u64, u64) {
        let moved = self.header.transfer_seq.observe();
        let transferred = self.transferred(device);
        let mut first = [Held::default(); SLOTS];
        first.iter_mut().zip(self.words(device)).for_each(|(copy, held)| *copy = held);
        full_fence();
        let (mut lower_bound, mut sum) = (0_u64, 0_u64);
        for (now, before) in self.words(device).zip(first) {
            sum = sum.saturating_add(now.bytes());
            if now.is_still(before) && before.pending() == 0 {
                lower_bound = lower_bound.saturating_add(before.bytes());
            }
        }
        let now = self.transferred(device);
        // A reading may count a charge that moves between two shares in neither of them. In this case the lower bound does
        // not contain the shares.
        if now == transferred && self.header.transfer_seq.observe() == moved {
            lower_bound = lower_bound.saturating_add(now);
        }
        (lower_bound, sum.saturating_add(now))
    }

    /// Adds `bytes` on `device` for `slot`, without regard to the limit.
    pub(crate) fn charge(&self, device: usize, slot: usize, bytes: u64) {
        /// Number of snapshots for the peak. One snapshot may by chance find a word of another process at a high value. The
        /// lowest of several snapshots rarely contains such a value.
        const LOOKS: u32 = 3;
        let Some(word) = self.word(device, slot).filter(|_| bytes > 0) else { return };
        word.charge(bytes);
        // Pending reservations of others do not count for the peak, because they may be withdrawn. Leaving bytes do not
        // count either: until the word of a dead process is cleared, they are counted twice.
        let held = || self.snapshot(device).0.saturating_sub(self.leaving_bytes(device));
        if let Some(held) = (0..LOOKS).map(|_| held()).min() {
            self.note_peak(device, held);
        }
    }

    /// Returns the leaving bytes of a device, which the peak does not count.
    fn leaving_bytes(&self, device: usize) -> u64 {
        #[cfg(all(test, loom))]
        if broken::is(Break::PeakOfLeaving) {
            return 0;
        }
        self.all_left(device)
    }

    /// Subtracts `bytes` on `device` from `slot`, down to zero. Returns the bytes that the slot did not hold.
    #[must_use = "bytes that were not held are a mistake of the caller"]
    pub(crate) fn refund(&self, device: usize, slot: usize, bytes: u64) -> u64 {
        self.word(device, slot).map_or(bytes, |word| word.refund(bytes))
    }

    /// Returns the bytes that the slice holds on `device`, pending reservations included.
    ///
    /// The words are read before the shares: a process that transfers a charge lets the share count before it reduces its
    /// word. A charge that moves between two shares changes `transfer_seq`. The function then reads all of them again.
    pub(crate) fn held(&self, device: usize) -> u64 {
        self.sum(device, || self.words(device).fold(0_u64, |sum, held| sum.wrapping_add(held.bytes())))
    }

    /// Returns [`held`](Self::held), with `own` as the value of `slot`. The function does not read that word again: another
    /// thread of the process may be about to change it. To wait for its cache line would cost more than the rest of the
    /// reservation.
    fn held_beside(&self, device: usize, slot: usize, own: Held) -> u64 {
        let add = |sum: u64, word: &HeldWord| sum.wrapping_add(word.get().bytes());
        self.sum(device, || {
            let Some(row) = self.held.get(device) else { return own.bytes() };
            let claimed = self.slot_high_water();
            let before = in_row(row, 0..slot.min(claimed)).fold(own.bytes(), add);
            in_row(row, slot.saturating_add(1)..claimed).fold(before, add)
        })
    }

    /// Sums the words and the shares of a device. If the readings run out, returns the largest sum.
    fn sum(&self, device: usize, of_words: impl Fn() -> u64) -> u64 {
        /// Number of readings before the largest sum counts. A further reading means that a charge moved during the one
        /// before.
        const READINGS: u32 = 16;
        let mut most = 0;
        for _ in 0..READINGS {
            let moved = self.header.transfer_seq.observe();
            // No overflow: see `Held::MOST_BYTES`. A saturating sum takes three times as long.
            let words = of_words();
            read_fence();
            let held = words.saturating_add(self.transferred(device));
            most = most.max(held);
            read_fence();
            #[cfg(all(test, loom))]
            if broken::is(Break::MovesIgnored) {
                return held;
            }
            if self.header.transfer_seq.observe() == moved {
                return held;
            }
        }
        most
    }

    /// Returns the bytes that `slot` holds on `device`, pending reservations included.
    pub(crate) fn held_by(&self, device: usize, slot: usize) -> u64 {
        self.word(device, slot).map_or(0, |word| word.get().bytes())
    }

    /// Returns the memory limit of `device` now; other processes may change it at any time. 0 for a device that does not exist.
    pub(crate) fn memory_limit(&self, device: usize) -> u64 {
        self.devices.get(device).map_or(0, |entry| entry.memory_limit.get())
    }

    /// Returns the word of one process.
    fn word(&self, device: usize, slot: usize) -> Option<&HeldWord> {
        self.held.get(device)?.get(held_at(slot, SLOTS))
    }

    /// Returns the words of all slots below the high-water mark. A reservation calls this function after its fence, and the
    /// mark is read here. So the words of a process that joined before the fence are included.
    fn words(&self, device: usize) -> impl Iterator<Item = Held> {
        let claimed = self.slot_high_water();
        self.held.get(device).into_iter().flat_map(move |row| in_row(row, 0..claimed)).map(HeldWord::get)
    }
}

/// Returns the words of `slots`.
fn in_row<const SLOTS: usize>(
    row: &[HeldWord; SLOTS],
    slots: Range<usize>,
) -> impl Iterator<Item = &HeldWord> {
    slots.filter_map(move |slot| row.get(held_at(slot, SLOTS)))
}

/// Returns the memory limit of a word. `None`: no limit.
pub(crate) fn limit_of(word: u64) -> Option<u64> {
    (word != NO_LIMIT).then_some(word)
}
