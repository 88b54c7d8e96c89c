//! Slices for tests.

use super::place::RegionPlace;
use super::slices::CotenantSlices;
use gpuslice_policy::compute::measuring::peer_intervals::Interval;
use gpuslice_policy::time::WallTime;
use gpuslice_region::{Device, DeviceRequest, Limits, Member, Origin, Trust, Uuid, now};
use gpuslice_slices::discovery::FileId;
use std::path::Path;

pub(super) const GPU: Uuid = Uuid([7; 16]);

/// A member of a slice with one GPU, which a test plays.
pub(super) struct Puppet {
    pub(super) member: Member,
    pub(super) device: Device,
    pub(super) place: RegionPlace,
}

impl Puppet {
    /// Joins a slice with a share of 30 %.
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
        Self { member, device, place: RegionPlace { folder, path, _kept: None } }
    }

    pub(super) fn publish(&self, context: u16) -> Interval {
        let now = now();
        let interval = Interval {
            start: now - WallTime::from_micros(2),
            end: now - WallTime::from_micros(1),
            context,
            goes_on: false,
        };
        self.member.publish(self.device, interval);
        interval
    }

    /// Returns the intervals that the agent has written into the slice's region.
    pub(super) fn relayed(&self) -> Vec<Interval> {
        let head = self.member.interval_head(self.device, Origin::Relayed);
        let at = |place| self.member.interval_at(self.device, Origin::Relayed, place).told_at(place, now());
        (0..head).filter_map(at).collect()
    }
}

pub(super) fn slices(puppets: &[&Puppet]) -> CotenantSlices {
    let mut slices = CotenantSlices::default();
    slices.follow(puppets.iter().map(|puppet| puppet.place.clone()).collect());
    slices
}
