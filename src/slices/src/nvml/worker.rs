//! Asks NVML in the child process. The calls go to NVML itself, not to a preloaded library. If the driver hangs, only the
//! child hangs.
#![allow(unsafe_code, reason = "calls the management library")]

use super::words::{Answer, NvmlDevice, NvmlMachine, Question, READY, Sample, Use, number, text};
use crate::find_function as find;
use gpuslice_driver::elf::Image;
use gpuslice_driver::functions;
use gpuslice_driver::types::{
    Status, nvmlDevice_t, nvmlMemory_t, nvmlMemory_v2_t, nvmlProcessInfo_v2_t,
    nvmlProcessUtilizationSample_t, nvmlUtilization_t, status,
};
use libloading::Library;
use std::ffi::{CStr, CString, c_uint};
use std::io::{self, Write as _};
use std::ptr;

/// NVML's name.
const SONAME: &CStr = c"libnvidia-ml.so.1";
/// Number of entries in the buffer of the first call, and of the second call, which follows if the first buffer is too small.
const ROOM: [c_uint; 2] = [256, 1 << 16];

/// Most GPUs of a machine.
const MOST_GPUS: c_uint = 256;
/// The sensor on the GPU itself (`NVML_TEMPERATURE_GPU`).
const GPU_SENSOR: c_uint = 0;
/// The capability NVLink in a question about two GPUs (`NVML_P2P_CAPS_INDEX_NVLINK`). Below: the answer yes
/// (`NVML_P2P_STATUS_OK`).
const P2P_NVLINK: c_uint = 2;
const P2P_OK: c_uint = 0;
/// Size and version of [`nvmlMemory_v2_t`], as NVML's header computes them.
const MEMORY_V2: c_uint = 0x0200_0028;

/// NVML, after its start.
#[derive(Debug)]
struct NvmlSession {
    calls: Calls,
    _library: Library,
}

/// NVML's functions that this process calls.
#[derive(Debug, Clone, Copy)]
#[allow(non_snake_case, reason = "the names are NVML's")]
struct Calls {
    nvmlShutdown: functions::nvmlShutdown,
    nvmlDeviceGetHandleByUUID: functions::nvmlDeviceGetHandleByUUID,
    nvmlDeviceGetComputeRunningProcesses_v2: functions::nvmlDeviceGetComputeRunningProcesses_v2,
    nvmlSystemGetDriverVersion: Option<functions::nvmlSystemGetDriverVersion>,
    nvmlDeviceGetCount_v2: Option<functions::nvmlDeviceGetCount_v2>,
    nvmlDeviceGetHandleByIndex_v2: Option<functions::nvmlDeviceGetHandleByIndex_v2>,
    nvmlDeviceGetUUID: Option<functions::nvmlDeviceGetUUID>,
    nvmlDeviceGetIndex: Option<functions::nvmlDeviceGetIndex>,
    nvmlDeviceGetName: Option<functions::nvmlDeviceGetName>,
    nvmlDeviceGetMemoryInfo: Option<functions::nvmlDeviceGetMemoryInfo>,
    nvmlDeviceGetMemoryInfo_v2: Option<functions::nvmlDeviceGetMemoryInfo_v2>,
    nvmlDeviceGetUtilizationRates: Option<functions::nvmlDeviceGetUtilizationRates>,
    nvmlDeviceGetProcessUtilization: Option<functions::nvmlDeviceGetProcessUtilization>,
    nvmlDeviceGetTemperature: Option<functions::nvmlDeviceGetTemperature>,
    nvmlDeviceGetP2PStatus: Option<functions::nvmlDeviceGetP2PStatus>,
    nvmlDeviceGetMigMode: Option<functions::nvmlDeviceGetMigMode>,
    nvmlDeviceGetComputeMode: Option<functions::nvmlDeviceGetComputeMode>,
    nvmlDeviceGetDeviceHandleFromMigDeviceHandle:
        Option<functions::nvmlDeviceGetDeviceHandleFromMigDeviceHandle>,
}

