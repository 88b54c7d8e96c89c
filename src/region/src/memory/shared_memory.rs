//! Charges memory that several processes of the slice use to exactly one of them.
//!
//! Example: process A allocates 1 GiB and exports it, and process B imports it. A pays, and B pays nothing. When A
//! ends, B pays, because the driver keeps the memory for B.
//!
//! Each use of such memory is an entry, a *share*. All uses of one allocation have the same key. The process that made
//! the memory is its *owner*: its own word in the memory ledger has the bytes. Every other user is a *borrower*. When
//! the use of the payer ends, a borrower becomes the *payer*: its entry then counts in the sum of the slice. No process
//! ever writes the word of another, and a process that reaps only changes the state of entries.
//!
//! A payer that leaves first marks its entry as leaving, then executes a full fence, then looks for a borrower. A new
//! borrower first publishes its entry, then executes a full fence, then looks for a payer. At least one of the two sees the
//! other, so no memory is left without a payer. The new payer counts before the old one stops, so the memory counts twice
//! in between. Two borrowers may find no payer at the same time. Then both become payers, and the one with the higher index
//! becomes a borrower again.
//!
//! A process may die at any point of these steps. The state of an entry is one word, and the process that reaps continues
//! from that state.

use std::collections::BTreeMap;

#[cfg(all(test, loom))]
use crate::sync::atomics::broken::{self, Break};
use crate::{
    layout::{Layout, Share},
    sync::atomics::full_fence,
};
use gpuslice_policy::time::Monotonic;

/// Role of a process for memory that it uses: the low byte of the state of an entry.
mod role {
    /// No entry.
    pub(super) const NONE: u64 = 0;
    /// A process is writing the entry.
    pub(super) const NEW: u64 = 1;
    /// The word of the process in the memory ledger has the bytes.
    pub(super) const OWNER: u64 = 2;
    /// Another process pays. It may belong to no slice.
    pub(super) const BORROWER: u64 = 3;
    /// The entry itself counts.
    pub(super) const PAYER: u64 = 4;
    /// An owner that looks for a borrower to pay.
    pub(super) const OWNER_LEAVING: u64 = 5;
    /// A payer that looks for a borrower to pay. It still counts.
    pub(super) const PAYER_LEAVING: u64 = 6;
    /// Not a use: memory of a dead process that the device may not have back. The entry counts, and its key is the
    /// instant of death.
    pub(super) const LEFT: u64 = 7;
}

/// The role, device and slot in an entry's state word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ShareState {
    role: u64,
    device: usize,
    slot: usize,
}

/// An entry for memory that leaves, as a reader found it.
#[derive(Debug)]
pub(crate) struct LeftEntry<'layout> {
    share: &'layout Share,
    /// The state word that the reader found. Its role is [`role::LEFT`].
    word: u64,
    /// The instant of the process's death.
    pub(crate) died_at: Monotonic,
}

impl LeftEntry<'_> {
    /// Returns the bytes of the entry.
    pub(crate) fn bytes(&self) -> u64 {
        self.share.bytes.get()
    }

    /// Ends the entry. Returns false if it has ended already, or stands for another death now.
    pub(crate) fn end(&self) -> bool {
        self.share.key.get() == self.died_at.nanos() && self.share.state.replace(self.word, role::NONE)
    }
}

impl ShareState {
    /// Bits of the role, and bits of the device.
    const BITS: u32 = 8;
    const MASK: u64 = (1 << Self::BITS) - 1;

    /// Reads a state word.
    fn of(word: u64) -> Self {
        let part = |bits: u64| usize::try_from(bits).unwrap_or(usize::MAX);
        let device = part(word >> Self::BITS & Self::MASK);
        Self { role: word & Self::MASK, device, slot: part(word >> (2 * Self::BITS)) }
    }

    /// Returns the state word.
    fn word(self) -> u64 {
        let bits = |number: usize| u64::try_from(number).unwrap_or(0);
        self.role | (bits(self.device) & Self::MASK) << Self::BITS | bits(self.slot) << (2 * Self::BITS)
    }

    fn as_role(self, role: u64) -> Self {
        Self { role, ..self }
    }
}

impl Share {
    /// Returns the state now.
    fn now(&self) -> ShareState {
        #[cfg(all(test, not(loom)))]
        reads::count();
        ShareState::of(self.state.observe())
    }

    /// Writes another role if the state is still `seen`. Returns false if it is not.
    fn set_role(&self, seen: ShareState, role: u64) -> bool {
        self.state.replace(seen.word(), seen.as_role(role).word())
    }
}

/// Counts the entries that a thread reads, for tests of the cost of a reading.
#[cfg(all(test, not(loom)))]
pub(crate) mod reads {
    use std::cell::Cell;

