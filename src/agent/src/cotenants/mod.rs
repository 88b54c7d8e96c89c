//! Gives the slices of a GPU sight of each other where their regions lie in different folders.
//!
//! Example: two containers have private folders, and each runs 10 ms of kernels at once. The GPU gives each 5 ms, but
//! the processes of each measure 10 ms. A slice finds its own part by the intervals of the others, and only the agent
//! can read those. So the agent does three things that slices of one folder do for each other:
//!
//! - it [relays](mod@relay): it copies new busy intervals into the region of each slice of another folder;
//! - it [divides](division) GPUs among slices with a policy or a priority, as their arbiter;
//! - it [tells](programs) them of programs that use the GPU and publish nothing.
//!
//! No slice writes into the region of another: the agent writes times, grants, and numbers of contexts that it chooses
//! itself. A slice that publishes false times makes its neighbours count less time, as it can do in a common folder.
//! Without the agent the slices go on and keep their own limits. Those that have a library of the driver in common see
//! each other by its locks. The others count each other's time slices as their own.

mod contexts;
mod division;
mod place;
mod programs;
#[cfg(test)]
mod puppet;
mod relay;
mod slices;

use crate::gpus::Gpus;
use division::Division;
use gpuslice_policy::compute::attribution::slicing::RELAY_EVERY;
use gpuslice_policy::time::{Monotonic, WallTime};
use gpuslice_region::now;
pub(crate) use place::RegionPlace;
use programs::Programs;
use relay::relay;
use slices::CotenantSlices;
use std::sync::mpsc::{Receiver, RecvTimeoutError};

/// Time between two rounds while the slices have no work, and between two attempts to open regions that were not there.
const IDLE: WallTime = WallTime::from_millis(50);
/// Time without work after which the agent makes rounds less often.
const IDLE_AFTER: WallTime = WallTime::from_millis(1_000);

/// Relays and divides until the sender of the lists of regions is gone.
///
/// While all regions are in one folder, the thread sleeps until the next list: those slices see each other without it.
/// Otherwise the thread makes rounds. Each round divides. It opens regions, tells of programs and relays only if that is
/// due, because the division may need shorter pauses. If the thread is late, the slices keep their own limits. After a
/// tenth of a second without the agent, the processes divide the GPU themselves again.
pub(crate) fn serve(places: &Receiver<Vec<RegionPlace>>, gpus: &Gpus) {
    let (mut slices, mut division) = (CotenantSlices::default(), Division::default());
    let mut programs = Programs::default();
    let [mut worked_at, mut relayed_at, mut opened_at] = [Monotonic::BEGIN; 3];
    let mut pause = IDLE;
    loop {
        let told = if slices.are_apart() {
            places.recv_timeout(pause.duration())
        } else {
            places.recv().map_err(|_| RecvTimeoutError::Disconnected)
        };
        match told {
            Ok(places) => slices.follow(places),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let now = now();
        if reset_if_due(&mut opened_at, IDLE, now) {
            slices.open();
            programs.look(gpus, &mut slices, now);
        }
        if reset_if_due(&mut relayed_at, RELAY_EVERY, now) && relay(&mut slices, now) {
            worked_at = now;
        }
        let step = division.look(&mut slices, gpuslice_region::now);
        let is_idle = now.since(worked_at) >= IDLE_AFTER;
        pause = step.unwrap_or(if is_idle { IDLE } else { RELAY_EVERY });
    }
}

/// Returns true once `interval` has passed since `last`, and then sets `last` to the present.
fn reset_if_due(last: &mut Monotonic, interval: WallTime, now: Monotonic) -> bool {
    let is_due = now.since(*last) >= interval;
    *last = if is_due { now } else { *last };
    is_due
}
