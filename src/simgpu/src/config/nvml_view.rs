//! The process's own view of NVML: length and delay of the utilisation windows, and the PIDs of processes.

use gpuslice_driver::Symbol;

use crate::engine::EngineState;
use crate::os::clock::{self, MS};
use crate::os::{messages, pid_namespace};
use crate::state::file::Locked;
use crate::state::layout::{Process, State, name_bytes};
use crate::state::settings::size;
use crate::state::sizes::NAME;

/// The PIDs by which NVML reports processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pids {
    /// The PIDs that the processes themselves see.
    Own,
    /// No PIDs: NVML cannot tell the processes apart.
    None,
    /// The host's PIDs, as old drivers report them in a container.
    Offset,
    /// The processes' own PIDs in lists, and the host's PIDs with utilisation.
    Mixed,
    /// The PIDs in the namespace of this process. No list contains a process of another namespace.
    Translated,
    /// The own PIDs for processes of the same group. Other processes have the host's PIDs, and no list contains them.
    Foreign,
}

/// Difference between the host's PID of a process and the process's own PID.
const OFFSET: u32 = 1_000_000;

/// The settings of NVML in the environment, and the offset of the wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NvmlView {
    /// `SIMGPU_NVML_WINDOW_MS`: length of a utilisation window.
    window_ns: Option<u64>,
    /// `SIMGPU_NVML_LAG_MS`: delay until a window can be read.
    lag_ns: Option<u64>,
    /// `SIMGPU_NVML_SAMPLES`: true if a window has a sample for each process, and false if it has one for a single process.
    each: Option<bool>,
    /// `SIMGPU_NVML_INIT_MS`: duration of the first `nvmlInit`.
    init_ns: u64,
    /// `SIMGPU_NVML_LIST_US`: duration of a call that lists processes.
    list_ns: u64,
    /// `SIMGPU_NVML_BYTES`: bytes that lists report for each process. `None`: the bytes that the process holds.
    pub(crate) bytes: Option<u64>,
    /// `SIMGPU_NVML_IMPORTS`: true if these bytes include imported memory for which another process is charged.
    pub(crate) imports: bool,
    /// `SIMGPU_NVML_MANAGED`: true if these bytes include managed memory on the device.
    pub(crate) managed: bool,
    /// `SIMGPU_NVML_COMPUTE_MODE`: the compute mode of every GPU. `None`: the driver API's.
    pub(crate) compute_mode: Option<u32>,
    /// `SIMGPU_NVML_PIDS`: the PIDs by which processes are reported.
    pids: Pids,
    /// `SIMGPU_GROUP`: the group of this process.
    group: [u8; NAME],
    /// Wall clock minus monotonic clock, in microseconds. The value is fixed, so a sample has the same time in every answer.
    pub(crate) epoch_us: u64,
}

fn times(text: &str, unit: u64) -> Option<u64> {
    text.trim().parse::<u64>().ok()?.checked_mul(unit)
}

impl NvmlView {
    /// Reads the variables by `get`. Reports a malformed value on standard error, and ignores it.
    pub(crate) fn read(get: &impl Fn(&str) -> Option<String>) -> Self {
        let number = |name: &str, read: &dyn Fn(&str) -> Option<u64>| {
            let text = get(name)?;
            let number = read(&text);
            if number.is_none() {
                messages::say(&format!("not understood: {name}={text}"));
            }
            number
        };
        let duration = |name: &str, unit: u64| number(name, &|text| times(text, unit));
        let pids = get("SIMGPU_NVML_PIDS");
        let pids = match pids.as_deref() {
            None | Some("translated") => Pids::Translated,
            Some("own") => Pids::Own,
            Some("none") => Pids::None,
            Some("offset") => Pids::Offset,
            Some("mixed") => Pids::Mixed,
            Some("foreign") => Pids::Foreign,
            Some(other) => {
                messages::say(&format!("not understood: SIMGPU_NVML_PIDS={other}"));
                Pids::Translated
            }
        };
        let samples = get("SIMGPU_NVML_SAMPLES");
        let each = match samples.as_deref() {
            None => None,
            Some("one") => Some(false),
            Some("each") => Some(true),
            Some(other) => {
                messages::say(&format!("not understood: SIMGPU_NVML_SAMPLES={other}"));
                None
            }
        };
        let group = name_bytes(get("SIMGPU_GROUP").unwrap_or_default().as_bytes());
        Self {
            window_ns: duration("SIMGPU_NVML_WINDOW_MS", MS).filter(|window| *window > 0),
            lag_ns: duration("SIMGPU_NVML_LAG_MS", MS),
            init_ns: duration("SIMGPU_NVML_INIT_MS", MS).unwrap_or(INIT_NS),
            list_ns: duration("SIMGPU_NVML_LIST_US", 1000).unwrap_or(LIST_NS),
            each,
            bytes: number("SIMGPU_NVML_BYTES", &size),
            compute_mode: number("SIMGPU_NVML_COMPUTE_MODE", &|text| times(text, 1))
                .and_then(|mode| u32::try_from(mode).ok()),
            imports: get("SIMGPU_NVML_IMPORTS").as_deref() == Some("1"),
            managed: get("SIMGPU_NVML_MANAGED").as_deref() == Some("1"),
            pids,
            group,
            epoch_us: wall_us().saturating_sub(clock::now() / 1000),
        }
    }

