//! What does NVML itself say, asked past every library that is preloaded? In a process that may hang with it.
#![allow(unsafe_code, reason = "calls the management library")]

use super::{Answer, Device, Question, Use};
use crate::Ending;
use crate::failure::{self, Failure};

use gpuslice_driver::elf::Image;
use gpuslice_driver::functions;
use gpuslice_driver::types::{
    nvmlDevice_t, nvmlMemory_t, nvmlMemory_v2_t, nvmlProcessInfo_v2_t, nvmlUtilization_t, status,
};
use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_uint};
use std::{io, ptr};

/// NVML's name.
const SONAME: &CStr = c"libnvidia-ml.so.1";
/// Entries for which there is room in the first question, and in the last one.
const ROOM: [c_uint; 2] = [256, 1 << 16];

/// Bytes of a product's name at the most, the zero at its end included (`NVML_DEVICE_NAME_V2_BUFFER_SIZE`).
const PRODUCT_ROOM: usize = 96;
/// The sensor on the GPU itself (`NVML_TEMPERATURE_GPU`).
const GPU_SENSOR: c_uint = 0;
/// Size and version of [`nvmlMemory_v2_t`], as NVML's header computes them.
const MEMORY_V2: c_uint = 0x0200_0028;

/// NVML, started.
#[derive(Debug)]
struct Nvml {
    calls: Calls,
    _library: Library,
}

/// The functions that are called.
#[derive(Debug, Clone, Copy)]
#[allow(non_snake_case, reason = "the names are NVML's")]
struct Calls {
    nvmlShutdown: functions::nvmlShutdown,
    nvmlDeviceGetHandleByUUID: functions::nvmlDeviceGetHandleByUUID,
    nvmlDeviceGetComputeRunningProcesses_v2: functions::nvmlDeviceGetComputeRunningProcesses_v2,
    nvmlDeviceGetIndex: Option<functions::nvmlDeviceGetIndex>,
    nvmlDeviceGetName: Option<functions::nvmlDeviceGetName>,
    nvmlDeviceGetMemoryInfo: Option<functions::nvmlDeviceGetMemoryInfo>,
    nvmlDeviceGetMemoryInfo_v2: Option<functions::nvmlDeviceGetMemoryInfo_v2>,
    nvmlDeviceGetUtilizationRates: Option<functions::nvmlDeviceGetUtilizationRates>,
    nvmlDeviceGetTemperature: Option<functions::nvmlDeviceGetTemperature>,
    nvmlDeviceGetDeviceHandleFromMigDeviceHandle:
        Option<functions::nvmlDeviceGetDeviceHandleFromMigDeviceHandle>,
}

/// A function of the library itself, if it has it. A look-up by the loader would find that of a library which is
/// preloaded, ours for one, and its answers would be the slice's own again.
macro_rules! find {
    ($image:expr, $name:ident) => {
        $image.symbol(&std::ffi::CString::new(stringify!($name)).unwrap_or_default()).map(|address| {
            // SAFETY: the row of the table is the signature of the symbol.
            unsafe {
                core::mem::transmute::<*const core::ffi::c_void, gpuslice_driver::functions::$name>(address)
            }
        })
    };
}
pub(crate) use find;

impl Nvml {
    /// None where there is no NVML, or it cannot be used.
    fn open() -> Option<Self> {
        let name = SONAME.to_str().ok()?;
        // SAFETY: NVML does nothing at load time that matters to this program.
        let library = unsafe { Library::new(name) }.ok()?;
        let image = Image::defining(c"nvmlInit_v2", &[SONAME])?;
        let calls = Calls {
            nvmlShutdown: find!(image, nvmlShutdown)?,
            nvmlDeviceGetHandleByUUID: find!(image, nvmlDeviceGetHandleByUUID)?,
            nvmlDeviceGetComputeRunningProcesses_v2: find!(image, nvmlDeviceGetComputeRunningProcesses_v2)?,
            nvmlDeviceGetIndex: find!(image, nvmlDeviceGetIndex),
            nvmlDeviceGetName: find!(image, nvmlDeviceGetName),
            nvmlDeviceGetMemoryInfo: find!(image, nvmlDeviceGetMemoryInfo),
            nvmlDeviceGetMemoryInfo_v2: find!(image, nvmlDeviceGetMemoryInfo_v2),
            nvmlDeviceGetUtilizationRates: find!(image, nvmlDeviceGetUtilizationRates),
            nvmlDeviceGetTemperature: find!(image, nvmlDeviceGetTemperature),
            nvmlDeviceGetDeviceHandleFromMigDeviceHandle: find!(
                image,
                nvmlDeviceGetDeviceHandleFromMigDeviceHandle
            ),
        };
        let init = find!(image, nvmlInit_v2)?;
        // SAFETY: no arguments.
        let code = unsafe { init() };
        (code == status::SUCCESS).then_some(Self { calls, _library: library })
    }

    fn answer(&self, question: &Question) -> Option<Answer> {
        match question {
            Question::Device(uuid) => {
                let device = |kind| {
                    let name = format!("{kind}-{uuid}");
                    Some((self.handle(&name)?, name))
                };
                let (handle, name) = device("GPU").or_else(|| device("MIG"))?;
                Some(Answer::Device(self.describe(handle, name)))
            }
            Question::Processes(name) => self.processes(self.handle(name)?).map(Answer::Processes),
        }
    }

