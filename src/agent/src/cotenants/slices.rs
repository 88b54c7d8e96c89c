//! Keeps the regions of the node's slices open.

use super::contexts::{Contexts, SLICES};
use super::place::RegionPlace;
use gpuslice_policy::time::Monotonic;
use gpuslice_region::{Cotenant, Device, Monitor, Trust, Uuid};
use gpuslice_slices::discovery::FileId;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;

/// A region's folder, and the region's name in that folder.
type RegionKey = (FileId, OsString);

/// The slices that get sight of each other from the agent.
#[derive(Debug, Default)]
pub(super) struct CotenantSlices {
    open: BTreeMap<RegionKey, CotenantSlice>,
    /// Regions that the agent could not open yet, for example because no process has made them.
    missing: BTreeMap<RegionKey, RegionPlace>,
}

/// A slice, and the GPUs that it has.
#[derive(Debug)]
pub(super) struct CotenantSlice {
    /// The region's folder. Slices of one folder see each other without the agent.
    pub(super) folder: FileId,
    /// The region's file.
    file: FileId,
    /// The slice's number. It makes the numbers of its contexts different from those of other slices.
    pub(super) number: u16,
    pub(super) contexts: Contexts,
    pub(super) cotenant: Cotenant,
    /// The region's epoch and number of devices at the time when the agent read the devices.
    state: (u64, usize),
    pub(super) devices: Vec<DeviceState>,
}

/// A slice on one GPU.
#[derive(Debug)]
pub(super) struct DeviceState {
    pub(super) gpu: Uuid,
    pub(super) device: Device,
    /// Place in the ring of the slice's intervals up to which the agent has read.
    pub(super) read: u64,
    /// Time at which the slice last published an interval.
    pub(super) published_at: Monotonic,
}

impl CotenantSlices {
    /// Returns true if the regions lie in at least two folders, so that their slices may not see each other.
    pub(super) fn are_apart(&self) -> bool {
        let mut folders = self.open.keys().chain(self.missing.keys()).map(|(folder, _)| folder);
        let first = folders.next();
        folders.any(|folder| Some(folder) != first)
    }

    /// Takes `places` as the list of all regions. Closes regions that are not in the list, and opens new ones.
    pub(super) fn follow(&mut self, places: Vec<RegionPlace>) {
        self.missing = places.into_iter().map(|place| ((place.folder, place.name()), place)).collect();
        self.open.retain(|key, slice| {
            let is_same = |place: &RegionPlace| FileId::of(&place.path).is_ok_and(|file| file == slice.file);
            let stays = self.missing.get(key).is_some_and(is_same);
            if stays {
                self.missing.remove(key);
            }
            stays
        });
        self.open();
    }

    /// Opens regions that are not open yet. Skips files that are not regions: the search for slices reports them.
    pub(super) fn open(&mut self) {
        let taken: BTreeSet<u16> = self.open.values().map(|slice| slice.number).collect();
        let mut free = (0..SLICES).filter(|number| !taken.contains(number));
        let open = &mut self.open;
        self.missing.retain(|key, place| {
            let Ok(Some(monitor)) = Monitor::open(&place.path, Trust::AnyOwner) else { return true };
            let (Ok(file), Some(number)) = (FileId::of(&place.path), free.next()) else { return true };
            open.insert(key.clone(), CotenantSlice::new((place.folder, file), number, monitor));
            false
        });
    }

    /// Returns the slices whose regions are initialised, with the GPUs that they have at this moment.
    pub(super) fn ready(&mut self) -> impl Iterator<Item = &mut CotenantSlice> {
        self.open.values_mut().filter_map(|slice| {
            slice.find_devices();
            slice.cotenant.region().is_ready().then_some(slice)
        })
    }
}

impl CotenantSlice {
    fn new((folder, file): (FileId, FileId), number: u16, monitor: Monitor) -> Self {
        let cotenant = Cotenant::new(number.into(), monitor);
        let contexts = Contexts::default();
        Self { folder, file, number, contexts, cotenant, state: (0, 0), devices: Vec::new() }
    }

    /// Returns the slice's state on a GPU, or none if it does not have the GPU.
    pub(super) fn on(&self, gpu: Uuid) -> Option<&DeviceState> {
        self.devices.iter().find(|known| known.gpu == gpu)
    }

    /// Reads the devices of the region again, if a process has replaced the region by a new one or added a device.
    fn find_devices(&mut self) {
        let region = self.cotenant.region();
        let state = (region.epoch(), region.device_count());
        if state != self.state {
            self.state = state;
            let state = |(gpu, device)| DeviceState { gpu, device, read: 0, published_at: Monotonic::BEGIN };
            self.devices = region.devices().iter().map(|view| state((view.uuid, view.device))).collect();
        }
    }
}
