//! The kubelet's slots that pods have. The agent shows a slot even before its first process.

use crate::gpus::Gpu;
use crate::snapshot::{Device, KubeletSlots, Pod, SliceSnapshot};
use gpuslice_kubernetes::objects::Part;
use gpuslice_kubernetes::plugin::{Owner, owner_of};
use gpuslice_region::Limits;
use gpuslice_slices::figures::printable;
use gpuslice_slices::slot::{Name, Places};
use std::collections::BTreeMap;

/// The slots of one container of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
struct OwnedSlot {
    owner: Owner,
    /// The path of the region.
    region: String,
}

/// The slots that pods have, by the first slot of each container.
#[derive(Debug, Default)]
pub(super) struct OwnedSlots(BTreeMap<Name, OwnedSlot>);

impl OwnedSlots {
    /// Reads the owners of slots from the files of the device plugin.
    pub(super) fn search(&mut self, places: &Places) {
        let read = |name: Name| {
            let owner = owner_of(places, &name)?;
            let region = printable(&places.region(&name).display().to_string());
            Some((name, OwnedSlot { owner, region }))
        };
        self.0 = Name::all_in(&places.slots()).filter(Name::is_slot).filter_map(read).collect();
    }

    /// Returns the container that has a slot.
    pub(super) fn pod(&self, name: &Name) -> Option<Pod> {
        self.0.get(name).map(|slot| pod(&slot.owner))
    }

    /// Counts the slots with and without an owner. `of_each` is the number of slots of one GPU.
    pub(super) fn count(&self, gpus: &[Gpu], of_each: u32) -> KubeletSlots {
        let owned = self.0.values().map(|slot| slot.owner.slots.len()).fold(0, usize::saturating_add);
        let of_each = usize::try_from(of_each).unwrap_or(usize::MAX);
        let all = gpus.iter().filter(|gpu| gpu.is_shared()).count().saturating_mul(of_each);
        KubeletSlots { owned, free: all.saturating_sub(owned) }
    }

    /// Completes the list of slices. Adds the slices of pods that have no process yet. Adds to each slice the GPUs that its
    /// processes have not used yet. `name` returns the name of an added slice.
    pub(super) fn complete(
        &self,
        slices: &mut Vec<SliceSnapshot>,
        mut name: impl FnMut(&SliceSnapshot) -> String,
    ) {
        for (first, slot) in &self.0 {
            let known = slices.iter_mut().find(|slice| slice.pod.is_some() && slice.region == slot.region);
            if let Some(known) = known {
                known.add_missing(&slot.owner.parts);
                continue;
            }
            let mut idle = SliceSnapshot {
                name: first.to_string(),
                container: None,
                container_name: None,
                pod: Some(pod(&slot.owner)),
                made: false,
                region: slot.region.clone(),
                problem: None,
                generation: None,
                process_count: 0,
                processes: Vec::new(),
                devices: Vec::new(),
            };
            idle.name = name(&idle);
            idle.add_missing(&slot.owner.parts);
            slices.push(idle);
        }
    }
}

impl SliceSnapshot {
    /// Adds the GPUs of `parts` that no process has used yet, with the slice's limits on them.
    fn add_missing(&mut self, parts: &[Part]) {
        for part in parts {
            if !self.devices.iter().any(|device| device.uuid == part.uuid) {
                let limits = part.limits(Limits::NONE);
                self.devices.push(Device { uuid: part.uuid.clone(), ..Device::limited(limits) });
            }
        }
    }
}

fn pod(owner: &Owner) -> Pod {
    let Owner { namespace, pod, uid, container, .. } = owner.clone();
    Pod { namespace, name: pod, uid, container }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpus::Obstacle;
    use std::fs;

    fn part(uuid: &str, core: u32) -> Part {
        Part { uuid: uuid.to_owned(), mem_mib: 1024, core }
    }

    /// Makes the files of slots as the device plugin does. One container has one slot, and another container has two.
    fn slots(places: &Places) -> OwnedSlots {
        let write = |pod: &str, slots: &[&str], parts: Vec<Part>| {
            let owner = Owner {
                namespace: "ns".to_owned(),
                pod: pod.to_owned(),
                uid: "u".to_owned(),
                container: "main".to_owned(),
                slots: slots.iter().map(|slot| (*slot).to_owned()).collect(),
                parts,
                asked: None,
            };
            let folder = places.slot(&slots[0].parse().unwrap());
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("pod.json"), serde_json::to_vec(&owner).unwrap()).unwrap();
        };
        write("one", &["slot-3"], vec![part("GPU-a", 30)]);
        write("two", &["slot-4", "slot-5"], vec![part("GPU-a", 0), part("GPU-b", 0)]);
        let mut slots = OwnedSlots::default();
        slots.search(places);
        slots
    }

    #[test]
    fn a_slot_without_a_process_is_shown_with_its_limits_and_another_one_keeps_its_figures() {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let places = Places::usual(root.path());
        let slots = slots(&places);
        let mut slices = Vec::new();
        slots.complete(&mut slices, |slice| slice.name.clone());
        let [one, two] = slices.as_slice() else { panic!("{slices:?}") };
        assert_eq!((one.name.as_str(), one.process_count, one.devices.len()), ("slot-3", 0, 1));
        assert_eq!(one.pod, slots.pod(&"slot-3".parse().unwrap()));
        let device = &one.devices[0];
        assert_eq!((device.memory_limit, device.share_permille, device.memory_used), (Some(1 << 30), 300, 0));
        assert_eq!(two.devices.iter().map(|device| device.share_permille).collect::<Vec<_>>(), [1000, 1000]);
        // A process uses only one of the two GPUs.
        let mut used = two.clone();
        used.process_count = 1;
        used.devices.remove(0);
        used.devices[0].memory_used = 7;
        let mut slices = vec![used];
        slots.complete(&mut slices, |slice| slice.name.clone());
        assert_eq!(slices.iter().map(|slice| slice.process_count).collect::<Vec<_>>(), [1, 0]);
        let told: Vec<_> =
            slices[0].devices.iter().map(|device| (device.uuid.as_str(), device.memory_used)).collect();
        assert_eq!(told, [("GPU-b", 7), ("GPU-a", 0)]);
    }

    #[test]
    fn slots_of_gpus_that_are_shared_count() {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let slots = slots(&Places::usual(root.path()));
        let gpu = |obstacle| Gpu { healthy: true, memory_total: Some(9 << 30), obstacle, ..Gpu::default() };
        let gpus = [gpu(None), gpu(None), gpu(Some(Obstacle::Divided)), Gpu::default()];
        assert_eq!(slots.count(&gpus, 16), KubeletSlots { owned: 3, free: 29 });
        assert_eq!(slots.count(&[], 16), KubeletSlots { owned: 3, free: 0 });
    }
}
