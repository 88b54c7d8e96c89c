//! Devices that NVML sees, and the numbers that CUDA would give them. CUDA need not be started.
//!
//! A device is identified by its UUID. NVML numbers GPUs in the order of the bus and shows all of them, without regard to
//! `CUDA_VISIBLE_DEVICES`. If the process has not started CUDA, the library computes CUDA's numbers. Lists in an operator's
//! file name devices by NVML's numbers, because a program cannot change these.

use super::initialization::initialise;
use crate::os::messages;
use core::ffi::{CStr, c_char, c_uint};
use core::fmt::{self, Display};
use core::ptr;
use gpuslice_driver::Symbol;
use gpuslice_driver::functions as real;
use gpuslice_driver::slot;
use gpuslice_driver::types::{nvmlDevice_t, nvmlMemory_t, status};
use gpuslice_policy::config::{Config, DeviceIdentity, DeviceName, LogLevel, parse_uuid_text};
use gpuslice_policy::units::Bytes;
use gpuslice_policy::visible_devices::{Gpu, Instance, visible};
use once_cell::race::OnceBool;

/// Largest count that the library accepts from NVML. No machine has as many GPUs.
const MOST_COUNT: c_uint = 256;

/// Calls a function of NVML whose last argument is the output, and returns the output if the call succeeded.
macro_rules! ask {
    ($name:ident, $start:expr $(, $argument:expr)*) => {{
        let mut output = $start;
        let function = slot::real::<real::$name>(Symbol::$name)?;
        // SAFETY: the function needs an output that is valid for writes: `output` is on this stack. NVML checks the handle.
        let code = unsafe { function($($argument,)* &raw mut output) };
        (code == status::SUCCESS).then_some(output)
    }};
}

/// A device that computes: a whole GPU, or an instance of a divided GPU.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ComputeDevice {
    /// NVML's handle of the device.
    pub(crate) handle: nvmlDevice_t,
    /// UUID of the device.
    pub(crate) uuid: [u8; 16],
}

/// Returns the devices of an NVML handle: the GPU itself, or the instances of a divided GPU.
pub(crate) fn parts(device: nvmlDevice_t) -> Vec<ComputeDevice> {
    if is_divided(device) {
        return instances(device).collect();
    }
    let itself = uuid(device).map(|uuid| ComputeDevice { handle: device, uuid });
    itself.into_iter().collect()
}

/// Returns the total, free and used memory of a device.
pub(crate) fn memory(device: nvmlDevice_t) -> Option<nvmlMemory_t> {
    ask!(nvmlDeviceGetMemoryInfo, nvmlMemory_t::default(), device)
}

/// Returns the UUIDs of all devices with the numbers of their GPUs in the order of the bus. Returns `None` if NVML cannot be
/// opened.
pub(crate) fn bus_order() -> Option<Vec<([u8; 16], u32)>> {
    initialise().then(|| numbered_parts().map(|(number, part)| (part.uuid, number)).collect())
}

/// Returns the names by which settings can name a device. They are its UUID, the number that CUDA would give it, and its number
/// in the order of the bus. NVML must be open.
pub(crate) fn identity(part: ComputeDevice, config: &Config, ordinal: Option<u32>) -> Option<DeviceIdentity> {
    let place = || numbered_parts().find(|(_, other)| other.uuid == part.uuid).map(|(number, _)| number);
    let bus = config.counts_on_bus().then(place).flatten();
    Some(DeviceIdentity { ordinal, bus, uuid: part.uuid, total: Bytes::new(memory(part.handle)?.total) })
}

/// Returns all devices and instances with the numbers of their GPUs in the order of the bus. NVML must be open.
fn numbered_parts() -> impl Iterator<Item = (u32, ComputeDevice)> {
    let gpus = (0..count().min(MOST_COUNT)).filter_map(|number| Some((number, handle(number)?)));
    gpus.flat_map(|(number, gpu)| parts(gpu).into_iter().map(move |part| (number, part)))
}

/// Returns the number that CUDA would give a device if this process started CUDA now. `None`: CUDA would not show the device.
pub(crate) fn ordinal(device: &[u8; 16], config: &Config) -> Option<u32> {
    let handles = || (0..count().min(MOST_COUNT)).filter_map(handle);
    if names_numbers(config) && !is_order_known(handles()) {
        static SAID: OnceBool = OnceBool::new();
        if SAID.set(true).is_ok() {
            messages::say(LogLevel::Warn, &UnknownOrder);
        }
    }
    let gpus: Vec<Gpu> = handles().filter_map(describe).collect();
    let list = std::env::var_os("CUDA_VISIBLE_DEVICES").map(|list| list.to_string_lossy().into_owned());
    let place = visible(&gpus, list.as_deref()).iter().position(|shown| shown == device)?;
    u32::try_from(place).ok()
}

