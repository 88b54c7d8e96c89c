//! Gives the slices of a GPU sight of each other where their regions lie in different folders.
//!
//! Example: two containers have private folders, and each runs 10 ms of kernels at once. The GPU gives each 5 ms, but the processes
//! of each measure 10 ms. A slice finds its own part by the intervals of the others, and only the agent can read those. So the agent
//! does two things that slices of one folder do for each other:
//!
//! - it [relays](relay): it copies new busy intervals into the region of each slice of another folder;
//! - it [divides](division) GPUs among slices with a policy or a priority, as their arbiter.
//!
//! No slice gets a word of another slice: the agent writes times, grants, and numbers of contexts that it chooses itself. A slice that
//! publishes false times makes its neighbours count less time, as it can do in a common folder. Without the agent the slices go on,
//! count the turns of the others as their own, and keep their own limits.

mod contexts;
mod division;
mod relay;
mod slices;

use division::Division;
use gpuslice_policy::compute::attribution::slicing::RELAY_EVERY;
use gpuslice_slices::discovery::{Candidate, FileId};
use relay::relay;
use rustix::time::{ClockId, clock_gettime};
use slices::Slices;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// Time between two rounds while the slices have no work, and between two attempts to open regions that were not there.
const IDLE: Duration = Duration::from_millis(50);
/// Time without work after which rounds are made less often, in nanoseconds.
const IDLE_AFTER: u64 = 1_000_000_000;

/// A region that takes part.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// Its folder. Slices of one folder see each other without the agent.
    pub(crate) folder: FileId,
    /// The path of the region, which need not be there yet.
    pub(crate) path: PathBuf,
    /// Keeps the path, if the region was found in a container alone.
    pub(crate) _kept: Option<Candidate>,
}

impl Place {
    /// The region's name in its folder.
    fn name(&self) -> OsString {
        self.path.file_name().unwrap_or_default().to_owned()
    }
}

/// Relays and divides until nobody sends lists of regions any more. It sleeps while all regions are in one folder.
pub(crate) fn serve(places: &Receiver<Vec<Place>>) {
    let (mut slices, mut division) = (Slices::default(), Division::default());
    let (mut worked_at, mut relayed_at, mut opened_at) = (0, 0, 0);
    let mut pause = IDLE;
    loop {
        let told = if slices.are_apart() {
            places.recv_timeout(pause)
        } else {
            places.recv().map_err(|_| RecvTimeoutError::Disconnected)
        };
        match told {
            Ok(places) => slices.follow(places),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let now = now();
        if is_due(&mut opened_at, IDLE, now) {
            slices.open();
        }
        if is_due(&mut relayed_at, Duration::from_nanos(RELAY_EVERY), now) && relay(&mut slices, now) {
            worked_at = now;
        }
        let step = division.look(&mut slices, now);
        let is_idle = now.saturating_sub(worked_at) >= IDLE_AFTER;
        pause = step.unwrap_or(if is_idle { IDLE } else { Duration::from_nanos(RELAY_EVERY) });
    }
}

/// True once an interval since `last`, which is the present then.
fn is_due(last: &mut u64, interval: Duration, now: u64) -> bool {
    let is_due = u128::from(now.saturating_sub(*last)) >= interval.as_nanos();
    *last = if is_due { now } else { *last };
    is_due
}

/// The monotonic clock, on which regions have their instants, in nanoseconds.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let [seconds, rest] = [time.tv_sec, time.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    seconds.saturating_mul(1_000_000_000).saturating_add(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuslice_policy::compute::measuring::peer_intervals::Interval;
    use gpuslice_region::{Device, DeviceRequest, Limits, Member, Origin, Trust, Uuid};
    use std::path::Path;

    pub(super) const GPU: Uuid = Uuid([7; 16]);

    /// A process of a slice that has one GPU.
    pub(super) struct Puppet {
        pub(super) member: Member,
        pub(super) device: Device,
        pub(super) place: Place,
    }

    impl Puppet {
        /// With a share of 30 %.
        pub(super) fn join(folder: &Path, name: &str, gpu: Uuid) -> Self {
            Self::with(folder, name, gpu, Limits { cores_permille: 300, ..Limits::NONE })
        }

        pub(super) fn with(folder: &Path, name: &str, uuid: Uuid, limits: Limits) -> Self {
            std::fs::create_dir_all(folder).unwrap();
            let path = folder.join(name);
            let wanted = [DeviceRequest { uuid, total: 1 << 30, limits }];
            let (member, _) = Member::join(&path, Trust::AnyOwner, &wanted).unwrap();
            let device = member.devices()[0].device;
            let folder = FileId::of(folder).unwrap();
            Self { member, device, place: Place { folder, path, _kept: None } }
        }

        pub(super) fn publish(&self, context: u16) -> Interval {
            let now = now();
            let interval = Interval { start: now - 2000, end: now - 1000, context, goes_on: false };
            self.member.publish(self.device, interval);
            interval
        }

        /// The intervals that the agent has relayed to its slice.
        pub(super) fn relayed(&self) -> Vec<Interval> {
            let head = self.member.interval_head(self.device, Origin::Relayed);
            let at =
                |place| self.member.interval_at(self.device, Origin::Relayed, place).told_at(place, now());
            (0..head).filter_map(at).collect()
        }
    }

    pub(super) fn slices(puppets: &[&Puppet]) -> Slices {
        let mut slices = Slices::default();
        slices.follow(puppets.iter().map(|puppet| puppet.place.clone()).collect());
        slices
    }
}
