//! Copies the new busy intervals of all slices to the slices of other folders.

use super::slices::{CotenantSlice, CotenantSlices};
use gpuslice_policy::compute::measuring::peer_intervals::Interval;
use gpuslice_policy::time::{Monotonic, WallTime};
use gpuslice_region::{Origin, Uuid};
use gpuslice_slices::discovery::FileId;
use std::collections::HashMap;

/// Time after which a slice without new intervals of its own gets none of other slices. It measures nothing then.
const ABSENT_AFTER: WallTime = WallTime::from_millis(2_000);

/// New intervals by GPU, each with the folder of its slice.
type Published = HashMap<Uuid, Vec<(FileId, Interval)>>;

/// Relays the intervals that slices have published since the last call. Returns true if there were any. `now` is the present
/// time.
pub(super) fn relay(slices: &mut CotenantSlices, now: Monotonic) -> bool {
    let mut published = Published::new();
    slices.ready().for_each(|slice| read(slice, now, &mut published));
    if !published.is_empty() {
        slices.ready().for_each(|slice| write(slice, now, &published));
    }
    !published.is_empty()
}

/// Reads the new intervals of a slice.
fn read(slice: &mut CotenantSlice, now: Monotonic, published: &mut Published) {
    let CotenantSlice { folder, number, contexts, cotenant, devices, .. } = slice;
    for known in devices {
        let new: Vec<_> = cotenant
            .region()
            .new_intervals(known.device, Origin::Slice, &mut known.read, now)
            .map(|interval| {
                let context = contexts.number(*number, interval.context, now);
                (*folder, Interval { context, ..interval })
            })
            .collect();
        if !new.is_empty() {
            known.published_at = now;
            published.entry(known.gpu).or_default().extend(new);
        }
    }
}

/// Writes the intervals of slices of other folders into the region of a slice, if that slice has published lately.
fn write(slice: &CotenantSlice, now: Monotonic, published: &Published) {
    for known in &slice.devices {
        let is_absent = now.since(known.published_at) >= ABSENT_AFTER;
        let Some(new) = published.get(&known.gpu).filter(|_| !is_absent) else { continue };
        let others = new.iter().filter(|(folder, _)| *folder != slice.folder);
        others.for_each(|(_, interval)| slice.cotenant.region().relay(known.device, *interval));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cotenants::place::RegionPlace;
    use crate::cotenants::puppet::{GPU, Puppet, slices};
    use gpuslice_region::now;
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn a_slice_gets_the_intervals_of_other_folders_alone_and_while_it_works() {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let join = |folder: &str, name| Puppet::join(&root.path().join(folder), name, GPU);
        let (a, beside_a, b) = (join("a", "1"), join("a", "2"), join("b", "1"));
        let elsewhere = Puppet::join(&root.path().join("c"), "1", Uuid([8; 16]));
        let mut slices = slices(&[&a, &beside_a, &b, &elsewhere]);
        assert!(slices.are_apart());
        assert!(!relay(&mut slices, now()));
        let told = [a.publish(3), b.publish(3)];
        elsewhere.publish(3);
        assert!(relay(&mut slices, now()));
        let spans = |puppet: &Puppet| -> Vec<(Monotonic, Monotonic)> {
            puppet.relayed().iter().map(|interval| (interval.start, interval.end)).collect()
        };
        assert_eq!(spans(&a), [(told[1].start, told[1].end)]);
        assert_eq!(spans(&b), [(told[0].start, told[0].end)]);
        // `beside_a` has published nothing, so it gets no intervals.
        assert_eq!((spans(&beside_a), spans(&elsewhere)), (vec![], vec![]));
        assert!(!relay(&mut slices, now()));
        assert_eq!(a.relayed().len(), 1);
    }

    #[test]
    fn contexts_of_different_slices_stay_different() {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let [a, b, c] = ["a", "b", "c"].map(|folder| Puppet::join(&root.path().join(folder), "1", GPU));
        let mut slices = slices(&[&a, &b, &c]);
        a.publish(0);
        b.publish(5);
        c.publish(5);
        assert!(relay(&mut slices, now()));
        let contexts: BTreeSet<u16> = a.relayed().iter().map(|interval| interval.context).collect();
        assert_eq!(contexts.len(), 2);
    }

    #[test]
    fn slices_of_one_folder_see_each_other() {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let join = |folder: &str, name| Puppet::join(&root.path().join(folder), name, GPU);
        let (a, beside_a, apart) = (join("a", "1"), join("a", "2"), join("b", "1"));
        assert!(!slices(&[&a, &beside_a]).are_apart());
        assert!(slices(&[&a, &apart]).are_apart());
    }

    #[test]
    fn a_region_is_followed_as_soon_as_a_process_has_made_it() {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let [a, b] = ["a", "b"].map(|folder| root.path().join(folder));
        let place = |folder: &Path| {
            std::fs::create_dir_all(folder).unwrap();
            RegionPlace { folder: FileId::of(folder).unwrap(), path: folder.join("1"), _kept: None }
        };
        let mut slices = CotenantSlices::default();
        slices.follow(vec![place(&a), place(&b)]);
        assert!(slices.are_apart() && !relay(&mut slices, now()));
        let [a, b] = [a, b].map(|folder| Puppet::join(&folder, "1", GPU));
        slices.open();
        assert!(!relay(&mut slices, now()));
        a.publish(0);
        b.publish(0);
        assert!(relay(&mut slices, now()));
        assert_eq!((a.relayed().len(), b.relayed().len()), (1, 1));
    }

    #[test]
    fn a_false_interval_is_not_relayed_and_a_slice_that_is_gone_is_not_followed() {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let [a, b] = ["a", "b"].map(|folder| Puppet::join(&root.path().join(folder), "1", GPU));
        let mut slices = slices(&[&a, &b]);
        a.publish(0);
        b.publish(0);
        assert!(relay(&mut slices, now()));
        let far = Interval {
            start: Monotonic::from_nanos(1),
            end: Monotonic::from_nanos(u64::MAX >> 20),
            context: 0,
            goes_on: false,
        };
        a.member.publish(a.device, far);
        assert!(!relay(&mut slices, now()));
        slices.follow(vec![b.place.clone()]);
        a.publish(0);
        assert!(!relay(&mut slices, now()) && !slices.are_apart());
        assert_eq!(b.relayed().len(), 1);
    }

    #[test]
    fn a_region_that_is_made_anew_is_followed_at_once() {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let [a, b] = ["a", "b"].map(|folder| Puppet::join(&root.path().join(folder), "1", GPU));
        let mut slices = slices(&[&a, &b]);
        b.publish(0);
        (0..9).for_each(|_| {
            a.publish(0);
        });
        assert!(relay(&mut slices, now()));
        let folder = a.place.path.parent().unwrap().to_owned();
        a.member.leave();
        let a = Puppet::join(&folder, "1", GPU);
        assert!(!relay(&mut slices, now()));
        a.publish(0);
        assert!(relay(&mut slices, now()));
        assert_eq!(b.relayed().len(), 10);
    }
}
