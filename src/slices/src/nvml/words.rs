//! The questions to the child that asks NVML, and its answers.

use gpuslice_driver::types::{Status, status};
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, c_char, c_uint};

/// The argument with which a program asks NVML in a child.
pub const WORKER: &str = "nvml-worker";
/// The child's first line.
pub(super) const READY: &str = "ready\n";

/// A question to the child.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Question {
    /// Asks for the driver and the GPUs.
    Machine,
    /// Asks for the figures of the device with this UUID. The device is a whole GPU or an instance.
    Device(String),
    /// Asks for the free memory of the device with this UUID, which is without `GPU-` or `MIG-`.
    Free(String),
    /// Asks for the memory of one process on such a device.
    Process(String, u32),
    /// Asks for the memory of the compute processes on the device with this UUID.
    Processes(String),
    /// Asks for the samples of utilisation on the device with this UUID. The number is a time of NVML's clock in microseconds,
    /// and the answer has the samples after that time.
    Samples(String, u64),
    /// Asks which GPUs of this list NVLink connects. The list has their UUIDs.
    Links(Vec<String>),
}

/// The child's answer, if NVML gives one.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The machine.
    Machine(NvmlMachine),
    /// The device.
    Device(NvmlDevice),
    /// The free memory in bytes.
    Free(u64),
    /// The entries of the process. It has several if it uses several instances of the device.
    Process(Vec<Use>),
    /// The processes.
    Processes(Vec<Use>),
    /// The samples.
    Samples(Vec<Sample>),
    /// For each GPU of the question, the UUIDs of the GPUs to which it has NVLink.
    Links(Vec<Vec<String>>),
}

/// A machine, as NVML describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NvmlMachine {
    /// Version of the driver, or none if NVML does not tell.
    pub driver: Option<String>,
    /// UUIDs of the machine's GPUs in the order of their numbers, as NVML writes them: `GPU-…`.
    pub gpus: Vec<String>,
}

/// A device, as NVML describes it. A field is none if NVML does not tell it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NvmlDevice {
    /// The device's UUID, `GPU-…` or `MIG-…`.
    pub uuid: String,
    /// The GPU's number, as `nvidia-smi` shows it. For an instance, the number of its GPU.
    pub index: Option<u32>,
    /// The number of an instance within its GPU, or none for a whole GPU.
    pub instance: Option<u32>,
    /// The product's name.
    pub product: Option<String>,
    /// Bytes of memory that the device has.
    pub total: Option<u64>,
    /// Bytes that the driver keeps for itself. None if NVML counts them in `used`.
    pub reserved: Option<u64>,
    /// Bytes that all processes use. They contain the driver's bytes if `reserved` is none.
    pub used: Option<u64>,
    /// Percent of the last sample period in which a kernel ran.
    pub utilization: Option<u32>,
    /// Degrees Celsius.
    pub temperature: Option<u32>,
    /// True for a GPU that is divided into instances (MIG), or will be after its next reset.
    pub is_divided: Option<bool>,
    /// NVML's number of the compute mode. The mode bounds the number of processes that may use the GPU: see [`SHARED`].
    pub compute_mode: Option<u32>,
}

/// Compute mode in which any number of processes may use a GPU (`NVML_COMPUTEMODE_DEFAULT`).
pub const SHARED: u32 = 0;
/// Compute mode in which no process may use a GPU (`NVML_COMPUTEMODE_PROHIBITED`). In modes without a constant here, only one
/// process may use it.
pub const PROHIBITED: u32 = 2;

/// The memory of a process on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Use {
    /// The process's number in this process's namespace.
    pub pid: u32,
    /// Bytes that it holds, or none if NVML does not tell.
    pub bytes: Option<u64>,
}

/// A sample of utilisation: the use of a device by a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// The process's number in this process's namespace.
    pub pid: u32,
    /// Time of the sample by NVML's clock, in microseconds.
    pub stamp: u64,
    /// Use of the multiprocessors, in percent.
    pub percent: u32,
}

/// Returns a text that NVML or the driver writes into a buffer, or none if the call fails.
pub fn text(write: impl FnOnce(*mut c_char, c_uint) -> Status) -> Option<String> {
    let mut room = [0_u8; 128];
    let length = c_uint::try_from(room.len()).ok()?;
    let code = write(room.as_mut_ptr().cast(), length);
    let text = CStr::from_bytes_until_nul(&room).ok()?;
    (code == status::SUCCESS).then(|| text.to_string_lossy().into_owned())
}

/// Returns a number that NVML or the driver writes, or none if the call fails.
pub fn number(write: impl FnOnce(*mut c_uint) -> Status) -> Option<u32> {
    let mut number = 0;
    (write(&raw mut number) == status::SUCCESS).then_some(number)
}
