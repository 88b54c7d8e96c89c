//! Asks the driver, NVML and the loader, in a process of its own.
//!
//! A driver may hang, crash, or end the process that calls it. So the doctor starts a child for these questions, and waits for
//! its answer for a limited time. The questions to the driver and NVML make no context.
#![allow(unsafe_code, reason = "calls the driver API and NVML")]

use super::elf::Elf;
use super::lines::{ANSWER_PREFIX, step};
use super::{calls, runtime};
use crate::arguments::Probe;
use crate::output::failure::{self, Failure};
use gpuslice_driver::elf::Image;
use gpuslice_driver::families::{STREAMS, TRIED, is_of_family};
use gpuslice_driver::types::device_attribute::OF_HOST_MEMORY;
use gpuslice_driver::types::{CUuuid, c_uint, nvmlDevice_t, nvmlProcessInfo_v2_t, status};
use gpuslice_driver::{Symbol, functions};
use gpuslice_slices::find_function as find;
use gpuslice_slices::nvml::{number, text};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::ffi::{CStr, CString};
use std::path::PathBuf;
use std::{fs, ptr};

/// The driver's library, and its answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cuda {
    /// The library's path; `None` if the loader does not find it.
    pub(super) path: Option<PathBuf>,
    /// The loader's error, if it does not find the library.
    pub(super) missing: Option<String>,
    /// The version of CUDA that the library supports, such as 12040 for 12.4.
    pub(super) version: Option<i32>,
    /// Status that `cuInit` returned; `None` if the library has no such function.
    pub(super) init: Option<u32>,
    /// UUIDs of the devices.
    pub(super) devices: Vec<String>,
    /// UUIDs of the devices that use the host's memory.
    pub(super) host_memory: Vec<String>,
    /// Names for which `cuGetProcAddress` returns an address that the driver does not export. The text also names the kind of
    /// default stream that was asked for.
    pub(super) hidden: Vec<String>,
    /// Exported functions that `cuGetProcAddress` knows and that have no row in the table, although
    /// they take memory or submit work.
    pub(super) unknown: Vec<String>,
}

/// NVML's library, and its answers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Nvml {
    /// The library's path; `None` if the loader does not find it.
    pub(super) path: Option<PathBuf>,
    /// The loader's error, if it does not find the library.
    pub(super) missing: Option<String>,
    /// Status that `nvmlInit_v2` returned.
    pub(super) init: Option<u32>,
    /// The driver's version.
    pub(super) driver: Option<String>,
    /// Devices.
    pub(super) devices: Vec<ProbedGpu>,
}

/// NVML's description of a device. `None` stands for a question that NVML does not answer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ProbedGpu {
    /// The device's UUID.
    pub(super) uuid: String,
    /// The device's model.
    pub(super) name: String,
    /// True if the device is divided into instances (MIG).
    pub(super) mig: Option<bool>,
    /// 0 default, 1 exclusive thread, 2 prohibited, 3 exclusive process.
    pub(super) compute_mode: Option<u32>,
    /// 0 none, 1 passed through to a virtual machine, 2 vGPU in a virtual machine, 3 host of vGPUs.
    pub(super) virtualization: Option<u32>,
    /// Numbers of the device's compute processes.
    pub(super) processes: Option<Vec<u32>>,
    /// Number of the device's processes under MPS.
    pub(super) mps: Option<u32>,
    /// Status of the question for the utilisation by processes.
    pub(super) utilisation: Option<u32>,
}

/// Facts about a process into which the library should be preloaded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Preloaded {
    /// Files that the process has mapped as code.
    pub(super) objects: Vec<PathBuf>,
    /// The file whose `dlsym` the process calls.
    pub(super) dlsym: Option<PathBuf>,
    /// True if the process has more rights than its caller.
    pub(super) secure: bool,
}

/// Answers a question of the doctor: `gpuslice doctor-probe`.
pub(crate) fn answer(probe: Probe) -> Result<(), Failure> {
    let answer = match probe {
        Probe::Cuda => serde_json::to_string(&cuda()),
        Probe::Nvml => serde_json::to_string(&nvml()),
        Probe::Preloaded => serde_json::to_string(&preloaded()),
        Probe::Runtime => serde_json::to_string(&runtime::start()),
    };
    let answer = answer.map_err(|error| Failure::new(error.to_string()))?;
    failure::print(&format!("{ANSWER_PREFIX}{answer}\n"))
}

/// Returns the files whose code is mapped into this process.
fn preloaded() -> Preloaded {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let code =
        maps.lines().filter(|line| line.split_ascii_whitespace().nth(1).is_some_and(|r| r.contains('x')));
    let mut objects: Vec<PathBuf> =
        code.filter_map(|line| Some(PathBuf::from(line.get(line.find('/')?..)?))).collect();
    objects.dedup();
    Preloaded { objects, dlsym: calls::owner_of_dlsym(), secure: calls::is_secure() }
}

/// An opened library with its own symbol table. A look-up by the loader would find preloaded libraries first.
struct Opened {
    image: Option<Image>,
    path: Option<PathBuf>,
    missing: Option<String>,
}

