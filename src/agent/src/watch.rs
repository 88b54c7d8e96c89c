//! Finds the slices of the node, and reads their regions.
//!
//! Regions are opened once and read whenever somebody asks. New ones are looked for every few seconds, and at once where a
//! container has ended, so that nothing is told of what is gone.

use crate::config::Config;
use crate::gpus::{Gpu, Gpus, bare};
use crate::history::History;
use crate::owned::{Change, Owned, left_behind};
use crate::snapshot::{Device, Process, Slice, Snapshot};
use gpuslice_region::{Limits, Reader, RegionError, Removal, Trust, names, remove_for_good};
use gpuslice_slices::discovery::{Candidate, Container, FileId, Machine};
use gpuslice_slices::figures::printable;
use gpuslice_slices::installed;
use gpuslice_slices::process::command_here;
use gpuslice_slices::slot::{Name, Problem};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// Time between two scans: for new slices, and for slices that differ from the configuration.
const SCAN: Duration = Duration::from_secs(5);
/// Age at which the numbers of processes are looked up again, where they are asked for.
const NUMBERS: Duration = Duration::from_secs(1);
/// Slices that are told at the most, those of the configuration not counted.
const MOST_FOUND: usize = 256;

/// The mount namespace that a slice is in, and the container's number; none: this one.
type Place = Option<(u64, Option<String>)>;

/// A region that this agent has not made, and where it was found.
#[derive(Debug)]
struct There {
    path: PathBuf,
    /// The slice's name by that path.
    name: String,
    /// Keeps the path, if it was found in a container alone.
    candidate: Option<Candidate>,
    place: Place,
}

/// A slice that this agent has not made.
#[derive(Debug)]
struct Found {
    reader: Reader,
    there: There,
}

/// The slices of the node.
#[derive(Debug)]
pub(crate) struct Watch {
    config: Config,
    gpus: Gpus,
    library: Result<PathBuf, Problem>,
    owned: Vec<Owned>,
    /// Regions of the configuration's slices that are open, by their names.
    readers: BTreeMap<Name, Reader>,
    /// Numbers of the containers that have a slice of the configuration.
    holders: BTreeMap<FileId, Vec<Container>>,
    left_behind: Vec<Name>,
    machine: Machine,
    containers: Vec<Container>,
    found: BTreeMap<FileId, Found>,
    /// Messages about files that cannot be read. Each is logged once.
    complaints: BTreeMap<FileId, String>,
    scanned: Option<Instant>,
    /// The last ten minutes.
    pub(crate) history: History,
}

impl Watch {
    /// Makes the slices of a configuration, and looks for others.
    pub(crate) fn begin(config: Config, gpus: Gpus) -> Self {
        let owned = config.slices.iter().cloned().map(Owned::new).collect();
        let library = Ok(PathBuf::new());
        let mut watch = Self {
            config,
            gpus,
            library,
            owned,
            readers: BTreeMap::new(),
            holders: BTreeMap::new(),
            left_behind: Vec::new(),
            machine: Machine::default(),
            containers: Vec::new(),
            found: BTreeMap::new(),
            complaints: BTreeMap::new(),
            scanned: None,
            history: History::default(),
        };
        watch.install();
        watch.scan();
        watch
    }

    /// Takes another configuration. Its paths, ports and log hold from the next start on: files of running containers lie there,
    /// and clients are connected.
    pub(crate) fn configure(&mut self, config: Config) {
        self.owned = config.slices.iter().cloned().map(Owned::new).collect();
        self.readers.clear();
        if !self.config.serves_as(&config) {
            warn!("log, web, control and paths of the configuration hold from the next start on");
        }
        let Config { library, discover, slices, .. } = config;
        self.config = Config { library, discover, slices, ..self.config.clone() };
        self.install();
        self.scan();
    }

