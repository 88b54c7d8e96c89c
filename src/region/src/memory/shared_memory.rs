//! Who pays for memory that several processes of the slice use?
//!
//! One of them, at every instant. Each use of such memory is an entry, a *share*; the uses of the same memory have
//! the same key. Whoever made the memory *owns* its share: its own word has the bytes, as before. Who uses it as
//! well *borrows*, and pays nothing. When the payer's use ends, by its own doing or by its death, a borrower
//! *inherits*: from then on its entry itself counts in the sum of the slice. So no process ever writes another's
//! word, and whoever clears the dead only changes the state of an entry.
//!
//! A payer that leaves says so first (*leaving*), then looks for an heir; a borrower that comes says so first, then
//! looks for a payer. Between the two stand full fences, so one of them sees the other: no memory is left without a
//! payer. The heir counts before the payer stops to: in between the memory counts twice. Two borrowers that find no
//! payer at the same instant both become one; the one that stands behind the other steps back.
//!
//! Everything can be cut off anywhere by a death: an entry's state is one word, and clearing the dead begins again.

#[cfg(all(test, loom))]
use crate::sync::atomics::broken::{self, Break};
use crate::{
    layout::{Layout, Share},
    sync::atomics::full_fence,
};

/// What a process is to memory that it uses. The low byte of an entry's state.
mod role {
    /// No entry.
    pub(super) const NONE: u64 = 0;
    /// An entry that is being written.
    pub(super) const NEW: u64 = 1;
    /// Its own word has the bytes.
    pub(super) const OWNER: u64 = 2;
    /// Somebody else pays, or somebody outside the slice.
    pub(super) const BORROWER: u64 = 3;
    /// The entry itself counts.
    pub(super) const PAYER: u64 = 4;
    /// An owner that looks for an heir.
    pub(super) const OWNER_LEAVING: u64 = 5;
    /// An heir that looks for an heir; still counts.
    pub(super) const PAYER_LEAVING: u64 = 6;
    /// No use: memory of a dead process that the device may not have back. The entry counts; its key is the instant of death.
    pub(super) const LEFT: u64 = 7;
}

/// What an entry says in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ShareState {
    role: u64,
    device: usize,
    slot: usize,
}

impl ShareState {
    /// Bits of the role and of the device each.
    const BITS: u32 = 8;
    const MASK: u64 = (1 << Self::BITS) - 1;

    fn of(word: u64) -> Self {
        let part = |bits: u64| usize::try_from(bits).unwrap_or(usize::MAX);
        let device = part(word >> Self::BITS & Self::MASK);
        Self { role: word & Self::MASK, device, slot: part(word >> (2 * Self::BITS)) }
    }

    fn word(self) -> u64 {
        let bits = |number: usize| u64::try_from(number).unwrap_or(0);
        self.role | (bits(self.device) & Self::MASK) << Self::BITS | bits(self.slot) << (2 * Self::BITS)
    }

    fn as_role(self, role: u64) -> Self {
        Self { role, ..self }
    }
}

impl Share {
    fn now(&self) -> ShareState {
        ShareState::of(self.state.observe())
    }

    /// Another role, if the entry is still as it was seen.
    fn set_role(&self, seen: ShareState, role: u64) -> bool {
        self.state.replace(seen.word(), seen.as_role(role).word())
    }
}

impl<const DEVICES: usize, const SLOTS: usize, const SHARES: usize> Layout<DEVICES, SLOTS, SHARES> {
    /// Notes that others can use memory that `slot` is charged for. `None`: there is no room.
    pub(crate) fn share_owned(&self, slot: usize, device: usize, key: u64, bytes: u64) -> Option<usize> {
        self.enter_share(ShareState { role: role::OWNER, device, slot }, key, bytes)
    }

    /// Notes that `slot` is about to use memory that somebody of the slice uses. `None`: nobody does, or there is
    /// no room. To be followed by [`settle_share`](Self::settle_share) when it does use it.
    pub(crate) fn share_borrowed(&self, slot: usize, key: u64) -> Option<usize> {
        let (_, share) = self.uses_of(key).next()?;
        let (device, bytes) = (share.now().device, share.bytes.get());
        let entry = self.enter_share(ShareState { role: role::BORROWER, device, slot }, key, bytes);
        full_fence();
        entry
    }

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

