//! Device memory that NVML attributes to this process.
//!
//! CUDA does not report this figure. The agent of the node tells it, or NVML in this process. NVML in this process does not tell it
//! if it lists the process by its number in another namespace.

#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use super::answers::driver_version;
use super::{agent, initialization};
use core::ffi::{c_uint, c_ulonglong};
use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicU8, Ordering};
use gpuslice_driver::Symbol;
use gpuslice_driver::functions as real;
use gpuslice_driver::slot;
use gpuslice_driver::types::{nvmlDevice_t, status};
use gpuslice_policy::config::gpu_uuid_text;
use gpuslice_policy::memory_question::{MemoryAnswer, MemoryFigure};
use std::ffi::CString;

/// An entry of NVML's process lists, in the second form.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct ProcessEntry {
    pid: c_uint,
    bytes: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

const _: () = assert!(size_of::<ProcessEntry>() == 24);

/// Room for the processes of one device, in entries.
const MOST_PROCESSES: c_uint = 1024;

/// Versions of drivers that confuse process numbers. They list a process by its number in its container. But the bytes in that
/// entry are those of the host's process with the same number, or 0 if there is no such process.
const CONFUSED: Range<(u32, u32)> = (535, 113)..(565, 0);

/// `NVML_VALUE_NOT_AVAILABLE`.
const NOT_AVAILABLE: c_ulonglong = c_ulonglong::MAX;

/// Reason why NVML does not report the memory of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Silence {
    /// NVML is missing or fails, or the agent does not answer.
    Failed,
    /// NVML does not list this process, or does not list its bytes. The process holds nothing, or NVML lists it by another
    /// number.
    Unlisted,
}

/// Returns true if an entry of 0 bytes may belong to a process that holds memory. NVML must be open.
fn confuses_numbers() -> bool {
    driver_version().is_some_and(|version| CONFUSED.contains(&version))
}

/// Returns the bytes of a device that NVML attributes to this process.
pub(crate) fn own(uuid: &[u8; 16]) -> Result<u64, Silence> {
    Session::open(uuid).ok_or(Silence::Failed)?.own()
}

/// A source of NVML's figures for one device.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Session {
    /// The agent of the node, for the device with this UUID.
    Agent([u8; 16]),
    /// NVML in this process, with its handle of the device. It stays initialised.
    Nvml(nvmlDevice_t),
}

impl Session {
    /// Opens the source of this process. `None`: there is no source, or NVML in this process does not know the device.
    pub(crate) fn open(uuid: &[u8; 16]) -> Option<Self> {
        match source(uuid)? {
            BY_AGENT => Some(Self::Agent(*uuid)),
            _ => device(uuid).map(Self::Nvml),
        }
    }

    /// Returns the bytes of the device that NVML attributes to this process.
    pub(crate) fn own(&self) -> Result<u64, Silence> {
        match self {
            Self::Agent(uuid) => match agent::ask(MemoryFigure::Own, uuid) {
                MemoryAnswer::Bytes(bytes) => Ok(bytes),
                MemoryAnswer::Unlisted => Err(Silence::Unlisted),
                MemoryAnswer::Failed => Err(Silence::Failed),
            },
            Self::Nvml(device) => listed(*device),
        }
    }

    /// Returns the free bytes of the device.
    pub(crate) fn free(&self) -> Option<u64> {
        match self {
            Self::Agent(uuid) => match agent::ask(MemoryFigure::Free, uuid) {
                MemoryAnswer::Bytes(bytes) => Some(bytes),
                MemoryAnswer::Unlisted | MemoryAnswer::Failed => None,
            },
            Self::Nvml(device) => free_of(*device),
        }
    }
}

/// Source that this process has chosen: [`NONE_YET`], [`BY_AGENT`] or [`BY_NVML`].
static SOURCE: AtomicU8 = AtomicU8::new(NONE_YET);
const NONE_YET: u8 = 0;
const BY_AGENT: u8 = 1;
const BY_NVML: u8 = 2;