/// NVML's figures of a device's memory, in bytes.
#[derive(Debug, Clone, Copy)]
struct Memory {
    total: u64,
    used: u64,
    /// None if NVML counts these bytes in `used`.
    reserved: Option<u64>,
}

impl Memory {
    fn free(&self) -> u64 {
        self.total.saturating_sub(self.used).saturating_sub(self.reserved.unwrap_or(0))
    }
}

impl NvmlSession {
    /// Starts NVML. Returns none if there is no NVML, or it cannot be used.
    fn open() -> Option<Self> {
        let name = SONAME.to_str().ok()?;
        // SAFETY: loading a library runs its initialisers. NVML's initialisers change no state on which this program relies.
        let library = unsafe { Library::new(name) }.ok()?;
        let image = Image::defining(c"nvmlInit_v2", &[SONAME])?;
        let calls = Calls {
            nvmlShutdown: find!(image, nvmlShutdown)?,
            nvmlDeviceGetHandleByUUID: find!(image, nvmlDeviceGetHandleByUUID)?,
            nvmlDeviceGetComputeRunningProcesses_v2: find!(image, nvmlDeviceGetComputeRunningProcesses_v2)?,
            nvmlSystemGetDriverVersion: find!(image, nvmlSystemGetDriverVersion),
            nvmlDeviceGetCount_v2: find!(image, nvmlDeviceGetCount_v2),
            nvmlDeviceGetHandleByIndex_v2: find!(image, nvmlDeviceGetHandleByIndex_v2),
            nvmlDeviceGetUUID: find!(image, nvmlDeviceGetUUID),
            nvmlDeviceGetIndex: find!(image, nvmlDeviceGetIndex),
            nvmlDeviceGetName: find!(image, nvmlDeviceGetName),
            nvmlDeviceGetMemoryInfo: find!(image, nvmlDeviceGetMemoryInfo),
            nvmlDeviceGetMemoryInfo_v2: find!(image, nvmlDeviceGetMemoryInfo_v2),
            nvmlDeviceGetUtilizationRates: find!(image, nvmlDeviceGetUtilizationRates),
            nvmlDeviceGetProcessUtilization: find!(image, nvmlDeviceGetProcessUtilization),
            nvmlDeviceGetTemperature: find!(image, nvmlDeviceGetTemperature),
            nvmlDeviceGetP2PStatus: find!(image, nvmlDeviceGetP2PStatus),
            nvmlDeviceGetMigMode: find!(image, nvmlDeviceGetMigMode),
            nvmlDeviceGetComputeMode: find!(image, nvmlDeviceGetComputeMode),
            nvmlDeviceGetDeviceHandleFromMigDeviceHandle: find!(
                image,
                nvmlDeviceGetDeviceHandleFromMigDeviceHandle
            ),
        };
        let init = find!(image, nvmlInit_v2)?;
        // SAFETY: `init` is `nvmlInit_v2`, which takes no arguments.
        let code = unsafe { init() };
        (code == status::SUCCESS).then_some(Self { calls, _library: library })
    }

    fn answer(&self, question: &Question) -> Option<Answer> {
        match question {
            Question::Device(uuid) => {
                let (handle, name) = self.device(uuid)?;
                Some(Answer::Device(self.describe(handle, name)))
            }
            Question::Machine => Some(Answer::Machine(self.machine())),
            Question::Free(uuid) => {
                let (handle, _) = self.device(uuid)?;
                Some(Answer::Free(self.memory(handle)?.free()))
            }
            Question::Process(uuid, pid) => {
                let (handle, _) = self.device(uuid)?;
                let listed = match self.list_processes(handle) {
                    // Some vGPUs have no list of processes.
                    Err(status::NVML_NOT_SUPPORTED) => Vec::new(),
                    listed => listed.ok()?,
                };
                Some(Answer::Process(listed.into_iter().filter(|entry| entry.pid == *pid).collect()))
            }
            Question::Processes(name) => self.list_processes(self.handle(name)?).ok().map(Answer::Processes),
            Question::Samples(name, since) => self.samples(self.handle(name)?, *since).map(Answer::Samples),
            Question::Links(gpus) => Some(Answer::Links(self.links(gpus))),
        }
    }

