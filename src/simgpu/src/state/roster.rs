//! The processes of the simulation, and how dead ones are found and cleared away.
//!
//! Each process has a thread that holds the life lock in the process's slot and does nothing else. When the
//! process ends in whatever way, or calls `exec`, the kernel releases the lock. A forked child has no such thread,
//! so it is no member of the simulation.

use core::sync::atomic::Ordering;

use super::file::Locked;
use super::layout::{Usage, life, name_bytes, name_text};
use super::sizes::{DEVICES, GROUPS, PROCESSES};
use crate::os::robust_mutex::Taken;

/// Why a process cannot join.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoRoom {
    /// Every slot has a living process.
    Processes,
    /// Every group is in use.
    Groups,
}

/// The figures that a process gives about itself when it joins.
#[derive(Debug)]
pub struct NewProcess<'a> {
    /// The PID that the process itself sees.
    pub pid: u32,
    /// The inode of the namespace in which the process has that PID.
    pub pid_namespace: u64,
    /// The program's name.
    pub name: &'a [u8],
    /// The name of the process's group; empty for none.
    pub group: &'a [u8],
}

impl Locked<'_> {
    /// Finds dead processes, and takes back everything that they hold. The process in slot `own` lives, so it is not looked at.
    pub fn reap_dead(&mut self, own: Option<usize>) {
        self.end_leaving();
        let marked = self.perhaps_live;
        let slots = marked.into_iter().enumerate().flat_map(|(word, bits)| {
            (0..64).filter(move |bit| bits >> bit & 1 != 0).map(move |bit| word * 64 + bit)
        });
        for slot in slots.filter(|slot| own != Some(*slot)) {
            let Some(process) = self.processes.get(slot).filter(|process| process.life == life::LIVE) else {
                continue;
            };
            match process.life_lock.try_lock() {
                Taken::Busy => {}
                Taken::Ours | Taken::Inherited => {
                    process.life_lock.unlock();
                    self.reap(slot);
                }
            }
        }
    }

    /// Gives memory of dead processes back to the devices, as soon as its time is over.
    fn end_leaving(&mut self) {
        let now = crate::os::clock::now();
        let mut is_any = false;
        for left in self.leaving.iter_mut().filter(|left| left.bytes > 0 && left.until_ns <= now) {
            (left.bytes, is_any) = (0, true);
        }
        if is_any {
            self.repair();
        }
    }

    /// Takes the memory of a dead process away from it. Notes the memory as leaving, unless the settings say that the device has
    /// it back at once. The process loses the bytes first. So no bytes count twice if the reaping process dies in between.
    pub(super) fn begin_leaving(&mut self, slot: usize) {
        let wait = self.settings.teardown_ms.saturating_mul(1_000_000);
        let Some(process) = self.processes.get(slot) else { return };
        let (group, until_ns) = (process.group, crate::os::clock::now().saturating_add(wait));
        for device in 0..DEVICES {
            let Some(usage) = self.usage(slot, device) else { continue };
            let bytes = usage.total();
            usage.held = Default::default();
            let free = self.leaving.iter_mut().find(|left| left.bytes == 0).filter(|_| bytes > 0 && wait > 0);
            if let (Some(free), Ok(device)) = (free, u32::try_from(device)) {
                *free = super::layout::Leaving { bytes, until_ns, device, group };
            }
        }
    }

    /// Does the same as [`Self::reap_dead`], but only if no process has done so for a while. It is for callers to whom
    /// a short delay does not matter.
    pub(crate) fn reap_if_due(&mut self, own: usize, now: u64) {
        /// How long the contexts of dead processes may keep their turn on a device, in nanoseconds.
        const EVERY_NS: u64 = 1_000_000;
        if now.saturating_sub(self.looked_ns) > EVERY_NS {
            self.looked_ns = now;
            self.reap_dead(Some(own));
        }
    }

    /// Takes back everything that a dead process holds. It marks the process as dead last. So if the reaping process dies, too,
    /// the next one does all of this again.
    fn reap(&mut self, slot: usize) {
        self.leave_all(slot);
        self.begin_leaving(slot);
        let Some(process) = self.processes.get_mut(slot) else { return };
        let serial = process.serial;
        for usage in &mut process.usage {
            usage.on_host = 0;
            usage.live = 0;
            usage.contexts = 0;
            usage.modules = 0;
        }
        self.repair();
        for device in 0..self.settings.count() {
            let gone = super::device_time::remove_process(self.engine(device), serial);
            if let Some(usage) = self.usage(slot, device) {
                usage.remember(&gone);
            }
        }
        if let Some(process) = self.processes.get_mut(slot) {
            process.life = life::DEAD;
        }
        self.mark(slot, false);
    }

    /// Notes whether a process may live in a slot.
    fn mark(&mut self, slot: usize, live: bool) {
        if let Some(word) = self.perhaps_live.get_mut(slot / 64) {
            let bit = 1 << (slot % 64);
            *word = if live { *word | bit } else { *word & !bit };
        }
    }

    /// Sets all peaks to the present values, and forgets the figures of dead processes.
    pub fn reset_peaks(&mut self) {
        self.reap_dead(None);
        let state: &mut super::layout::State = self;
        for process in &mut state.processes {
            if process.life == life::DEAD {
                process.life = life::FREE;
            }
            process.usage.iter_mut().for_each(|usage| {
                usage.peak = usage.total();
                usage.on_host_peak = usage.on_host;
            });
        }
        let groups = state.groups.iter_mut().flat_map(|group| &mut group.levels);
        groups.chain(&mut state.levels).for_each(|level| level.peak = level.held);
    }

    /// Returns true if at least one process lives.
    #[must_use]
    pub fn inhabited(&self) -> bool {
        self.processes.iter().any(|process| process.life == life::LIVE)
    }

    /// Takes a slot for a new process. It is an unused slot, or else the slot of the process that died first.
    ///
    /// # Errors
    /// Every slot has a living process, or no further group is possible.
    pub fn claim(&mut self, new_process: &NewProcess<'_>) -> Result<usize, NoRoom> {
        let group = self.group(new_process.group)?;
        let rank = |slot: &usize| self.processes.get(*slot).map_or((life::LIVE, 0), |p| (p.life, p.serial));
        let free = (0..PROCESSES).filter(|slot| rank(slot).0 != life::LIVE);
        let slot =
            free.min_by_key(|slot| (rank(slot).0 == life::DEAD, rank(slot).1)).ok_or(NoRoom::Processes)?;
        self.mark(slot, true);
        self.joined = self.joined.saturating_add(1);
        let serial = self.joined;
        let process = self.processes.get_mut(slot).ok_or(NoRoom::Processes)?;
        process.life = life::FREE;
        process.usage = [Usage::NONE; DEVICES];
        process.phase.store(0, Ordering::Relaxed);
        process.group = group;
        (process.pid, process.pid_namespace) = (new_process.pid, new_process.pid_namespace);
        process.serial = serial;
        process.joined_ns = crate::os::clock::now();
        process.name = name_bytes(new_process.name);
        Ok(slot)
    }

    /// Returns the index of a group. Adds the group if it is new.
    fn group(&mut self, name: &[u8]) -> Result<u32, NoRoom> {
        if name.is_empty() {
            return Ok(0);
        }
        let bytes = name_bytes(name);
        for number in 1..GROUPS {
            let Some(group) = self.groups.get_mut(number) else { break };
            if group.name == bytes || name_text(&group.name).is_empty() {
                group.name = bytes;
                return u32::try_from(number).map_err(|_| NoRoom::Groups);
            }
        }
        Err(NoRoom::Groups)
    }
}

impl Usage {
    /// Adds the figures of contexts that were removed.
    pub(crate) fn remember(&mut self, gone: &super::device_time::ClientTotals) {
        self.busy_ns = self.busy_ns.saturating_add(gone.busy_ns);
        self.kernel_ns = self.kernel_ns.saturating_add(gone.kernel_ns);
        self.launches = self.launches.saturating_add(gone.launches);
    }

    /// A use with all figures zero.
    pub const NONE: Self = Self {
        held: [0; super::layout::KINDS],
        peak: 0,
        on_host: 0,
        on_host_peak: 0,
        allocations: 0,
        refusals: 0,
        live: 0,
        contexts: 0,
        contexts_made: 0,
        modules: 0,
        modules_loaded: 0,
        busy_ns: 0,
        kernel_ns: 0,
        launches: 0,
    };
}
