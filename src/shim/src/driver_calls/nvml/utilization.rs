//! Utilization of a device by each process since an instant, by NVML.
//!
//! Drivers from 550 on have a second function for it, and some drivers of version 580 do not answer the first. The process
//! numbers in the answers of both functions depend on the caller's namespace of process numbers, and on the driver:
//!
//! - In the initial namespace, every driver gives the numbers of that namespace.
//! - In another namespace, drivers from 570 on give processes that are visible there by their numbers there. They give all other
//!   processes by their numbers on the host. Drivers up to 560 give all processes by their numbers on the host, although their
//!   process lists may use the numbers of the namespace.

use super::answers::{ask, driver_version};
use core::ffi::{c_uint, c_ulonglong};
use gpuslice_driver::arguments::{read_in, write_out};
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{
    Status, nvmlDevice_t, nvmlProcessUtilizationInfo_v1_t, nvmlProcessUtilizationSample_t,
    nvmlProcessesUtilizationInfo_t, status,
};
use gpuslice_driver::{Symbol, slot};
use gpuslice_region::{FIRST_PID_NAMESPACE, own_pid_namespace};

/// First version of drivers that translate process numbers.
const TRANSLATES: u32 = 570;
/// Version word of the lists of processes and of their use: version 1, with 24 bytes. Neither list has another version.
pub(crate) const VERSION_1: c_uint = 0x0100_0018;

/// Utilization by one process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Used {
    /// Process number.
    pub(crate) pid: c_uint,
    /// Time of its newest sample, in microseconds.
    pub(crate) stamp: c_ulonglong,
    /// Percent of the time in which its kernels ran.
    pub(crate) sm: c_uint,
    /// Percent of the time in which it read or wrote memory.
    pub(crate) memory: c_uint,
}

/// Function of NVML that answers the question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Question {
    /// `nvmlDeviceGetProcessUtilization`.
    Samples,
    /// `nvmlDeviceGetProcessesUtilizationInfo`.
    List,
}

/// Returns true if the driver names this process by the number that it has in its own namespace. NVML must be open.
pub(crate) fn knows_our_numbers() -> bool {
    own_pid_namespace() == FIRST_PID_NAMESPACE
        || driver_version().is_some_and(|(major, _)| major >= TRANSLATES)
}

/// Asks by one function. Returns an empty list if no process has a new sample, for which NVML answers "not found".
pub(crate) fn used(device: nvmlDevice_t, form: Question, since: c_ulonglong) -> Result<Vec<Used>, Status> {
    match form {
        Question::Samples => samples(device, since),
        Question::List => list(device, since),
    }
}

fn samples(device: nvmlDevice_t, since: c_ulonglong) -> Result<Vec<Used>, Status> {
    let function =
        slot::real::<real::nvmlDeviceGetProcessUtilization>(Symbol::nvmlDeviceGetProcessUtilization)
            .ok_or(status::NVML_FUNCTION_NOT_FOUND)?;
    // SAFETY: the function needs room for as many entries as the count says: `ask` passes both.
    let answer = ask(|count, samples| unsafe { function(device, samples, count, since) });
    taken(answer, |entry: &nvmlProcessUtilizationSample_t| Used {
        pid: entry.pid,
        stamp: entry.timestamp,
        sm: entry.sm,
        memory: entry.memory,
    })
}

fn list(device: nvmlDevice_t, since: c_ulonglong) -> Result<Vec<Used>, Status> {
    let symbol = Symbol::nvmlDeviceGetProcessesUtilizationInfo;
    let function = slot::real::<real::nvmlDeviceGetProcessesUtilizationInfo>(symbol)
        .ok_or(status::NVML_FUNCTION_NOT_FOUND)?;
    let answer = ask(|count, entries| {
        let mut question = nvmlProcessesUtilizationInfo_t {
            version: VERSION_1,
            // SAFETY: `read_in` needs a valid address: `ask` passes its own count.
            process_samples_count: unsafe { read_in(count) }.unwrap_or(0),
            last_seen_time_stamp: since,
            proc_util_array: entries,
        };
        // SAFETY: `function` requires a structure of the version in it, with room for as many entries as it names: `ask` gave
        // both.
        let code = unsafe { function(device, &raw mut question) };
        // SAFETY: `write_out` needs a valid address: `ask` passes its own count.
        unsafe { write_out(count, question.process_samples_count) };
        code
    });
    taken(answer, |entry: &nvmlProcessUtilizationInfo_v1_t| Used {
        pid: entry.pid,
        stamp: entry.timestamp,
        sm: entry.sm,
        memory: entry.memory,
    })
}

fn taken<T>(answer: Result<(Vec<T>, usize), Status>, told: impl Fn(&T) -> Used) -> Result<Vec<Used>, Status> {
    match answer {
        Ok((entries, count)) => Ok(entries.iter().take(count).map(told).collect()),
        Err(status::NVML_NOT_FOUND) => Ok(Vec::new()),
        Err(code) => Err(code),
    }
}
