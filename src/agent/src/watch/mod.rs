//! Finds the slices of the node, and reads their regions.
//!
//! The agent opens a region once, and reads it for each request. It looks for new regions every few seconds. It also looks when
//! a container has ended, so that it does not show the container's regions after its end.

mod found;
mod host;
mod made;
mod regions;
mod slots;
mod unlimited;

use crate::config::{Config, Mode};
use crate::cotenants::RegionPlace;
use crate::gpus::Gpus;
use crate::history::History;
use crate::owned::{Owned, left_behind};
use crate::process_lists::ComparedSlices;
use crate::request::Change;
use crate::snapshot::{SliceSnapshot, Snapshot};
use found::FoundSlices;
use gpuslice_region::{RegionError, Removal, Trust, remove_for_good};
use gpuslice_slices::discovery::{Container, FileId, Machine};
use gpuslice_slices::installed;
use gpuslice_slices::slot::{Name, Places, Problem, remove_folder};
use made::ConfiguredSlices;
use regions::LookUp;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};
use tracing::{info, warn};
use unlimited::UnlimitedProcesses;

/// Time between two scans. A scan looks for new slices, and for slices that differ from the configuration.
const SCAN: Duration = Duration::from_secs(5);
/// Shortest time between two scans, even if containers end all the time and clients ask for processes.
const PAUSE: Duration = Duration::from_millis(200);
/// Age of a scan at least, in durations of that scan, before the next one. Containers can make a scan take long. Then the agent
/// scans for a fifth of the time at most.
const SCAN_SHARE: u32 = 5;
/// Longest such age. One scan may take a minute on a machine that stands still.
const LONGEST_SCAN_PAUSE: Duration = Duration::from_secs(60);
/// Age at which the agent reads the numbers of processes again, if a client asks for processes.
const NUMBERS: Duration = Duration::from_secs(1);

/// The slices of the node.
#[derive(Debug)]
pub(crate) struct Watch {
    config: Config,
    gpus: Gpus,
    library: Result<PathBuf, Problem>,
    owned: Vec<Owned>,
    made: ConfiguredSlices,
    left_behind: Vec<Name>,
    machine: Machine,
    containers: Vec<Container>,
    found: FoundSlices,
    unlimited: UnlimitedProcesses,
    cotenants: Sender<Vec<RegionPlace>>,
    scanned: Option<Instant>,
    /// Duration of the last scan.
    scan_took: Duration,
    /// True if all known processes of a container have ended since the last scan.
    has_one_ended: bool,
    /// The use in the last ten minutes.
    pub(crate) history: History,
}

impl Watch {
    /// Makes the slices of a configuration, and looks for other slices. After each scan, `cotenants` gets the regions of all
    /// slices.
    pub(crate) fn begin(config: Config, gpus: Gpus, cotenants: Sender<Vec<RegionPlace>>) -> Self {
        let owned = config.slices.iter().cloned().map(Owned::new).collect();
        let library = Ok(PathBuf::new());
        let mut watch = Self {
            config,
            gpus,
            library,
            owned,
            made: ConfiguredSlices::default(),
            left_behind: Vec::new(),
            machine: Machine::default(),
            containers: Vec::new(),
            found: FoundSlices::default(),
            unlimited: UnlimitedProcesses::default(),
            cotenants,
            scanned: None,
            scan_took: Duration::ZERO,
            has_one_ended: false,
            history: History::default(),
        };
        watch.install();
        watch.scan();
        watch
    }

    /// Applies a new configuration. Its paths, ports and log level apply only at the agent's next start. This is because running
    /// containers use files at the old paths, and clients are connected to the old ports.
    pub(crate) fn configure(&mut self, config: Config) {
        self.owned = config.slices.iter().cloned().map(Owned::new).collect();
        self.made.forget();
        if !self.config.serves_as(&config) {
            warn!("log, web, control, kubernetes and paths of the configuration hold from the next start on");
        }
        let Config { library, discover, slices, .. } = config;
        self.config = Config { library, discover, slices, ..self.config.clone() };
        self.install();
        self.scan();
    }

