//! Finds and reads the slices that other programs made, on the host and in containers.

use super::host::on_the_host;
use super::regions::{LookUp, devices, processes};
use super::slots::OwnedSlots;
use crate::cotenants::RegionPlace;
use crate::gpus::Gpu;
use crate::snapshot::{Pod, SliceSnapshot};
use gpuslice_region::{Reader, RegionError, Trust};
use gpuslice_slices::discovery::{Container, FileId, FoundRegion, find};
use gpuslice_slices::figures::printable;
use gpuslice_slices::slot::{Name, Places, Problem};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tracing::warn;

/// Most unknown files that one search opens. The next search continues after them.
const MOST_OPENED: usize = 256;

/// A file that may be a region, with the names of its slice.
#[derive(Debug)]
struct CandidateFile {
    region: FoundRegion,
    /// The slice's name, which follows from the path of the region.
    name: String,
    /// True if the file lies in the agent's folder of regions: a slot of the kubelet, or a slice of `gpuslice cdi`. Only root makes
    /// folders there.
    is_of_root: bool,
    /// The pod's container that has the slot, if the file lies in a slot of the kubelet.
    pod: Option<Pod>,
}

/// A slice that this agent has not made.
#[derive(Debug)]
struct Open {
    reader: Arc<Reader>,
    there: CandidateFile,
}

/// The slices that this agent has not made.
#[derive(Debug, Default)]
pub(super) struct FoundSlices {
    open: BTreeMap<FileId, Open>,
    /// The slots that pods have.
    pub(super) slots: OwnedSlots,
    /// Messages about files that cannot be read. The agent logs each message once.
    complaints: BTreeMap<FileId, String>,
    /// The files with which the next search begins: the first one of others, and the first one in folders of root.
    next: [FileId; 2],
    /// True if the limit on open regions leaves slices out.
    is_full: bool,
}

impl FoundSlices {
    /// Forgets all slices, but keeps the slots of pods. The metrics show the number of slots in any case.
    pub(super) fn clear(&mut self) {
        self.open.clear();
        self.complaints.clear();
    }

    /// Looks for regions, and opens new ones. At most `limit` regions are open. A region without a process stays open only
    /// while there is room. Example: a container that has ended may leave its region in `/dev/shm` of the host.
    pub(super) fn search(
        &mut self,
        containers: &[Container],
        places: &Places,
        made: &BTreeSet<FileId>,
        limit: usize,
    ) {
        let mut regions = find(on_the_host(places), containers);
        regions.retain(|file, _| !made.contains(file));
        let candidate = |(file, region)| (file, CandidateFile::of(region, places, &self.slots));
        let mut there: BTreeMap<FileId, CandidateFile> = regions.into_iter().map(candidate).collect();
        self.open.retain(|file, open| {
            let is_same = |there: &CandidateFile| {
                there.region.is_same(&open.there.region) && there.pod == open.there.pod
            };
            there.get(file).is_some_and(is_same) && open.reader.check().is_ok()
        });
        self.complaints.retain(|file, _| there.contains_key(file));
        there.retain(|file, _| !self.open.contains_key(file));
        self.open_some(there, limit);
    }

    /// Opens new files, those in folders of root first. So a tenant that makes many regions does not keep out slices of pods.
    fn open_some(&mut self, new: BTreeMap<FileId, CandidateFile>, limit: usize) {
        let was_full = std::mem::take(&mut self.is_full);
        let (of_root, others) = new.into_iter().partition(|(_, there)| there.is_of_root);
        self.open_these(of_root, limit, true);
        self.open_these(others, limit, false);
        if self.is_full && !was_full {
            warn!(limit, "there may be more slices than discover_limit lets the agent show");
        }
    }