/// Returns the source of this process. The first question chooses it for all threads. The agent comes first, because NVML takes a
/// third of a second to start. The process keeps its source, because the library compares figures of different times. The other
/// source may name another process: drivers before 565 confuse numbers in containers.
fn source(uuid: &[u8; 16]) -> Option<u8> {
    let chosen = SOURCE.load(Ordering::Relaxed);
    let wanted = match chosen {
        NONE_YET if agent::ask(MemoryFigure::Free, uuid) != MemoryAnswer::Failed => BY_AGENT,
        NONE_YET => initialization::initialise().then_some(BY_NVML)?,
        _ => return Some(chosen),
    };
    let before = SOURCE.compare_exchange(NONE_YET, wanted, Ordering::Relaxed, Ordering::Relaxed);
    Some(before.map_or_else(|chosen| chosen, |_| wanted))
}

/// Returns NVML's handle of a device. NVML must be open.
pub(crate) fn device(uuid: &[u8; 16]) -> Option<nvmlDevice_t> {
    let find = slot::real::<real::nvmlDeviceGetHandleByUUID>(Symbol::nvmlDeviceGetHandleByUUID)?;
    let gpu = gpu_uuid_text(uuid);
    // CUDA does not report whether a device is a GPU or an instance of a GPU.
    let instance = gpu.replacen("GPU-", "MIG-", 1);
    [gpu, instance].into_iter().find_map(|name| {
        let name = CString::new(name).ok()?;
        let mut device: nvmlDevice_t = ptr::null_mut();
        // SAFETY: `find` requires a zero-terminated text, and an output that is valid for writes: `name` and the local `device`.
        let code = unsafe { find(name.as_ptr(), &raw mut device) };
        (code == status::SUCCESS).then_some(device)
    })
}

fn listed(device: nvmlDevice_t) -> Result<u64, Silence> {
    let bytes = own_entries(device)?;
    let sum = bytes.iter().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
    let is_told = !bytes.is_empty() && !bytes.contains(&NOT_AVAILABLE);
    if is_told && (sum > 0 || !confuses_numbers()) { Ok(sum) } else { Err(Silence::Unlisted) }
}

fn free_of(device: nvmlDevice_t) -> Option<u64> {
    let ask = slot::real::<real::nvmlDeviceGetMemoryInfo>(Symbol::nvmlDeviceGetMemoryInfo)?;
    let mut memory = [0_u64; 3];
    // SAFETY: `ask` requires room for the three words that it writes (total, free, used): `memory` has three.
    let code = unsafe { ask(device, memory.as_mut_ptr().cast()) };
    let [_, free, _] = memory;
    (code == status::SUCCESS).then_some(free)
}

/// Returns the bytes of each entry of this process. Some vGPUs have no list of processes.
fn own_entries(device: nvmlDevice_t) -> Result<Vec<u64>, Silence> {
    // The second form is used, because the newest form has entries of two sizes, by driver.
    let list = slot::real::<real::nvmlDeviceGetComputeRunningProcesses_v2>(
        Symbol::nvmlDeviceGetComputeRunningProcesses_v2,
    )
    .ok_or(Silence::Unlisted)?;
    let empty = ProcessEntry { pid: 0, bytes: 0, gpu_instance: 0, compute_instance: 0 };
    let mut entries = vec![empty; usize::try_from(MOST_PROCESSES).unwrap_or(0)];
    let mut count = MOST_PROCESSES;
    // SAFETY: the function needs room for `count` entries: `entries` has as many.
    let code = unsafe { list(device, &raw mut count, entries.as_mut_ptr().cast()) };
    match code {
        status::SUCCESS => {}
        status::NVML_NOT_SUPPORTED => return Err(Silence::Unlisted),
        _ => return Err(Silence::Failed),
    }
    let own = std::process::id();
    let listed = entries.iter().take(usize::try_from(count).unwrap_or(0));
    Ok(listed.filter(|entry| entry.pid == own).map(|entry| entry.bytes).collect())
}
