//! Reads the slices that this agent made.

use super::regions::{LookUp, devices, processes};
use crate::gpus::{Gpu, bare};
use crate::owned::Owned;
use crate::snapshot::{Device, SliceSnapshot};
use gpuslice_region::{Limits, Reader, RegionError, Trust};
use gpuslice_slices::discovery::{Container, ContainerIdentity, FileId, MountedFolder};
use gpuslice_slices::figures::printable;
use gpuslice_slices::slot::{Name, Places};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The regions of the configuration's slices, and the containers that use them.
#[derive(Debug, Default)]
pub(super) struct ConfiguredSlices {
    /// The open regions.
    readers: BTreeMap<Name, Arc<Reader>>,
    /// The containers that have the folder of a region mounted, by that folder.
    holders: BTreeMap<FileId, Vec<Container>>,
    /// True if the agent could not look at all containers. One of them may have any slice.
    is_incomplete: bool,
}

impl ConfiguredSlices {
    /// Closes all regions.
    pub(super) fn forget(&mut self) {
        self.readers.clear();
    }

    /// Returns the open regions.
    pub(super) fn readers(&self) -> impl Iterator<Item = Arc<Reader>> {
        self.readers.values().cloned()
    }

    /// Records which containers have slices of the configuration. `is_complete` is false if there may be other containers.
    pub(super) fn hold(&mut self, containers: &[Container], places: &Places, is_complete: bool) {
        self.is_incomplete = !is_complete;
        self.hold_by(Container::mounted, containers, places);
    }

    fn hold_by(
        &mut self,
        mounted: impl Fn(&Container) -> MountedFolder,
        containers: &[Container],
        places: &Places,
    ) {
        self.holders.clear();
        for container in containers {
            let folder = match mounted(container) {
                MountedFolder::Nothing => None,
                MountedFolder::Folder(folder) => Some(folder),
                MountedFolder::Named(name) => {
                    let region = name.parse().ok().map(|name: Name| places.region(&name));
                    region.and_then(|region| FileId::of(region.parent()?).ok())
                }
                MountedFolder::Unknown => {
                    self.is_incomplete = true;
                    None
                }
            };
            if let Some(folder) = folder {
                self.holders.entry(folder).or_default().push(container.clone());
            }
        }
    }

    /// Returns true if a container has, or may have, the folder of a region mounted.
    pub(super) fn is_held(&self, folder: Option<FileId>) -> bool {
        folder.is_some_and(|folder| self.is_incomplete || self.holders.contains_key(&folder))
    }

    /// Returns a slice at this moment. The slice also has the GPU of its terms if no process has used the GPU yet.
    pub(super) fn look(
        &mut self,
        slice: &Owned,
        places: &Places,
        gpus: &[Gpu],
        look_up: Option<LookUp<'_>>,
    ) -> SliceSnapshot {
        let container = self.container_of(slice, places);
        let mut told = SliceSnapshot {
            name: slice.name().to_string(),
            container: container.and_then(|container| container.id.clone()),
            container_name: container.and_then(|container| container.name.clone()),
            pod: None,
            made: true,
            region: places.region(slice.name()).display().to_string(),
            problem: slice.problem.clone(),
            generation: slice.generation(),
            process_count: 0,
            processes: Vec::new(),
            devices: Vec::new(),
        };
        if let Err(error) = self.read(slice, places, gpus, look_up, &mut told) {
            told.problem = told.problem.or_else(|| Some(printable(&error.to_string())));
        }
        if let Some(terms) = slice.terms() {
            match told.devices.iter_mut().find(|device| bare(&device.uuid) == bare(&terms.gpu)) {
                // The region does not tell a GPU from an instance (MIG), so the terms name the device.
                Some(device) => device.uuid.clone_from(&terms.gpu),
                // The limits of a slice are shown even before its first process.
                None => {
                    let limits = terms.limits(Limits::NONE);
                    told.devices.insert(0, Device { uuid: terms.gpu.clone(), ..Device::limited(limits) });
                }
            }
        }
        told
    }