    /// Installs the library that new containers get.
    fn install(&mut self) {
        let source = match &self.config.library {
            Some(named) => Ok(named.clone()),
            None => installed::library().map_err(|what| Problem { path: "library".into(), what }),
        };
        self.library = source.and_then(|source| self.config.places.install(&source));
        match &self.library {
            Ok(path) => info!(library = %path.display(), "installed"),
            Err(problem) => warn!("{problem}"),
        }
    }

    /// Whether all slices of the configuration are made.
    pub(crate) fn is_ready(&self) -> Result<(), String> {
        let problem = |slice: &Owned| Some(format!("{}: {}", slice.name(), slice.problem.as_ref()?));
        let problems: Vec<String> = self.owned.iter().filter_map(problem).collect();
        if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
    }

    /// Changes the limits of a slice of the configuration. Returns how often they were changed.
    pub(crate) fn change(&mut self, name: &str, change: Change) -> Result<u64, String> {
        let names: Vec<String> = self.owned.iter().map(|slice| slice.name().to_string()).collect();
        let Some(slice) = self.owned.iter_mut().find(|slice| slice.name().as_str() == name) else {
            return Err(format!(
                "there is no slice {name:?} in the configuration; there are: {}",
                names.join(", ")
            ));
        };
        let generation = slice.change(&self.config.places, change)?;
        // The next look writes its specification anew.
        self.scanned = None;
        Ok(generation)
    }

