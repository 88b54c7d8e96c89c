//! One round: reads the new intervals of all slices, and writes them to the slices of other folders.

use super::Place;
use super::contexts::{Contexts, SLICES};
use gpuslice_policy::compute::measuring::peer_intervals::Interval;
use gpuslice_region::{Device, INTERVAL_SLOTS, Monitor, Origin, Region, Trust};
use gpuslice_slices::discovery::FileId;
use rustix::time::{ClockId, clock_gettime};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;

/// A slice that has published nothing for this long measures nothing, in nanoseconds: it gets no intervals.
const ABSENT_AFTER: u64 = 2_000_000_000;

/// The UUID of a GPU.
type Gpu = [u8; 16];
/// A region's folder and its name there.
type Key = (FileId, OsString);

/// All slices that take part.
#[derive(Debug, Default)]
pub(super) struct Round {
    slices: BTreeMap<Key, Slice>,
    /// Regions that could not be opened yet: nobody has made them, for example.
    missing: BTreeMap<Key, Place>,
}

#[derive(Debug)]
struct Slice {
    /// Slices of one folder see each other without the agent.
    folder: FileId,
    /// The region's file.
    file: FileId,
    /// Tells its contexts from those of other slices.
    number: u16,
    contexts: Contexts,
    monitor: Monitor,
    /// The region's epoch and its number of devices when they were read.
    state: (u64, usize),
    seats: Vec<Seat>,
}

/// A slice on one GPU.
#[derive(Debug)]
struct Seat {
    gpu: Gpu,
    device: Device,
    /// Up to which place its ring has been read.
    read: u64,
    /// When it last published an interval.
    published_at: u64,
}

impl Round {
    /// True if there are two folders, so that slices may not see each other.
    pub(super) fn is_needed(&self) -> bool {
        let mut folders = self.slices.keys().chain(self.missing.keys()).map(|(folder, _)| folder);
        let first = folders.next();
        folders.any(|folder| Some(folder) != first)
    }

    /// Takes these regions for all there are, and opens those that are new.
    pub(super) fn follow(&mut self, places: Vec<Place>) {
        self.missing = places.into_iter().map(|place| ((place.folder, place.name()), place)).collect();
        self.slices.retain(|key, slice| {
            let is_same = |place: &Place| FileId::of(&place.path).is_ok_and(|file| file == slice.file);
            let stays = self.missing.get(key).is_some_and(is_same);
            if stays {
                self.missing.remove(key);
            }
            stays
        });
        self.open();
    }

    /// Opens regions that are not open yet. What is no region is passed over; the search for slices says so.
    pub(super) fn open(&mut self) {
        let taken: BTreeSet<u16> = self.slices.values().map(|slice| slice.number).collect();
        let mut free = (0..SLICES).filter(|number| !taken.contains(number));
        let slices = &mut self.slices;
        self.missing.retain(|key, place| {
            let Ok(Some(monitor)) = Monitor::open(&place.path, Trust::AnyOwner) else { return true };
            let (Ok(file), Some(number)) = (FileId::of(&place.path), free.next()) else { return true };
            slices.insert(key.clone(), Slice::new((place.folder, file), number, monitor));
            false
        });
    }

    /// Relays what was published since the last round. Returns true if there was anything.
    pub(super) fn make(&mut self) -> bool {
        let now = now();
        let mut published: BTreeMap<Gpu, Vec<(FileId, Interval)>> = BTreeMap::new();
        for slice in self.slices.values_mut() {
            slice.read(now, &mut published);
        }
        for slice in self.slices.values() {
            slice.write(now, &published);
        }
        !published.is_empty()
    }
}

impl Slice {
    fn new((folder, file): (FileId, FileId), number: u16, monitor: Monitor) -> Self {
        Self {
            folder,
            file,
            number,
            contexts: Contexts::default(),
            monitor,
            state: (0, 0),
            seats: Vec::new(),
        }
    }

