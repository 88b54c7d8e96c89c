//! What does NVML say that each process used of a device?
//!
//! NVML stays open for as long as it is asked, and no longer: it is closed when the [`Asker`] is dropped. Drivers from
//! 550 on have a second function for the question, and some of 580 no longer answer the first.

use crate::footprint::Session;
use crate::hooks::entries::ask;
use crate::slice::Place;
use core::ffi::{c_uint, c_ulonglong};
use gpuslice_driver::arguments::{read_in, write_out};
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{
    Status, nvmlDevice_t, nvmlProcessUtilizationInfo_v1_t, nvmlProcessUtilizationSample_t,
    nvmlProcessesUtilizationInfo_t, status,
};
use gpuslice_driver::{Symbol, slot};
use gpuslice_policy::compute::sight::Use;
use gpuslice_policy::compute::source::Why;

/// The first version of the question of 24 bytes.
const VERSION_1: c_uint = 0x0100_0018;

/// NVML, open, and a device of it.
#[derive(Debug)]
pub(super) struct Asker {
    device: nvmlDevice_t,
    form: Form,
    _session: Session,
}

// SAFETY: NVML's handles are names that it looks up; any thread may give them.
unsafe impl Send for Asker {}

/// By which function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// `nvmlDeviceGetProcessesUtilizationInfo`.
    List,
    /// `nvmlDeviceGetProcessUtilization`.
    Samples,
}

impl Asker {
    /// Opens NVML and finds a device by its UUID.
    pub(super) fn open(place: Place) -> Result<Self, Why> {
        let session = Session::open().ok_or(Why::NoNvml)?;
        let device = session.device(place).ok_or(Why::NoDevice)?;
        let has_list = list_function().is_some();
        Ok(Self { device, form: if has_list { Form::List } else { Form::Samples }, _session: session })
    }

    /// What each process used since an instant of NVML's clock, in microseconds. Nobody where nothing is new.
    pub(super) fn uses(&mut self, since: u64) -> Result<Vec<Use>, Why> {
        let answer = match self.form {
            Form::List => self.list(since).or_else(|_not_by_this| {
                self.form = Form::Samples;
                self.samples(since)
            }),
            Form::Samples => self.samples(since),
        };
        answer.map_err(|code| match code {
            _ if self.is_instance() => Why::Mig,
            status::NVML_NOT_SUPPORTED | status::NVML_FUNCTION_NOT_FOUND => Why::NotSupported,
            _ => Why::Failed,
        })
    }

    fn list(&self, since: c_ulonglong) -> Result<Vec<Use>, Status> {
        let function = list_function().ok_or(status::NVML_FUNCTION_NOT_FOUND)?;
        let answer = ask(|count, entries| {
            let mut question = nvmlProcessesUtilizationInfo_t {
                version: VERSION_1,
                // SAFETY: our own count.
                process_samples_count: unsafe { read_in(count) }.unwrap_or(0),
                last_seen_time_stamp: since,
                proc_util_array: entries,
            };
            // SAFETY: of the version that it says, with room for as many entries as it says.
            let code = unsafe { function(self.device, &raw mut question) };
            // SAFETY: our own count.
            unsafe { write_out(count, question.process_samples_count) };
            code
        });
        let told = |entry: &nvmlProcessUtilizationInfo_v1_t| Use {
            pid: entry.pid,
            stamp: entry.timestamp,
            percent: entry.sm,
        };
        taken(answer, told)
    }

    fn samples(&self, since: c_ulonglong) -> Result<Vec<Use>, Status> {
        let function =
            slot::real::<real::nvmlDeviceGetProcessUtilization>(Symbol::nvmlDeviceGetProcessUtilization)
                .ok_or(status::NVML_FUNCTION_NOT_FOUND)?;
        // SAFETY: room for as many entries as the count says.
        let answer = ask(|count, samples| unsafe { function(self.device, samples, count, since) });
        let told = |entry: &nvmlProcessUtilizationSample_t| Use {
            pid: entry.pid,
            stamp: entry.timestamp,
            percent: entry.sm,
        };
        taken(answer, told)
    }

    /// Whether it is an instance of a divided GPU, of which NVML never says who uses it.
    fn is_instance(&self) -> bool {
        let function = slot::real::<real::nvmlDeviceIsMigDeviceHandle>(Symbol::nvmlDeviceIsMigDeviceHandle);
        let mut is_instance = 0;
        // SAFETY: the output is valid for writes; NVML checks the handle.
        let code = function.map(|function| unsafe { function(self.device, &raw mut is_instance) });
        code == Some(status::SUCCESS) && is_instance == 1
    }
}

fn list_function() -> Option<real::nvmlDeviceGetProcessesUtilizationInfo> {
    slot::real(Symbol::nvmlDeviceGetProcessesUtilizationInfo)
}

/// What an answer says. "Not found" says that there is nothing new.
fn taken<T>(answer: Result<(Vec<T>, usize), Status>, told: impl Fn(&T) -> Use) -> Result<Vec<Use>, Status> {
    match answer {
        Ok((entries, count)) => Ok(entries.iter().take(count).map(told).collect()),
        Err(status::NVML_NOT_FOUND) => Ok(Vec::new()),
        Err(code) => Err(code),
    }
}
