//! The slots of a node on its disk: the owner of each slot, and the files of its slice.
//!
//! A container has one or more slots. Its files are in the folder of the first slot. The specification of each slot points
//! there.

use crate::files;
use crate::objects::Part;
use gpuslice_slices::slot::{Name, Places, Problem, write_whole};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

/// A container that has slots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Namespace of the container's pod.
    pub namespace: String,
    /// Name of the container's pod.
    pub pod: String,
    /// UID of the container's pod.
    pub uid: String,
    /// Name of the container in the pod.
    pub container: String,
    /// Slots in ascending order. The files belong to the first one.
    pub slots: Vec<String>,
    /// Parts of GPUs of the container.
    pub parts: Vec<Part>,
    /// Memory and time for which the container has asked, for all its parts together. The file of an older agent lacks them.
    #[serde(default)]
    pub asked: Option<(u64, u64)>,
}

impl Owner {
    /// Returns true if both owners are the same container of the same pod with the same slots.
    pub(crate) fn is(&self, other: &Self) -> bool {
        let of = |owner: &Self| {
            let Self { namespace, pod, uid, container, slots, .. } = owner.clone();
            (namespace, pod, uid, container, slots)
        };
        of(self) == of(other)
    }

    fn names(&self) -> impl Iterator<Item = Name> {
        self.slots.iter().filter_map(|slot| name(slot))
    }
}

/// Returns the name of a slot, or none if the device is no slot.
pub(crate) fn name(slot: &str) -> Option<Name> {
    slot.parse().ok().filter(Name::is_slot)
}

/// Returns the container that has a slot, from the file of the slot.
#[must_use]
pub fn owner_of(places: &Places, slot: &Name) -> Option<Owner> {
    let text = fs::read(owner_file(places, slot)).ok()?;
    serde_json::from_slice(&text).ok()
}

/// An owner of slots, and facts about it that only the memory of this agent has.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) owner: Owner,
    pub(crate) since: Instant,
    /// Time of the first of the kubelet's lists that lacks the owner, if all later lists lack it too; none while the kubelet
    /// lists the owner.
    pub(crate) unlisted: Option<Instant>,
    /// True if the plugin has told the pod's user that the container keeps its amounts.
    pub(crate) is_told: bool,
}

impl Known {
    fn new(owner: Owner) -> Self {
        Self { owner, since: Instant::now(), unlisted: None, is_told: false }
    }
}

/// Slots that have owners, by the first slot of each owner.
#[derive(Debug)]
pub(crate) struct Slots {
    places: Places,
    library: PathBuf,
    known: BTreeMap<Name, Known>,
}

impl Slots {
    /// Reads the files that an earlier agent has left. `library` is the path that [`Places::install`] returned.
    pub(crate) fn open(places: Places, library: PathBuf) -> Self {
        let read = |name: Name| {
            let owner = owner_of(&places, &name)?;
            Some((name, Known::new(owner)))
        };
        let known = Name::all_in(&places.slots()).filter(Name::is_slot).filter_map(read).collect();
        let mut opened = Self { places, library, known };
        opened.remove_strays();
        opened
    }

    /// Removes specifications and folders of slots without an owner. An agent that was killed may leave them.
    fn remove_strays(&mut self) {
        let owned: Vec<Name> = self.known.values().flat_map(|known| known.owner.names()).collect();
        let found = files::names(&self.places);
        found
            .iter()
            .filter(|name| name.is_slot() && !owned.contains(name))
            .for_each(|name| self.remove(name));
    }

    /// Returns all owners.
    pub(crate) fn known(&self) -> impl Iterator<Item = &Known> {
        self.known.values()
    }

    /// Records which owners the kubelet lists at present, by their slots.
    pub(crate) fn note_list(&mut self, listed: &BTreeSet<String>) {
        for known in self.known.values_mut() {
            let is_listed = known.owner.slots.iter().any(|slot| listed.contains(slot));
            let since = known.unlisted.unwrap_or_else(Instant::now);
            known.unlisted = (!is_listed).then_some(since);
        }
    }

    /// Records that the pod's user is told that the container keeps its amounts. Returns true the first time.
    pub(crate) fn tell(&mut self, owner: &Owner) -> bool {
        let known = self.known.values_mut().find(|known| known.owner.is(owner));
        known.is_some_and(|known| !std::mem::replace(&mut known.is_told, true))
    }

    /// Returns the owner of a slot.
    pub(crate) fn owner(&self, slot: &str) -> Option<&Owner> {
        let mut owners = self.known.values().map(|known| &known.owner);
        owners.find(|owner| owner.slots.iter().any(|known| known == slot))
    }

    /// Takes all slots from the owner of `slot`, and removes all their files. The function only logs a file that cannot be
    /// removed, because the next owner's file replaces it.
    pub(crate) fn release(&mut self, slot: &str) {
        let owner = self.owner(slot).cloned();
        let names = owner.iter().flat_map(Owner::names).chain(name(slot));
        let names: Vec<Name> = names.collect();
        // The specifications of all slots go first. Without them no container can start with the slots.
        names.iter().for_each(|name| told(files::withdraw(&self.places, name)));
        for name in &names {
            self.known.remove(name);
            self.remove(name);
        }
    }

    fn remove(&self, name: &Name) {
        told(files::withdraw(&self.places, name));
        told(files::remove_file(&owner_file(&self.places, name)));
        told(files::remove(&self.places, name));
    }

