//! Functions about clocks, power, temperature, links and partitions.
//!
//! Power and temperature follow the utilisation of the newest window, so a monitor shows that they
//! change. Nothing else depends on them.

use gpuslice_driver::types::*;

use super::entry::{NvmlCall, Subject};
use super::layouts::{Temperature, version};
use super::{Tuning, statuses};
use crate::status::Outcome;

/// Power in milliwatts: without work, and for each percent of utilisation. Then the limits of power.
const IDLE_MW: u32 = 70_000;
const PERCENT_MW: u32 = 6_000;
const LEAST_MW: u32 = 200_000;
const LIMIT_MW: u32 = 700_000;

/// `NVML_P2P_CAPS_INDEX_NVLINK`, the last index of `nvmlGpuP2PCapsIndex_t`, and `NVML_P2P_STATUS_NOT_SUPPORTED`.
const P2P_NVLINK: u32 = 2;
const P2P_LAST: u32 = 4;
const P2P_NOT_SUPPORTED: u32 = 5;

/// Clocks in MHz, by `nvmlClockType_t`: graphics, multiprocessors, memory, video.
const CLOCKS: [u32; 4] = [1980, 1980, 2619, 1545];
/// Thresholds in degrees Celsius: of shutdown, of slowdown, the highest for memory, and the highest for the device.
const THRESHOLDS: [u32; 4] = [92, 89, 95, 87];

/// Returns the value at a place of a list. A place beyond the list is an error of the caller.
fn entry(list: [u32; 4], number: u32) -> Result<u32, Status> {
    let number = usize::try_from(number).unwrap_or(usize::MAX);
    list.get(number).copied().ok_or(statuses::INVALID_ARGUMENT)
}

impl NvmlCall {
    fn clock(&self, device: nvmlDevice_t, kind: c_uint, to: *mut c_uint) -> Outcome {
        self.tell(device, to, entry(CLOCKS, kind)?)
    }

    fn degrees(&self, device: nvmlDevice_t, sensor: c_uint) -> Result<u32, Status> {
        if sensor != 0 {
            return Err(statuses::INVALID_ARGUMENT);
        }
        Ok(30 + self.utilization(device)?.gpu * 2 / 5)
    }

    fn reasons(&self, device: nvmlDevice_t, to: *mut c_ulonglong) -> Outcome {
        /// The reason for the present clocks: the device is idle.
        const IDLE: c_ulonglong = 1;
        let idle = self.utilization(device)?.gpu == 0;
        self.write(to, if idle { IDLE } else { 0 })
    }
}

impl Tuning for NvmlCall {
    fn nvmlDeviceGetP2PStatus(
        &self,
        device1: nvmlDevice_t,
        device2: nvmlDevice_t,
        p2p_index: c_uint,
        p2p_status: *mut c_uint,
    ) -> Outcome {
        let (one, other) = (self.gpu(device1)?, self.gpu(device2)?);
        if one == other || p2p_index > P2P_LAST {
            return Err(statuses::INVALID_ARGUMENT);
        }
        // Every GPU can read, write and change the memory of every other one. Only NVLink depends on the settings.
        let is_supported = p2p_index != P2P_NVLINK || self.truth()?.settings.has_nvlink(one, other);
        self.write(p2p_status, if is_supported { 0 } else { P2P_NOT_SUPPORTED })
    }

    fn nvmlDeviceGetClockInfo(&self, device: nvmlDevice_t, kind: c_uint, clock: *mut c_uint) -> Outcome {
        self.clock(device, kind, clock)
    }

    fn nvmlDeviceGetMaxClockInfo(&self, device: nvmlDevice_t, kind: c_uint, clock: *mut c_uint) -> Outcome {
        self.clock(device, kind, clock)
    }

    fn nvmlDeviceGetClock(
        &self,
        device: nvmlDevice_t,
        clock_type: c_uint,
        _clock_id: c_uint,
        clock_m_hz: *mut c_uint,
    ) -> Outcome {
        self.clock(device, clock_type, clock_m_hz)
    }

    fn nvmlDeviceGetApplicationsClock(
        &self,
        device: nvmlDevice_t,
        clock_type: c_uint,
        clock_m_hz: *mut c_uint,
    ) -> Outcome {
        self.clock(device, clock_type, clock_m_hz)
    }

    fn nvmlDeviceGetCurrentClocksEventReasons(
        &self,
        device: nvmlDevice_t,
        clocks_event_reasons: *mut c_ulonglong,
    ) -> Outcome {
        self.reasons(device, clocks_event_reasons)
    }

    fn nvmlDeviceGetCurrentClocksThrottleReasons(
        &self,
        device: nvmlDevice_t,
        clocks_throttle_reasons: *mut c_ulonglong,
    ) -> Outcome {
        self.reasons(device, clocks_throttle_reasons)
    }

    fn nvmlDeviceGetNumFans(&self, device: nvmlDevice_t, num_fans: *mut c_uint) -> Outcome {
        self.tell(device, num_fans, 0)
    }

