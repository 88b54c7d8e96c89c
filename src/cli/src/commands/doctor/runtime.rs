//! Checks that the CUDA runtime and cuBLAS start under a quota as they do without one.
//!
//! The runtime compares some of the driver's answers with its own knowledge. A future driver or runtime may refuse a device whose
//! size is the quota. So the doctor starts both libraries without gpuslice, and then under a quota in a temporary region. If the
//! outcomes differ, it starts them once more under a quota, but with the real sizes of the device.
#![allow(unsafe_code, reason = "calls the CUDA runtime and cuBLAS")]

use super::asking::ProbeOutcome;
use super::finding::Finding;
use super::lines::step;
use core::ffi::{c_int, c_void};
use gpuslice_policy::config::{ReportTotal, keys};
use gpuslice_policy::units::Setting as _;
use libloading::Library;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::{fmt, fs};

/// Names under which the loader finds the CUDA runtime, newest first.
const RUNTIMES: [&str; 3] = ["libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"];
const CUBLAS: [&str; 3] = ["libcublas.so.13", "libcublas.so.12", "libcublas.so.11"];
/// Folder in which the toolkit puts the libraries.
const TOOLKIT: &str = "/usr/local/cuda/lib64";
/// A quota that fits every GPU, and that is not the size of any GPU.
const QUOTA: &str = "90%";

/// A library and the status with which it started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Start {
    name: String,
    call: String,
    status: c_int,
}

/// The libraries that the trial started. The list is empty if the machine has none of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Started(Vec<Start>);

impl Started {
    fn first_failure(&self) -> Option<&Start> {
        self.0.iter().find(|start| start.status != 0)
    }
}

impl fmt::Display for Started {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.0.iter().map(|start| start.name.as_str()).collect();
        f.write_str(&names.join(" and "))
    }
}

/// Starts the libraries that are installed on this machine.
pub(super) fn start() -> Started {
    let starts = [runtime(), cublas()];
    Started(starts.into_iter().flatten().collect())
}

/// Starts the CUDA runtime. Its first call checks the driver, and makes no context.
fn runtime() -> Option<Start> {
    let (name, library) = open(&RUNTIMES)?;
    step("cudaGetDeviceCount");
    let mut count = 0;
    // SAFETY: `get` needs the symbol's type: the runtime declares `cudaGetDeviceCount` like this.
    let ask =
        unsafe { library.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(b"cudaGetDeviceCount\0") }.ok()?;
    // SAFETY: the function needs an output that is valid for writes: `count` is on this stack.
    let status = unsafe { ask(&raw mut count) };
    std::mem::forget(library);
    Some(Start { name, call: "cudaGetDeviceCount".to_owned(), status })
}

/// Starts cuBLAS. Its handle needs a context, which ends with this process.
fn cublas() -> Option<Start> {
    let (name, library) = open(&CUBLAS)?;
    step("cublasCreate");
    let mut handle: *mut c_void = std::ptr::null_mut();
    // SAFETY: `get` requires the symbol's type: cuBLAS declares `cublasCreate_v2` like this.
    let create =
        unsafe { library.get::<unsafe extern "C" fn(*mut *mut c_void) -> c_int>(b"cublasCreate_v2\0") }
            .ok()?;
    // SAFETY: the function needs an output that is valid for writes: `handle` is on this stack.
    let status = unsafe { create(&raw mut handle) };
    std::mem::forget(library);
    Some(Start { name, call: "cublasCreate".to_owned(), status })
}

/// Opens the first of `names` that the loader or the toolkit's folder has.
fn open(names: &[&str]) -> Option<(String, Library)> {
    let places = names.iter().map(|name| (*name, PathBuf::from(name)));
    let all = places.chain(names.iter().map(|name| (*name, PathBuf::from(TOOLKIT).join(name))));
    all.into_iter().find_map(|(name, path)| {
        step(&format!("loading {}", path.display()));
        // SAFETY: `Library::new` runs the library's initialisers. Every program that uses these libraries runs them too.
        Some((name.to_owned(), unsafe { Library::new(path) }.ok()?))
    })
}

