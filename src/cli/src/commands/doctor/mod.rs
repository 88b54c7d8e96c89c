//! `gpuslice doctor`: finds faults in this machine's set-up, and says how to correct them.
//!
//! Each group of findings has a file. One function there reads facts about the machine, and another turns them into findings.
//! Only child processes ask the driver, and each has a time limit. Only the start of cuBLAS makes a context, where cuBLAS is
//! installed. The doctor leaves no file.

mod asking;
mod calls;
#[cfg(test)]
#[path = "../../../../../tests/support/chance.rs"]
mod chance;
mod command;
mod devices;
mod driver;
mod elf;
mod finding;
mod inherited;
mod library;
mod lines;
mod machine;
mod preload;
mod probe;
mod region;
mod runtime;
mod script;
mod settings;
mod sight;
mod start;
mod users;
mod variables;

use crate::arguments::{Doctor, Probe};
use crate::output::ending::Ending;
use crate::output::failure::{self, Failure};
use crate::preload::preload_list;
use asking::ProbeOutcome;
use devices::DeviceEnvironment;
use elf::Elf;
use finding::{DoctorReport, Finding};
use gpuslice_policy::config::{Config, ReportTotal};
use gpuslice_region::operator::Contents;
use gpuslice_slices::installed;
use library::Library;
use machine::Machine;
use preload::PreloadLists;
use region::Regions;
use settings::Sources;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) use probe::answer;
pub(crate) use start::look_before_start;

/// A file that a driver makes when it starts as root and finds no kernel module. Later the file would look like that of a GPU.
const CONTROL: &str = "/dev/nvidiactl";
/// File in which the kernel module writes its version.
const MODULE: &str = "/proc/driver/nvidia/version";

/// Prints the findings about this machine's set-up: `gpuslice doctor`.
pub(crate) fn doctor(wish: &Doctor) -> Result<Ending, Failure> {
    crate::system::remember_children();
    let report = DoctorReport::of(examine(wish));
    if wish.json {
        let text = serde_json::to_string_pretty(&report).map_err(|error| Failure::new(error.to_string()))?;
        failure::print(&format!("{text}\n"))?;
    } else {
        failure::print(&report.text())?;
    }
    Ok(Ending::Code(report.exit_code()))
}

/// Returns all findings, in the order in which they are shown.
fn examine(wish: &Doctor) -> Vec<Finding> {
    let patience = Duration::from_secs(wish.timeout);
    let machine = Machine::look();
    let (cuda, nvml) = ask_driver(patience);
    let lists = PreloadLists::look();
    let library = Library::find(installed::library(), &preloaded(&lists));
    let sources = Sources::look();
    let config = sources.config().ok();
    let regions = Regions::look(config.as_ref(), sources.operator.fixed != Contents::Absent);
    let around = DeviceEnvironment {
        mps: mps(),
        wsl: machine.wsl,
        own_pids: machine.own_pids,
        members: regions.living.members.clone(),
    };
    let kernel = fs::read_to_string(MODULE).ok();
    let has_driver = matches!(&cuda, ProbeOutcome::Answer(cuda, _) if cuda.path.is_some());
    let told = if let ProbeOutcome::Answer(nvml, _) = &nvml { Some(nvml) } else { None };

    let mut findings = driver::examine(&cuda, &nvml, kernel.as_deref().and_then(driver::kernel_version));
    findings.extend(devices::examine(told, &around));
    findings.extend(machine::examine(&machine, has_driver));
    findings.extend(library::examine(&library));
    findings.extend(ignorant(&lists, &wish.command));
    findings.extend(preload_of(&library, &lists, patience));
    if starts(&cuda) {
        findings.extend(runtime_of(&library, config.as_ref(), patience));
    }
    if sources.ask_for_limits() && !command::brings_library(&wish.command, &command::Program::find) {
        findings.push(inherited_of(&library, patience));
    }
    findings.extend(region::examine(&regions, told.map_or(&[][..], |nvml| &nvml.devices)));
    findings.extend(config.as_ref().and_then(|config| sight::examine(config, &regions, &machine)));
    if sources.ask_for_limits() {
        findings.extend(users::examine(&regions, &machine));
    }
    findings.extend(settings::examine(&sources));
    findings.extend(config.iter().zip(told).flat_map(|(config, nvml)| settings::left_out(config, nvml)));
    findings.extend(variables::examine(&sources.environment));
    findings.extend(command::examine(&wish.command, Some(&library), &command::Program::find));
    findings
}