    /// Returns the nanoseconds for which a call holds the lock of the resource manager. `None`: it needs no lock. If `is_in_use`
    /// is true, NVML is initialised, and a further `nvmlInit` only counts.
    pub(crate) fn turn_ns(&self, symbol: Symbol, is_in_use: bool) -> Option<u64> {
        match symbol {
            Symbol::nvmlInit | Symbol::nvmlInit_v2 | Symbol::nvmlInitWithFlags => {
                (!is_in_use).then_some(self.init_ns)
            }
            Symbol::nvmlDeviceGetComputeRunningProcesses
            | Symbol::nvmlDeviceGetComputeRunningProcesses_v2
            | Symbol::nvmlDeviceGetComputeRunningProcesses_v3
            | Symbol::nvmlDeviceGetGraphicsRunningProcesses
            | Symbol::nvmlDeviceGetGraphicsRunningProcesses_v2
            | Symbol::nvmlDeviceGetGraphicsRunningProcesses_v3
            | Symbol::nvmlDeviceGetMPSComputeRunningProcesses
            | Symbol::nvmlDeviceGetMPSComputeRunningProcesses_v2
            | Symbol::nvmlDeviceGetMPSComputeRunningProcesses_v3
            | Symbol::nvmlDeviceGetRunningProcessDetailList => Some(self.list_ns),
            Symbol::nvmlDeviceGetProcessUtilization | Symbol::nvmlDeviceGetProcessesUtilizationInfo => {
                Some(0)
            }
            _ => None,
        }
    }

    /// Returns true if NVML can tell processes apart.
    pub(crate) fn is_attributable(&self) -> bool {
        self.pids != Pids::None
    }

    /// Returns the PID of a process in lists. `None`: no list contains the process.
    pub(crate) fn listed(&self, state: &State, process: &Process) -> Option<u32> {
        match self.pids {
            Pids::None => None,
            Pids::Offset => Some(process.pid.saturating_add(OFFSET)),
            Pids::Translated => pid_namespace::number_here(process.pid_namespace, process.pid),
            Pids::Foreign if !self.is_at_home(state, process) => None,
            Pids::Own | Pids::Mixed | Pids::Foreign => Some(process.pid),
        }
    }

    /// Returns the PID of a process in utilisation samples.
    pub(crate) fn sampled(&self, state: &State, process: &Process) -> u32 {
        let translated = match self.pids {
            Pids::Own | Pids::None => Some(process.pid),
            Pids::Offset | Pids::Mixed => None,
            Pids::Translated => pid_namespace::number_here(process.pid_namespace, process.pid),
            Pids::Foreign => self.is_at_home(state, process).then_some(process.pid),
        };
        translated.unwrap_or_else(|| process.pid.saturating_add(OFFSET))
    }

    fn is_at_home(&self, state: &State, process: &Process) -> bool {
        let group = state.groups.get(process.group as usize);
        group.map_or([0; NAME], |group| group.name) == self.group
    }

    /// Sets the windows of all devices to the values in the environment.
    pub(crate) fn apply(&self, state: &mut Locked<'_>) {
        for device in 0..state.settings.count() {
            self.device(state, device);
        }
    }

    /// Returns the engine of a device, with the windows of the environment. In a new state file, the engine has default windows.
    pub(crate) fn device<'a>(&self, state: &'a mut Locked<'_>, device: usize) -> &'a mut EngineState {
        let engine = state.engine(device);
        let mut config = *engine.config();
        config.sample_period_ns =
            self.window_ns.map_or(config.sample_period_ns, |ns| ns.clamp(MS, 1000 * MS));
        config.sample_lag_ns = self.lag_ns.unwrap_or(config.sample_lag_ns);
        config.sample_each = self.each.map_or(config.sample_each, u64::from);
        if config != *engine.config() {
            engine.set_config(config, clock::now());
        }
        engine
    }
}

/// Measured duration of `nvmlInit` on machines with several GPUs.
const INIT_NS: u64 = 300 * MS;
/// Measured median duration of a call that lists processes.
const LIST_NS: u64 = 4_500_000;

fn wall_us() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `clock_gettime` needs room for a `timespec`: `time` is one.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000).saturating_add(u64::try_from(time.tv_nsec / 1000).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nvml_takes_its_time_by_default_and_none_by_settings() {
        let slow = NvmlView::read(&|_: &str| None);
        assert_eq!((slow.init_ns, slow.list_ns), (300 * MS, 4_500_000));
        let times = ["SIMGPU_NVML_INIT_MS", "SIMGPU_NVML_LIST_US"];
        let quick = NvmlView::read(&|name: &str| times.contains(&name).then(|| "0".to_owned()));
        assert_eq!((quick.init_ns, quick.list_ns), (0, 0));
    }
}