/// Loads a library and never unloads it.
fn open(soname: &CStr, known: &CStr) -> Opened {
    let name = soname.to_string_lossy().into_owned();
    step(&format!("loading {name}"));
    // SAFETY: `Library::new` runs the library's initialisers. Every program that uses the driver or NVML runs them too.
    match unsafe { libloading::Library::new(&name) } {
        Err(error) => Opened { image: None, path: None, missing: Some(error.to_string()) },
        Ok(library) => {
            std::mem::forget(library);
            let image = Image::defining(known, &[soname]);
            let path = image.and_then(|image| calls::object_at(image.symbol(known)?));
            Opened { image, path: path.map(|path| path.canonicalize().unwrap_or(path)), missing: None }
        }
    }
}

fn cuda() -> Cuda {
    let opened = open(c"libcuda.so.1", c"cuInit");
    let mut found = Cuda { path: opened.path, missing: opened.missing, ..Cuda::default() };
    let Some(image) = opened.image else { return found };
    if let Some(version) = find!(image, cuDriverGetVersion) {
        let mut number = 0;
        step("cuDriverGetVersion");
        // SAFETY: the function needs an output that is valid for writes: `number` is on this stack.
        let code = unsafe { version(&raw mut number) };
        found.version = (code == status::SUCCESS).then_some(number);
    }
    step("cuGetProcAddress");
    (found.hidden, found.unknown) = past_the_exports(image, &found).unwrap_or_default();
    let Some(init) = find!(image, cuInit) else { return found };
    step("cuInit");
    // SAFETY: `cuInit` takes flags that must be 0, and they are 0.
    let code = unsafe { init(0) };
    found.init = Some(code);
    if code == status::SUCCESS {
        step("asking for devices");
        (found.devices, found.host_memory) = devices(image).unwrap_or_default();
    }
    found
}

/// Returns names of functions that `cuGetProcAddress` returns and that the preload library would not catch. The first list has
/// functions without an export. The second list has functions that this version of gpuslice does not know.
fn past_the_exports(image: Image, found: &Cuda) -> Option<(Vec<String>, Vec<String>)> {
    let look_up = find!(image, cuGetProcAddress)?;
    let version = found.version?;
    let address = |name: &CStr, flags: u64| {
        let mut address = ptr::null_mut();
        // SAFETY: `name` is a text that ends in zero, and the output is a variable of this closure.
        let code = unsafe { look_up(name.as_ptr(), &raw mut address, version, flags) };
        (code == status::SUCCESS && !address.is_null()).then_some(address.cast_const())
    };
    let exports = Elf::read(found.path.as_deref()?).ok()??.exports;
    let exported = |name: &String| image.symbol(&CString::new(name.as_str()).ok()?);
    let known: HashSet<_> = exports.iter().filter_map(exported).collect();
    let asked = TRIED.iter().flat_map(|(name, _)| STREAMS.iter().map(move |stream| (*name, stream)));
    let hidden = asked.filter(|(name, (flags, _))| {
        address(name, *flags).is_some_and(|address| image.contains(address) && !known.contains(&address))
    });
    let hidden = hidden.map(|(name, (_, stream))| format!("{} ({stream})", name.to_string_lossy())).collect();
    let is_unknown = |name: &&String| {
        is_of_family(name.as_bytes())
            && Symbol::find(name.as_bytes()).is_none()
            && CString::new(name.as_str()).is_ok_and(|name| address(&name, 0).is_some())
    };
    Some((hidden, exports.iter().filter(is_unknown).cloned().collect()))
}

/// Returns the UUIDs of the devices that CUDA shows, and of those among them that use the host's memory.
fn devices(image: Image) -> Option<(Vec<String>, Vec<String>)> {
    let attribute_of = find!(image, cuDeviceGetAttribute)?;
    let count_of = find!(image, cuDeviceGetCount)?;
    let device_of = find!(image, cuDeviceGet)?;
    let uuid_of = find!(image, cuDeviceGetUuid)?;
    let mut count = 0;
    // SAFETY: the function needs an output that is valid for writes: `count` is on this stack.
    if unsafe { count_of(&raw mut count) } != status::SUCCESS {
        return None;
    }
    let shares = |device| {
        OF_HOST_MEMORY.into_iter().any(|attribute| {
            let mut value = 0;
            // SAFETY: the function needs an output that is valid for writes: `value` is on this stack. The driver refuses an
            // invalid handle.
            unsafe { attribute_of(&raw mut value, attribute, device) == status::SUCCESS && value != 0 }
        })
    };
    let mut host_memory = Vec::new();
    let mut uuid = |number| {
        let (mut device, mut uuid) = (0, CUuuid { bytes: [0; 16] });
        // SAFETY: the function needs an output that is valid for writes: `device` is on this stack.
        let code = unsafe { device_of(&raw mut device, number) };
        // SAFETY: the function needs an output that is valid for writes: `uuid` is on this stack. The driver refuses an invalid
        // handle.
        let told = code == status::SUCCESS && unsafe { uuid_of(&raw mut uuid, device) } == status::SUCCESS;
        let bytes = uuid.bytes.map(|byte| byte.to_ne_bytes()[0]);
        let name = told.then(|| gpuslice_policy::config::gpu_uuid_text(&bytes))?;
        if shares(device) {
            host_memory.push(name.clone());
        }
        Some(name)
    };
    let all = (0..count).filter_map(&mut uuid).collect();
    Some((all, host_memory))
}