/// Asks the driver and NVML. Then removes the device file, if only these questions have made it.
fn ask_driver(patience: Duration) -> (ProbeOutcome<probe::Cuda>, ProbeOutcome<probe::Nvml>) {
    let was_there = Path::new(CONTROL).exists();
    let asked = (asking::ask(Probe::Cuda, None, patience), asking::ask(Probe::Nvml, None, patience));
    if !was_there && !Path::new(MODULE).exists() {
        let _none = fs::remove_file(CONTROL);
    }
    asked
}

/// Returns the folder of the MPS daemon's pipes that programs started from here would use, if a daemon is there.
fn mps() -> Option<String> {
    let folder = std::env::var("CUDA_MPS_PIPE_DIRECTORY").unwrap_or_else(|_| "/tmp/nvidia-mps".to_owned());
    Path::new(&folder).join("control").exists().then_some(folder)
}

/// Returns the preloaded libraries, which may take the place of the installed one. Returns none if the user names a library.
fn preloaded(lists: &PreloadLists) -> Vec<PathBuf> {
    let is_named = std::env::var_os("GPUSLICE_LIB").is_some_and(|value| !value.is_empty());
    if is_named { Vec::new() } else { lists.paths() }
}

/// Returns the findings about two programs that may ignore `/etc/ld.so.preload`: the shell, and the first program of the command.
fn ignorant(lists: &PreloadLists, command: &[OsString]) -> Vec<Finding> {
    let named = command.first().and_then(|word| command::Program::find(word)).map(|program| program.path);
    let finding = |path: PathBuf| {
        let loader = Elf::read(&path).ok().flatten()?.interpreter;
        preload::ignored(lists, &path.display().to_string(), loader.as_deref())
    };
    [PathBuf::from("/bin/sh")].into_iter().chain(named).filter_map(finding).collect()
}

/// Returns the findings about preloaded libraries, and about a child that starts as `run` starts programs.
fn preload_of(library: &Library, lists: &PreloadLists, patience: Duration) -> Vec<Finding> {
    let mut findings = preload::entries(lists);
    let Ok(path) = &library.path else { return findings };
    match preload_list(path) {
        Err(Failure::Message { text, .. }) => {
            let (what, mend) = text.split_once("; ").unwrap_or((&text, "put the library elsewhere"));
            findings.push(Finding::error("preload.active", what, mend));
        }
        Err(Failure::ReaderGone) => {}
        Ok(list) => {
            let asked: ProbeOutcome<probe::Preloaded> = asking::ask(Probe::Preloaded, Some(list), patience);
            let objects = if let ProbeOutcome::Answer(seen, _) = &asked { &seen.objects[..] } else { &[] };
            let others = preload::Other::all(objects, path);
            findings.extend(preload::examine(path, &asked, &others));
        }
    }
    findings
}

/// Returns true if the driver starts and has no hidden function. With a hidden function, gpuslice would refuse GPU work.
fn starts(cuda: &ProbeOutcome<probe::Cuda>) -> bool {
    matches!(cuda, ProbeOutcome::Answer(cuda, _) if cuda.init == Some(0) && cuda.hidden.is_empty())
}

/// Returns the findings about the start of the CUDA runtime and cuBLAS under a quota, if they are installed.
fn runtime_of(library: &Library, config: Option<&Config>, patience: Duration) -> Vec<Finding> {
    let ask = |preload, settings: &[_]| -> ProbeOutcome<runtime::Started> {
        asking::ask_under(Probe::Runtime, preload, settings, patience)
    };
    let bare = ask(None, &[]);
    let list = library.path.as_ref().ok().and_then(|path| preload_list(path).ok());
    let trial = runtime::is_worth_a_trial(&bare).then(runtime::TrialFolder::new).flatten();
    let (Some(list), Some(trial)) = (list, trial) else { return runtime::examine(&bare, None, None) };
    let own = config.map_or(ReportTotal::Quota, |config| config.report_total);
    let limited = ask(Some(list.clone()), &trial.settings(own));
    let unchanged = (!runtime::is_as(&bare, &limited) && own == ReportTotal::Quota)
        .then(|| ask(Some(list), &trial.settings(ReportTotal::Device)));
    runtime::examine(&bare, Some(&limited), unchanged.as_ref())
}

/// Returns the finding about a child that starts with the present environment.
fn inherited_of(library: &Library, patience: Duration) -> Finding {
    let environment = std::env::var_os("LD_PRELOAD").filter(|text| !text.is_empty());
    let text = environment.as_ref().map(|text| text.to_string_lossy().into_owned());
    let asked: ProbeOutcome<probe::Preloaded> = asking::ask(Probe::Preloaded, environment, patience);
    let objects = if let ProbeOutcome::Answer(seen, _) = &asked { &seen.objects[..] } else { &[] };
    let library = library.path.as_deref().ok();
    inherited::examine(&asked, inherited::ours(objects, library), text.as_deref(), library)
}
