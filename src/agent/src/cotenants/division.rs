//! Divides GPUs among slices of several folders. The agent is the arbiter of these slices.
//!
//! The elected process of a folder divides a GPU among the slices of that folder, and does not see the slices of other folders.
//! So the agent divides a GPU that has slices of two folders, if one of them has a policy or a priority. The agent notes this
//! in each region. The processes then leave the division to the agent, until its last note is a tenth of a second old.

use super::slices::{CotenantSlice, CotenantSlices};
use gpuslice_policy::arbiter::{ARBITER_STEP, Arbiter, MOST_SLICES, STEP_BESIDE_HIGH};
use gpuslice_policy::config::Priority;
use gpuslice_policy::time::{Monotonic, WallTime};
use gpuslice_region::{Cotenant, Uuid, allocate_gpu};
use gpuslice_slices::discovery::FileId;
use std::collections::HashMap;

/// The arbiters of the GPUs that the agent divides.
#[derive(Debug, Default)]
pub(super) struct Division {
    arbiters: HashMap<Uuid, Arbiter>,
}

/// Facts about the slices of a GPU. They tell whether the agent divides the GPU, and how often.
#[derive(Debug, Clone, Copy)]
struct OnGpu {
    folder: FileId,
    is_apart: bool,
    divides: bool,
    has_high: bool,
}

impl Division {
    /// Divides the GPUs among their slices, where a division is due. Returns the time until the next call, or `None` if no
    /// slice has work.
    ///
    /// For each GPU the function first removes dead members of the slices, and notes in each region that the agent divides. It
    /// renews the note at each call, also while no division is due. Otherwise the processes would divide the GPU themselves.
    pub(super) fn look(
        &mut self,
        slices: &mut CotenantSlices,
        clock: impl Fn() -> Monotonic,
    ) -> Option<WallTime> {
        let gpus = gpus(slices);
        self.arbiters.retain(|gpu, _| gpus.contains_key(gpu));
        let mut step = None;
        for (gpu, on_gpu) in gpus {
            let arbiter = self.arbiters.entry(gpu).or_default();
            let mut cotenants: Vec<&mut Cotenant> = slices
                .ready()
                .filter(|slice| slice.on(gpu).is_some() && slice.cotenant.region().is_inhabited())
                .take(MOST_SLICES)
                .map(|slice| &mut slice.cotenant)
                .collect();
            let now = clock();
            for cotenant in &mut cotenants {
                cotenant.reap(now);
                let region = cotenant.region();
                region.device(&gpu).into_iter().for_each(|device| region.note_division(device, now));
            }
            if allocate_gpu(arbiter, &mut cotenants, &gpu, &clock) {
                let own = if on_gpu.has_high { STEP_BESIDE_HIGH } else { ARBITER_STEP };
                step = Some(step.map_or(own, |other: WallTime| other.min(own)));
            }
        }
        step
    }
}

/// Returns the GPUs that have slices of two folders, and at least one slice with a policy or a priority.
fn gpus(slices: &mut CotenantSlices) -> HashMap<Uuid, OnGpu> {
    let mut gpus: HashMap<Uuid, OnGpu> = HashMap::new();
    for CotenantSlice { folder, cotenant, devices, .. } in slices.ready() {
        if !cotenant.region().is_inhabited() {
            continue;
        }
        for known in devices.iter() {
            let sharing = cotenant.region().limits(known.device).sharing;
            let on_gpu = gpus.entry(known.gpu).or_insert(OnGpu {
                folder: *folder,
                is_apart: false,
                divides: false,
                has_high: false,
            });
            on_gpu.is_apart |= on_gpu.folder != *folder;
            on_gpu.divides |= sharing.divides();
            on_gpu.has_high |= sharing.priority == Priority::High;
        }
    }
    gpus.retain(|_, on_gpu| on_gpu.is_apart && on_gpu.divides);
    gpus
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cotenants::puppet::{GPU, Puppet, slices};
    use gpuslice_policy::config::CorePolicy;
    use gpuslice_policy::time::GpuTime;
    use gpuslice_region::{Limits, Sharing, now};
    use std::path::Path;

    const EQUAL: Sharing = Sharing { policy: CorePolicy::Equal, ..Sharing::FIXED };

    fn join(root: &Path, folder: &str, name: &str, sharing: Sharing) -> Puppet {
        let limits = Limits { sharing, ..Limits::NONE };
        Puppet::with(&root.join(folder), name, GPU, limits)
    }

    fn is_divided(puppet: &Puppet) -> bool {
        puppet.member.is_divided_by_agent(puppet.device, now())
    }

    #[test]
    fn two_busy_slices_of_different_folders_get_a_half_each() {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let [a, b] = ["a", "b"].map(|folder| join(root.path(), folder, "1", EQUAL));
        let (mut slices, mut division) = (slices(&[&a, &b]), Division::default());
        let start = now();
        for look in 0..200 {
            for puppet in [&a, &b] {
                puppet.member.set_queued(puppet.device, GpuTime::from_millis(20));
                puppet.member.count_used(puppet.device, GpuTime::from_micros(500));
            }
            let step = division.look(&mut slices, || start + look * ARBITER_STEP);
            assert_eq!(step, Some(ARBITER_STEP));
        }
        assert!(is_divided(&a) && is_divided(&b));
        let rates = [&a, &b].map(|puppet| puppet.member.rate_limit(puppet.device).rate().get());
        assert!(rates.iter().all(|rate| (400..=600).contains(rate)), "{rates:?}");
    }

    #[test]
    fn the_agent_leaves_slices_of_one_folder_and_fixed_ones_to_themselves() {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let [a, beside_a] = ["1", "2"].map(|name| join(root.path(), "a", name, EQUAL));
        assert_eq!(Division::default().look(&mut slices(&[&a, &beside_a]), now), None);
        let [b, c] = ["b", "c"].map(|folder| join(root.path(), folder, "1", Sharing::FIXED));
        assert_eq!(Division::default().look(&mut slices(&[&b, &c]), now), None);
        assert!([&a, &beside_a, &b, &c].into_iter().all(|puppet| !is_divided(puppet)));
    }

    #[test]
    fn slices_without_work_are_divided_without_haste_and_beside_a_high_one_with_more() {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let high = join(root.path(), "a", "1", Sharing { priority: Priority::High, ..EQUAL });
        let b = join(root.path(), "b", "1", EQUAL);
        let (mut slices, mut division) = (slices(&[&high, &b]), Division::default());
        assert_eq!(division.look(&mut slices, now), None);
        assert!(is_divided(&high) && is_divided(&b));
        b.member.set_queued(b.device, GpuTime::from_millis(1));
        assert_eq!(division.look(&mut slices, now), Some(STEP_BESIDE_HIGH));
        // A slice takes no part in the division after its last process has left.
        high.member.leave();
        assert_eq!(division.look(&mut slices, now), None);
    }

    #[test]
    fn regions_without_a_process_do_not_count_among_the_slices_that_are_divided() {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let left = |number: usize| {
            let Puppet { member, place, .. } = join(root.path(), "a", &number.to_string(), EQUAL);
            member.leave();
            place
        };
        let mut places: Vec<_> = (0..MOST_SLICES).map(left).collect();
        // These two are made last, so the agent finds them last.
        let [b, c] = ["b", "c"].map(|folder| join(root.path(), folder, "1", EQUAL));
        places.extend([&b, &c].map(|puppet| puppet.place.clone()));
        let mut slices = CotenantSlices::default();
        slices.follow(places);
        assert_eq!(Division::default().look(&mut slices, now), None);
        assert!(is_divided(&b) && is_divided(&c));
    }
}