    /// Finds the devices of the region, where another process has made it anew or added one.
    fn find_devices(&mut self) {
        let region = self.monitor.region();
        let state = (region.epoch(), region.device_count());
        if state != self.state {
            self.state = state;
            let devices = region.devices();
            self.seats = devices.iter().map(|view| Seat::new(view.uuid.0, view.device)).collect();
        }
    }

    /// Reads the new intervals of each GPU.
    fn read(&mut self, now: u64, published: &mut BTreeMap<Gpu, Vec<(FileId, Interval)>>) {
        if !self.monitor.region().is_ready() {
            return;
        }
        self.find_devices();
        let (region, number, contexts) = (self.monitor.region(), self.number, &mut self.contexts);
        for seat in &mut self.seats {
            let new = seat.new_intervals(region, now).map(|interval| {
                let context = contexts.number(number, interval.context, now);
                (self.folder, Interval { context, ..interval })
            });
            let new: Vec<_> = new.collect();
            if !new.is_empty() {
                seat.published_at = now;
                published.entry(seat.gpu).or_default().extend(new);
            }
        }
    }

    /// Writes the intervals of slices of other folders, if this slice uses them.
    fn write(&self, now: u64, published: &BTreeMap<Gpu, Vec<(FileId, Interval)>>) {
        let region = self.monitor.region();
        if !region.is_ready() || region.epoch() != self.state.0 {
            return;
        }
        for seat in &self.seats {
            let is_absent = now.saturating_sub(seat.published_at) >= ABSENT_AFTER;
            let Some(new) = published.get(&seat.gpu).filter(|_| !is_absent) else { continue };
            let others = new.iter().filter(|(folder, _)| *folder != self.folder);
            others.for_each(|(_, interval)| region.relay(seat.device, *interval));
        }
    }
}

impl Seat {
    fn new(gpu: Gpu, device: Device) -> Self {
        Self { gpu, device, read: 0, published_at: 0 }
    }

    /// The intervals that were published since the last call, at most those that the ring has.
    fn new_intervals(&mut self, region: &Region, now: u64) -> impl Iterator<Item = Interval> {
        let (device, head) = (self.device, region.interval_head(self.device, Origin::Slice));
        let new = self.read.min(head).max(head.saturating_sub(INTERVAL_SLOTS))..head;
        self.read = head;
        new.filter_map(move |place| region.interval_at(device, Origin::Slice, place).told_at(place, now))
    }
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
    use gpuslice_region::{DeviceRequest, Limits, Member, Uuid};
    use std::path::Path;

    const GPU: Uuid = Uuid([7; 16]);

    struct Puppet {
        member: Member,
        device: Device,
        place: Place,
    }

    impl Puppet {
        fn join(folder: &Path, name: &str, gpu: Uuid) -> Self {
            std::fs::create_dir_all(folder).unwrap();
            let path = folder.join(name);
            let limits = Limits { cores_permille: 300, ..Limits::NONE };
            let (member, _) =
                Member::join(&path, Trust::AnyOwner, &[DeviceRequest { uuid: gpu, total: 1 << 30, limits }])
                    .unwrap();
            let device = member.devices()[0].device;
            let folder = FileId::of(folder).unwrap();
            Self { member, device, place: Place { folder, path, _kept: None } }
        }

        fn publish(&self, context: u16) -> Interval {
            let now = now();
            let interval = Interval { start: now - 2000, end: now - 1000, context, goes_on: false };
            self.member.publish(self.device, interval);
            interval
        }

        fn relayed(&self) -> Vec<Interval> {
            let head = self.member.interval_head(self.device, Origin::Relayed);
            let at =
                |place| self.member.interval_at(self.device, Origin::Relayed, place).told_at(place, now());
            (0..head).filter_map(at).collect()
        }
    }

    fn round(puppets: &[&Puppet]) -> Round {
        let mut round = Round::default();
        round.follow(puppets.iter().map(|puppet| puppet.place.clone()).collect());
        round
    }

