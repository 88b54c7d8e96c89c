//! Windows of GPU utilization from NVML: the use of a device by each process since the last window.

use crate::driver_calls::nvml::initialization::initialise;
use crate::driver_calls::nvml::memory;
use crate::driver_calls::nvml::utilization::{Question, Used, knows_our_numbers, used};
use crate::os::clock;
use crate::slice::device::SliceDevice;
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{nvmlDevice_t, status};
use gpuslice_driver::{Symbol, slot};
use gpuslice_policy::compute::attribution::nvml_windows::{Clocks, Closed, Use, Window, Windows};
use gpuslice_policy::compute::attribution::source::Why;

/// An open NVML session that reads the windows of one device.
#[derive(Debug)]
pub(crate) struct UtilizationReader {
    device: nvmlDevice_t,
    form: Question,
    windows: Windows,
    /// True if the driver names this process by the number in its own namespace. The library checks this once, because the driver
    /// stays the same while NVML is open.
    knows_own_pid: bool,
}

// SAFETY: `Send` requires that another thread may use the fields. NVML allows its handles on any thread, and looks each up by its
// value. The other fields are plain data.
unsafe impl Send for UtilizationReader {}

impl UtilizationReader {
    /// Opens NVML and finds a device by its UUID.
    pub(crate) fn open(gpu: SliceDevice) -> Result<Self, Why> {
        if !initialise() {
            return Err(Why::NoNvml);
        }
        let device = memory::device(&gpu.uuid).ok_or(Why::NoDevice)?;
        let knows_own_pid = knows_our_numbers();
        Ok(Self { device, form: Question::List, windows: Windows::default(), knows_own_pid })
    }

    /// Returns the window that has ended since the last call, and the use of each process in it. `None`: no window has ended.
    ///
    /// # Errors
    ///
    /// The reason why NVML gives no windows. [`Why::Undated`]: its samples have the time of an unknown clock.
    pub(crate) fn window(&mut self) -> Result<Option<(Window, Vec<Use>)>, Why> {
        let since = self.windows.since(clocks());
        let uses = self.uses(since)?;
        // The clocks are read again: if the question took 300 ms, its samples are later than the first reading.
        match self.windows.close(&uses, clocks()) {
            Closed::Window(window) => Ok(Some((window, uses))),
            Closed::NothingNew => Ok(None),
            Closed::Undated => Err(Why::Undated),
        }
    }

    /// Returns true if the driver names this process by the number that it has in its own namespace.
    pub(crate) fn knows_own_pid(&self) -> bool {
        self.knows_own_pid
    }

    /// Asks for the use of each process. If the newer function of NVML fails, later calls use the older function.
    fn uses(&mut self, since: u64) -> Result<Vec<Use>, Why> {
        let mut answer = used(self.device, self.form, since);
        if answer.is_err() && self.form == Question::List {
            self.form = Question::Samples;
            answer = used(self.device, self.form, since);
        }
        let entry = |used: Used| Use { pid: used.pid, stamp: used.stamp, percent: used.sm };
        let answer = answer.map(|entries| entries.into_iter().map(entry).collect());
        answer.map_err(|code| match code {
            _ if self.is_instance() => Why::Mig,
            status::NVML_NOT_SUPPORTED | status::NVML_FUNCTION_NOT_FOUND => Why::NotSupported,
            _ => Why::Failed,
        })
    }

    /// Returns true if the device is an instance of a divided GPU (MIG). NVML never names the processes of an instance.
    fn is_instance(&self) -> bool {
        let function = slot::real::<real::nvmlDeviceIsMigDeviceHandle>(Symbol::nvmlDeviceIsMigDeviceHandle);
        let mut is_instance = 0;
        // SAFETY: `function` requires an output that is valid for writes: the local `is_instance`. NVML checks the handle.
        let code = function.map(|function| unsafe { function(self.device, &raw mut is_instance) });
        code == Some(status::SUCCESS) && is_instance == 1
    }
}

/// Reads all clocks that NVML may use.
fn clocks() -> Clocks {
    let read = |clock| {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `clock_gettime` requires an output that is valid for writes: the local `time`.
        unsafe { libc::clock_gettime(clock, &raw mut time) };
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
    };
    Clocks { monotonic: clock::now(), wall: read(libc::CLOCK_REALTIME), boot: read(libc::CLOCK_BOOTTIME) }
}
