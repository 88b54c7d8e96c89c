//! May this process hold so many bytes more?
//!
//! There is no stored total. Each process has one word per device, and what the slice holds is their sum.
//! *Reserve*: add to the own word, full fence, sum all words. Of two reservations the one whose fence is later
//! sees both, so what does not fit together is never granted together. A dead process's word is cleared by
//! whoever needs the room, and nothing else has to be repaired: nothing is locked and nobody waits for the dead.
//!
//! *Refuse*: two reservations may each see the other and both step back although one would fit. So a refusal
//! is only final when it is certain that there was an instant at which the bytes did not fit. All words are read
//! twice, one after the other. A word that is the same both times had this value at the instant in between, and
//! if no reservation is undecided in it, all of it was really held then; what does not fit beside the sum of
//! these words is refused. A single reading is not enough: it may see bytes twice that one process gives back
//! and another one takes. (Two readings miss a word that changes and changes back exactly between them.)
//! Anything else waits a short random time and tries again, for a bounded time.
//!
//! What this does not do: it cannot stop [`charge`](Layout::charge), which settles what a driver already took.

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
    /// Why.
    pub why: Why,
    /// Bytes that were asked for.
    pub asked: u64,
    /// Bytes that the slice held when this was decided.
    pub held: u64,
    /// Bytes that it may hold; 2^48 - 1, which is what can be counted, without a limit.
    pub limit: u64,
}

/// Why a reservation was not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// More than the limit, whatever is held.
    TooLarge,
    /// There was an instant during the call at which the bytes did not fit.
    Full,
    /// Others reserved and gave back all the time, or one of them stopped in the middle of it: it could not be
    /// said whether the bytes fit before the tries ran out.
    Contended,
}

/// What a reservation needs from the outside when it is not granted at once.
pub(crate) trait ReserveEnv {
    /// Clears what dead processes hold.
    fn reap(&mut self) -> Reaped;

    /// Waits before the next try, or says that there is none: `false`.
    fn wait(&mut self) -> bool;
}

impl<const DEVICES: usize, const SLOTS: usize, const SHARES: usize> Layout<DEVICES, SLOTS, SHARES> {
    /// Makes `slot` hold `asked` bytes more on `device`, unless the slice would hold more than its limit.
    pub(crate) fn reserve(
        &self,
        device: usize,
        slot: usize,
        asked: u64,
        around: &mut impl ReserveEnv,
    ) -> Result<(), Refusal> {
        let mut reaped = false;
        loop {
            // Without a limit, what the words can say is the limit.
            let limit = self.memory_limit(device).min(Held::MOST_BYTES);
            let refusal = |why, held| Refusal { why, asked, held, limit };
            if asked > limit {
                return Err(refusal(Why::TooLarge, self.held(device)));
            }
            if self.attempt(device, slot, asked, limit) {
                return Ok(());
            }
            if !reaped {
                let found = around.reap();
                reaped = found != Reaped::UnderWay;
                if matches!(found, Reaped::Dead(_)) {
                    continue;
                }
            }
            // After the reaping: what another one cleared meanwhile must not count any more.
            let (certain, held) = self.snapshot(device);
            if reaped && certain.saturating_add(asked) > limit {
                return Err(refusal(Why::Full, held));
            }
            if !around.wait() {
                return Err(refusal(Why::Contended, held));
            }
        }
    }

    /// One try: add, look, and keep it or take it back.
    fn attempt(&self, device: usize, slot: usize, asked: u64, limit: u64) -> bool {
        let Some(word) = self.word(device, slot) else { return false };
        let Some(own) = word.enter(asked) else { return false };
        fence_after_change();
        // A region that is lost in between has no words and a limit of 0: its limit is read after its words.
        let held = self.held_beside(device, slot, own);
        if held <= limit.min(self.memory_limit(device)) {
            word.grant();
            self.note_peak(device, held);
            return true;
        }
        word.withdraw(asked);
        false
    }

    /// So much was held: usually less than ever before, and then nothing is written.
    fn note_peak(&self, device: usize, held: u64) {
        if let Some(entry) = self.devices.get(device)
            && entry.peak.get() < held
        {
            entry.peak.raise(held);
        }
    }

    /// Bytes that were certainly held at one instant, and bytes that are held as far as one reading can say.
    fn snapshot(&self, device: usize) -> (u64, u64) {
        let moved = self.header.transfer_seq.observe();
        let inherited = self.transferred(device);
        let mut first = [Held::default(); SLOTS];
        first.iter_mut().zip(self.words(device)).for_each(|(copy, held)| *copy = held);
        full_fence();
        let (mut certain, mut sum) = (0_u64, 0_u64);
        for (now, before) in self.words(device).zip(first) {
            sum = sum.saturating_add(now.bytes());
            if now.is_still(before) && before.pending() == 0 {
                certain = certain.saturating_add(before.bytes());
            }
        }
        let now = self.transferred(device);
        // What one share takes over from another while it is read may be seen in neither.
        if now == inherited && self.header.transfer_seq.observe() == moved {
            certain = certain.saturating_add(now);
        }
        (certain, sum.saturating_add(now))
    }