    fn nvmlDeviceGetPerformanceState(&self, device: nvmlDevice_t, p_state: *mut c_uint) -> Outcome {
        self.tell(device, p_state, 0)
    }

    fn nvmlDeviceGetPowerState(&self, device: nvmlDevice_t, p_state: *mut c_uint) -> Outcome {
        self.tell(device, p_state, 0)
    }

    fn nvmlDeviceGetPowerUsage(&self, device: nvmlDevice_t, power: *mut c_uint) -> Outcome {
        let busy = self.utilization(device)?.gpu;
        self.write(power, IDLE_MW + PERCENT_MW * busy)
    }

    fn nvmlDeviceGetPowerManagementMode(&self, device: nvmlDevice_t, mode: *mut c_uint) -> Outcome {
        self.tell(device, mode, 1)
    }

    fn nvmlDeviceGetPowerManagementLimit(&self, device: nvmlDevice_t, limit: *mut c_uint) -> Outcome {
        self.tell(device, limit, LIMIT_MW)
    }

    fn nvmlDeviceGetPowerManagementDefaultLimit(
        &self,
        device: nvmlDevice_t,
        default_limit: *mut c_uint,
    ) -> Outcome {
        self.tell(device, default_limit, LIMIT_MW)
    }

    fn nvmlDeviceGetEnforcedPowerLimit(&self, device: nvmlDevice_t, limit: *mut c_uint) -> Outcome {
        self.tell(device, limit, LIMIT_MW)
    }

    fn nvmlDeviceGetPowerManagementLimitConstraints(
        &self,
        device: nvmlDevice_t,
        min_limit: *mut c_uint,
        max_limit: *mut c_uint,
    ) -> Outcome {
        self.tell(device, min_limit, LEAST_MW)?;
        self.write(max_limit, LIMIT_MW)
    }

    fn nvmlDeviceGetTemperature(
        &self,
        device: nvmlDevice_t,
        sensor_type: c_uint,
        temp: *mut c_uint,
    ) -> Outcome {
        self.write(temp, self.degrees(device, sensor_type)?)
    }

    fn nvmlDeviceGetTemperatureV(
        &self,
        device: nvmlDevice_t,
        temperature: *mut nvmlTemperature_t,
    ) -> Outcome {
        let to: *mut Temperature = temperature.cast();
        let asked = self.read(to)?;
        if asked.version != version::<Temperature>(1) {
            return Err(statuses::ARGUMENT_VERSION_MISMATCH);
        }
        let degrees = c_int::try_from(self.degrees(device, asked.sensor)?).unwrap_or(0);
        self.write(to, Temperature { degrees, ..asked })
    }

    fn nvmlDeviceGetTemperatureThreshold(
        &self,
        device: nvmlDevice_t,
        threshold_type: c_uint,
        temp: *mut c_uint,
    ) -> Outcome {
        self.tell(device, temp, entry(THRESHOLDS, threshold_type).map_err(|_| statuses::NOT_SUPPORTED)?)
    }

    fn nvmlDeviceGetMigMode(
        &self,
        device: nvmlDevice_t,
        current_mode: *mut c_uint,
        pending_mode: *mut c_uint,
    ) -> Outcome {
        let (state, subject) = self.on(device)?;
        let Subject::Gpu(gpu) = subject else { return Err(statuses::INVALID_ARGUMENT) };
        let mode = c_uint::from(state.settings.is_divided(gpu));
        drop(state);
        self.write(current_mode, mode)?;
        self.write(pending_mode, mode)
    }

    fn nvmlDeviceIsMigDeviceHandle(&self, device: nvmlDevice_t, is_mig_device: *mut c_uint) -> Outcome {
        let is_instance = matches!(self.on(device)?.1, Subject::Instance(_));
        self.write(is_mig_device, c_uint::from(is_instance))
    }

    fn nvmlDeviceGetMaxMigDeviceCount(&self, device: nvmlDevice_t, count: *mut c_uint) -> Outcome {
        let (state, subject) = self.on(device)?;
        let gpu = subject.gpu(&state.settings);
        let most = if state.settings.is_divided(gpu) { state.settings.devices_of(gpu).len() } else { 0 };
        drop(state);
        self.write(count, c_uint::try_from(most).unwrap_or(0))
    }

    fn nvmlDeviceGetMigDeviceHandleByIndex(
        &self,
        device: nvmlDevice_t,
        index: c_uint,
        mig_device: *mut nvmlDevice_t,
    ) -> Outcome {
        self.handle_of_instance(device, index, mig_device)
    }

    fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(
        &self,
        mig_device: nvmlDevice_t,
        device: *mut nvmlDevice_t,
    ) -> Outcome {
        self.handle_of_gpu(mig_device, device)
    }

    fn nvmlDeviceGetGpuInstanceId(&self, device: nvmlDevice_t, id: *mut c_uint) -> Outcome {
        self.write(id, self.ids_of_instance(device)?.0)
    }

    fn nvmlDeviceGetComputeInstanceId(&self, device: nvmlDevice_t, id: *mut c_uint) -> Outcome {
        self.write(id, self.ids_of_instance(device)?.1)
    }
}
