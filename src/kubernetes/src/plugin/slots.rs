//! The slots of a node on its disk: which container has which, and the files by which it is a slice.
//!
//! A container has one slot or more. The files lie in the folder of the first one. The specification of each slot leads there.

use crate::files::{self, MIB};
use crate::objects::Part;
use gpuslice_policy::config::Ceiling;
use gpuslice_policy::units::{Bytes, Permille};
use gpuslice_region::{Limits, Monitor, Trust};
use gpuslice_slices::slot::{Name, Places, Problem, write_whole};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

/// The beginning of the names of slots.
pub(crate) const PREFIX: &str = "slot-";

/// The container that has slots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The namespace of its pod.
    pub namespace: String,
    /// The name of its pod.
    pub pod: String,
    /// The UID of its pod.
    pub uid: String,
    /// Its name in the pod.
    pub container: String,
    /// Its slots in order; the first one has the files.
    pub slots: Vec<String>,
    /// Its parts of GPUs.
    pub parts: Vec<Part>,
    /// The memory and the time that it has asked for, of all its parts together. An older agent's file does not have them.
    #[serde(default)]
    pub asked: Option<(u64, u64)>,
}

impl Owner {
    /// True if both are the same container of the same pod with the same slots.
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

/// The name of a slot; none for what is no slot.
pub(crate) fn name(slot: &str) -> Option<Name> {
    slot.strip_prefix(PREFIX)?.parse::<u32>().ok()?;
    slot.parse().ok()
}

/// True if a slice of this name is a slot of the kubelet, and no slice of anybody else.
#[must_use]
pub fn is_slot(slice: &Name) -> bool {
    name(slice.as_str()).is_some()
}

/// The container that has a slot with files.
#[must_use]
pub fn owner_of(places: &Places, slot: &Name) -> Option<Owner> {
    let text = fs::read(owner_file(places, slot)).ok()?;
    serde_json::from_slice(&text).ok()
}

/// An owner, and the time since which this agent knows it.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) owner: Owner,
    pub(crate) since: Instant,
}

/// The slots that have owners, by the first slot of each.
#[derive(Debug)]
pub(crate) struct Slots {
    places: Places,
    library: PathBuf,
    known: BTreeMap<Name, Known>,
}

impl Slots {
    /// Reads what an earlier agent has left. `library`: as [`Places::install`] returned it.
    pub(crate) fn open(places: Places, library: PathBuf) -> Self {
        let read = |name: Name| {
            let owner = owner_of(&places, &name)?;
            Some((name, Known { owner, since: Instant::now() }))
        };
        let known = Name::all_in(&places.slots()).filter(is_slot).filter_map(read).collect();
        let mut opened = Self { places, library, known };
        opened.remove_strays();
        opened
    }

    /// Removes specifications and folders of slots that nobody has: an agent that was killed leaves them.
    fn remove_strays(&mut self) {
        let owned: Vec<Name> = self.known.values().flat_map(|known| known.owner.names()).collect();
        let found = files::names(&self.places);
        found.iter().filter(|name| is_slot(name) && !owned.contains(name)).for_each(|name| self.remove(name));
    }

    /// All owners.
    pub(crate) fn known(&self) -> impl Iterator<Item = &Known> {
        self.known.values()
    }

    /// The owner of a slot.
    pub(crate) fn owner(&self, slot: &str) -> Option<&Owner> {
        let mut owners = self.known.values().map(|known| &known.owner);
        owners.find(|owner| owner.slots.iter().any(|known| known == slot))
    }

    /// Takes a slot from its owner, with all others that the owner has, and removes every file of them. What cannot be removed
    /// is told in the log: the next owner's files take its place.
    pub(crate) fn release(&mut self, slot: &str) {
        let owner = self.owner(slot).cloned();
        let names = owner.iter().flat_map(Owner::names).chain(name(slot));
        let names: Vec<Name> = names.collect();
        // First of all of them: from then on no container can start with them.
        names.iter().for_each(|name| told(files::withdraw(&self.places, name)));
        for name in &names {
            self.known.remove(name);
            self.remove(name);
        }
    }