    /// Makes `slot` hold `bytes` more on `device`, whatever the limit says.
    pub(crate) fn charge(&self, device: usize, slot: usize, bytes: u64) {
        /// How often it is looked: a word that others change to and fro may be caught high by chance, but not each time.
        const LOOKS: u32 = 3;
        let Some(word) = self.word(device, slot).filter(|_| bytes > 0) else { return };
        word.charge(bytes);
        // Not what others are still asking for: it may be more than there is room for. Nor what leaves: until a dead process's
        // word is cleared, its bytes are in both.
        let held = || self.snapshot(device).0.saturating_sub(self.leaving_bytes(device));
        if let Some(held) = (0..LOOKS).map(|_| held()).min() {
            self.note_peak(device, held);
        }
    }

    /// What does not count where it is asked how much was ever held.
    fn leaving_bytes(&self, device: usize) -> u64 {
        #[cfg(all(test, loom))]
        if broken::is(Break::PeakOfLeaving) {
            return 0;
        }
        self.all_left(device)
    }

    /// Makes `slot` hold `bytes` less on `device`, down to nothing. Returns how many bytes it did not hold.
    #[must_use = "bytes that were not held are a mistake of the caller"]
    pub(crate) fn refund(&self, device: usize, slot: usize, bytes: u64) -> u64 {
        self.word(device, slot).map_or(bytes, |word| word.refund(bytes))
    }

    /// What the slice holds on `device`, reservations under way included.
    ///
    /// The processes' words are read first: who gives a charge away lets a share have it before the word loses it.
    /// Between shares a charge may move while they are read; then they are read again.
    pub(crate) fn held(&self, device: usize) -> u64 {
        self.sum(device, || self.words(device).fold(0_u64, |sum, held| sum.wrapping_add(held.bytes())))
    }

    /// As [`held`](Self::held), where `own` is what `slot` holds: its word is not read again, because another thread
    /// of the process may be about to change it and to wait for it costs more than all the rest of a reservation.
    fn held_beside(&self, device: usize, slot: usize, own: Held) -> u64 {
        let add = |sum: u64, word: &HeldWord| sum.wrapping_add(word.get().bytes());
        self.sum(device, || {
            let Some(row) = self.held.get(device) else { return own.bytes() };
            let claimed = self.slot_high_water();
            let before = in_row(row, 0..slot.min(claimed)).fold(own.bytes(), add);
            in_row(row, slot.saturating_add(1)..claimed).fold(before, add)
        })
    }

    fn sum(&self, device: usize, of_words: impl Fn() -> u64) -> u64 {
        /// How often: each time somebody ended a use of shared memory meanwhile.
        const READINGS: u32 = 16;
        let mut most = 0;
        for _ in 0..READINGS {
            let moved = self.header.transfer_seq.observe();
            // No overflow: see `Held::MOST_BYTES`. A sum that saturates takes three times as long.
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

    /// What `slot` holds on `device`, reservations under way included.
    pub(crate) fn held_by(&self, device: usize, slot: usize) -> u64 {
        self.word(device, slot).map_or(0, |word| word.get().bytes())
    }

    /// The limit now; it may be changed at any time. A device that does not exist has none to give away.
    pub(crate) fn memory_limit(&self, device: usize) -> u64 {
        self.devices.get(device).map_or(0, |entry| entry.memory_limit.get())
    }

    /// The word of one process.
    fn word(&self, device: usize, slot: usize) -> Option<&HeldWord> {
        self.held.get(device)?.get(held_at(slot, SLOTS))
    }

    /// The words of all processes there ever were. How many that is, is read here and so after the fence of a
    /// reservation: a process that joined before it is always seen.
    fn words(&self, device: usize) -> impl Iterator<Item = Held> {
        let claimed = self.slot_high_water();
        self.held.get(device).into_iter().flat_map(move |row| in_row(row, 0..claimed)).map(HeldWord::get)
    }
}

/// The words of these slots.
fn in_row<const SLOTS: usize>(
    row: &[HeldWord; SLOTS],
    slots: Range<usize>,
) -> impl Iterator<Item = &HeldWord> {
    slots.filter_map(move |slot| row.get(held_at(slot, SLOTS)))
}

/// The limit as an option: `None` where there is none.
pub(crate) fn limit_of(word: u64) -> Option<u64> {
    (word != NO_LIMIT).then_some(word)
}
