//! Gives the slices of a GPU sight of each other, even if their regions lie in different folders.
//!
//! Example: two containers have private folders, and both run kernels of 10 ms at the same time. The GPU gives each container
//! half of its time, but the processes of each measure the whole. A slice finds its own part by the intervals of the other
//! slices, and only the agent can read all of them. So the agent does three things that slices of one folder do themselves:
//!
//! - it [relays](mod@relay): it copies new busy intervals into the region of each slice of another folder;
//! - it [divides](division) GPUs among slices with a policy or a priority, as their arbiter;
//! - it [tells](programs) slices of programs that use the GPU and publish no intervals.
//!
//! No slice writes into the region of another slice. The agent writes only times, grants, and numbers of contexts that it
//! chooses itself. A slice that publishes false times can make its neighbours count less time, as in a common folder. Without
//! the agent, the slices keep their own limits. Slices that share a library file of the driver see each other by its locks.
//! Other slices count each other's time slices as their own.

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

/// Time between two rounds while the slices have no work. Also the time between two attempts to open missing regions.
const IDLE: WallTime = WallTime::from_millis(50);
/// Time without work after which the agent makes rounds less often.
const IDLE_AFTER: WallTime = WallTime::from_millis(1_000);

/// Relays and divides until the sender of the lists of regions is gone.
///
/// While all regions are in one folder, their slices see each other without the agent, so the thread sleeps until the next
/// list. Otherwise the thread makes rounds. Each round divides. A round opens regions, tells of programs and relays only when
/// these steps are due, because a division may need shorter pauses. If the thread is late, the slices keep their own limits.
/// After a tenth of a second without the agent, their processes divide the GPU themselves.
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

/// If `interval` has passed since `last`, sets `last` to `now` and returns true.
fn reset_if_due(last: &mut Monotonic, interval: WallTime, now: Monotonic) -> bool {
    let is_due = now.since(*last) >= interval;
    *last = if is_due { now } else { *last };
    is_due
}