    /// Sets back regions whose limits a tenant has raised, and takes a point of the history. Called once an interval of it.
    pub(crate) fn tick(&mut self) {
        let now = self.look(false);
        self.history.take(&now);
        // The slices of the configuration are the first, in its order.
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

    /// Everything at this moment; processes one by one where they are asked for.
    pub(crate) fn look(&mut self, with_processes: bool) -> Snapshot {
        let holds = if with_processes { NUMBERS } else { SCAN };
        let is_old = self.scanned.is_none_or(|at| at.elapsed() >= holds);
        if is_old || self.containers.iter().any(|container| !container.lives()) {
            self.scan();
        }
        let gpus = self.gpus.all();
        let mut slices: Vec<Slice> = self
            .owned
            .iter()
            .map(|slice| {
                of_owned(
                    slice,
                    &self.config,
                    &mut self.readers,
                    &self.holders,
                    &gpus,
                    with_processes.then_some(&self.machine),
                )
            })
            .collect();
        let mut taken: BTreeSet<(String, String)> =
            slices.iter().map(|slice| (slice.place().to_owned(), slice.name.clone())).collect();
        let machine = with_processes.then_some(&self.machine);
        self.found.retain(|_, found| match of_found(found, &gpus, machine) {
            Ok(Some(mut slice)) => {
                slice.name = unique(&slice, &found.there.file_name(), &mut taken);
                slices.push(slice);
                true
            }
            // Nobody lives in it.
            Ok(None) => true,
            Err(_) => false,
        });
        let left_behind = self.left_behind.len();
        Snapshot { driver: self.gpus.driver(), gpus, slices, left_behind }
    }

    /// Looks for containers and slices, and makes what is missing of the configuration's.
    fn scan(&mut self) {
        self.scanned = Some(Instant::now());
        self.machine = Machine::look().unwrap_or_default();
        self.containers = self.machine.containers();
        self.holders.clear();
        for container in &self.containers {
            if let Some(folder) = container.mounted() {
                self.holders.entry(folder).or_default().push(container.clone());
            }
        }
        let gpus = self.gpus.all();
        for slice in &mut self.owned {
            let is_used =
                slice.folder(&self.config.places).is_some_and(|folder| self.holders.contains_key(&folder));
            slice.make(&self.config.places, &self.library, &gpus, is_used);
        }
        self.clear_away();
        if self.config.discover {
            self.find();
        } else {
            self.found.clear();
        }
    }

    /// Removes what was made of slices that are not configured any more, once nobody lives in them. Their specifications go at
    /// once, so that no new container gets them.
    fn clear_away(&mut self) {
        let places = &self.config.places;
        let configured: BTreeSet<Name> = self.owned.iter().map(|slice| slice.name().clone()).collect();
        self.left_behind = left_behind(places, &configured);
        self.left_behind.retain(|name| {
            let _gone_already = fs::remove_file(places.spec(name));
            let region = places.region(name);
            let folder = region.parent().unwrap_or(&region);
            let is_used = FileId::of(folder).is_ok_and(|folder| self.holders.contains_key(&folder));
            let is_empty = || matches!(remove_for_good(&region, Trust::AnyOwner), Ok(Removal::Gone));
            if is_used || !is_empty() {
                return true;
            }
            let removed = fs::remove_dir_all(places.slot(name));
            let _nothing_in_it = fs::remove_dir_all(folder);
            info!(slice = %name, "is not configured any more, and was removed");
            removed.is_err()
        });
    }

    /// Opens regions that others have made.
    fn find(&mut self) {
        let owned: BTreeSet<FileId> = self
            .owned
            .iter()
            .filter_map(|slice| FileId::of(&self.config.places.region(slice.name())).ok())
            .collect();
        let mut there = BTreeMap::new();
        for path in names::all().unwrap_or_default() {
            let name = printable(&names::name_of(&path));
            if let Ok(file) = FileId::of(&path) {
                there.insert(file, There { path, name, candidate: None, place: None });
            }
        }
        // `gpuslice cdi` makes slices beside those of the configuration.
        for folder in fs::read_dir(&self.config.places.regions).into_iter().flatten().flatten() {
            let Ok(name) = folder.file_name().to_string_lossy().parse::<Name>() else { continue };
            let path = self.config.places.region(&name);
            if let Ok(file) = FileId::of(&path) {
                there.insert(file, There { path, name: name.to_string(), candidate: None, place: None });
            }
        }
        for container in &self.containers {
            for candidate in container.regions() {
                let place = Some((container.mounts, container.id.clone()));
                // A folder of the host's that the container has as well.
                if let Some(known) = there.get_mut(&candidate.file) {
                    known.place = place;
                    continue;
                }
                let name = printable(&names::name_of(&candidate.inside));
                let path = candidate.path();
                there.insert(candidate.file, There { path, name, candidate: Some(candidate), place });
            }
        }
        there.retain(|file, _| !owned.contains(file));
        self.found.retain(|file, found| {
            there.get(file).is_some_and(|there| there.place == found.there.place)
                && found.reader.check().is_ok()
        });
        self.complaints.retain(|file, _| there.contains_key(file));
        for (file, there) in there {
            if self.found.contains_key(&file) || self.found.len() >= MOST_FOUND {
                continue;
            }
            match Reader::open(&there.path, Trust::AnyOwner) {
                Ok(Some(reader)) => {
                    self.complaints.remove(&file);
                    self.found.insert(file, Found { reader, there });
                }
                Ok(None) => {}
                Err(error) => {
                    let text = printable(&error.to_string());
                    if self.complaints.get(&file) != Some(&text) {
                        warn!(region = %there.inside(), "not read: {text}");
                        self.complaints.insert(file, text);
                    }
                }
            }
        }
    }
}

impl There {
    /// The region's path, as those see it who have it.
    fn inside(&self) -> String {
        let path = self.candidate.as_ref().map_or(self.path.as_path(), |candidate| &candidate.inside);
        printable(&path.display().to_string())
    }