    fn machine(&self) -> NvmlMachine {
        let driver = self.calls.nvmlSystemGetDriverVersion.and_then(|call| {
            // SAFETY: `room` has space for `length` bytes.
            text(|room, length| unsafe { call(room, length) })
        });
        let gpus = (0..self.count())
            .map(|index| self.gpu(index).map(|(_, uuid)| uuid).unwrap_or_default())
            .collect();
        NvmlMachine { driver, gpus }
    }

    fn count(&self) -> c_uint {
        // SAFETY: `count` points to a number.
        let count = self.calls.nvmlDeviceGetCount_v2.and_then(|call| number(|count| unsafe { call(count) }));
        count.unwrap_or(0).min(MOST_GPUS)
    }

    /// Returns the GPU of this number and its UUID.
    fn gpu(&self, index: c_uint) -> Option<(nvmlDevice_t, String)> {
        let (by_index, uuid_of) = (self.calls.nvmlDeviceGetHandleByIndex_v2?, self.calls.nvmlDeviceGetUUID?);
        let mut device: nvmlDevice_t = ptr::null_mut();
        // SAFETY: `device` has room for the handle.
        if unsafe { by_index(index, &raw mut device) } != status::SUCCESS {
            return None;
        }
        // SAFETY: `device` is a handle that NVML gave, and `room` has space for `length` bytes.
        Some((device, text(|room, length| unsafe { uuid_of(device, room, length) })?))
    }

    /// Returns the GPU or instance with this UUID, and its name.
    fn device(&self, uuid: &str) -> Option<(nvmlDevice_t, String)> {
        let device = |kind| {
            let name = format!("{kind}-{uuid}");
            Some((self.handle(&name)?, name))
        };
        device("GPU").or_else(|| device("MIG"))
    }

    /// Returns the device of this name, `GPU-…` or `MIG-…`.
    ///
    /// While one GPU is lost, NVML finds no device by its UUID (`NVML_ERROR_GPU_IS_LOST`). It still finds the other GPUs by
    /// their numbers. So this function first looks for a GPU by number. An instance has no number among the GPUs, so it needs
    /// its UUID.
    fn handle(&self, name: &str) -> Option<nvmlDevice_t> {
        let count = if name.starts_with("GPU-") { self.count() } else { 0 };
        let found = (0..count).filter_map(|index| self.gpu(index)).find(|(_, uuid)| uuid == name);
        found.map(|(device, _)| device).or_else(|| self.handle_by_uuid(name))
    }

    fn handle_by_uuid(&self, name: &str) -> Option<nvmlDevice_t> {
        let text = CString::new(name).ok()?;
        let mut handle: nvmlDevice_t = ptr::null_mut();
        // SAFETY: `text` ends in zero, and `handle` has room for the handle.
        let code = unsafe { (self.calls.nvmlDeviceGetHandleByUUID)(text.as_ptr(), &raw mut handle) };
        (code == status::SUCCESS).then_some(handle)
    }

    fn describe(&self, handle: nvmlDevice_t, uuid: String) -> NvmlDevice {
        // Where an instance has no number, sensor or product of its own, it has that of its GPU.
        let parent = self.parent_of(handle);
        let gpu = parent.unwrap_or(handle);
        let memory = self.memory(handle);
        NvmlDevice {
            uuid,
            index: self.index(gpu),
            instance: parent.and_then(|_| self.index(handle)),
            product: self.product(handle).or_else(|| self.product(gpu)),
            total: memory.map(|memory| memory.total),
            reserved: memory.and_then(|memory| memory.reserved),
            used: memory.map(|memory| memory.used),
            utilization: self.utilization(handle),
            temperature: self.temperature(gpu),
            is_divided: self.is_divided(handle),
            compute_mode: self.compute_mode(gpu),
        }
    }

    /// Returns the GPU of an instance, or none if the device is no instance.
    fn parent_of(&self, device: nvmlDevice_t) -> Option<nvmlDevice_t> {
        let call = self.calls.nvmlDeviceGetDeviceHandleFromMigDeviceHandle?;
        let mut parent: nvmlDevice_t = ptr::null_mut();
        // SAFETY: `device` is a handle that NVML gave, and `parent` has room for one.
        let code = unsafe { call(device, &raw mut parent) };
        (code == status::SUCCESS && parent != device).then_some(parent)
    }