/// Returns true if the settings name a device by CUDA's number, for a quota or a share.
fn names_numbers(config: &Config) -> bool {
    config.names().any(|name| matches!(name, DeviceName::Ordinal(_)))
}

/// Returns true if CUDA and NVML are known to number GPUs in the same order.
fn is_order_known(mut gpus: impl Iterator<Item = nvmlDevice_t>) -> bool {
    if std::env::var_os("CUDA_DEVICE_ORDER").is_some_and(|order| order == "PCI_BUS_ID") {
        return true;
    }
    let first = gpus.next().and_then(name);
    gpus.all(|gpu| name(gpu) == first)
}

/// Message that the library guesses CUDA's numbers.
struct UnknownOrder;

impl Display for UnknownOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "gpuslice: GPUs of several models: until a process has used CUDA, which numbers it gives them is a guess \
             and NVML may show a limit at the wrong one; name devices by UUID, or set CUDA_DEVICE_ORDER=PCI_BUS_ID.",
        )
    }
}

fn count() -> c_uint {
    let count = || ask!(nvmlDeviceGetCount_v2, 0);
    count().unwrap_or(0)
}

fn handle(index: c_uint) -> Option<nvmlDevice_t> {
    ask!(nvmlDeviceGetHandleByIndex_v2, ptr::null_mut(), index)
}

fn uuid(device: nvmlDevice_t) -> Option<[u8; 16]> {
    parse_uuid_text(&nvml_uuid(device)?)
}

/// Returns the name of a GPU's model.
fn name(device: nvmlDevice_t) -> Option<[u8; 96]> {
    let function = slot::real::<real::nvmlDeviceGetName>(Symbol::nvmlDeviceGetName)?;
    let mut text = [0_u8; 96];
    // SAFETY: the function requires room for the 96 bytes that it may write: `text` has as many.
    let code = unsafe { function(device, text.as_mut_ptr().cast::<c_char>(), 96) };
    (code == status::SUCCESS).then_some(text)
}

fn describe(gpu: nvmlDevice_t) -> Option<Gpu> {
    let describe = |part: ComputeDevice| Instance {
        uuid: part.uuid,
        gpu_instance: gpu_instance(part.handle).unwrap_or(c_uint::MAX),
        compute_instance: compute_instance(part.handle).unwrap_or(c_uint::MAX),
    };
    let instances = is_divided(gpu).then(|| instances(gpu).map(describe).collect());
    Some(Gpu { uuid: uuid(gpu)?, instances })
}

/// Returns true if a handle is that of a GPU in MIG mode, and not of an instance.
fn is_divided(device: nvmlDevice_t) -> bool {
    let mode = || {
        let function = slot::real::<real::nvmlDeviceGetMigMode>(Symbol::nvmlDeviceGetMigMode)?;
        let (mut current, mut pending) = (0, 0);
        // SAFETY: the function needs outputs that are valid for writes: `current` and `pending` are on this stack. NVML checks
        // the handle.
        let code = unsafe { function(device, &raw mut current, &raw mut pending) };
        (code == status::SUCCESS).then_some(current)
    };
    let is_instance = || ask!(nvmlDeviceIsMigDeviceHandle, 0, device);
    mode().is_some_and(|mode| mode != 0) && is_instance() != Some(1)
}

fn instances(gpu: nvmlDevice_t) -> impl Iterator<Item = ComputeDevice> {
    let most = || ask!(nvmlDeviceGetMaxMigDeviceCount, 0, gpu);
    let handle = move |index| ask!(nvmlDeviceGetMigDeviceHandleByIndex, ptr::null_mut(), gpu, index);
    // The indices may have gaps, because the index of an ended instance stays unused.
    let handles = (0..most().unwrap_or(0).min(MOST_COUNT)).filter_map(handle);
    handles.filter_map(|handle| Some(ComputeDevice { handle, uuid: uuid(handle)? }))
}

fn gpu_instance(device: nvmlDevice_t) -> Option<c_uint> {
    ask!(nvmlDeviceGetGpuInstanceId, 0, device)
}

fn compute_instance(device: nvmlDevice_t) -> Option<c_uint> {
    ask!(nvmlDeviceGetComputeInstanceId, 0, device)
}

/// Returns the text by which NVML names a device, `GPU-…` or `MIG-…`.
pub(crate) fn nvml_uuid(device: nvmlDevice_t) -> Option<String> {
    let function = slot::real::<real::nvmlDeviceGetUUID>(Symbol::nvmlDeviceGetUUID)?;
    let mut text = [0_u8; 96];
    // SAFETY: the function requires room for the 96 bytes that it may write: `text` has as many.
    let code = unsafe { function(device, text.as_mut_ptr().cast::<c_char>(), 96) };
    let text = CStr::from_bytes_until_nul(&text).ok()?;
    (code == status::SUCCESS).then(|| text.to_string_lossy().into_owned())
}