    /// Installs the library for new containers. If this fails, the next scan tries again.
    fn install(&mut self) {
        let source = match &self.config.library {
            Some(named) => Ok(named.clone()),
            None => installed::library().map_err(|what| Problem { path: "library".into(), what }),
        };
        let installed = source.and_then(|source| self.config.places.install(&source));
        match &installed {
            Ok(path) => info!(library = %path.display(), "installed"),
            Err(problem) => {
                let text = problem.to_string();
                if self.library.as_ref().err().is_none_or(|before| before.to_string() != text) {
                    warn!("{text}");
                }
            }
        }
        self.library = installed;
    }

    /// Checks that all slices of the configuration are made. Returns their problems otherwise.
    pub(crate) fn is_ready(&self) -> Result<(), String> {
        let problem = |slice: &Owned| Some(format!("{}: {}", slice.name(), slice.problem.as_ref()?));
        let problems: Vec<String> = self.owned.iter().filter_map(problem).collect();
        if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
    }

    /// Changes the limits of a slice of the configuration. Returns the number of its changes so far.
    pub(crate) fn change(&mut self, name: &str, change: Change) -> Result<u64, String> {
        let names: Vec<String> = self.owned.iter().map(|slice| slice.name().to_string()).collect();
        let Some(slice) = self.owned.iter_mut().find(|slice| slice.name().as_str() == name) else {
            return Err(format!(
                "there is no slice {name:?} in the configuration; there are: {}",
                names.join(", ")
            ));
        };
        let generation = slice.change(&self.config.places, &self.gpus.all(), change)?;
        // The next look makes a scan, which writes the slice's specification.
        self.scanned = None;
        Ok(generation)
    }

    /// Adds a point to the history, and lowers limits that tenants have raised in regions. The caller calls this function once
    /// in each period of the history.
    pub(crate) fn tick(&mut self) {
        let now = self.look(false);
        self.history.take(&now);
        // `now.slices` begins with the slices of the configuration, in the same order.
        for (slice, told) in self.owned.iter().zip(&now.slices) {
            if told.process_count == 0 || !slice.is_exceeded_by(told) {
                continue;
            }
            match slice.hold(&self.config.places) {
                Ok(true) => {
                    warn!(slice = %slice.name(), "its region had more than its limits, and was set back");
                }
                Ok(false) => {}
                Err(error) => warn!(slice = %slice.name(), "its region has more than its limits: {error}"),
            }
        }
    }

    /// Returns the slices and GPUs at this moment, with the processes of each slice if `with_processes` is set.
    ///
    /// The function scans first if the last scan is too old. If a container has ended and no scan is due yet, the function only
    /// forgets the container and its regions. So containers that end all the time cause a bounded number of scans.
    pub(crate) fn look(&mut self, with_processes: bool) -> Snapshot {
        self.has_one_ended |= self.containers.iter().any(|container| !container.lives());
        let age = self.scanned.map(|at| at.elapsed());
        if is_due(age, self.scan_took, with_processes, self.has_one_ended) {
            self.scan();
        } else if self.has_one_ended {
            self.containers.retain(Container::lives);
            self.found.leave(&self.containers);
        }
        let gpus = self.gpus.all();
        let look_up = LookUp { machine: &self.machine, arguments: self.config.arguments };
        let look_up = with_processes.then_some(look_up);
        let (made, places) = (&mut self.made, &self.config.places);
        let mut slices: Vec<SliceSnapshot> =
            self.owned.iter().map(|slice| made.look(slice, places, &gpus, look_up)).collect();
        let free = made.free(self.owned.iter().zip(&slices), places);
        let taken = slices.iter().map(|slice| (slice.place().to_owned(), slice.name.clone())).collect();
        if self.config.discover > 0 {
            slices.extend(self.found.look(&gpus, look_up, taken));
        }
        let left_behind = self.left_behind.len();
        let cluster = self.config.cluster.as_ref().filter(|cluster| cluster.mode == Mode::DevicePlugin);
        let kubelet = cluster.map(|cluster| self.found.slots.count(&gpus, cluster.slots_per_gpu));
        let kubelet = kubelet.unwrap_or_default();
        let unlimited = self.unlimited.all().to_vec();
        Snapshot { driver: self.gpus.driver(), gpus, slices, unlimited, free, left_behind, kubelet }
    }