    fn index(&self, device: nvmlDevice_t) -> Option<u32> {
        let call = self.calls.nvmlDeviceGetIndex?;
        // SAFETY: `device` is a handle that NVML gave, and `index` points to a number.
        number(|index| unsafe { call(device, index) })
    }

    fn product(&self, device: nvmlDevice_t) -> Option<String> {
        let call = self.calls.nvmlDeviceGetName?;
        // SAFETY: `device` is a handle that NVML gave, and `room` has space for `length` bytes.
        text(|room, length| unsafe { call(device, room, length) })
    }

    fn memory(&self, device: nvmlDevice_t) -> Option<Memory> {
        self.memory_v2(device).or_else(|| self.memory_v1(device))
    }

    fn memory_v2(&self, device: nvmlDevice_t) -> Option<Memory> {
        let call = self.calls.nvmlDeviceGetMemoryInfo_v2?;
        let mut memory = nvmlMemory_v2_t { version: MEMORY_V2, ..Default::default() };
        // SAFETY: `device` is a handle that NVML gave. `memory` has the size and version that its field `version` states.
        let code = unsafe { call(device, &raw mut memory) };
        let nvmlMemory_v2_t { total, used, reserved, .. } = memory;
        (code == status::SUCCESS).then_some(Memory { total, used, reserved: Some(reserved) })
    }

    fn memory_v1(&self, device: nvmlDevice_t) -> Option<Memory> {
        let call = self.calls.nvmlDeviceGetMemoryInfo?;
        let mut memory = nvmlMemory_t::default();
        // SAFETY: `device` is a handle that NVML gave, and `memory` has room for the answer.
        let code = unsafe { call(device, &raw mut memory) };
        (code == status::SUCCESS).then_some(Memory { total: memory.total, used: memory.used, reserved: None })
    }

    fn utilization(&self, device: nvmlDevice_t) -> Option<u32> {
        let call = self.calls.nvmlDeviceGetUtilizationRates?;
        let mut rates = nvmlUtilization_t::default();
        // SAFETY: `device` is a handle that NVML gave, and `rates` has room for the answer.
        let code = unsafe { call(device, &raw mut rates) };
        (code == status::SUCCESS).then_some(rates.gpu)
    }

    fn temperature(&self, device: nvmlDevice_t) -> Option<u32> {
        let call = self.calls.nvmlDeviceGetTemperature?;
        // SAFETY: `device` is a handle that NVML gave, and `degrees` points to a number.
        number(|degrees| unsafe { call(device, GPU_SENSOR, degrees) })
    }

    /// Returns true if a GPU is divided into instances, or will be after its next reset.
    fn is_divided(&self, device: nvmlDevice_t) -> Option<bool> {
        let call = self.calls.nvmlDeviceGetMigMode?;
        let mut pending = 0;
        // SAFETY: `device` is a handle that NVML gave, and `mode` and `pending` point to a number each.
        let mode = number(|mode| unsafe { call(device, mode, &raw mut pending) })?;
        Some(mode != 0 || pending != 0)
    }

    fn compute_mode(&self, device: nvmlDevice_t) -> Option<u32> {
        let call = self.calls.nvmlDeviceGetComputeMode?;
        // SAFETY: `device` is a handle that NVML gave, and `mode` points to a number.
        number(|mode| unsafe { call(device, mode) })
    }

    /// Returns for each GPU the UUIDs of the GPUs to which it has NVLink.
    fn links(&self, gpus: &[String]) -> Vec<Vec<String>> {
        let linked = |one: &String| {
            let others = gpus.iter().filter(|other| *other != one);
            others.filter(|other| self.has_link(one, other) == Some(true)).cloned().collect()
        };
        gpus.iter().map(linked).collect()
    }