    /// Opens files, as many as one search may. If the limit is reached, a region with a process replaces a region without one.
    /// The search begins at `next`, so a tenant that makes many files cannot keep other files from ever being opened.
    fn open_these(&mut self, mut new: BTreeMap<FileId, CandidateFile>, limit: usize, is_of_root: bool) {
        let (from_next, mut opened) = (new.split_off(self.next(is_of_root)), 0_usize);
        for (file, there) in from_next.into_iter().chain(new) {
            if opened >= MOST_OPENED {
                *self.next(is_of_root) = file;
                break;
            }
            opened = opened.saturating_add(1);
            let Some(open) = self.open(file, there) else { continue };
            if self.open.len() >= limit {
                if !open.is_inhabited() {
                    continue;
                }
                self.is_full |= self.open.values().all(Open::is_inhabited);
                if !self.close_one(is_of_root) {
                    break;
                }
            }
            self.open.insert(file, open);
        }
    }

    fn next(&mut self, is_of_root: bool) -> &mut FileId {
        let [of_others, of_root] = &mut self.next;
        if is_of_root { of_root } else { of_others }
    }

    /// Closes a region without a living process. If there is none, and if the new region is one in a folder of root, closes a
    /// region in another folder. Returns false if there is no such region.
    fn close_one(&mut self, is_for_root: bool) -> bool {
        let without = self.open.iter().find(|(_, open)| !open.is_inhabited());
        let other = || self.open.iter().find(|(_, open)| is_for_root && !open.there.is_of_root);
        let file = without.or_else(other).map(|(file, _)| *file);
        file.and_then(|file| self.open.remove(&file)).is_some()
    }

    /// Opens a file, if it is a region.
    fn open(&mut self, file: FileId, there: CandidateFile) -> Option<Open> {
        match Reader::open(&there.region.path, Trust::AnyOwner) {
            Ok(reader) => {
                self.complaints.remove(&file);
                Some(Open { reader: Arc::new(reader?), there })
            }
            Err(error) => {
                // The text lacks the path. The path of a file in a container contains the number of a descriptor, which
                // changes.
                let text = printable(&Problem::from(error).what);
                if self.complaints.get(&file) != Some(&text) {
                    warn!(region = %there.inside(), "not read: {text}");
                    self.complaints.insert(file, text);
                }
                None
            }
        }
    }

    /// Returns the open regions.
    pub(super) fn readers(&self) -> impl Iterator<Item = Arc<Reader>> {
        self.open.values().map(|open| Arc::clone(&open.reader))
    }

    /// Returns the regions, with their folders.
    pub(super) fn places(&self) -> Vec<RegionPlace> {
        self.open.values().filter_map(|open| open.there.with_folder()).collect()
    }

    /// Closes the regions of containers that are not among `containers`.
    pub(super) fn leave(&mut self, containers: &[Container]) {
        let lives = |one: &Arc<Container>| {
            containers.iter().any(|container| container.identity.mounts == one.identity.mounts)
        };
        self.open.retain(|_, open| open.there.region.container.as_ref().is_none_or(lives));
    }

    /// Returns the slices with living processes, and those of pods. No slice gets a name that is `taken` in its container.
    pub(super) fn look(
        &mut self,
        gpus: &[Gpu],
        look_up: Option<LookUp<'_>>,
        mut taken: BTreeSet<(String, String)>,
    ) -> Vec<SliceSnapshot> {
        let mut slices = Vec::new();
        self.open.retain(|_, open| match open.look(gpus, look_up) {
            Ok(Some(mut slice)) => {
                slice.name = unique(&slice, &open.there.file_name(), &mut taken);
                slices.push(slice);
                true
            }
            Ok(None) => true,
            Err(_) => false,
        });
        self.slots.complete(&mut slices, |slice| unique(slice, "region", &mut taken));
        slices
    }
}

impl CandidateFile {
    fn of(region: FoundRegion, places: &Places, slots: &OwnedSlots) -> Self {
        let slot = places.name_of(&region.path).filter(|_| region.private_to().is_none());
        let name = slot.as_ref().map_or_else(|| printable(&region.name()), Name::to_string);
        Self { region, name, is_of_root: slot.is_some(), pod: slot.and_then(|name| slots.pod(&name)) }
    }

    /// Returns the region's path as its container sees it.
    fn inside(&self) -> String {
        printable(&self.region.inside().display().to_string())
    }