    /// The device of this name, `GPU-…` or `MIG-…`.
    fn handle(&self, name: &str) -> Option<nvmlDevice_t> {
        let text = CString::new(name).ok()?;
        let mut handle: nvmlDevice_t = ptr::null_mut();
        // SAFETY: a text that ends in zero, and room for a handle.
        let code = unsafe { (self.calls.nvmlDeviceGetHandleByUUID)(text.as_ptr(), &raw mut handle) };
        (code == status::SUCCESS).then_some(handle)
    }

    fn describe(&self, handle: nvmlDevice_t, uuid: String) -> Device {
        // An instance has the number, sensor and product of its GPU, where it has none of its own.
        let parent = self.parent_of(handle);
        let gpu = parent.unwrap_or(handle);
        Device {
            uuid,
            index: self.index(gpu),
            instance: parent.and_then(|_| self.index(handle)),
            product: self.product(handle).or_else(|| self.product(gpu)),
            used: self.used_v2(handle).or_else(|| self.used_v1(handle)),
            utilization: self.utilization(handle),
            temperature: self.temperature(gpu),
        }
    }

    /// The GPU of an instance; none where the device is no instance.
    fn parent_of(&self, device: nvmlDevice_t) -> Option<nvmlDevice_t> {
        let call = self.calls.nvmlDeviceGetDeviceHandleFromMigDeviceHandle?;
        let mut parent: nvmlDevice_t = ptr::null_mut();
        // SAFETY: `device` is a handle that NVML gave, and `parent` has room for one.
        let code = unsafe { call(device, &raw mut parent) };
        (code == status::SUCCESS && parent != device).then_some(parent)
    }

    fn index(&self, device: nvmlDevice_t) -> Option<u32> {
        let call = self.calls.nvmlDeviceGetIndex?;
        let mut index: c_uint = 0;
        // SAFETY: `device` is a handle that NVML gave, and `index` has room for a number.
        let code = unsafe { call(device, &raw mut index) };
        (code == status::SUCCESS).then_some(index)
    }

    fn product(&self, device: nvmlDevice_t) -> Option<String> {
        let call = self.calls.nvmlDeviceGetName?;
        let mut room = [0_u8; PRODUCT_ROOM];
        let length = c_uint::try_from(PRODUCT_ROOM).ok()?;
        // SAFETY: `device` is a handle that NVML gave, and `room` has as many bytes as `length` says.
        let code = unsafe { call(device, room.as_mut_ptr().cast::<c_char>(), length) };
        let name = CStr::from_bytes_until_nul(&room).ok().filter(|_| code == status::SUCCESS)?;
        Some(name.to_string_lossy().into_owned())
    }

    fn used_v2(&self, device: nvmlDevice_t) -> Option<u64> {
        let call = self.calls.nvmlDeviceGetMemoryInfo_v2?;
        let mut memory = nvmlMemory_v2_t { version: MEMORY_V2, ..Default::default() };
        // SAFETY: `device` is a handle that NVML gave, and `memory` is of the version that it says.
        let code = unsafe { call(device, &raw mut memory) };
        (code == status::SUCCESS).then_some(memory.used)
    }

    fn used_v1(&self, device: nvmlDevice_t) -> Option<u64> {
        let call = self.calls.nvmlDeviceGetMemoryInfo?;
        let mut memory = nvmlMemory_t::default();
        // SAFETY: `device` is a handle that NVML gave, and `memory` has room for the answer.
        let code = unsafe { call(device, &raw mut memory) };
        (code == status::SUCCESS).then_some(memory.used)
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
        let mut degrees: c_uint = 0;
        // SAFETY: `device` is a handle that NVML gave, and `degrees` has room for a number.
        let code = unsafe { call(device, GPU_SENSOR, &raw mut degrees) };
        (code == status::SUCCESS).then_some(degrees)
    }

    /// The compute processes of a device; none where NVML does not tell.
    fn processes(&self, device: nvmlDevice_t) -> Option<Vec<Use>> {
        let [mut room, most] = ROOM;
        loop {
            let mut entries = vec![nvmlProcessInfo_v2_t::default(); usize::try_from(room).ok()?];
            let mut count = room;
            let list = self.calls.nvmlDeviceGetComputeRunningProcesses_v2;
            // SAFETY: room for as many entries as the count says.
            let code = unsafe { list(device, &raw mut count, entries.as_mut_ptr()) };
            if code == status::SUCCESS {
                entries.truncate(usize::try_from(count).ok()?);
                return Some(entries.into_iter().map(Use::of).collect());
            }
            if code != status::NVML_INSUFFICIENT_SIZE || room >= most {
                return None;
            }
            room = most;
        }
    }
}

/// `gpuslice nvml-worker`: answers questions, one a line, until nobody asks any more.
pub(crate) fn work() -> Result<Ending, Failure> {
    let Some(nvml) = Nvml::open() else { return Ok(Ending::Code(1)) };
    failure::print(super::READY)?;
    for line in io::stdin().lines() {
        let question = line.ok().and_then(|line| serde_json::from_str(&line).ok());
        let answer = question.and_then(|question| nvml.answer(&question));
        let text = serde_json::to_string(&answer).map_err(|error| Failure::new(error.to_string()))?;
        failure::print(&format!("{text}\n"))?;
    }
    Ok(Ending::Code(0))
}

impl Use {
    fn of(entry: nvmlProcessInfo_v2_t) -> Self {
        // All ones stand for "not available".
        Self { pid: entry.pid, bytes: Some(entry.used_gpu_memory).filter(|bytes| *bytes != u64::MAX) }
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        // SAFETY: no arguments; ends what `open` began.
        unsafe { (self.calls.nvmlShutdown)() };
    }
}
