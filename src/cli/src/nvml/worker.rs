//! What does NVML itself say, asked past every library that is preloaded? In a process that may hang with it.
#![allow(unsafe_code, reason = "calls the management library")]

use super::{Answer, Question, Use};
use crate::Ending;
use crate::failure::{self, Failure};

use gpuslice_driver::elf::Image;
use gpuslice_driver::functions;
use gpuslice_driver::types::{nvmlDevice_t, nvmlProcessInfo_v2_t, status};
use libloading::Library;
use std::ffi::{CStr, CString, c_uint};
use std::{io, ptr};

/// NVML's name.
const SONAME: &CStr = c"libnvidia-ml.so.1";
/// Entries for which there is room in the first question, and in the last one.
const ROOM: [c_uint; 2] = [256, 1 << 16];

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
        };
        let init = find!(image, nvmlInit_v2)?;
        // SAFETY: no arguments.
        let code = unsafe { init() };
        (code == status::SUCCESS).then_some(Self { calls, _library: library })
    }

    fn answer(&self, question: &Question) -> Option<Answer> {
        match question {
            Question::Device(uuid) => {
                let names = ["GPU", "MIG"].map(|kind| format!("{kind}-{uuid}"));
                names.into_iter().find(|name| self.handle(name).is_some()).map(Answer::Device)
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