    thread_local! {
        static READS: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn count() {
        READS.set(READS.get() + 1);
    }

    /// Returns the number of entries that this thread has read since the last call.
    pub(crate) fn take() -> usize {
        READS.take()
    }
}

impl<const DEVICES: usize, const SLOTS: usize, const SHARES: usize> Layout<DEVICES, SLOTS, SHARES> {
    /// Records that other processes can use memory for which `slot` is charged. `None`: the table is full.
    pub(crate) fn share_owned(&self, slot: usize, device: usize, key: u64, bytes: u64) -> Option<usize> {
        self.enter_share(ShareState { role: role::OWNER, device, slot }, key, bytes)
    }

    /// Records that `slot` is about to use memory that a process of the slice uses. `None`: no process uses it, or the
    /// table is full.
    ///
    /// The caller calls [`begin_use`](Self::begin_use) when the use begins.
    pub(crate) fn share_borrowed(&self, slot: usize, key: u64) -> Option<usize> {
        let (_, share) = self.uses_of(key).next()?;
        let (device, bytes) = (share.now().device, share.bytes.get());
        let entry = self.enter_share(ShareState { role: role::BORROWER, device, slot }, key, bytes);
        full_fence();
        entry
    }

    /// Takes a free entry and fills it. `None`: the table is full.
    ///
    /// The compare-and-swap from [`role::NONE`] to [`role::NEW`] takes the entry, and the last line publishes it. A process
    /// killed in between leaves an entry with role `NEW` and its slot number. The process that reaps it ends that entry.
    fn enter_share(&self, state: ShareState, key: u64, bytes: u64) -> Option<usize> {
        let claim = state.as_role(role::NEW).word();
        let (index, share) =
            self.shares.iter().enumerate().find(|(_, share)| share.state.replace(role::NONE, claim))?;
        self.header.share_high_water.raise(u32::try_from(index.saturating_add(1)).unwrap_or(u32::MAX));
        share.key.set(key);
        share.bytes.set(bytes);
        share.state.publish(state.word());
        Some(index)
    }

    /// Returns all uses of the memory `key`, with their indices.
    fn uses_of(&self, key: u64) -> impl Iterator<Item = (usize, &Share)> {
        let used = |share: &Share| !matches!(share.now().role, role::NONE | role::NEW | role::LEFT);
        let all = self.shares.iter().take(self.share_high_water()).enumerate();
        all.filter(move |(_, share)| used(share) && share.key.get() == key)
    }

    /// Begins the use of a borrower. If no process pays for the memory any more, the borrower becomes the payer.
    ///
    /// The payer may have left between [`share_borrowed`](Self::share_borrowed) and this call. Several borrowers may find
    /// that at the same time, and each becomes a payer. Each then executes a full fence and looks for a payer with a lower
    /// index. If it finds one, it becomes a borrower again. In between the memory counts twice, never zero times.
    ///
    /// The payer with the lower index may have left meanwhile. It saw that the other one pays, so it looked for no
    /// borrower. A payer that has become a borrower again therefore starts over. Each round needs one more payer that
    /// leaves.
    pub(crate) fn begin_use(&self, index: usize) {
        let Some(share) = self.shares.get(index) else { return };
        let pays = |(other, share): (usize, &Share)| {
            other != index && matches!(share.now().role, role::OWNER | role::PAYER)
        };
        loop {
            let (seen, key) = (share.now(), share.key.get());
            if seen.role != role::BORROWER
                || self.uses_of(key).any(pays)
                || !share.set_role(seen, role::PAYER)
            {
                return;
            }
            full_fence();
            // The entry may have become a use of other memory since the search.
            let is_other = share.key.get() != key;
            let first = || self.uses_of(key).take_while(|(other, _)| *other < index).any(pays);
            if !(is_other || first()) || !share.set_role(seen.as_role(role::PAYER), role::BORROWER) {
                return;
            }
            self.header.transfer_seq.count();
            full_fence();
        }
    }

    /// Ends a use. If its process paid and `hands_on` is true, another user pays from here on. The bytes of an owner stay
    /// in the owner's word, and the owner refunds them afterwards.
    ///
    /// The entry is first marked as leaving, so that the fence orders the mark before the search for a borrower. Without
    /// the mark a new borrower could see a payer, and this function could miss the borrower. If the process dies before the
    /// last line, the process that reaps it calls this function again.
    pub(crate) fn end_use(&self, index: usize, hands_on: bool) {
        let Some(share) = self.shares.get(index) else { return };
        loop {
            let seen = share.now();
            let next = match seen.role {
                role::OWNER => role::OWNER_LEAVING,
                role::PAYER => role::PAYER_LEAVING,
                role::OWNER_LEAVING | role::PAYER_LEAVING => seen.role,
                _ => role::NONE,
            };
            if next == role::NONE {
                if share.state.replace(seen.word(), role::NONE) {
                    return;
                }
                continue;
            }
            if share.set_role(seen, next) {
                break;
            }
        }
        full_fence();
        #[cfg(all(test, loom))]
        let hands_on = hands_on && !broken::is(Break::NoTransfer);
        if hands_on {
            self.transfer_charge(index, share.key.get());
        }
        share.state.publish(role::NONE);
    }

