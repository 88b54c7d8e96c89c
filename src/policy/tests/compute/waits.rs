//! Tests waits: their reasons, and their longest time.

use gpuslice_policy::compute::limiter::fair_queue;
use gpuslice_policy::compute::limiter::queue_bound::UNKNOWN_WAIT;
use gpuslice_policy::time::literals::ms;
use gpuslice_policy::time::{GpuTime, GpuTimeChange, Monotonic, WallTime};

use crate::shim::Wait;
use crate::slice::Slice;
use crate::world::{Phase, Process, World};

/// The record of a waiting process.
#[derive(Debug, Clone, Default)]
pub struct Waiter {
    /// The instant since which the process waits without a reason, and whether it waited for the word then.
    due: Option<(Monotonic, bool)>,
    since: Option<Monotonic>,
    /// The time of each process of the slice when this process began to wait.
    began: Vec<Had>,
    /// The time that the other processes had taken when this one first waited for the word.
    first: Option<GpuTime>,
    pub stopped_until: Monotonic,
}

/// Longest wait beyond the debt or the queue, without the process's own delay. For the queue and for unknown launches it is
/// one look of the worker. That look may free the slice's time, and others may have their turn. A process that waited for
/// the queue then begins to wait for the word.
const PATIENCE: WallTime = WallTime::from_millis(1);

impl Process {
    fn waits(&self) -> Option<(Wait, Monotonic)> {
        match self.phase {
            Phase::Asks { wait: Some(wait), since, .. } => Some((wait, since)),
            _ => None,
        }
    }
}

/// Returns the time that other processes of the slice have taken.
fn others(me: usize, world: &World) -> GpuTime {
    let taken = &world.slices[world.processes[me].slice].taken;
    taken.iter().copied().fold(GpuTime::ZERO, GpuTime::saturating_add) - taken[me]
}

/// The GPU time that a process has had.
#[derive(Debug, Clone, Copy)]
struct Had {
    taken: GpuTime,
    got: GpuTimeChange,
    /// The process's virtual service.
    served: GpuTime,
}

fn had(other: usize, slice: &Slice, now: Monotonic) -> Had {
    let served = fair_queue::start(
        slice.asks[other].virtual_service,
        slice.virtual_time,
        slice.rate_limit,
        slice.seen(now),
    );
    Had { taken: slice.taken[other], got: slice.got[other], served }
}

/// Returns the most time that one process may get before another. An idle process may be behind by a bounded time. A
/// process may also finish the work that it has begun, at the price of that work. This price includes the turns of
/// neighbours.
fn most(other: usize, world: &World) -> GpuTime {
    let process = &world.processes[other];
    let dearest = world.slices[process.slice].dearest[other];
    fair_queue::lag(1, world.slices[process.slice].rate_limit)
        + 3 * process.program.longest().max(dearest)
        + ms(2)
}

impl Waiter {
    /// Checks that no process waits without a reason. A wait for the word is at most the debt. A wait for the queue or for
    /// an unknown launch ends with the process's work on the GPU. Neighbours have their turns meanwhile, so the queued work
    /// does not bound it. A wait for an unknown launch is at most [`UNKNOWN_WAIT`]. Returns the excess and the reason.
    pub fn waits_for_nothing(&mut self, me: usize, world: &World) -> Result<WallTime, String> {
        let process = &world.processes[me];
        let Some((wait, since)) =
            process.waits().filter(|_| world.now > self.stopped_until + world.machine.late)
        else {
            self.due = None;
            return Ok(WallTime::ZERO);
        };
        let is_due = match wait {
            Wait::Word(_) => world.slices[process.slice].paid_until <= world.now,
            Wait::Queue(_) | Wait::Unknown(_) => world.gpu.is_idle(process.client),
        };
        if matches!(wait, Wait::Unknown(_)) {
            let most = self.stopped_until.max(since + UNKNOWN_WAIT) + world.machine.late;
            if world.now > most {
                return Err(format!("process {me} waits for the unknown since {}", world.now.since(since)));
            }
        }
        if !is_due {
            self.due = None;
            return Ok(WallTime::ZERO);
        }
        let for_word = matches!(wait, Wait::Word(_));
        let (due, _) = *self.due.insert(match self.due {
            Some((due, was_for_word)) if was_for_word || !for_word => (due, was_for_word),
            _ => (world.now, for_word),
        });
        let waited = world.now.since(due);
        if waited <= PATIENCE + world.machine.late {
            return Ok(if for_word { waited } else { WallTime::ZERO });
        }
        let what = if for_word { "owed" } else { "queued" };
        Err(format!("process {me} waits {waited} although nothing is {what} ({wait:?})"))
    }

    /// Checks that no process starves. Other processes may be served before it, each until it has had as much. Their time
    /// counts only if they used it: if estimates are too large, most of the time is refunded.
    pub fn starves(&mut self, me: usize, world: &World) -> Result<(), String> {
        let process = &world.processes[me];
        let slice = &world.slices[process.slice];
        let word = process.waits_for_word();
        if word.is_some() {
            self.first.get_or_insert_with(|| others(me, world));
        }
        let since = word.filter(|_| world.now > self.stopped_until + world.machine.late);
        if since.is_none() || self.since != since {
            self.since = since;
            self.began.clear();
            if since.is_some() {
                self.began.extend((0..world.processes.len()).map(|other| had(other, slice, world.now)));
            }
            return Ok(());
        }
        let served = slice.asks[me].virtual_service;
        let siblings = |other: &usize| *other != me && world.processes[*other].slice == process.slice;
        let (mut passed, mut most_passed) = (GpuTime::ZERO, most(me, world));
        for other in (0..self.began.len()).filter(siblings) {
            let began = self.began[other];
            let got = u64::try_from(slice.got[other].nanos() - began.got.nanos()).unwrap_or(0);
            passed += GpuTime::from_nanos(got).min(slice.taken[other] - began.taken);
            most_passed += most(other, world) + (served - began.served);
        }
        if passed <= most_passed {
            return Ok(());
        }
        let for_long = world.now.since(self.since.unwrap_or(world.now));
        Err(format!("process {me} was passed over by {passed} of others in {for_long}"))
    }

    /// Returns true if the check of starvation would fail had the process not been served since its first wait.
    pub fn is_starvable(&self, me: usize, world: &World) -> bool {
        let slice = world.processes[me].slice;
        let members = (0..world.processes.len()).filter(|other| world.processes[*other].slice == slice);
        let most = members.map(|other| most(other, world)).fold(GpuTime::ZERO, GpuTime::saturating_add);
        self.first.is_some_and(|first| others(me, world) - first > most)
    }
}
