//! Which kernels wait for each other?
//!
//! Collectives do: each rank's kernel keeps its device busy until those of all the others run. Here they are those whose
//! names have `meet`: a launch waits for as many like it as its grid has columns, and then runs for its time. With one row they are
//! those of its process; with more, those of all processes that have as many rows. A graph that has one waits before its first
//! node.

use super::simulation::Simulation;
use crate::engine::{Meeting, Work};
use crate::model::graphs::Launch;
use crate::state::file::Locked;

/// How long nobody sleeps longer than while kernels wait for each other, in nanoseconds.
const POLL: u64 = 20_000;
/// The same for who asks for a device where none does, while some do elsewhere: a millisecond.
const ELSEWHERE: u64 = 1_000_000;

/// A launch as work of its device.
pub(crate) fn kernel(simulation: &Simulation, launch: &Launch) -> Work {
    let &Launch { ns, occupancy, .. } = launch;
    match of(simulation, launch) {
        Some(meeting) => Work::Meet { meeting, ns, nodes: 1, occupancy },
        None => Work::Kernel { ns, occupancy },
    }
}

/// Whom a launch waits for.
pub(crate) fn of(simulation: &Simulation, launch: &Launch) -> Option<Meeting> {
    let [kernels, rows, _] = launch.grid;
    // Neither is the number of the other kind: no process is the 2^32nd.
    let key = if rows > 1 { u64::from(rows) << 32 } else { simulation.serial };
    (launch.meets && kernels > 1).then_some(Meeting { key, kernels })
}

/// Lets those that all run go on. A process that is killed in here may leave a part of them to wait for their minute.
pub(crate) fn look(state: &mut Locked<'_>, now: u64) {
    if !is_any(state) {
        return;
    }
    let devices = state.settings.count();
    let mut here: Vec<Meeting> = Vec::new();
    for device in 0..devices {
        let engine = state.engine(device);
        engine.advance(now);
        here.extend(engine.waiting());
    }
    for meeting in complete(&here) {
        (0..devices).for_each(|device| state.engine(device).meet(*meeting));
    }
}

/// Those of which as many run as have to.
fn complete(here: &[Meeting]) -> impl Iterator<Item = &Meeting> {
    let running = |meeting: &Meeting| here.iter().filter(|other| *other == meeting).count();
    here.iter().filter(move |meeting| running(meeting) >= meeting.kernels as usize)
}

/// When to ask a device again that can say nothing before an instant: soon where its kernels wait for others, or those of
/// another device that its process may be in charge of.
pub(crate) fn again(state: &mut Locked<'_>, device: usize, instant: u64, now: u64) -> u64 {
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
        let [pair, three] = [2, 3].map(|kernels| Meeting { key: 7, kernels });
        let other = Meeting { key: 8, ..pair };
        let complete = |here: &[Meeting]| complete(here).copied().collect::<Vec<_>>();
        assert_eq!(complete(&[pair, three, other, three]), []);
        assert_eq!(complete(&[pair, three, other, pair]), [pair, pair]);
        assert_eq!(complete(&[three, three, pair, three]), [three; 3]);
    }
}
