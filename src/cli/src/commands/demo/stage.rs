//! The GPU of the demo: the machine's GPU or a simulated one.

use super::wire::DemoGpu;
use crate::output::failure::Failure;
use crate::slices;
use crate::system;
use gpuslice_slices::installed;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::{env, fs};

/// Memory of the simulated GPU. It is enough for the largest quotas of the demo.
const SIMULATED_MEMORY: &str = "8GiB";

/// Prefixes of variables that could change the behaviour of the demo's programs.
const OURS: [&str; 7] = [
    "GPU_MEM_",
    "GPU_CORE_",
    "GPU_PRIORITY",
    "GPUSLICE_",
    "CUDA_DEVICE_MEMORY_",
    "CUDA_DEVICE_SM_",
    "SIMGPU_",
];

/// The GPU and the library of a demo.
#[derive(Debug)]
pub(super) struct Stage {
    /// The preload library.
    pub(super) library: PathBuf,
    /// The device.
    pub(super) gpu: DemoGpu,
    /// The simulation, if the device is simulated.
    pub(super) simulation: Option<Simulation>,
}

/// The simulated GPU of one demo. Dropping this value removes its state.
#[derive(Debug)]
pub(super) struct Simulation {
    /// The reason why the demo simulates a GPU.
    pub(super) reason: String,
    /// Folder of the simulated driver.
    pub(super) driver: PathBuf,
    state: PathBuf,
    truth: PathBuf,
}

impl Stage {
    /// Finds a working GPU of the machine, or simulates one.
    pub(super) fn find(simulated: bool) -> Result<Self, Failure> {
        let library = installed::library()?;
        let reason = if simulated {
            "as asked for".to_owned()
        } else {
            match probe(&mut this_program("demo-probe")?) {
                Ok(gpu) if gpu.is_simulated => "LD_LIBRARY_PATH names its driver".to_owned(),
                Ok(gpu) => return Ok(Self { library, gpu, simulation: None }),
                Err(reason) => format!("no GPU works here: {reason}"),
            }
        };
        let simulation = Simulation::prepare(reason.clone())
            .map_err(|failure| failure.behind(&format!("{reason}; and none can be simulated: ")))?;
        let mut command = this_program("demo-probe")?;
        simulation.enter(&mut command, "");
        let gpu = probe(&mut command).map_err(|error| {
            Failure::new(format!("the simulated GPU does not work ({error}); build it anew"))
        })?;
        Ok(Self { library, gpu, simulation: Some(simulation) })
    }

    /// Returns a hidden command of this program that runs on this GPU. The command does not get the
    /// environment's settings for gpuslice.
    pub(super) fn command(&self, name: &str, group: &str) -> Result<Command, Failure> {
        let mut command = this_program(name)?;
        self.context(&mut command, group);
        Ok(command)
    }

    /// Makes `command` run on this GPU, without the environment's settings for gpuslice. The
    /// simulated GPU counts it under `group`.
    pub(super) fn context<'command>(
        &self,
        command: &'command mut Command,
        group: &str,
    ) -> &'command mut Command {
        without_settings(command);
        if let Some(simulation) = &self.simulation {
            simulation.enter(command, group);
        }
        command
    }
}

impl Simulation {
    fn prepare(reason: String) -> Result<Self, Failure> {
        let driver = installed::simulated_driver()?;
        if !driver.join("libcuda.so.1").exists() {
            return Err(Failure::new(format!(
                "{}: has no libcuda.so.1; make it with ci/stage.sh of a source checkout",
                driver.display()
            )));
        }
        let state = format!("/dev/shm/simgpu-demo-{}-{}", system::user(), slices::own_number());
        Ok(Self { reason, driver, state: state.into(), truth: installed::truth_reader()? })
    }