    /// Returns true if NVLink connects two GPUs, directly or by a switch; none if NVML does not tell.
    fn has_link(&self, one: &str, other: &str) -> Option<bool> {
        let (call, one, other) = (self.calls.nvmlDeviceGetP2PStatus?, self.handle(one)?, self.handle(other)?);
        // SAFETY: both are handles that NVML gave, and `answer` points to a number.
        let answer = number(|answer| unsafe { call(one, other, P2P_NVLINK, answer) })?;
        Some(answer == P2P_OK)
    }

    /// Returns the compute processes of a device.
    fn list_processes(&self, device: nvmlDevice_t) -> Result<Vec<Use>, Status> {
        let call = self.calls.nvmlDeviceGetComputeRunningProcesses_v2;
        // SAFETY: `device` is a handle that NVML gave, and `entries` has room for `count` entries.
        let list = list(|count, entries: *mut nvmlProcessInfo_v2_t| unsafe { call(device, count, entries) });
        Ok(list?.into_iter().map(Use::of).collect())
    }

    /// Returns the samples of utilisation that are newer than `since`, or none if NVML does not tell.
    fn samples(&self, device: nvmlDevice_t, since: u64) -> Option<Vec<Sample>> {
        let call = self.calls.nvmlDeviceGetProcessUtilization?;
        let list = list(|count, entries: *mut nvmlProcessUtilizationSample_t| {
            // SAFETY: `device` is a handle that NVML gave, and `entries` has room for `count` entries.
            unsafe { call(device, entries, count, since) }
        });
        match list {
            Ok(list) => Some(list.into_iter().map(Sample::of).collect()),
            // No process has a new sample.
            Err(status::NVML_NOT_FOUND) => Some(Vec::new()),
            Err(_) => None,
        }
    }
}

/// Returns the list that a call of NVML writes. `call` gets a buffer and the number of entries that fit into it.
///
/// # Errors
/// The status of a call that fails for another reason than the room, or even with the largest room.
fn list<T: Default + Clone>(mut call: impl FnMut(*mut c_uint, *mut T) -> Status) -> Result<Vec<T>, Status> {
    let mut answer = Err(status::NVML_INSUFFICIENT_SIZE);
    for room in ROOM {
        let mut entries = vec![T::default(); usize::try_from(room).unwrap_or(0)];
        let mut count = room;
        let code = call(&raw mut count, entries.as_mut_ptr());
        entries.truncate(usize::try_from(count).unwrap_or(0));
        answer = if code == status::SUCCESS { Ok(entries) } else { Err(code) };
        if code != status::NVML_INSUFFICIENT_SIZE {
            break;
        }
    }
    answer
}

/// Answers the questions on standard input, one line each, until the input ends. A program calls this function if its argument
/// is [`WORKER`](super::words::WORKER).
///
/// # Errors
/// There is no NVML that can be used, or the reader of the answers is gone.
pub fn work() -> io::Result<()> {
    let nvml = NvmlSession::open().ok_or(io::ErrorKind::NotFound)?;
    let mut output = io::stdout().lock();
    let mut say = |text: &str| output.write_all(text.as_bytes()).and_then(|()| output.flush());
    say(READY)?;
    for line in io::stdin().lines() {
        let question = line.ok().and_then(|line| serde_json::from_str(&line).ok());
        let answer = question.and_then(|question| nvml.answer(&question));
        say(&format!("{}\n", serde_json::to_string(&answer)?))?;
    }
    Ok(())
}

impl Use {
    fn of(entry: nvmlProcessInfo_v2_t) -> Self {
        // NVML writes a number with all bits set for "not available".
        Self { pid: entry.pid, bytes: Some(entry.used_gpu_memory).filter(|bytes| *bytes != u64::MAX) }
    }
}

impl Sample {
    fn of(entry: nvmlProcessUtilizationSample_t) -> Self {
        Self { pid: entry.pid, stamp: entry.timestamp, percent: entry.sm }
    }
}

impl Drop for NvmlSession {
    fn drop(&mut self) {
        // SAFETY: `nvmlShutdown` takes no arguments. The call in `open` has initialised NVML, and no call follows this one.
        unsafe { (self.calls.nvmlShutdown)() };
    }
}