    /// Makes a borrower of the memory `key` the payer, unless another process pays already.
    fn transfer_charge(&self, leaving: usize, key: u64) {
        for (index, share) in self.uses_of(key).filter(|(index, _)| *index != leaving) {
            let seen = share.now();
            let is_made_payer = seen.role == role::BORROWER && share.set_role(seen, role::PAYER);
            if !is_made_payer && !matches!(share.now().role, role::OWNER | role::PAYER) {
                continue;
            }
            if share.key.get() == key {
                // A process that sums the entries in order may have read the new payer's entry while it was a borrower. The
                // changed sequence makes that process read again.
                self.header.transfer_seq.count();
                full_fence();
                return;
            }
            // The entry has become a use of other memory since the search. While it was a payer, the payer of that other
            // memory may have left, and may have taken this entry for the next payer.
            if is_made_payer && share.set_role(seen.as_role(role::PAYER), role::BORROWER) {
                full_fence();
                self.begin_use(index);
            }
        }
    }

    /// Ends all uses of the process in `slot`, before its words are cleared. Needs the join lock.
    pub(crate) fn end_uses_of(&self, slot: usize) {
        for (index, share) in self.shares.iter().take(self.share_high_water()).enumerate() {
            let seen = share.now();
            if !matches!(seen.role, role::NONE | role::LEFT) && seen.slot == slot {
                self.end_use(index, true);
            }
        }
    }

    /// Ends all uses, because no process of the slice is alive. Memory that leaves a device stays.
    pub(crate) fn forget_all_uses(&self) {
        let mut kept = 0;
        for (index, share) in self.shares.iter().take(self.share_high_water()).enumerate() {
            if share.now().role == role::LEFT {
                kept = index.saturating_add(1);
            } else {
                share.state.publish(role::NONE);
            }
        }
        self.header.share_high_water.set(u32::try_from(kept).unwrap_or(u32::MAX));
    }

    /// Adds an entry for memory of the dead process in `slot` that leaves `device`. If the table is full, the memory counts
    /// as free at once.
    pub(crate) fn enter_left(&self, slot: usize, device: usize, now: Monotonic, bytes: u64) {
        if self.enter_share(ShareState { role: role::LEFT, device, slot }, now.nanos(), bytes).is_some() {
            // A process that sums the ledger meanwhile finds the entry or reads again.
            self.header.transfer_seq.count();
            full_fence();
        }
    }

    /// Returns the entries for memory that leaves `device`.
    pub(crate) fn left(&self, device: usize) -> impl Iterator<Item = LeftEntry<'_>> {
        let as_left = move |share| {
            // One observation of the state, because the entry may become another use at any time.
            let seen = Share::now(share);
            let is_left = seen.role == role::LEFT && seen.device == device;
            is_left.then(|| LeftEntry {
                share,
                word: seen.word(),
                died_at: Monotonic::from_nanos(share.key.get()),
            })
        };
        self.shares.iter().take(self.share_high_water()).filter_map(as_left)
    }

    /// Ends the entries of `device` for which `selects` returns true. Its argument is the instant of death. Returns their
    /// number.
    pub(crate) fn end_left_entries(&self, device: usize, selects: impl Fn(Monotonic) -> bool) -> usize {
        self.left(device).filter(|entry| selects(entry.died_at) && entry.end()).count()
    }

    /// Returns the bytes on `device` that count in entries and not in words: those of payers, and those that leave.
    pub(crate) fn transferred(&self, device: usize) -> u64 {
        let on_device = self.counted_shares().filter(|(state, _)| state.device == device);
        on_device.fold(0, |sum, (_, bytes)| sum.saturating_add(bytes))
    }

    /// Returns the bytes that processes pay for in entries, by device and slot. Reads the table once.
    ///
    /// A caller that looks at all processes uses this table. A tenant of the slice can write the largest counts into the
    /// region. A scan for each device and slot would then read the table 65,536 times.
    pub(crate) fn transferred_by_slot(&self) -> BTreeMap<(usize, usize), u64> {
        let mut sums = BTreeMap::new();
        for (state, bytes) in self.counted_shares().filter(|(state, _)| state.role != role::LEFT) {
            let sum: &mut u64 = sums.entry((state.device, state.slot)).or_default();
            *sum = sum.saturating_add(bytes);
        }
        sums
    }

    /// Returns the state and bytes of the entries that count.
    fn counted_shares(&self) -> impl Iterator<Item = (ShareState, u64)> {
        let counted = |share: &Share| {
            let state = share.now();
            let counts = matches!(state.role, role::PAYER | role::PAYER_LEAVING | role::LEFT);
            counts.then(|| (state, share.bytes.get()))
        };
        self.shares.iter().take(self.share_high_water()).filter_map(counted)
    }
}
