//! What happens to a process that is checkpointed?
//!
//! First it is locked: its calls wait. Then its memory leaves the devices, and comes back when it is restored, if
//! there is room; until it is unlocked its calls wait on. Calls that are under way when it is locked are not waited
//! for. Memory that processes share cannot be checkpointed.

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

/// Functions that work in a locked process.
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
    /// Waits while this process is locked.
    pub(crate) fn wait_while_locked(&self, symbol: Symbol) {
        let Some(phase) = self.shared.phase(self.slot) else { return };
        while phase.load(Ordering::Acquire) != phase::RUNNING && !never_waits(symbol) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The living process with a number.
    fn process_of(&self, pid: i32) -> Result<(Locked<'_>, usize), Status> {
        let state = self.truth();
        let wanted = u32::try_from(pid).map_err(|_| status::INVALID_VALUE)?;
        let lives =
            |process: &crate::state::layout::Process| process.life == life::LIVE && process.pid == wanted;
        let slot = state.processes.iter().position(lives).ok_or(status::INVALID_VALUE)?;
        Ok((state, slot))
    }

    /// Where a process is.
    pub(crate) fn phase_of(&self, pid: i32) -> Result<u32, Status> {
        let (state, slot) = self.process_of(pid)?;
        Ok(state.processes.get(slot).map_or(phase::RUNNING, |process| process.phase.load(Ordering::Acquire)))
    }

    /// Takes a process from one phase to the next, if `work` is done.
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

/// Takes everything that a process holds off the devices.
pub(crate) fn evict(state: &mut Locked<'_>, slot: usize) -> Outcome {
    if state.shares(slot) {
        return Err(status::NOT_SUPPORTED);
    }
    for device in 0..DEVICES {
        let held = state.usage(slot, device).map(|usage| usage.held).unwrap_or_default();
        for (kind, bytes) in MemoryKind::ALL.into_iter().zip(held) {
            state.refund(slot, device, kind, bytes);
        }
        if let Some(parked) = state.processes.get_mut(slot).and_then(|process| process.parked.get_mut(device))
        {
            *parked = held;
        }
    }
    Ok(())
}

/// Brings it back, all or nothing.
pub(crate) fn restore(state: &mut Locked<'_>, slot: usize) -> Outcome {
    let parked = state.processes.get(slot).map(|process| process.parked).ok_or(status::INVALID_VALUE)?;
    let room = |(device, parked): (usize, &[u64; crate::state::layout::KINDS])| {
        parked.iter().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes)) <= state.free(device)
    };
    if !parked.iter().enumerate().all(room) {
        return Err(status::OUT_OF_MEMORY);
    }
    for (device, held) in parked.into_iter().enumerate() {
        for (kind, bytes) in MemoryKind::ALL.into_iter().zip(held) {
            // There is room: nobody else changes anything while the state is locked.
            let _ = state.charge(slot, device, kind, bytes);
        }
    }
    Ok(())
}