    fn remove(&self, name: &Name) {
        told(files::withdraw(&self.places, name));
        told(files::gone(&owner_file(&self.places, name), |path| fs::remove_file(path)));
        told(files::remove(&self.places, name));
    }

    /// Makes a container the owner of its slots, or mends its files if it is already. The specifications come last.
    pub(crate) fn give(&mut self, owner: &Owner) -> Result<(), String> {
        let first = owner.names().next().ok_or("a container without slots")?;
        for slot in &owner.slots {
            if self.owner(slot).is_some_and(|known| !known.is(owner)) {
                self.release(slot);
            }
        }
        self.write(&first, owner).map_err(|problem| problem.to_string())?;
        let since = self.known.get(&first).map_or_else(Instant::now, |known| known.since);
        self.known.insert(first, Known { owner: owner.clone(), since });
        Ok(())
    }

    /// Gives an owner other parts on its GPUs, and the processes that run too. The file of the owner comes last: an agent that ends
    /// before does all of it again.
    pub(crate) fn resize(&mut self, owner: &Owner) -> Result<(), String> {
        let first = owner.names().next().ok_or("a container without slots")?;
        let text = |problem: Problem| problem.to_string();
        self.places.configure(&first, &files::settings(&owner.parts)).map_err(text)?;
        self.limit(&first, &owner.parts, |_, gets| Some(gets))?;
        self.describe(&first, owner).map_err(text)?;
        if let Some(known) = self.known.get_mut(&first) {
            known.owner.parts.clone_from(&owner.parts);
        }
        Ok(())
    }

    /// Takes back what tenants have granted themselves in their regions. A tenant may lower its limits. Returns what went wrong.
    pub(crate) fn hold(&self) -> Vec<String> {
        let lowered = |has: Limits, may: Limits| {
            let cores = u16::try_from(may.cores_permille).ok().and_then(Permille::new);
            let held =
                has.within(&Ceiling { memory: may.memory.map(Bytes::new), cores, ..Ceiling::default() });
            (held != has).then_some(held)
        };
        let held = |(name, known): (&Name, &Known)| self.limit(name, &known.owner.parts, lowered).err();
        self.known.iter().filter_map(held).collect()
    }

    /// Writes limits into a region, where it has the GPU: `of` takes those that it has, and those that the parts say.
    fn limit(
        &self,
        name: &Name,
        parts: &[Part],
        of: impl Fn(Limits, Limits) -> Option<Limits>,
    ) -> Result<(), String> {
        let opened = Monitor::open(&self.places.region(name), Trust::AnyOwner);
        let Some(monitor) = opened.map_err(|error| error.to_string())? else { return Ok(()) };
        let changes = monitor.change_limits(|device| {
            let part = parts.iter().find(|part| part.uuid.ends_with(&device.uuid.to_string()))?;
            let cores_permille = match part.core {
                0 => Limits::NONE.cores_permille,
                core => core.saturating_mul(10),
            };
            let memory = Some(part.mem_mib.saturating_mul(MIB));
            of(device.limits, Limits { memory, cores_permille, ..device.limits })
        });
        changes.map(drop).map_err(|error| error.to_string())
    }

    fn write(&self, first: &Name, owner: &Owner) -> Result<(), Problem> {
        self.places.make(first, &files::settings(&owner.parts), false)?;
        self.describe(first, owner)
    }

    /// Writes which container has the slots, and last the specifications of these.
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

/// The file that says which container has a slot.
fn owner_file(places: &Places, name: &Name) -> PathBuf {
    // Not the agent's own `slice.json`: the agent removes folders with that file which its configuration does not have.
    places.slot(name).join("pod.json")
}

fn told(removed: Result<(), Problem>) {
    if let Err(problem) = removed {
        tracing::warn!("{problem}");
    }
}