    fn with_folder(&self) -> Option<RegionPlace> {
        Some(RegionPlace {
            folder: self.region.folder().ok()?,
            path: self.region.path.clone(),
            _kept: Some(self.region.clone()),
        })
    }

    fn file_name(&self) -> String {
        printable(&self.region.path.file_name().unwrap_or_default().to_string_lossy())
    }
}

impl Open {
    /// Returns true if the region has a living process.
    fn is_inhabited(&self) -> bool {
        self.reader.process_count().is_ok_and(|count| count > 0)
    }

    /// Returns the slice at this moment, or none if it has no living process.
    fn look(&self, gpus: &[Gpu], look_up: Option<LookUp<'_>>) -> Result<Option<SliceSnapshot>, RegionError> {
        let process_count = self.reader.process_count()?;
        if process_count == 0 {
            return Ok(None);
        }
        let container = self.there.region.container.as_ref().map(|container| &container.identity);
        Ok(Some(SliceSnapshot {
            name: self.there.name.clone(),
            container: container.and_then(|container| container.id.clone()),
            container_name: container.and_then(|container| container.name.clone()),
            pod: self.there.pod.clone(),
            made: false,
            region: self.there.inside(),
            problem: None,
            generation: None,
            process_count,
            processes: processes(&self.reader, look_up)?,
            devices: devices(&self.reader, gpus, None)?,
        }))
    }
}

