//! Who lives?
//!
//! A process has a *slot*, and proves that it lives with a lock on the slot's first byte, which the kernel drops
//! at its death, however it dies. No process number is asked: numbers are used again, and mean nothing in
//! another namespace. Slots never move.
//!
//! The lock belongs to an open file description, and a memory mapping keeps that description open. So the
//! owner opens the file, locks the byte, maps a page through that very descriptor, marks the mapping so that a
//! forked child does not get it, and closes the descriptor (`lock::Life`). The host process has no descriptor
//! of ours; a program that closes all descriptors does not look dead; a child does not keep its dead parent
//! alive; `exec` and death let go. That is why there is no second proof (process number with start time): the
//! one thing that it was for, a program that closes our descriptor, cannot happen.
//!
//! What this asks of the file system: that a mapping keeps the *caller's* file description. overlayfs, the
//! root of most containers, puts the lower file in its place, and the lock is gone with the descriptor. So
//! whoever joins looks with another descriptor whether its lock is still there, and refuses if it is not.
//!
//! All that begins or ends a slot's life is done under one lock, the *join lock*: taking a slot, clearing the
//! words of the dead, making a region anew that no process is left in. It is a file lock as well, so a process
//! that is killed in the middle of it leaves a slot that is still dead and can be cleared again. That somebody
//! lives is only ever *asked*, never tried by taking the lock: so two that look at once do not take each other
//! for the living.
//!
//! A gap of some microseconds stays: if another thread of the host forks while a thread joins, the child has the
//! descriptor too, and keeps the slot until it calls `exec` or ends.

#[cfg(all(test, loom))]
use crate::sync::atomics::broken::{self, Break};
use crate::{
    layout::{
        Layout,
        constants::{READY, SLOT_FREE, SLOT_TAKEN, UNLIMITED},
        held_at,
    },
    slots::identity::{Boot, Identity},
};

/// What came of looking for dead processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaped {
    /// There were none.
    Nobody,
    /// So many were cleared.
    Dead(usize),
    /// There are some, and another process is at it (or is joining) right now.
    UnderWay,
}

/// What the roster asks the kernel.
pub(crate) trait Liveness {
    /// What went wrong in asking.
    type Error;

    /// Whether the owner of `slot` lives, if it has one.
    fn is_alive(&self, slot: usize) -> Result<bool, Self::Error>;
}

impl<const DEVICES: usize, const SLOTS: usize, const SHARES: usize> Layout<DEVICES, SLOTS, SHARES> {
    /// Whether a slot below the mark is taken by somebody dead. Needs no lock.
    pub(crate) fn any_dead<L: Liveness>(&self, lives: &L) -> Result<bool, L::Error> {
        for slot in 0..self.slot_high_water() {
            if self.is_taken(slot) && !lives.is_alive(slot)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether any process of the slice lives. The first that is asked for usually does. Needs no lock.
    pub(crate) fn anybody_lives<L: Liveness>(&self, lives: &L) -> Result<bool, L::Error> {
        for slot in 0..self.slot_high_water() {
            if self.is_taken(slot) && lives.is_alive(slot)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Clears the slots of the dead, and says how many they were and how many live. Needs the join lock. `now` is the
    /// monotonic clock, in nanoseconds.
    ///
    /// Who is dead is asked here, under the lock, and never remembered from before: a slot that was dead may
    /// have been taken again since.
    pub(crate) fn reap_locked<L: Liveness>(&self, lives: &L, now: u64) -> Result<(usize, usize), L::Error> {
        let (mut dead, mut living) = (0_usize, 0_usize);
        for slot in 0..self.slot_high_water() {
            if !self.is_taken(slot) {
                continue;
            }
            if lives.is_alive(slot)? {
                living = living.saturating_add(1);
            } else {
                self.release_dead_slot(slot, now);
                dead = dead.saturating_add(1);
            }
        }
        Ok((dead, living))
    }

    /// Gives `slot` to a process that has its lock. Needs the join lock.
    ///
    /// The mark is raised before the process can reserve anything, so that a reservation whose fence is later
    /// than one of this process reads this process's word as well.
    pub(crate) fn claim_slot(&self, slot: usize, who: Identity) {
        self.empty_slot(slot);
        self.reset_time(slot, slot >= self.slot_high_water());
        if let Some(refused) = self.quota_denials.get(slot) {
            refused.iter().for_each(|count| count.set(0));
        }
        let Some(entry) = self.slots.get(slot) else { return };
        entry.pid.set(who.pid);
        entry.start.set(who.start);
        entry.pid_namespace.set(who.pid_namespace);
        self.header.slot_high_water.raise(u32::try_from(slot.saturating_add(1)).unwrap_or(u32::MAX));
        entry.state.publish(SLOT_TAKEN);
    }

    /// Makes the region anew: no device, no process. The slice's debts stay. Needs the join lock, and that nobody lives.
    ///
    /// A process that is killed in here leaves a region that is not ready, and the next one starts over.
    pub(crate) fn reinitialise(&self, boot: Boot, now: u64) {
        self.header.ready.publish(0);
        self.keep_debts(boot, now);
        self.header.device_count.publish(0);
        self.slots.iter().for_each(|slot| slot.state.publish(SLOT_FREE));
        self.forget_all_uses();
        self.header.slot_high_water.set(0);
        self.header.unlimited_hint.set(UNLIMITED);
        self.header.epoch.set(self.header.epoch.get().wrapping_add(1));
    }

    /// Says that the region may be used, after everything that was written before.
    pub(crate) fn set_ready(&self) {
        self.header.ready.publish(READY);
    }

    /// Whether somebody, alive or dead, has `slot`. Whatever is not "free" is taken.
    pub(crate) fn is_taken(&self, slot: usize) -> bool {
        self.slots.get(slot).is_some_and(|entry| entry.state.observe() != SLOT_FREE)
    }

    /// Gives on what the process in `slot` leaves, and makes the slot hold nothing and free. Needs the join lock.
    pub(crate) fn release_slot(&self, slot: usize, now: u64) {
        self.reclaim_time(slot, now);
        #[cfg(all(test, loom))]
        if broken::is_killed() {
            return;
        }
        self.empty_slot(slot);
    }

    /// As [`clear`](Self::clear), of a process that has died: the device may have its memory back later.
    fn release_dead_slot(&self, slot: usize, now: u64) {
        #[cfg(all(test, loom))]
        if broken::is(Break::LeavesLate) {
            let held = self.held_by(0, slot);
            self.release_slot(slot, now);
            return self.enter_left(slot, 0, now, held);
        }
        self.begin_leaving(slot, now);
        self.release_slot(slot, now);
    }

    /// Makes `slot` hold nothing and free. Only the words of devices in use are touched: a device that is added
    /// starts with a cleared row.
    fn empty_slot(&self, slot: usize) {
        // Others may go on using memory that this process is charged for: they take the charge over first.
        self.end_uses_of(slot);
        for row in self.held.iter().take(self.device_count()) {
            if let Some(word) = row.get(held_at(slot, SLOTS)) {
                word.clear();
            }
        }
        if let Some(entry) = self.slots.get(slot) {
            entry.context_creations.set(0);
            entry.state.publish(SLOT_FREE);
        }
    }
}