    /// Counts the slices without a container and without a living process.
    pub(super) fn free<'a>(
        &self,
        slices: impl Iterator<Item = (&'a Owned, &'a SliceSnapshot)>,
        places: &Places,
    ) -> usize {
        slices.filter(|(slice, told)| told.process_count == 0 && !self.is_held(slice.folder(places))).count()
    }

    /// Returns the container that has a slice. Returns none if no container or several have it.
    fn container_of(&self, slice: &Owned, places: &Places) -> Option<&ContainerIdentity> {
        match self.holders.get(&slice.folder(places)?)?.as_slice() {
            [container] => Some(&container.identity),
            _ => None,
        }
    }

    /// Reads the region into `told`, if the region has a living process.
    fn read(
        &mut self,
        slice: &Owned,
        places: &Places,
        gpus: &[Gpu],
        look_up: Option<LookUp<'_>>,
        told: &mut SliceSnapshot,
    ) -> Result<(), RegionError> {
        let (name, terms) = (slice.name(), slice.terms().map(|terms| terms.gpu.as_str()));
        // The file that the reader has open is not the slice's region any more: another file may be in its place.
        if self.readers.get(name).is_some_and(|reader| reader.check().is_err()) {
            self.readers.remove(name);
        }
        if !self.readers.contains_key(name) {
            let Some(reader) = Reader::open(&places.region(name), Trust::AnyOwner)? else { return Ok(()) };
            self.readers.insert(name.clone(), Arc::new(reader));
        }
        let Some(reader) = self.readers.get(name) else { return Ok(()) };
        let count = reader.process_count()?;
        if count > 0 {
            let (processes, devices) = (processes(reader, look_up)?, devices(reader, gpus, terms)?);
            (told.process_count, told.processes, told.devices) = (count, processes, devices);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::SliceConfig;
    use gpuslice_policy::config::{CorePolicy, Priority, Weight};
    use gpuslice_policy::units::Permille;
    use gpuslice_region::{DeviceRequest, Member, Uuid};
    use std::fs;

    #[test]
    fn a_slice_that_any_container_has_is_not_free() {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let at = |name: &str| root.path().join(name);
        let places = Places { state: at("state"), regions: at("regions"), cdi: at("cdi") };
        let owned = ["two", "unknown", "inhabited", "free"].map(|name| {
            let name: Name = name.parse().unwrap();
            fs::create_dir_all(places.regions.join(name.as_str())).unwrap();
            Owned::new(SliceConfig {
                name,
                gpu: "0".parse().unwrap(),
                memory: None,
                cores: Permille::FULL,
                policy: CorePolicy::Fixed,
                weight: Weight::default(),
                priority: Priority::Normal,
                line: 1,
            })
        });
        let container = |mounts| {
            let identity = ContainerIdentity { mounts, id: None, name: None };
            Container { identity, witnesses: Vec::new() }
        };
        let [two, unknown, ..] = owned.each_ref().map(|slice| slice.folder(&places).unwrap());
        let holders =
            BTreeMap::from([(two, vec![container(7), container(8)]), (unknown, vec![container(9)])]);
        let mut made = ConfiguredSlices { holders, ..ConfiguredSlices::default() };
        let _member = Member::join(&places.region(owned[2].name()), Trust::AnyOwner, &[]).unwrap();
        let told = owned.each_ref().map(|slice| made.look(slice, &places, &[], None));
        assert_eq!(told.each_ref().map(|told| told.container.is_some()), [false; 4]);
        assert_eq!(made.free(owned.iter().zip(&told), &places), 1);
    }

    #[test]
    fn a_slice_on_an_instance_is_shown_once_and_its_raised_limits_are_noticed() {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let places = Places::usual(root.path());
        let library = root.path().join("built.so");
        fs::write(&library, "library").unwrap();
        let mig = "MIG-11111111-1111-1111-1111-111111111111";
        let mut owned = Owned::new(SliceConfig {
            name: "a".parse().unwrap(),
            gpu: mig.parse().unwrap(),
            memory: Some("4GiB".parse().unwrap()),
            cores: Permille::FULL,
            policy: CorePolicy::Fixed,
            weight: Weight::default(),
            priority: Priority::Normal,
            line: 1,
        });
        owned.make(&places, &places.install(&library), &[], false);
        let limits = Limits { memory: Some(4 << 30), ..Limits::NONE };
        let wanted = [DeviceRequest { uuid: Uuid([0x11; 16]), total: 16 << 30, limits }];
        let (member, _) = Member::join(&places.region(owned.name()), Trust::AnyOwner, &wanted).unwrap();
        let mut made = ConfiguredSlices::default();
        let mut look = || made.look(&owned, &places, &[], None);
        let told = look();
        assert_eq!(told.devices.iter().map(|device| device.uuid.as_str()).collect::<Vec<_>>(), [mig]);
        assert!(!owned.is_exceeded_by(&told));
        member.set_limits(member.devices()[0].device, Limits { memory: None, ..limits });
        assert!(owned.is_exceeded_by(&look()));
        assert_eq!(owned.hold(&places), Ok(true));
        assert!(!owned.is_exceeded_by(&look()));
    }

    #[test]
    fn a_slice_is_held_if_the_agent_cannot_look_into_its_container() {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let places = Places::usual(root.path());
        let folder = |name: &str| {
            let folder = places.regions.join(name);
            fs::create_dir_all(&folder).unwrap();
            FileId::of(&folder).ok()
        };
        let (one, two) = (folder("one"), folder("two"));
        let identity = ContainerIdentity { mounts: 7, id: None, name: None };
        let container = Container { identity, witnesses: Vec::new() };
        let held = |mounted: MountedFolder| {
            let mut made = ConfiguredSlices::default();
            made.hold_by(|_| mounted.clone(), std::slice::from_ref(&container), &places);
            [one, two].map(|folder| made.is_held(folder))
        };
        assert_eq!(held(MountedFolder::Named("one".to_owned())), [true, false]);
        assert_eq!(held(MountedFolder::Named("../one".to_owned())), [false; 2]);
        assert_eq!(held(MountedFolder::Unknown), [true; 2]);
        assert_eq!(held(MountedFolder::Nothing), [false; 2]);
        let mut made = ConfiguredSlices::default();
        made.hold(&[], &places, false);
        assert!(made.is_held(one), "there may be a container that the agent does not know");
    }
}
