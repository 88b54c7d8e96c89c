//! Bench: the folder, the driver and the variables with which a host runs.

use super::living::send;
use super::outcome::Outcome;
use super::{artefacts, compiler};
use gpuslice_region::{Monitor, TimeUsed, Trust};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Time after which a host that still runs counts as hanging.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Time in which the device gets back the memory of dead processes, on a machine that has other things to do.
const REST: Duration = Duration::from_secs(10);

/// A driver, and a folder for the simulated GPU's state and for regions.
#[derive(Debug)]
pub(crate) struct Bench {
    folder: TempDir,
    driver: Option<PathBuf>,
    /// The simulated driver of this bench alone.
    _copy: Option<TempDir>,
    variables: BTreeMap<String, String>,
}

impl Bench {
    /// Makes a bench with a simulated GPU as it is by default.
    pub(crate) fn simulated() -> Self {
        let copy = driver_copy();
        let driver = copy.path().to_owned();
        Self { _copy: Some(copy), ..Self::on(Some(driver)) }
    }

    /// Makes a bench with a simulated GPU of 1 GiB whose contexts take no memory, so that every byte of a quota can be spent.
    pub(crate) fn simulated_without_contexts() -> Self {
        Self::simulated().with("SIMGPU_MEMORY", "1GiB").with("SIMGPU_CONTEXT_BYTES", "0")
    }

    /// Makes NVML take no time, for tests that start many programs: with a third of a second for each, they would take minutes.
    pub(crate) fn with_quick_nvml(self) -> Self {
        self.with("SIMGPU_NVML_INIT_MS", "0").with("SIMGPU_NVML_LIST_US", "0")
    }

    /// Makes a bench whose linear memory and arrays take exactly the bytes asked for. Tests of `naive.c` use it, because that
    /// library counts the bytes asked for.
    pub(crate) fn simulated_to_the_byte() -> Self {
        Self::simulated_without_contexts().with("SIMGPU_LINEAR_GRANULE", "1")
    }

    /// Makes a bench with a real driver, on a machine that has no GPU.
    pub(crate) fn real(driver: &Path) -> Self {
        Self::on(Some(driver.to_owned()))
    }

    /// Makes a bench without a driver.
    pub(crate) fn without_driver() -> Self {
        Self::on(None)
    }

    fn on(driver: Option<PathBuf>) -> Self {
        // A region needs a file system that keeps locks when a descriptor is closed. The root of a container may not keep them;
        // /dev/shm does.
        let folder = TempDir::new_in("/dev/shm").expect("a folder for the host can be made");
        Self { folder, driver, _copy: None, variables: BTreeMap::new() }
    }

    /// Sets a variable for every host.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Returns the variables of every host.
    pub(crate) fn variables(&self) -> &BTreeMap<String, String> {
        &self.variables
    }

    /// Returns the folder of the driver.
    pub(crate) fn driver(&self) -> &Path {
        self.driver.as_deref().expect("the bench has a driver")
    }

    /// Returns the folder of the state and of regions.
    pub(crate) fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// Returns the path of the region of a bench with one slice.
    pub(crate) fn region(&self) -> PathBuf {
        self.folder.path().join("region")
    }

    /// Returns the path of the region of `slice`, one of several slices of the bench.
    pub(crate) fn region_of(&self, slice: impl Display) -> PathBuf {
        self.folder.path().join(format!("region-{slice}"))
    }

