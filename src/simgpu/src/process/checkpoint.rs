//! Checkpoints of processes.
//!
//! A checkpoint has four steps. The process is the one that is checkpointed:
//!
//! 1. *Lock.* From now on, calls of the process wait. The step itself does not wait for calls in progress.
//! 2. *Checkpoint.* The memory of the process leaves the devices.
//! 3. *Restore.* The memory of the process comes back, if the devices have room.
//! 4. *Unlock.* The calls of the process continue.
//!
//! A process that shares memory with others cannot be checkpointed.

use core::sync::atomic::Ordering;
use core::time::Duration;

use gpuslice_driver::Symbol;
use gpuslice_driver::types::{Status, status};

use super::simulation::Simulation;
use crate::state::file::Locked;
use crate::state::layout::{MemoryKind, life};
use crate::state::sizes::DEVICES;
use crate::status::{Outcome, statuses};

/// `CUprocessState`.
pub(crate) mod phase {
    pub(crate) const RUNNING: u32 = 0;
    pub(crate) const LOCKED: u32 = 1;
    pub(crate) const CHECKPOINTED: u32 = 2;
}

/// Returns true if a function works even while its process is locked.
fn never_waits(symbol: Symbol) -> bool {
    matches!(
        symbol,
        Symbol::cuCheckpointProcessLock
            | Symbol::cuCheckpointProcessCheckpoint
            | Symbol::cuCheckpointProcessRestore
            | Symbol::cuCheckpointProcessUnlock
            | Symbol::cuCheckpointProcessGetState
            | Symbol::cuCheckpointProcessGetRestoreThreadId
    )
}

impl Simulation {
    /// Waits as long as this process is locked.
    pub(crate) fn wait_while_locked(&self, symbol: Symbol) {
        let Some(phase) = self.shared.phase(self.slot) else { return };
        while phase.load(Ordering::Acquire) != phase::RUNNING && !never_waits(symbol) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns the shared state, locked, and the slot of the living process with this PID.
    fn process_of(&self, pid: i32) -> Result<(Locked<'_>, usize), Status> {
        let state = self.truth();
        let wanted = u32::try_from(pid).map_err(|_| status::INVALID_VALUE)?;
        let lives =
            |process: &crate::state::layout::Process| process.life == life::LIVE && process.pid == wanted;
        let slot = state.processes.iter().position(lives).ok_or(status::INVALID_VALUE)?;
        Ok((state, slot))
    }

    /// Returns the phase of the process with this PID.
    pub(crate) fn phase_of(&self, pid: i32) -> Result<u32, Status> {
        let (state, slot) = self.process_of(pid)?;
        Ok(state.processes.get(slot).map_or(phase::RUNNING, |process| process.phase.load(Ordering::Acquire)))
    }

    /// Moves a process from one phase to another, if `work` succeeds.
    pub(crate) fn turn_phase(
        &self,
        pid: i32,
        (from, to): (u32, u32),
        work: impl FnOnce(&mut Locked<'_>, usize) -> Outcome,
    ) -> Outcome {
        let (mut state, slot) = self.process_of(pid)?;
        let now = state.processes.get(slot).map(|process| process.phase.load(Ordering::Acquire));
        if now != Some(from) {
            return Err(statuses::ILLEGAL_STATE);
        }
        work(&mut state, slot)?;
        if let Some(process) = state.processes.get(slot) {
            process.phase.store(to, Ordering::Release);
        }
        Ok(())
    }
}

/// Takes all memory of a process off the devices, and remembers how much it was.
pub(crate) fn evict(state: &mut Locked<'_>, slot: usize) -> Outcome {
    if state.shares(slot) {
        return Err(status::NOT_SUPPORTED);
    }
    for device in 0..DEVICES {
        let held = state.usage(slot, device).map(|usage| usage.held).unwrap_or_default();
        for (kind, bytes) in MemoryKind::ALL.into_iter().zip(held) {
            state.refund(slot, device, kind, bytes);
        }
        if let Some(evicted) =
            state.processes.get_mut(slot).and_then(|process| process.evicted.get_mut(device))
        {
            *evicted = held;
        }
    }
    Ok(())
}

/// Charges all evicted memory of a process again. If one device has no room for its part, nothing is charged.
pub(crate) fn restore(state: &mut Locked<'_>, slot: usize) -> Outcome {
    let evicted = state.processes.get(slot).map(|process| process.evicted).ok_or(status::INVALID_VALUE)?;
    let room = |(device, evicted): (usize, &[u64; crate::state::layout::KINDS])| {
        evicted.iter().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes)) <= state.free(device)
    };
    if !evicted.iter().enumerate().all(room) {
        return Err(status::OUT_OF_MEMORY);
    }
    for (device, held) in evicted.into_iter().enumerate() {
        for (kind, bytes) in MemoryKind::ALL.into_iter().zip(held) {
            // This succeeds: there is room, and no other process changes the state while this one holds the lock.
            let _ = state.charge(slot, device, kind, bytes);
        }
    }
    Ok(())
}