    /// All uses of some memory, with their places.
    fn uses_of(&self, key: u64) -> impl Iterator<Item = (usize, &Share)> {
        let used = |share: &Share| !matches!(share.now().role, role::NONE | role::NEW | role::LEFT);
        let all = self.shares.iter().take(self.share_high_water()).enumerate();
        all.filter(move |(_, share)| used(share) && share.key.get() == key)
    }

    /// A borrower uses the memory now. Where nobody pays for it any more, it does.
    pub(crate) fn begin_use(&self, index: usize) {
        let Some(share) = self.shares.get(index) else { return };
        let pays = |(other, share): (usize, &Share)| {
            other != index && matches!(share.now().role, role::OWNER | role::PAYER)
        };
        let seen = share.now();
        if seen.role != role::BORROWER || self.uses_of(share.key.get()).any(pays) {
            return;
        }
        if share.set_role(seen, role::PAYER) {
            full_fence();
            let first = self.uses_of(share.key.get()).take_while(|(other, _)| *other < index).any(pays);
            if first && share.set_role(seen.as_role(role::PAYER), role::BORROWER) {
                self.header.transfer_seq.count();
            }
        }
    }

    /// A use ends. If it paid and `hands_on`, one of the others pays from here on. An owner's bytes are still in its
    /// word: it gives them back afterwards.
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

    /// Lets a borrower pay, unless somebody does already.
    fn transfer_charge(&self, leaving: usize, key: u64) {
        for (_, share) in self.uses_of(key).filter(|(index, _)| *index != leaving) {
            let seen = share.now();
            let pays = match seen.role {
                role::OWNER | role::PAYER => true,
                role::BORROWER => share.set_role(seen, role::PAYER) || share.now().role == role::PAYER,
                _ => false,
            };
            // The entry may have become another memory's since it was looked at.
            if pays && share.key.get() != key {
                let _other = share.set_role(seen.as_role(role::PAYER), role::BORROWER);
            } else if pays {
                // Who reads the entries one after the other may have passed the heir before it was one.
                self.header.transfer_seq.count();
                full_fence();
                return;
            }
        }
    }

    /// Ends all uses of a process, before its words are cleared. Needs the join lock.
    pub(crate) fn end_uses_of(&self, slot: usize) {
        for (index, share) in self.shares.iter().take(self.share_high_water()).enumerate() {
            let seen = share.now();
            if !matches!(seen.role, role::NONE | role::LEFT) && seen.slot == slot {
                self.end_use(index, true);
            }
        }
    }

    /// Ends all uses, as nobody lives. What may leave a device stays.
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

    /// An entry for memory of the dead process in `slot` that may leave. Without room for one nothing leaves.
    pub(crate) fn enter_left(&self, slot: usize, device: usize, now: u64, bytes: u64) {
        if self.enter_share(ShareState { role: role::LEFT, device, slot }, now, bytes).is_some() {
            // Who sums has it, or reads the words once more.
            self.header.transfer_seq.count();
            full_fence();
        }
    }

    /// The entries for memory that may leave a device.
    pub(crate) fn left(&self, device: usize) -> impl Iterator<Item = &Share> {
        let is_gone = move |share: &&Share| {
            let state = share.now();
            state.role == role::LEFT && state.device == device
        };
        self.shares.iter().take(self.share_high_water()).filter(is_gone)
    }

    /// Ends those whose instant is meant. Returns how many that were.
    pub(crate) fn end_left_entries(&self, device: usize, meant: impl Fn(u64) -> bool) -> usize {
        let ended = |share: &&Share| {
            let seen = share.now();
            seen.role == role::LEFT && meant(share.key.get()) && share.state.replace(seen.word(), role::NONE)
        };
        self.left(device).filter(ended).count()
    }

    /// Bytes on `device` that are nobody's word's, but an heir's, or leave it.
    pub(crate) fn transferred(&self, device: usize) -> u64 {
        self.sum_shares(|state| state.device == device)
    }

    /// The part of them that `slot` pays for.
    pub(crate) fn transferred_to(&self, device: usize, slot: usize) -> u64 {
        self.sum_shares(|state| state.device == device && state.slot == slot && state.role != role::LEFT)
    }

    fn sum_shares(&self, meant: impl Fn(ShareState) -> bool) -> u64 {
        let counted = |share: &Share| {
            let state = share.now();
            let counts = matches!(state.role, role::PAYER | role::PAYER_LEAVING | role::LEFT) && meant(state);
            if counts { share.bytes.get() } else { 0 }
        };
        self.shares
            .iter()
            .take(self.share_high_water())
            .fold(0, |sum, share| sum.saturating_add(counted(share)))
    }
}