    #[test]
    fn a_slice_gets_the_intervals_of_other_folders_alone_and_while_it_works() {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let join = |folder: &str, name| Puppet::join(&root.path().join(folder), name, GPU);
        let (a, beside_a, b) = (join("a", "1"), join("a", "2"), join("b", "1"));
        let elsewhere = Puppet::join(&root.path().join("c"), "1", Uuid([8; 16]));
        let mut round = round(&[&a, &beside_a, &b, &elsewhere]);
        assert!(round.is_needed());
        assert!(!round.make());
        let told = [a.publish(3), b.publish(3)];
        elsewhere.publish(3);
        assert!(round.make());
        let spans = |puppet: &Puppet| -> Vec<(u64, u64)> {
            puppet.relayed().iter().map(|interval| (interval.start, interval.end)).collect()
        };
        assert_eq!(spans(&a), [(told[1].start, told[1].end)]);
        assert_eq!(spans(&b), [(told[0].start, told[0].end)]);
        // It does not work, so that it measures nothing.
        assert_eq!((spans(&beside_a), spans(&elsewhere)), (vec![], vec![]));
        assert!(!round.make());
        assert_eq!(a.relayed().len(), 1);
    }

    #[test]
    fn contexts_of_different_slices_stay_different() {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let [a, b, c] = ["a", "b", "c"].map(|folder| Puppet::join(&root.path().join(folder), "1", GPU));
        let mut round = round(&[&a, &b, &c]);
        a.publish(0);
        b.publish(5);
        c.publish(5);
        assert!(round.make());
        let contexts: BTreeSet<u16> = a.relayed().iter().map(|interval| interval.context).collect();
        assert_eq!(contexts.len(), 2);
    }

    #[test]
    fn slices_of_one_folder_need_no_rounds() {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let join = |folder: &str, name| Puppet::join(&root.path().join(folder), name, GPU);
        let (a, beside_a, apart) = (join("a", "1"), join("a", "2"), join("b", "1"));
        assert!(!round(&[&a, &beside_a]).is_needed());
        assert!(round(&[&a, &apart]).is_needed());
    }

    #[test]
    fn a_region_is_followed_as_soon_as_somebody_has_made_it() {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let [a, b] = ["a", "b"].map(|folder| root.path().join(folder));
        let place = |folder: &Path| {
            std::fs::create_dir_all(folder).unwrap();
            Place { folder: FileId::of(folder).unwrap(), path: folder.join("1"), _kept: None }
        };
        let mut round = Round::default();
        round.follow(vec![place(&a), place(&b)]);
        assert!(round.is_needed() && !round.make());
        let [a, b] = [a, b].map(|folder| Puppet::join(&folder, "1", GPU));
        round.open();
        assert!(!round.make());
        a.publish(0);
        b.publish(0);
        assert!(round.make());
        assert_eq!((a.relayed().len(), b.relayed().len()), (1, 1));
    }

    #[test]
    fn a_false_interval_is_relayed_to_nobody_and_a_slice_that_is_gone_is_not_followed() {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let [a, b] = ["a", "b"].map(|folder| Puppet::join(&root.path().join(folder), "1", GPU));
        let mut round = round(&[&a, &b]);
        a.publish(0);
        b.publish(0);
        assert!(round.make());
        let far = Interval { start: 1, end: u64::MAX >> 20, context: 0, goes_on: false };
        a.member.publish(a.device, far);
        assert!(!round.make());
        round.follow(vec![b.place.clone()]);
        a.publish(0);
        assert!(!round.make() && !round.is_needed());
        assert_eq!(b.relayed().len(), 1);
    }

    #[test]
    fn a_region_that_is_made_anew_is_followed_at_once() {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let [a, b] = ["a", "b"].map(|folder| Puppet::join(&root.path().join(folder), "1", GPU));
        let mut round = round(&[&a, &b]);
        b.publish(0);
        (0..9).for_each(|_| {
            a.publish(0);
        });
        assert!(round.make());
        let folder = a.place.path.parent().unwrap().to_owned();
        a.member.leave();
        let a = Puppet::join(&folder, "1", GPU);
        assert!(!round.make());
        a.publish(0);
        assert!(round.make());
        assert_eq!(b.relayed().len(), 10);
    }
}