/// Returns a name that no other slice of the container has.
fn unique(slice: &SliceSnapshot, file: &str, taken: &mut BTreeSet<(String, String)>) -> String {
    let numbered = (2_u32..).map(|number| format!("{file}#{number}"));
    let mut names = [slice.name.clone(), file.to_owned()].into_iter().chain(numbered);
    names.find(|name| taken.insert((slice.place().to_owned(), name.clone()))).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::host::MOST_FILES;
    use super::*;
    use gpuslice_region::Member;
    use gpuslice_slices::discovery::ContainerIdentity;
    use std::fs;
    use std::path::{Path, PathBuf};

    fn places(root: &Path) -> Places {
        Places { state: root.join("state"), regions: root.join("regions"), cdi: root.join("cdi") }
    }

    /// Returns the path of a region, and makes its folder.
    fn region(places: &Places, name: &str) -> PathBuf {
        let region = places.region(&name.parse().unwrap());
        fs::create_dir_all(region.parent().unwrap()).unwrap();
        region
    }

    fn join(region: &Path) -> Member {
        Member::join(region, Trust::AnyOwner, &[]).unwrap().0
    }

    #[test]
    fn files_that_are_no_regions_do_not_hide_one_that_is() {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let places = places(root.path());
        let junk = |names: &str| {
            for number in 0..MOST_OPENED {
                fs::write(region(&places, &format!("{names}{number}")), "no region").unwrap();
            }
        };
        junk("before");
        let real = region(&places, "real");
        let _member = join(&real);
        junk("after");
        let file = FileId::of(&real).unwrap();
        let mut found = FoundSlices::default();
        let searches = MOST_FILES / MOST_OPENED + 2;
        let is_found = (0..searches).any(|_| {
            found.search(&[], &places, &BTreeSet::new(), 100);
            found.open.contains_key(&file)
        });
        assert!(is_found);
    }

    #[test]
    fn no_more_are_open_than_the_limit() {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let places = places(root.path());
        let _members = ["a", "b", "c"].map(|name| join(&region(&places, name)));
        let mut found = FoundSlices::default();
        found.search(&[], &places, &BTreeSet::new(), 2);
        assert_eq!((found.open.len(), found.is_full), (2, true));
        found.search(&[], &places, &BTreeSet::new(), 10_000);
        assert!(found.open.len() >= 3 && !found.is_full);
    }

    #[test]
    fn regions_without_a_process_do_not_keep_one_with_a_process_out() {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let places = places(root.path());
        let left = ["a", "b", "c"].map(|name| region(&places, name));
        left.iter().for_each(|region| join(region).leave());
        let mut found = FoundSlices::default();
        // The test does not call `search`, because `search` finds the regions of the host too.
        let mut offer = |paths: &[PathBuf]| {
            found.open_some(paths.iter().map(|path| candidate(path, false)).collect(), 2);
            (found.open.len(), found.look(&[], None, BTreeSet::new()).len(), found.is_full)
        };
        // A process may join any of these regions, so they stay open while there is room.
        assert_eq!(offer(&left), (2, 0, false));
        let inhabited = ["d", "e", "f"].map(|name| region(&places, name));
        let _members = inhabited.each_ref().map(|region| join(region));
        assert_eq!(offer(&inhabited[..2]), (2, 2, false));
        assert_eq!(offer(&left), (2, 2, false));
        assert_eq!(offer(&inhabited[2..]), (2, 2, true));
    }

    fn candidate(path: &Path, is_of_root: bool) -> (FileId, CandidateFile) {
        let (region, name) = (FoundRegion::here(path.to_owned()), String::new());
        (FileId::of(path).unwrap(), CandidateFile { region, name, is_of_root, pod: None })
    }

    #[test]
    fn regions_of_a_tenant_do_not_keep_slices_of_pods_out() {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let places = places(root.path());
        let all = ["a", "b", "c", "d", "e"].map(|name| region(&places, name));
        let _members = all.each_ref().map(|region| join(region));
        let mut found = FoundSlices::default();
        let mut offer = |files: &[(usize, bool)]| {
            found.open_some(
                files.iter().map(|(at, is_of_root)| candidate(&all[*at], *is_of_root)).collect(),
                2,
            );
            let of_root = found.open.values().filter(|open| open.there.is_of_root).count();
            (found.open.len(), of_root, found.is_full)
        };
        assert_eq!(offer(&[(0, false), (1, false)]), (2, 0, false));
        assert_eq!(offer(&[(2, true)]), (2, 1, true));
        assert_eq!(offer(&[(0, false), (3, true)]), (2, 2, true));
        assert_eq!(offer(&[(0, false), (1, false), (4, true)]), (2, 2, true));
    }

    fn container(mounts: u64) -> Container {
        let identity = ContainerIdentity { mounts, id: None, name: None };
        Container { identity, witnesses: Vec::new() }
    }

    #[test]
    fn slices_of_an_ended_container_are_left_at_once() {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let places = places(root.path());
        let files = [None, Some(7), Some(8)].map(|mounts| {
            let path = region(&places, &format!("a{}", mounts.unwrap_or(0)));
            let _member = join(&path);
            let reader = Reader::open(&path, Trust::AnyOwner).unwrap().unwrap();
            let mut region = FoundRegion::here(path.clone());
            region.container = mounts.map(|mounts| Arc::new(container(mounts)));
            let there = CandidateFile { region, name: "a".to_owned(), is_of_root: false, pod: None };
            (FileId::of(&path).unwrap(), Open { reader: Arc::new(reader), there })
        });
        let [on_the_host, living, _ended] = files.each_ref().map(|(file, _)| *file);
        let mut found = FoundSlices { open: files.into_iter().collect(), ..FoundSlices::default() };
        found.leave(&[container(7)]);
        let left: Vec<FileId> = found.open.keys().copied().collect();
        assert_eq!(left.len(), 2);
        assert!(left.contains(&on_the_host) && left.contains(&living));
    }

    #[test]
    fn two_slices_of_a_name_get_different_names() {
        let slice = |container: &str| SliceSnapshot {
            name: "a".to_owned(),
            container: Some(container.to_owned()),
            container_name: None,
            pod: None,
            made: false,
            region: String::new(),
            problem: None,
            generation: None,
            process_count: 1,
            processes: Vec::new(),
            devices: Vec::new(),
        };
        let mut taken = BTreeSet::new();
        let names = ["x", "x", "x", "y"].map(|container| unique(&slice(container), "file", &mut taken));
        assert_eq!(names, ["a", "file", "file#2", "a"]);
    }
}
