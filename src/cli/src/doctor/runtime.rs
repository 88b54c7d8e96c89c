//! Do the CUDA runtime and cuBLAS start under a quota, as they do without one?
//!
//! The runtime compares some of the driver's answers with what it knows, and a driver or runtime of the future may mind that
//! a device's size is the quota. Both are started bare and under a quota, in a region of the trial's own. Where that
//! makes a difference, they are started once more with sizes reported as they are.
#![allow(unsafe_code, reason = "calls the CUDA runtime and cuBLAS")]

use super::asking::Asked;
use super::finding::Finding;
use super::probe::step;
use core::ffi::{c_int, c_void};
use gpuslice_policy::config::{ReportTotal, keys};
use gpuslice_policy::units::Setting as _;
use libloading::Library;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::{fmt, fs};

/// Names under which the loader finds them, newest first.
const RUNTIMES: [&str; 3] = ["libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"];
const CUBLAS: [&str; 3] = ["libcublas.so.13", "libcublas.so.12", "libcublas.so.11"];
/// Where the toolkit puts them.
const TOOLKIT: &str = "/usr/local/cuda/lib64";
/// A quota that every GPU has room for, and that is none's size.
const QUOTA: &str = "90%";

/// A library and the status with which it started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Start {
    name: String,
    call: String,
    status: c_int,
}

/// The libraries that were started; empty where none is found.
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

/// Starts what there is.
pub(super) fn start() -> Started {
    let starts = [runtime(), cublas()];
    Started(starts.into_iter().flatten().collect())
}

/// The runtime's own check of the driver runs at its first call. No context is made.
fn runtime() -> Option<Start> {
    let (name, library) = open(&RUNTIMES)?;
    step("cudaGetDeviceCount");
    let mut count = 0;
    // SAFETY: the runtime's function of this name has this type.
    let ask =
        unsafe { library.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(b"cudaGetDeviceCount\0") }.ok()?;
    // SAFETY: room for a number.
    let status = unsafe { ask(&raw mut count) };
    std::mem::forget(library);
    Some(Start { name, call: "cudaGetDeviceCount".to_owned(), status })
}

/// A handle of cuBLAS needs a context, which ends with this process.
fn cublas() -> Option<Start> {
    let (name, library) = open(&CUBLAS)?;
    step("cublasCreate");
    let mut handle: *mut c_void = std::ptr::null_mut();
    // SAFETY: cuBLAS's function of this name has this type.
    let create =
        unsafe { library.get::<unsafe extern "C" fn(*mut *mut c_void) -> c_int>(b"cublasCreate_v2\0") }
            .ok()?;
    // SAFETY: room for a handle.
    let status = unsafe { create(&raw mut handle) };
    std::mem::forget(library);
    Some(Start { name, call: "cublasCreate".to_owned(), status })
}

/// The first that is found, by the loader or in the toolkit.
fn open(names: &[&str]) -> Option<(String, Library)> {
    let places = names.iter().map(|name| (*name, PathBuf::from(name)));
    let all = places.chain(names.iter().map(|name| (*name, PathBuf::from(TOOLKIT).join(name))));
    all.into_iter().find_map(|(name, path)| {
        step(&format!("loading {}", path.display()));
        // SAFETY: what the libraries do when they are loaded, they do in every program that uses them.
        Some((name.to_owned(), unsafe { Library::new(path) }.ok()?))
    })
}

/// Returns true if they are there and start without the library.
pub(super) fn is_worth_a_trial(bare: &Asked<Started>) -> bool {
    matches!(bare, Asked::Answer(bare, _) if !bare.0.is_empty() && bare.first_failure().is_none())
}

/// Returns true if both came to the same.
pub(super) fn is_as(one: &Asked<Started>, other: &Asked<Started>) -> bool {
    matches!((one, other), (Asked::Answer(one, _), Asked::Answer(other, _)) if one == other)
}

/// A folder in memory for the region of a trial, which goes with this value.
pub(super) struct Trial(PathBuf);

impl Trial {
    /// None where it cannot be made.
    pub(super) fn new() -> Option<Self> {
        let folder = PathBuf::from(format!("/dev/shm/gpuslice-doctor-{}", std::process::id()));
        fs::DirBuilder::new().mode(0o700).create(&folder).ok()?;
        Some(Self(folder))
    }

    /// The settings of a start, and none of the environment's own.
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

impl Drop for Trial {
    fn drop(&mut self) {
        let _gone = fs::remove_dir_all(&self.0);
    }
}

/// Compares a start without gpuslice, one under a quota, and one under a quota with the device's own sizes.
pub(super) fn examine(
    bare: &Asked<Started>,
    limited: Option<&Asked<Started>>,
    unchanged: Option<&Asked<Started>>,
) -> Vec<Finding> {
    let Asked::Answer(told, _) = bare else {
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

/// How a start ended that failed.
fn ended(asked: &Asked<Started>) -> String {
    match asked {
        Asked::Answer(started, _) => started.first_failure().map_or_else(
            || format!("something else than {started} starts"),
            |Start { name, call, status }| format!("{name} does not start: {call} returns {status}"),
        ),
        Asked::Hangs(step) => format!("the CUDA runtime does not come back from {step}"),
        Asked::Failed { how, step, .. } => {
            format!("the process that starts the CUDA runtime ended at {step}: {how}")
        }
    }
}