/// Returns true if the machine has such libraries and all of them start without gpuslice.
pub(super) fn is_worth_a_trial(bare: &ProbeOutcome<Started>) -> bool {
    matches!(bare, ProbeOutcome::Answer(bare, _) if !bare.0.is_empty() && bare.first_failure().is_none())
}

/// Returns true if both questions got the same answer.
pub(super) fn is_as(one: &ProbeOutcome<Started>, other: &ProbeOutcome<Started>) -> bool {
    matches!((one, other), (ProbeOutcome::Answer(one, _), ProbeOutcome::Answer(other, _)) if one == other)
}

/// A folder in memory for the region of a trial. Dropping this value removes the folder.
pub(super) struct TrialFolder(PathBuf);

impl TrialFolder {
    /// Makes the folder. Returns `None` if that fails.
    pub(super) fn new() -> Option<Self> {
        let folder = PathBuf::from(format!("/dev/shm/gpuslice-doctor-{}", std::process::id()));
        fs::DirBuilder::new().mode(0o700).create(&folder).ok()?;
        Some(Self(folder))
    }

    /// Returns the settings of a trial. They unset all other settings of the environment.
    pub(super) fn settings(&self, total: ReportTotal) -> Vec<(String, OsString)> {
        let unset = keys::settings().map(|name| (name.to_owned(), OsString::new()));
        let ours = [
            ("GPU_MEM_LIMIT", QUOTA.into()),
            ("GPU_MEM_REPORT_TOTAL", total.setting().into()),
            ("GPUSLICE_REGION", self.0.join("region").into_os_string()),
        ];
        unset.chain(ours.map(|(name, value)| (name.to_owned(), value))).collect()
    }
}

impl Drop for TrialFolder {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.0);
    }
}

/// Compares three starts: without gpuslice, under a quota, and under a quota with the real sizes of the device.
pub(super) fn examine(
    bare: &ProbeOutcome<Started>,
    limited: Option<&ProbeOutcome<Started>>,
    unchanged: Option<&ProbeOutcome<Started>>,
) -> Vec<Finding> {
    let ProbeOutcome::Answer(told, _) = bare else {
        return vec![Finding::note("runtime.start", format!("{}, without gpuslice", ended(bare)), "")];
    };
    if let Some(Start { name, call, status }) = told.first_failure() {
        let what = format!("{name} does not start, not even without gpuslice: {call} returns {status}");
        return vec![Finding::note("runtime.start", what, "")];
    }
    let Some(limited) = limited else { return Vec::new() };
    let finding = if is_as(bare, limited) {
        Finding::ok("runtime.start", format!("what starts without a quota starts under one: {told}"))
    } else if unchanged.is_some_and(|unchanged| is_as(bare, unchanged)) {
        Finding::error(
            "runtime.start",
            format!("{} under a quota that is reported as the device's size", ended(limited)),
            "set GPU_MEM_REPORT_TOTAL=device, in the environment or the operator's file: the quota holds as before",
        )
    } else {
        Finding::error(
            "runtime.start",
            format!("{} under a quota, and starts without the library", ended(limited)),
            "use a newer gpuslice, or a driver and CUDA of a series that gpuslice was tried with",
        )
    };
    vec![finding]
}

/// Describes a start that failed.
fn ended(asked: &ProbeOutcome<Started>) -> String {
    match asked {
        ProbeOutcome::Answer(started, _) => started.first_failure().map_or_else(
            || format!("something else than {started} starts"),
            |Start { name, call, status }| format!("{name} does not start: {call} returns {status}"),
        ),
        ProbeOutcome::Hangs(step) => format!("the CUDA runtime does not come back from {step}"),
        ProbeOutcome::Failed { how, step, .. } => {
            format!("the process that starts the CUDA runtime ended at {step}: {how}")
        }
    }
}