fn nvml() -> Nvml {
    let opened = open(c"libnvidia-ml.so.1", c"nvmlInit_v2");
    let mut found = Nvml { path: opened.path, missing: opened.missing, ..Nvml::default() };
    let Some((image, init)) = opened.image.and_then(|image| Some((image, find!(image, nvmlInit_v2)?))) else {
        return found;
    };
    step("nvmlInit_v2");
    // SAFETY: `init` is `nvmlInit_v2`, which takes no arguments.
    let code = unsafe { init() };
    found.init = Some(code);
    if code != status::SUCCESS {
        return found;
    }
    step("asking NVML for devices");
    found.driver = find!(image, nvmlSystemGetDriverVersion)
        // SAFETY: `room` has space for `length` bytes.
        .and_then(|function| text(|room, length| unsafe { function(room, length) }));
    found.devices = gpus(image).unwrap_or_default();
    if let Some(shutdown) = find!(image, nvmlShutdown) {
        // SAFETY: `nvmlShutdown` needs a successful `nvmlInit_v2` before it. `code` has shown that success.
        unsafe { shutdown() };
    }
    found
}

fn gpus(image: Image) -> Option<Vec<ProbedGpu>> {
    let count_of = find!(image, nvmlDeviceGetCount_v2)?;
    let handle_of = find!(image, nvmlDeviceGetHandleByIndex_v2)?;
    // SAFETY: `count` points to a number.
    let count = number(|count| unsafe { count_of(count) })?;
    let handle = |index| {
        let mut device: nvmlDevice_t = ptr::null_mut();
        // SAFETY: the function needs an output that is valid for writes: `device` is on this stack.
        let code = unsafe { handle_of(index, &raw mut device) };
        (code == status::SUCCESS).then_some(device)
    };
    Some((0..count).filter_map(handle).map(|device| gpu(image, device)).collect())
}

/// Returns all facts that NVML tells of a device. All questions are read-only.
fn gpu(image: Image, device: nvmlDevice_t) -> ProbedGpu {
    let uuid = find!(image, nvmlDeviceGetUUID)
        // SAFETY: `device` is a handle from NVML, and `room` has space for `length` bytes.
        .and_then(|function| text(|room, length| unsafe { function(device, room, length) }));
    let name = find!(image, nvmlDeviceGetName)
        // SAFETY: `device` is a handle from NVML, and `room` has space for `length` bytes.
        .and_then(|function| text(|room, length| unsafe { function(device, room, length) }));
    let mut pending = 0;
    let mig = find!(image, nvmlDeviceGetMigMode)
        // SAFETY: `device` is a handle from NVML, and `mode` and `pending` have space for a number each.
        .and_then(|function| number(|mode| unsafe { function(device, mode, &raw mut pending) }));
    let compute_mode = find!(image, nvmlDeviceGetComputeMode)
        // SAFETY: `device` is a handle from NVML, and `mode` points to a number.
        .and_then(|function| number(|mode| unsafe { function(device, mode) }));
    let virtualization = find!(image, nvmlDeviceGetVirtualizationMode)
        // SAFETY: `device` is a handle from NVML, and `mode` points to a number.
        .and_then(|function| number(|mode| unsafe { function(device, mode) }));
    ProbedGpu {
        uuid: uuid.unwrap_or_default(),
        name: name.unwrap_or_default(),
        mig: mig.map(|mode| mode != 0),
        compute_mode,
        virtualization,
        processes: find!(image, nvmlDeviceGetComputeRunningProcesses_v2)
            .and_then(|list| processes(list, device)),
        mps: find!(image, nvmlDeviceGetMPSComputeRunningProcesses_v2)
            .and_then(|list| processes(list, device))
            .and_then(|list| u32::try_from(list.len()).ok()),
        utilisation: find!(image, nvmlDeviceGetProcessUtilization).map(|function| {
            let mut count = 0;
            // SAFETY: `device` is a handle from NVML, and the count of 0 says that there is no room for entries.
            unsafe { function(device, ptr::null_mut(), &raw mut count, 0) }
        }),
    }
}

/// Returns the numbers of the processes in a list, at most 1024.
fn processes(
    list: functions::nvmlDeviceGetComputeRunningProcesses_v2,
    device: nvmlDevice_t,
) -> Option<Vec<u32>> {
    let mut entries = vec![nvmlProcessInfo_v2_t::default(); 1024];
    let mut count = c_uint::try_from(entries.len()).ok()?;
    // SAFETY: `entries` has room for `count` entries.
    let code = unsafe { list(device, &raw mut count, entries.as_mut_ptr()) };
    let told = entries.iter().take(usize::try_from(count).ok()?).map(|entry| entry.pid).collect();
    (code == status::SUCCESS).then_some(told)
}
