//! The parts that all calls of NVML share: faults, and access to the caller's memory.

use core::ffi::{CStr, c_char};
use core::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use gpuslice_driver::types::{Status, nvmlDevice_t, status};
use gpuslice_driver::{Symbol, arguments};

use super::library::{self, NvmlLibrary};
use super::statuses;
use crate::faults;
use crate::hardware::texts;
use crate::state::file::Locked;
use crate::state::machine::gpu_text;
use crate::state::settings::Settings;
use crate::state::sizes::DEVICES;
use crate::status::Outcome;

/// A call of NVML in progress.
///
/// The caller of an exported function promises that every pointer of the call is null or valid for the reads and writes of NVML.
/// Without this promise there is no value of this type. So the methods that follow such pointers are safe.
#[derive(Debug)]
pub struct NvmlCall {
    library: Option<&'static NvmlLibrary>,
}

/// Runs an exported function: first the faults of the settings, then `work`. A panic becomes a status.
///
/// # Safety
/// Every pointer that `work` has from the caller must be null or valid for the reads and writes of NVML.
pub unsafe fn enter(symbol: Symbol, work: impl FnOnce(&NvmlCall) -> Outcome) -> Status {
    let done = catch_unwind(AssertUnwindSafe(|| run(symbol, work)));
    done.unwrap_or(statuses::UNKNOWN)
}

fn run(symbol: Symbol, work: impl FnOnce(&NvmlCall) -> Outcome) -> Status {
    // The library opens the state before it looks for faults. So faults of the state file reach the first call, too.
    let opened = if starts(symbol) { library::open().map(Some) } else { Ok(library::current()) };
    let found = opened.as_ref().ok().copied().flatten();
    found.into_iter().for_each(|library| library.write_down(symbol));
    let verdict = faults::before(symbol, found.map(|library| library.shared.faults()));
    let outcome = match (verdict.status, opened) {
        (Some(wanted), _) => Err(wanted),
        (None, Err(status)) => Err(status),
        (None, Ok(None)) if !works_uninitialised(symbol) => Err(statuses::UNINITIALIZED),
        (None, Ok(library)) => {
            library.into_iter().for_each(|library| library.pass_through_manager(symbol));
            work(&NvmlCall { library })
        }
    };
    if verdict.last {
        faults::die();
    }
    outcome.err().unwrap_or(status::SUCCESS)
}

fn starts(symbol: Symbol) -> bool {
    matches!(symbol, Symbol::nvmlInit | Symbol::nvmlInit_v2 | Symbol::nvmlInitWithFlags)
}

/// Returns true if a function works without an earlier `nvmlInit`. As in real libraries, a shutdown too many is no error,
/// and the version needs no driver.
fn works_uninitialised(symbol: Symbol) -> bool {
    matches!(
        symbol,
        Symbol::nvmlShutdown | Symbol::nvmlSystemGetNVMLVersion | Symbol::nvmlInternalGetExportTable
    )
}

/// Handles of GPUs point here. The index is the GPU's number. The content means nothing.
static GPUS: [u8; DEVICES] = [0; DEVICES];
/// Handles of MIG instances point here. The index is the device's number. The content differs from that of `GPUS`, so that the
/// compiler cannot merge the two.
static INSTANCES: [u8; DEVICES] = [1; DEVICES];

/// The object that a handle stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    /// A GPU, either whole or divided into instances.
    Gpu(usize),
    /// A MIG instance. The number is that of its device.
    Instance(usize),
}

impl Subject {
    /// Returns the number of the GPU that this is, or that the instance belongs to.
    pub(super) fn gpu(self, machine: &Settings) -> usize {
        match self {
            Self::Gpu(gpu) => gpu,
            Self::Instance(device) => machine.gpu_of(device),
        }
    }

    /// Returns the devices of the subject: one, or all instances of a divided GPU.
    pub(super) fn devices(self, machine: &Settings) -> Range<usize> {
        match self {
            Self::Gpu(gpu) => machine.devices_of(gpu),
            Self::Instance(device) => device..device + 1,
        }
    }

    /// Returns the UUID of the subject, as text.
    pub(super) fn uuid_text(self, machine: &Settings) -> String {
        match self {
            Self::Gpu(gpu) => gpu_text(gpu),
            Self::Instance(device) => machine.uuid_text(device),
        }
    }

    /// Returns the UUID of the subject.
    pub(super) fn uuid(self, machine: &Settings) -> [u8; 16] {
        match self {
            Self::Gpu(gpu) => texts::uuid(gpu),
            Self::Instance(device) => machine.uuid(device),
        }
    }
}

impl NvmlCall {
    /// Makes a call for a library other than the process's own one, for tests.
    #[cfg(test)]
    pub(super) fn of(library: &'static NvmlLibrary) -> Self {
        Self { library: Some(library) }
    }

