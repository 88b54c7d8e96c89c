//! The roster: takes a slot for a process, proves that its owner is alive, and reaps the slots of dead processes.
//!
//! A process that joins takes a *slot*. It proves that it is alive by a file lock on the slot's first byte. The kernel
//! drops the lock when the process ends, in whatever way. Process numbers prove nothing: the kernel uses them again, and
//! another namespace has other numbers. A process keeps its slot until it ends.
//!
//! The lock belongs to an open file description, and a memory mapping keeps the description open. The owner opens the
//! file, locks the byte, maps a page through that descriptor, marks the mapping `MADV_DONTFORK`, and closes the
//! descriptor (`file::locks::LifeLock`). This has four effects:
//!
//! - The host program has no descriptor of the library. A program that closes all descriptors does not look dead.
//! - A forked child does not have the mapping, so it does not keep its dead parent alive.
//! - `exec` and death drop the lock.
//! - No second proof, such as the process number with the start time, is needed.
//!
//! The mapping must keep the caller's own file description. The root file system of most containers, overlayfs, maps the
//! lower file instead. Then the lock ends with the descriptor. So a process that joins checks through another descriptor
//! that its lock is still there. If it is not, the process refuses the region.
//!
//! Three actions begin or end the life of a slot: taking it, clearing the words of a dead owner, and initialising the
//! region. All need the *join lock*, which is a file lock too. A process killed within such an action leaves a slot that is
//! still dead, and another process can reap it again.
//!
//! To learn whether an owner is alive, a process asks for the life lock with `F_OFD_GETLK`, and does not take the lock. Two
//! processes that ask at the same time therefore do not see each other as the owner.
//!
//! One gap of some microseconds remains. If another thread of the program forks while a thread joins, the child has the
//! descriptor too. The slot then counts as alive until the child calls `exec` or ends.

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
use gpuslice_policy::time::Monotonic;
use std::collections::BTreeSet;

/// Result of a search for dead processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaped {
    /// There were no dead processes.
    Nobody,
    /// This number of processes was reaped.
    Dead(usize),
    /// There are dead processes, and another process holds the join lock, to reap or to join.
    UnderWay,
}

/// Tells whether the owner of a slot is alive.
pub(crate) trait Liveness {
    /// The error of the system call behind the answer.
    type Error;

    /// Tells whether the owner of `slot` is alive. `false` for a free slot.
    fn is_alive(&self, slot: usize) -> Result<bool, Self::Error>;

    /// Returns those of `slots`, which are in ascending order, whose owners are alive.
    fn living(&self, slots: &[usize]) -> Result<BTreeSet<usize>, Self::Error> {
        let mut living = BTreeSet::new();
        for slot in slots {
            if self.is_alive(*slot)? {
                living.insert(*slot);
            }
        }
        Ok(living)
    }
}

impl<const DEVICES: usize, const SLOTS: usize, const SHARES: usize> Layout<DEVICES, SLOTS, SHARES> {
    /// Tells whether a slot belongs to a dead process. Needs no lock.
    pub(crate) fn any_dead<L: Liveness>(&self, lives: &L) -> Result<bool, L::Error> {
        for slot in 0..self.slot_high_water() {
            if self.is_taken(slot) && !lives.is_alive(slot)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Tells whether any process of the slice is alive. The first slot usually gives the answer. Needs no lock.
    pub(crate) fn any_alive<L: Liveness>(&self, lives: &L) -> Result<bool, L::Error> {
        for slot in 0..self.slot_high_water() {
            if self.is_taken(slot) && lives.is_alive(slot)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reaps all dead processes: clears their words and frees their slots. Returns the numbers of dead and of living
    /// processes. Needs the join lock. `now` is the monotonic clock, in nanoseconds.
    ///
    /// The function asks under the lock whether each owner is alive, and uses no earlier answer. Another process may have
    /// taken a slot whose owner was dead before. If an error ends the function, the slots reaped before it stay reaped.
    pub(crate) fn reap_locked<L: Liveness>(
        &self,
        lives: &L,
        now: Monotonic,
    ) -> Result<(usize, usize), L::Error> {
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

    /// Gives `slot` to a process that holds the slot's life lock. Needs the join lock.
    ///
    /// The high-water mark is raised before the process can reserve anything. A reservation with a later fence
    /// therefore reads this process's word too.
    pub(crate) fn claim_slot(&self, slot: usize, identity: Identity) {
        self.empty_slot(slot);
        self.reset_time(slot, slot >= self.slot_high_water());
        if let Some(refused) = self.quota_denials.get(slot) {
            refused.iter().for_each(|count| count.set(0));
        }
        let Some(entry) = self.slots.get(slot) else { return };
        entry.pid.set(identity.pid);
        entry.start.set(identity.start);
        entry.pid_namespace.set(identity.pid_namespace);
        self.header.slot_high_water.raise(u32::try_from(slot.saturating_add(1)).unwrap_or(u32::MAX));
        entry.state.publish(SLOT_TAKEN);
    }

    /// Initialises the region: it then has no devices and no processes. The slice's debts stay. Needs the join lock, and
    /// that no process of the slice is alive.
    ///
    /// A process killed within this function leaves a region that is not ready. The next process that joins starts
    /// over.
    pub(crate) fn reinitialise(&self, boot: Boot, now: Monotonic) {
        self.header.ready.publish(0);
        self.keep_debts(boot, now);
        self.header.device_count.publish(0);
        self.slots.iter().for_each(|slot| slot.state.publish(SLOT_FREE));
        self.forget_all_uses();
        self.header.slot_high_water.set(0);
        self.header.unlimited_hint.set(UNLIMITED);
        self.header.epoch.set(self.header.epoch.get().wrapping_add(1));
    }

    /// Publishes all earlier writes: the region may be used.
    pub(crate) fn set_ready(&self) {
        self.header.ready.publish(READY);
    }

    /// Tells whether `slot` belongs to a process, alive or dead. Every state but "free" counts as taken.
    pub(crate) fn is_taken(&self, slot: usize) -> bool {
        self.slots.get(slot).is_some_and(|entry| entry.state.observe() != SLOT_FREE)
    }

    /// Settles the GPU time of the process in `slot`, clears its words, and frees the slot. Needs the join lock.
    pub(crate) fn release_slot(&self, slot: usize, now: Monotonic) {
        self.reclaim_time(slot, now);
        #[cfg(all(test, loom))]
        if broken::take_kill() {
            return;
        }
        self.empty_slot(slot);
    }

    /// Does the same as [`release_slot`](Self::release_slot) for a dead process. The driver may return its memory later, so
    /// its bytes first count as leaving.
    fn release_dead_slot(&self, slot: usize, now: Monotonic) {
        #[cfg(all(test, loom))]
        if broken::is(Break::LeavesLate) {
            let held = self.held_by(0, slot);
            self.release_slot(slot, now);
            return self.enter_left(slot, 0, now, held);
        }
        self.begin_leaving(slot, now);
        self.release_slot(slot, now);
    }

    /// Clears the words of `slot` and frees it. It touches the words of valid devices only; the row of a new device is
    /// cleared when the device is added.
    fn empty_slot(&self, slot: usize) {
        // Other processes may use memory that this process pays for. They take the charge over before the words of this
        // process are cleared.
        self.end_uses_of(slot);
        for row in self.held.iter().take(self.device_count()) {
            if let Some(word) = row.get(held_at(slot, SLOTS)) {
                word.clear();
            }
        }
        if let Some(entry) = self.slots.get(slot) {
            entry.context_creations.publish(0);
            entry.memory_calls.publish(0);
            entry.state.publish(SLOT_FREE);
        }
    }
}