    /// Makes a container the owner of its slots, or repairs its files if it already is. The specifications come last.
    ///
    /// A kubelet that has lost its checkpoint gives a container other slots. Then the function releases the old slots.
    pub(crate) fn give(&mut self, owner: &Owner) -> Result<(), String> {
        let first = owner.names().next().ok_or("a container without slots")?;
        for slot in &owner.slots {
            if self.owner(slot).is_some_and(|known| !known.is(owner)) {
                self.release(slot);
            }
        }
        let is_before = |known: &&Known| {
            let Owner { uid, container, .. } = &known.owner;
            (uid, container) == (&owner.uid, &owner.container) && !known.owner.is(owner)
        };
        let before = self.known().filter(is_before).flat_map(|known| known.owner.slots.first().cloned());
        let before: Vec<String> = before.collect();
        before.iter().for_each(|slot| self.release(slot));
        self.write(&first, owner).map_err(|problem| problem.to_string())?;
        let known = self.known.entry(first).or_insert_with(|| Known::new(owner.clone()));
        known.owner.clone_from(owner);
        Ok(())
    }

    /// Gives an owner other parts on its GPUs, and applies them to running processes. The owner's file comes last. If the agent
    /// ends before that, the next agent repeats all steps.
    pub(crate) fn resize(&mut self, owner: &Owner) -> Result<(), String> {
        let first = owner.names().next().ok_or("a container without slots")?;
        let text = |problem: Problem| problem.to_string();
        self.places.configure(&first, &files::settings(&owner.parts)).map_err(text)?;
        files::limit(&self.places, &first, &owner.parts, |_, gets| Some(gets))?;
        self.describe(&first, owner).map_err(text)?;
        if let Some(known) = self.known.get_mut(&first) {
            known.owner.parts.clone_from(&owner.parts);
        }
        Ok(())
    }

    /// Lowers limits that tenants have raised in their regions. Returns the failures.
    pub(crate) fn hold(&self) -> Vec<String> {
        let held = |(name, known): (&Name, &Known)| files::hold(&self.places, name, &known.owner.parts).err();
        self.known.iter().filter_map(held).collect()
    }

    fn write(&self, first: &Name, owner: &Owner) -> Result<(), Problem> {
        self.places.make(first, &files::settings(&owner.parts), false)?;
        self.describe(first, owner)
    }

    /// Writes the owner's file, and then the specifications of its slots.
    fn describe(&self, first: &Name, owner: &Owner) -> Result<(), Problem> {
        let mut device = files::device(&self.places, &self.library, first, &owner.parts);
        let file = owner_file(&self.places, first);
        let text = serde_json::to_vec_pretty(owner);
        let text = text.map_err(|error| Problem { path: file.clone(), what: error.to_string() })?;
        write_whole(&file, &text, 0o644)?;
        owner.names().try_for_each(|name| {
            device.name = name.to_string();
            self.places.announce(&name, device.clone())
        })
    }
}

/// Returns the path of the file with the owner of a slot.
fn owner_file(places: &Places, name: &Name) -> PathBuf {
    // The name is not `slice.json`: the agent removes folders with that file if its configuration does not have the slice.
    places.slot(name).join("pod.json")
}

fn told(removed: Result<(), Problem>) {
    if let Err(problem) = removed {
        tracing::warn!("{problem}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuslice_region::{DeviceRequest, Limits, Member, Monitor, Trust, Uuid};
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    /// A process of each of two tenants raises its limits, and then holds the lock on them for ever.
    #[test]
    fn limits_are_set_back_without_a_wait_for_tenants_that_hold_their_locks() {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let at = |name: &str| root.path().join(name);
        let places = Places { state: at("state"), regions: at("regions"), cdi: at("cdi") };
        let mut slots = Slots::open(places.clone(), at("library"));
        let gpu = Uuid([1; 16]);
        let tenants = ["slot-0", "slot-1"].map(|slot| {
            let parts = vec![Part { uuid: format!("GPU-{gpu}"), mem_mib: 1024, core: 30 }];
            let text = || slot.to_owned();
            let (slots_of, asked) = (vec![text()], None);
            let owner = Owner {
                namespace: text(),
                pod: text(),
                uid: text(),
                container: text(),
                slots: slots_of,
                parts,
                asked,
            };
            slots.give(&owner).unwrap();
            let wanted = [DeviceRequest { uuid: gpu, total: 16 << 30, limits: Limits::NONE }];
            let region = places.region(&slot.parse().unwrap());
            let (member, _) = Member::join(&region, Trust::AnyOwner, &wanted).unwrap();
            let monitor = Monitor::open(&region, Trust::AnyOwner).unwrap().unwrap();
            let ((began, begun), (end, ended)) = (channel(), channel::<()>());
            let holder = thread::spawn(move || {
                let hold = |_: &_| {
                    began.send(()).unwrap();
                    let _no_sender = ended.recv();
                    None
                };
                monitor.change_limits(hold).unwrap();
            });
            begun.recv().unwrap();
            (member, end, holder)
        });
        let begun = Instant::now();
        assert_eq!(slots.hold(), Vec::<String>::new());
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
        for (member, end, holder) in tenants {
            let limits = member.limits(member.devices()[0].device);
            assert_eq!((limits.memory, limits.cores_permille), (Some(1024 << 20), 300));
            drop(end);
            holder.join().unwrap();
        }
    }
}