    /// Looks for containers and slices, and makes or repairs the slices of the configuration.
    ///
    /// The containers come first. The later steps must know which regions containers have, because they must not replace or
    /// remove those regions. Otherwise processes would go on in the removed file, and the slice would have its limits twice.
    fn scan(&mut self) {
        let begun = Instant::now();
        self.scanned = Some(begun);
        self.has_one_ended = false;
        // Example: the disk was full at the agent's start.
        if self.library.is_err() {
            self.install();
        }
        let looked = Machine::look();
        let is_complete = looked.as_ref().is_ok_and(|machine| machine.hidden() == 0);
        // If the agent cannot list the processes, the containers that it knows may still live.
        match looked {
            Ok(machine) => {
                self.containers = machine.containers();
                self.machine = machine;
            }
            Err(error) => warn!("/proc cannot be read, so no slice is repaired or removed: {error}"),
        }
        self.made.hold(&self.containers, &self.config.places, is_complete);
        let gpus = self.gpus.all();
        for slice in &mut self.owned {
            let is_used = self.made.is_held(slice.folder(&self.config.places));
            slice.make(&self.config.places, &self.library, &gpus, is_used);
        }
        self.unlimited.search(&gpus, &self.containers);
        self.clear_away();
        self.find();
        let readers = self.made.readers().chain(self.found.readers()).collect();
        self.gpus.compare(ComparedSlices { machine: self.machine.clone(), readers });
        let _thread_has_ended = self.cotenants.send(self.places_of_regions());
        self.scan_took = begun.elapsed();
    }

    /// Returns the regions of all slices.
    fn places_of_regions(&self) -> Vec<RegionPlace> {
        let places = &self.config.places;
        let made = self.owned.iter().filter_map(|slice| {
            Some(RegionPlace {
                folder: slice.folder(places)?,
                path: places.region(slice.name()),
                _kept: None,
            })
        });
        made.chain(self.found.places()).collect()
    }

    /// Removes the files of slices that are not in the configuration, once no process of them lives. Their specifications are
    /// removed at once, so that no new container gets them.
    fn clear_away(&mut self) {
        let places = &self.config.places;
        let configured: BTreeSet<Name> = self.owned.iter().map(|slice| slice.name().clone()).collect();
        self.left_behind = left_behind(places, &configured);
        self.left_behind.retain(|name| {
            let _gone_already = fs::remove_file(places.spec(name));
            let region = places.region(name);
            let folder = region.parent().unwrap_or(&region);
            if self.made.is_held(FileId::of(folder).ok()) || !remove(places, name, folder) {
                return true;
            }
            info!(slice = %name, "removed: it is not in the configuration");
            false
        });
    }

    /// Finds the slots of pods, and opens the regions that this agent has not made.
    fn find(&mut self) {
        let places = &self.config.places;
        if self.config.cluster.is_some() {
            self.found.slots.search(places);
        }
        if self.config.discover == 0 {
            self.found.clear();
            return;
        }
        let region = |slice: &Owned| FileId::of(&places.region(slice.name())).ok();
        let made = self.owned.iter().filter_map(region).collect();
        self.found.search(&self.containers, places, &made, self.config.discover);
    }
}

/// Returns true if a scan of this age, which took `took`, is too old.
fn is_due(age: Option<Duration>, took: Duration, with_processes: bool, has_one_ended: bool) -> bool {
    let Some(age) = age else { return true };
    if age < took.saturating_mul(SCAN_SHARE).min(LONGEST_SCAN_PAUSE) {
        return false;
    }
    age >= if with_processes { NUMBERS } else { SCAN } || (age >= PAUSE && has_one_ended)
}