    fn file_name(&self) -> String {
        printable(&self.path.file_name().unwrap_or_default().to_string_lossy())
    }
}

/// A name that no other slice of the container has.
fn unique(slice: &Slice, file: &str, taken: &mut BTreeSet<(String, String)>) -> String {
    let numbered = (2_u32..).map(|number| format!("{file}#{number}"));
    let mut names = [slice.name.clone(), file.to_owned()].into_iter().chain(numbered);
    names.find(|name| taken.insert((slice.place().to_owned(), name.clone()))).unwrap_or_default()
}

fn of_found(found: &Found, gpus: &[Gpu], machine: Option<&Machine>) -> Result<Option<Slice>, RegionError> {
    let process_count = found.reader.process_count()?;
    if process_count == 0 {
        return Ok(None);
    }
    Ok(Some(Slice {
        name: found.there.name.clone(),
        container: found.there.place.as_ref().and_then(|(_, id)| id.clone()),
        made: false,
        region: found.there.inside(),
        problem: None,
        generation: None,
        process_count,
        processes: processes(&found.reader, machine)?,
        devices: devices(&found.reader, gpus)?,
    }))
}

fn of_owned(
    slice: &Owned,
    config: &Config,
    readers: &mut BTreeMap<Name, Reader>,
    holders: &BTreeMap<FileId, Vec<Container>>,
    gpus: &[Gpu],
    machine: Option<&Machine>,
) -> Slice {
    let region = config.places.region(slice.name());
    let mut told = Slice {
        name: slice.name().to_string(),
        container: None,
        made: true,
        region: region.display().to_string(),
        problem: slice.problem.clone(),
        generation: slice.generation(),
        process_count: 0,
        processes: Vec::new(),
        devices: Vec::new(),
    };
    let containers = slice.folder(&config.places).and_then(|folder| holders.get(&folder));
    if let Some([container]) = containers.map(Vec::as_slice) {
        told.container.clone_from(&container.id);
    }
    // Another slice has the region since, or another file is there.
    if readers.get(slice.name()).is_some_and(|reader| reader.check().is_err()) {
        readers.remove(slice.name());
    }
    if !readers.contains_key(slice.name()) {
        match Reader::open(&region, Trust::AnyOwner) {
            Ok(Some(reader)) => drop(readers.insert(slice.name().clone(), reader)),
            Ok(None) => {}
            Err(error) => told.problem = told.problem.or_else(|| Some(printable(&error.to_string()))),
        }
    }
    if let Some(reader) = readers.get(slice.name()) {
        let read = || Ok((reader.process_count()?, processes(reader, machine)?, devices(reader, gpus)?));
        match read() {
            Ok((0, _, _)) => {}
            Ok((count, processes, devices)) => {
                (told.process_count, told.processes, told.devices) = (count, processes, devices);
            }
            Err(error) => {
                let error: RegionError = error;
                told.problem = told.problem.or_else(|| Some(printable(&error.to_string())));
            }
        }
    }
    // Its limits are known before its first process has come.
    if let Some(terms) = slice.terms()
        && !told.devices.iter().any(|device| device.uuid == terms.gpu)
    {
        told.devices
            .insert(0, Device { uuid: terms.gpu.clone(), ..Device::limited(terms.limits(Limits::NONE)) });
    }
    told
}

fn devices(reader: &Reader, gpus: &[Gpu]) -> Result<Vec<Device>, RegionError> {
    let uuid = |text: String| {
        let known = gpus.iter().find(|gpu| bare(&gpu.uuid) == text);
        known.map_or_else(|| format!("GPU-{text}"), |gpu| gpu.uuid.clone())
    };
    reader.devices()?.iter().map(|read| Device::of(reader, read, uuid(read.uuid.to_string()))).collect()
}

/// The processes of a slice, if a machine is given that says which numbers they have on it.
fn processes(reader: &Reader, machine: Option<&Machine>) -> Result<Vec<Process>, RegionError> {
    let Some(machine) = machine else { return Ok(Vec::new()) };
    let process = |process: &gpuslice_region::ProcessView| {
        let host_pid = machine.number_of(process);
        Process {
            pid: process.pid,
            host_pid,
            command: host_pid.and_then(command_here),
            memory_used: process.held.iter().copied().fold(0, u64::saturating_add),
        }
    };
    Ok(reader.processes()?.iter().map(process).collect())
}
