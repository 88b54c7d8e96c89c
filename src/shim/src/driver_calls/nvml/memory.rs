//! Device memory that NVML attributes to this process.
//!
//! CUDA does not report this figure. The agent of the node tells it, or NVML in this process. NVML in this process does not tell it
//! if it lists the process by its number in another namespace.

#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use super::answers::{ask, driver_version};
use super::{agent, devices, initialization};
use core::ffi::c_ulonglong;
use core::ops::Range;
use core::ptr;
use core::sync::atomic::{AtomicU8, Ordering};
use gpuslice_driver::Symbol;
use gpuslice_driver::functions as real;
use gpuslice_driver::slot;
use gpuslice_driver::types::{nvmlDevice_t, nvmlProcessInfo_v2_t, status};
use gpuslice_policy::config::gpu_uuid_text;
use gpuslice_policy::memory_question::{MemoryAnswer, MemoryFigure};
use std::ffi::CString;

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
            Self::Nvml(device) => Some(devices::memory(*device)?.free),
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

/// Returns the bytes in NVML's list of processes. Some vGPUs have no such list.
fn listed(device: nvmlDevice_t) -> Result<u64, Silence> {
    // The second form is used, because the newest form has entries of two sizes, by driver.
    let list = slot::real::<real::nvmlDeviceGetComputeRunningProcesses_v2>(
        Symbol::nvmlDeviceGetComputeRunningProcesses_v2,
    )
    .ok_or(Silence::Unlisted)?;
    // SAFETY: the function needs room for as many entries as the count says: `ask` passes both.
    let answer = ask(|count, entries: *mut nvmlProcessInfo_v2_t| unsafe { list(device, count, entries) });
    let (entries, count) = answer.map_err(|code| match code {
        status::NVML_NOT_SUPPORTED => Silence::Unlisted,
        _ => Silence::Failed,
    })?;
    let own = std::process::id();
    let listed = entries.iter().take(count).filter(|entry| entry.pid == own);
    let bytes: Vec<u64> = listed.map(|entry| entry.used_gpu_memory).collect();
    let sum = bytes.iter().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
    let is_told = !bytes.is_empty() && !bytes.contains(&NOT_AVAILABLE);
    if is_told && (sum > 0 || !confuses_numbers()) { Ok(sum) } else { Err(Silence::Unlisted) }
}