    /// Makes a program see only this GPU.
    fn enter(&self, command: &mut Command, group: &str) {
        let mut path = self.driver.clone().into_os_string();
        if let Some(before) = env::var_os("LD_LIBRARY_PATH").filter(|before| !before.is_empty()) {
            path.push(":");
            path.push(before);
        }
        command.env("LD_LIBRARY_PATH", path).env("SIMGPU_STATE", &self.state).env("SIMGPU_GROUP", group);
        command.env_remove("CUDA_VISIBLE_DEVICES");
        // Contexts cost no memory here, because the demo compares every byte.
        command.env("SIMGPU_MEMORY", SIMULATED_MEMORY).env("SIMGPU_CONTEXT_BYTES", "0");
    }

    /// Reads the memory and the time that the simulated GPU has really given out.
    pub(super) fn truth(&self) -> Result<Truth, Failure> {
        let failed = |why: &str| Failure::new(format!("{}: {why}; build it anew", self.truth.display()));
        let output = Command::new(&self.truth)
            .env("SIMGPU_STATE", &self.state)
            .stdin(Stdio::null())
            .output()
            .map_err(|error| failed(&error.to_string()))?;
        let report: Value = serde_json::from_slice(&output.stdout)
            .map_err(|_| failed(String::from_utf8_lossy(&output.stderr).trim_end()))?;
        Truth::read(&report).ok_or_else(|| failed("says something else than expected"))
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        let _none_was_made = fs::remove_file(&self.state);
    }
}

/// Memory and time that the first device of the simulated GPU has given out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Truth {
    /// Bytes in use.
    pub(super) held: u64,
    /// The most bytes in use at a time, by group of processes.
    pub(super) peaks: BTreeMap<String, u64>,
    /// Nanoseconds in which kernels ran, by group of processes.
    pub(super) busy: BTreeMap<String, u64>,
}

impl Truth {
    fn read(report: &Value) -> Option<Self> {
        let held = report.pointer("/devices/0/held")?.as_u64()?;
        let peak = |group: &Value| {
            Some((group.get("name")?.as_str()?.to_owned(), group.pointer("/devices/0/peak")?.as_u64()?))
        };
        let peaks = report.get("groups")?.as_array()?.iter().map(peak).collect::<Option<_>>()?;
        let mut busy = BTreeMap::<String, u64>::new();
        for process in report.get("processes")?.as_array()? {
            let time = process.pointer("/devices/0/busy_ns").and_then(Value::as_u64).unwrap_or(0);
            let sum = busy.entry(process.get("group")?.as_str()?.to_owned()).or_default();
            *sum = sum.saturating_add(time);
        }
        Some(Self { held, peaks, busy })
    }

    /// Returns the nanoseconds in which kernels of a group ran.
    pub(super) fn busy(&self, group: &str) -> u64 {
        self.busy.get(group).copied().unwrap_or(0)
    }

    /// Returns the most bytes that a group ever used at a time.
    pub(super) fn peak(&self, group: &str) -> u64 {
        self.peaks.get(group).copied().unwrap_or(0)
    }
}

/// Returns a hidden command of this program.
fn this_program(name: &str) -> Result<Command, Failure> {
    let program = env::current_exe().map_err(|error| {
        Failure::new(format!("this program cannot be found: {error}; start it by its path"))
    })?;
    let mut command = Command::new(program);
    command.arg(name).stdin(Stdio::null());
    without_settings(&mut command);
    Ok(command)
}

/// Removes the environment's settings for slices and simulations from a command, because the demo sets its own.
fn without_settings(command: &mut Command) {
    let ours = |name: &OsString| {
        let name = name.to_string_lossy();
        OURS.iter().any(|prefix| name.starts_with(prefix))
    };
    for (variable, _) in env::vars_os().filter(|(variable, _)| ours(variable)) {
        command.env_remove(variable);
    }
}

/// Reads the device in a child process that ends at once. A driver leaves threads and memory in the process that opens it.
fn probe(command: &mut Command) -> Result<DemoGpu, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&output.stderr);
    match DemoGpu::read(&String::from_utf8_lossy(&output.stdout)) {
        Some(gpu) if output.status.success() => Ok(gpu),
        _ => Err(said.trim_end().trim_start_matches("gpuslice: ").to_owned()),
    }
}