    /// Writes a file of the bench with `content`.
    pub(crate) fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, content).expect("a file for the host can be written");
        path
    }

    /// Returns the full path of the driver's library `name`.
    pub(crate) fn absolute(&self, name: &str) -> String {
        self.driver.as_ref().map_or_else(String::new, |driver| driver.join(name).display().to_string())
    }

    /// Prepares a host that uses nothing but the C library.
    pub(crate) fn host(&self, name: &str, arguments: &[&str]) -> Host<'_> {
        self.program(&compiler::plain(name), arguments)
    }

    /// Prepares any program as a host.
    pub(crate) fn program(&self, program: &Path, arguments: &[&str]) -> Host<'_> {
        let mut variables = self.variables.clone();
        let at = |name: &str| self.folder.path().join(name).display().to_string();
        for (name, value) in [("PATH", "/usr/bin:/bin".to_owned()), ("GPUSLICE_REGION", at("region"))] {
            variables.entry(name.to_owned()).or_insert(value);
        }
        variables.insert("SIMGPU_STATE".to_owned(), at("state"));
        if let Some(driver) = &self.driver {
            variables.insert("LD_LIBRARY_PATH".to_owned(), driver.display().to_string());
        }
        Host {
            bench: self,
            program: program.to_owned(),
            arguments: arguments.iter().map(|word| (*word).to_owned()).collect(),
            variables,
            preloads: Vec::new(),
        }
    }

    /// Returns true if a host has used the simulated GPU.
    pub(crate) fn has_run(&self) -> bool {
        self.folder.path().join("state").exists()
    }

    /// Returns the bytes that the processes really hold on one simulated device, now and at most.
    pub(crate) fn truth(&self, device: usize) -> Truth {
        let text = self.report();
        Truth::read(&text, device).unwrap_or_else(|| panic!("simgpu-truth said: {text}"))
    }

    /// Returns [`Self::truth`] once the device has got back the memory of dead processes, which happens some time after death.
    #[track_caller]
    pub(crate) fn truth_at_rest(&self, device: usize) -> Truth {
        let until = Instant::now() + REST;
        loop {
            let truth = self.truth(device);
            if truth.leaving == 0 {
                return truth;
            }
            assert!(Instant::now() < until, "the device does not get the memory of the dead back: {truth:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns everything that the simulated GPU reports about itself.
    pub(crate) fn report(&self) -> String {
        self.truth_reader(&[])
    }

    /// Returns one number of [`Self::report`], e.g. `/devices/0/busy_ns`.
    pub(crate) fn figure(&self, place: &str) -> u64 {
        let report: serde_json::Value =
            serde_json::from_str(&self.report()).expect("the ground truth is JSON");
        report
            .pointer(place)
            .and_then(serde_json::Value::as_u64)
            .unwrap_or_else(|| panic!("{place} in {report}"))
    }

    /// Returns the time that the slice has used of its first device, by the ledger.
    pub(crate) fn time_used(&self) -> TimeUsed {
        let monitor = Monitor::open(&self.region(), Trust::AnyOwner).unwrap().expect("there is a region");
        let device = monitor.devices().first().expect("a device is in use").device;
        monitor.time_used(device)
    }

    /// Makes the calls in `faults` fail from now on, in all processes. They replace the faults that were set before.
    pub(crate) fn goes_wrong(&self, faults: &str) {
        self.truth_reader(&["--faults", faults]);
    }

    fn truth_reader(&self, arguments: &[&str]) -> String {
        let output = Command::new(artefacts::truth_reader())
            .args(arguments)
            .env("SIMGPU_STATE", self.folder.path().join("state"))
            .output()
            .expect("simgpu-truth runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

/// Copies the simulated driver. Slices of one GPU find each other by locks of a library of the driver, and slices of two benches
/// must not. The folder is not in `/dev/shm`, from which a container may not be able to run libraries.
pub(crate) fn driver_copy() -> TempDir {
    let (from, to) = (artefacts::simulated_driver(), TempDir::new_in(env!("CARGO_TARGET_TMPDIR")));
    let to = to.expect("a folder for the driver can be made");
    for library in ["libcuda.so", "libnvidia-ml.so"] {
        let versioned = format!("{library}.1");
        std::fs::copy(from.join(&versioned), to.path().join(&versioned)).expect("the driver can be copied");
        symlink(versioned, to.path().join(library)).expect("the driver's other name can be made");
    }
    to
}

/// Bytes of a simulated device that all processes together hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Truth {
    /// Bytes in use.
    pub(crate) held: u64,
    /// Part of `held` that belongs to dead processes and is not given back yet.
    pub(crate) leaving: u64,
    /// The most bytes that were in use at a time.
    pub(crate) peak: u64,
}

/// A program that is about to run.
pub(crate) struct Host<'bench> {
    bench: &'bench Bench,
    program: PathBuf,
    arguments: Vec<String>,
    variables: BTreeMap<String, String>,
    preloads: Vec<PathBuf>,
}

impl Host<'_> {
    /// Sets a variable.
    pub(crate) fn set(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.to_owned(), value.to_owned());
        self
    }

    /// Puts the host into `slice`, one of several slices of the bench.
    pub(crate) fn in_slice(self, slice: impl Display) -> Self {
        let region = self.bench.region_of(slice);
        self.set("GPUSLICE_REGION", &region.display().to_string())
    }

    /// Sets several variables.
    pub(crate) fn set_all(self, variables: &[(&str, &str)]) -> Self {
        variables.iter().fold(self, |host, (name, value)| host.set(name, value))
    }

    /// Preloads `object` behind the objects that were added before.
    pub(crate) fn preload(mut self, object: &Path) -> Self {
        self.preloads.push(object.to_owned());
        self
    }

    /// Preloads the library under test.
    pub(crate) fn loaded(self) -> Self {
        self.preload(&artefacts::library())
    }

    /// Preloads the library under test, with a quota.
    pub(crate) fn limited(self, limit: &str) -> Self {
        self.loaded().set("GPU_MEM_LIMIT", limit)
    }

    /// Returns the host as a command, with its outputs in pipes.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).env_clear().envs(&self.variables);
        command.current_dir(self.bench.folder.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if !self.preloads.is_empty() {
            let paths: Vec<_> = self.preloads.iter().map(|path| path.display().to_string()).collect();
            command.env("LD_PRELOAD", paths.join(":"));
        }
        command
    }

    /// Runs the host to its end.
    pub(crate) fn run(self) -> Outcome {
        let mut command = self.command();
        command.stdin(Stdio::null());
        let child = command.spawn().unwrap_or_else(|error| panic!("{}: {error}", self.program.display()));
        let pid = child.id();
        let (done, ended) = mpsc::channel();
        std::thread::spawn(move || done.send(child.wait_with_output()));
        let name = format!("{} {}", self.program.display(), self.arguments.join(" "));
        let Ok(output) = ended.recv_timeout(TIMEOUT) else {
            send(pid, libc::SIGKILL);
            panic!("{name} hangs");
        };
        Outcome::new(name, &output.expect("a host can be waited for"), self.bench.folder.path())
    }
}

impl Truth {
    /// Returns the bytes that living processes hold.
    pub(crate) fn living(&self) -> u64 {
        self.held.saturating_sub(self.leaving)
    }

    /// Reads the figures of a device. In the report they stand behind the device's index.
    fn read(report: &str, device: usize) -> Option<Self> {
        let (_before, fields) = report.split_once(&format!("\"index\":{device},"))?;
        let number = |name: &str| {
            let (_before, value) = fields.split_once(&format!("\"{name}\":"))?;
            value.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
        };
        Some(Self { held: number("held")?, leaving: number("leaving")?, peak: number("peak")? })
    }
}