/// Removes the files of a slice without a living process. Returns true if they are gone.
fn remove(places: &Places, name: &Name, folder: &Path) -> bool {
    match remove_for_good(&places.region(name), Trust::AnyOwner) {
        Ok(Removal::Gone) => {}
        // A tenant has put another file there. No process can be a member of it.
        Err(RegionError::NotAFile { .. } | RegionError::Magic { .. } | RegionError::Size { .. }) => {}
        Ok(_) | Err(_) => return false,
    }
    // The folder by which a scan finds the slice goes last. If the removal fails, the next scan tries again.
    let kept = &places.slot(name);
    remove_folder(folder, &places.regions).is_ok() && remove_folder(kept, &places.slots()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::ConfigPlace;

    #[test]
    fn a_scan_is_due_when_it_is_old_and_soon_after_a_container_has_ended() {
        let after = |milliseconds| Some(Duration::from_millis(milliseconds));
        let is_due = |age, with_processes, has_one_ended| {
            is_due(age, Duration::from_millis(1), with_processes, has_one_ended)
        };
        assert!(is_due(None, false, false));
        assert!(!is_due(after(4999), false, false) && is_due(after(5000), false, false));
        assert!(!is_due(after(999), true, false) && is_due(after(1000), true, false));
        // Containers that end again and again cause a bounded number of scans.
        assert!(!is_due(after(199), false, true) && is_due(after(200), false, true));
    }

    #[test]
    fn slices_are_made_once_the_library_can_be_installed() {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let (library, file) = (root.path().join("built.so"), root.path().join("agent.toml"));
        let slice = "name = \"a\"\ngpu = \"GPU-11111111-1111-1111-1111-111111111111\"";
        let text = format!("library = {library:?}\ndiscover = false\n[[slices]]\n{slice}\n");
        fs::write(&file, text).unwrap();
        let place = ConfigPlace { config: Some(file), root: root.path().to_owned() };
        let (places, _found) = std::sync::mpsc::channel();
        let mut watch = Watch::begin(Config::read(&place).unwrap(), Gpus::default(), places);
        assert!(watch.is_ready().unwrap_err().contains("read the library"));
        fs::write(library, "library").unwrap();
        watch.scan();
        assert_eq!(watch.is_ready(), Ok(()));
    }

    #[test]
    fn scans_that_take_long_leave_most_of_the_time_to_others() {
        let (took, after) = (Duration::from_secs(2), |seconds| Some(Duration::from_secs(seconds)));
        for (with_processes, has_one_ended) in [(false, false), (true, false), (false, true)] {
            assert!(!is_due(after(9), took, with_processes, has_one_ended));
            assert!(is_due(after(10), took, with_processes, has_one_ended));
        }
        assert!(is_due(after(60), Duration::from_secs(600), false, false), "a machine that stood still");
    }

    #[test]
    fn a_slice_whose_region_a_tenant_has_spoilt_is_removed_too() {
        let root = tempfile::tempdir_in("/dev/shm").unwrap();
        let at = |name: &str| root.path().join(name);
        let places = Places { state: at("state"), regions: at("regions"), cdi: at("cdi") };
        let name: Name = "a".parse().unwrap();
        let folder = places.regions.join("a");
        let spoil: [fn(&Path); 3] = [
            |region| fs::write(region, "no region").unwrap(),
            |region| fs::create_dir(region).unwrap(),
            |region| std::os::unix::fs::symlink("/etc/passwd", region).unwrap(),
        ];
        for spoil in spoil {
            fs::create_dir_all(places.slot(&name)).unwrap();
            fs::create_dir_all(&folder).unwrap();
            spoil(&places.region(&name));
            // A file blocks the name of the queue for removals, so the region's folder stays.
            let obstacle = places.regions.join(".removed");
            fs::write(&obstacle, "").unwrap();
            assert!(!remove(&places, &name, &folder) && places.slot(&name).exists());
            fs::remove_file(obstacle).unwrap();
            assert!(remove(&places, &name, &folder));
            assert!(!places.slot(&name).exists() && !folder.exists());
        }
        assert!(Path::new("/etc/passwd").exists());
    }
}
