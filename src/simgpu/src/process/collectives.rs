//! Collectives: kernels that wait until all of them run.
//!
//! Example: in an all-reduce, the kernel of each rank keeps its device busy until the kernels of all other ranks run. Here a
//! kernel with `meet` in its name is part of a collective. It keeps its device until as many such kernels run as its grid has
//! columns. Then it runs for its duration.
//!
//! - If the grid has one row, kernels of this process belong together.
//! - If the grid has more rows, kernels of all processes with the same number of rows belong together.
//!
//! A graph with such a kernel waits before its first node.

use super::simulation::Simulation;
use crate::engine::{Collective, Work};
use crate::model::graphs::Launch;
use crate::state::file::Locked;

/// Longest sleep, in nanoseconds, while kernels of the device itself wait for others.
const POLL: u64 = 20_000;
/// Longest sleep, in nanoseconds, while only kernels of other devices wait for others: one millisecond.
const ELSEWHERE: u64 = 1_000_000;

/// Returns the work that a launch puts into the queue.
pub(crate) fn work_of(simulation: &Simulation, launch: &Launch) -> Work {
    let &Launch { ns, occupancy, .. } = launch;
    match of_launch(simulation, launch) {
        Some(collective) => Work::Collective { collective, ns, nodes: 1, occupancy },
        None => Work::Kernel { ns, occupancy },
    }
}

/// Returns the collective that a launch is part of, if it is part of one.
pub(crate) fn of_launch(simulation: &Simulation, launch: &Launch) -> Option<Collective> {
    let [kernels, rows, _] = launch.grid;
    // The two kinds of keys never are the same, because no process has a serial of 2^32 or more.
    let key = if rows > 1 { u64::from(rows) << 32 } else { simulation.serial };
    (launch.is_collective && kernels > 1).then_some(Collective { key, kernels })
}

/// Releases the kernels of all collectives that are complete. If the process is killed inside this function, some of the kernels
/// may stay until they have waited for a full minute.
pub(crate) fn release_complete(state: &mut Locked<'_>, now: u64) {
    if !is_any(state) {
        return;
    }
    let devices = state.settings.count();
    let mut here: Vec<Collective> = Vec::new();
    for device in 0..devices {
        let engine = state.engine(device);
        engine.advance(now);
        here.extend(engine.waiting());
    }
    for collective in complete(&here) {
        (0..devices).for_each(|device| state.engine(device).release_collective(*collective));
    }
}

/// Returns the collectives of which as many kernels run as the collective has.
fn complete(here: &[Collective]) -> impl Iterator<Item = &Collective> {
    let running = |collective: &Collective| here.iter().filter(|other| *other == collective).count();
    here.iter().filter(move |collective| running(collective) >= collective.kernels as usize)
}

/// Returns the instant at which to ask a device again. The device says that nothing happens before `instant`, but a collective
/// may become complete earlier. So the answer is earlier if kernels wait for others, on this device or on another one.
pub(crate) fn ask_again_at(state: &mut Locked<'_>, device: usize, instant: u64, now: u64) -> u64 {
    if state.engine(device).unmet() > 0 {
        instant.min(now + POLL)
    } else if is_any(state) {
        instant.min(now + ELSEWHERE)
    } else {
        instant
    }
}

fn is_any(state: &mut Locked<'_>) -> bool {
    (0..state.settings.count()).any(|device| state.engine(device).unmet() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meeting_is_complete_when_as_many_of_its_size_run() {
        let [pair, three] = [2, 3].map(|kernels| Collective { key: 7, kernels });
        let other = Collective { key: 8, ..pair };
        let complete = |here: &[Collective]| complete(here).copied().collect::<Vec<_>>();
        assert_eq!(complete(&[pair, three, other, three]), []);
        assert_eq!(complete(&[pair, three, other, pair]), [pair, pair]);
        assert_eq!(complete(&[three, three, pair, three]), [three; 3]);
    }
}