    pub(super) fn library(&self) -> Result<&'static NvmlLibrary, Status> {
        self.library.ok_or(statuses::UNINITIALIZED)
    }

    /// Returns the shared state, locked, after it has reaped all dead processes.
    pub(super) fn truth(&self) -> Result<Locked<'static>, Status> {
        let mut state = self.library()?.shared.lock();
        state.reap_dead(None);
        Ok(state)
    }

    /// Returns the shared state, locked, and what a handle stands for.
    pub(super) fn on(&self, handle: nvmlDevice_t) -> Result<(Locked<'static>, Subject), Status> {
        let state = self.truth()?;
        let among =
            |places: &[u8; DEVICES]| places.iter().position(|place| core::ptr::eq(place, handle.cast()));
        let gpu = among(&GPUS).filter(|gpu| *gpu < state.settings.gpus()).map(Subject::Gpu);
        let is_instance = |device: &usize| state.settings.instance(*device).is_some();
        let instance = || among(&INSTANCES).filter(is_instance).map(Subject::Instance);
        let subject = gpu.or_else(instance).ok_or(statuses::INVALID_ARGUMENT)?;
        self.is_there(subject.gpu(&state.settings))?;
        Ok((state, subject))
    }

    /// Fails if this GPU is lost.
    pub(super) fn is_there(&self, gpu: usize) -> Outcome {
        if self.library()?.lost() == Some(gpu) { Err(statuses::GPU_IS_LOST) } else { Ok(()) }
    }

    /// Returns the GPU that a handle stands for. For an instance, it is the GPU that the instance belongs to.
    pub(super) fn gpu(&self, handle: nvmlDevice_t) -> Result<usize, Status> {
        let (state, subject) = self.on(handle)?;
        Ok(subject.gpu(&state.settings))
    }

    /// Returns the shared state, locked, and the one device that a handle stands for. Refuses an instance, because NVML has no
    /// such figures of instances as the callers of this function report.
    pub(super) fn whole(&self, handle: nvmlDevice_t) -> Result<(Locked<'static>, usize), Status> {
        let (state, subject) = self.on(handle)?;
        match subject {
            Subject::Gpu(gpu) if !state.settings.is_divided(gpu) => {
                let device = state.settings.devices_of(gpu).start;
                Ok((state, device))
            }
            _ => Err(statuses::NOT_SUPPORTED),
        }
    }

    /// Writes the handle of a GPU or of an instance.
    pub(super) fn write_handle(&self, to: *mut nvmlDevice_t, subject: Subject) -> Outcome {
        let place = match subject {
            Subject::Gpu(gpu) => GPUS.get(gpu),
            Subject::Instance(device) => INSTANCES.get(device),
        };
        let place = place.ok_or(statuses::INVALID_ARGUMENT)?;
        self.write(to, core::ptr::from_ref(place).cast_mut().cast())
    }

    /// Writes a result for the caller. A null pointer is an error.
    pub(super) fn write<T: Copy>(&self, to: *mut T, value: T) -> Outcome {
        if to.is_null() {
            return Err(statuses::INVALID_ARGUMENT);
        }
        // SAFETY: `write_out` needs a pointer that is null or good for a write: the invariant of `NvmlCall`.
        unsafe { arguments::write_out(to, value) };
        Ok(())
    }

    /// Reads an argument of the caller. A null pointer is an error.
    pub(super) fn read<T: Copy>(&self, from: *const T) -> Result<T, Status> {
        // SAFETY: `read_in` needs a pointer that is null or good for a read: the invariant of `NvmlCall`.
        unsafe { arguments::read_in(from) }.ok_or(statuses::INVALID_ARGUMENT)
    }

    /// Checks a handle, and then writes a value for the caller.
    pub(super) fn tell<T: Copy>(&self, handle: nvmlDevice_t, to: *mut T, value: T) -> Outcome {
        self.on(handle)?;
        self.write(to, value)
    }

    /// Writes a list and its length. The caller gave the number of entries that fit in the place of the length.
    pub(super) fn write_list<T: Copy>(&self, count: *mut u32, to: *mut T, values: &[T]) -> Outcome {
        let room = self.read(count)?;
        let needed = u32::try_from(values.len()).unwrap_or(u32::MAX);
        self.write(count, needed)?;
        if room < needed {
            return Err(statuses::INSUFFICIENT_SIZE);
        }
        for (place, value) in values.iter().enumerate() {
            if to.is_null() {
                return Err(statuses::INVALID_ARGUMENT);
            }
            self.write(to.wrapping_add(place), *value)?;
        }
        Ok(())
    }

    /// Writes a text and its final zero, if both fit.
    pub(super) fn write_text(&self, to: *mut c_char, room: u32, text: &str) -> Outcome {
        if to.is_null() {
            return Err(statuses::INVALID_ARGUMENT);
        }
        if usize::try_from(room).unwrap_or(0) <= text.len() {
            return Err(statuses::INSUFFICIENT_SIZE);
        }
        let to: *mut u8 = to.cast();
        for (place, byte) in text.bytes().chain([0]).enumerate() {
            self.write(to.wrapping_add(place), byte)?;
        }
        Ok(())
    }

    /// Returns a text of the caller. A null pointer is an error.
    pub(super) fn text(&self, from: *const c_char) -> Result<&str, Status> {
        if from.is_null() {
            return Err(statuses::INVALID_ARGUMENT);
        }
        // SAFETY: `CStr::from_ptr` needs a text that ends in zero: `from` is not null, so it is one by the invariant.
        let text = unsafe { CStr::from_ptr(from) };
        text.to_str().map_err(|_| statuses::NOT_FOUND)
    }
}
