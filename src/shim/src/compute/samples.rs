//! Where is NVML asked what each process used of a device?

use crate::footprint::Session;
use crate::slice::Place;
use crate::used::{Form, Used, used};
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{nvmlDevice_t, status};
use gpuslice_driver::{Symbol, slot};
use gpuslice_policy::compute::sight::Use;
use gpuslice_policy::compute::source::Why;

/// NVML, open, and a device of it.
#[derive(Debug)]
pub(super) struct Asker {
    device: nvmlDevice_t,
    form: Form,
    _session: Session,
}

// SAFETY: NVML's handles are names that it looks up; any thread may give them.
unsafe impl Send for Asker {}

impl Asker {
    /// Opens NVML and finds a device by its UUID.
    pub(super) fn open(place: Place) -> Result<Self, Why> {
        let session = Session::open().ok_or(Why::NoNvml)?;
        let device = session.device(place).ok_or(Why::NoDevice)?;
        Ok(Self { device, form: Form::List, _session: session })
    }

    /// What each process used since an instant of NVML's clock, in microseconds. Nobody where nothing is new.
    pub(super) fn uses(&mut self, since: u64) -> Result<Vec<Use>, Why> {
        let mut answer = used(self.device, self.form, since);
        if answer.is_err() && self.form == Form::List {
            self.form = Form::Samples;
            answer = used(self.device, self.form, since);
        }
        let told = |used: Used| Use { pid: used.pid, stamp: used.stamp, percent: used.sm };
        let answer = answer.map(|entries| entries.into_iter().map(told).collect());
        answer.map_err(|code| match code {
            _ if self.is_instance() => Why::Mig,
            status::NVML_NOT_SUPPORTED | status::NVML_FUNCTION_NOT_FOUND => Why::NotSupported,
            _ => Why::Failed,
        })
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
