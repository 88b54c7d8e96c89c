//! Functions that start the library, and functions that report utilisation.

use gpuslice_driver::types::*;

use super::entry::NvmlCall;
use super::layouts::{Domain, Domains, ProcessInfo, ProcessInfoV1, Sample};
use super::{Usage, library, statuses};
use crate::engine::{DEVICE_SAMPLES, DeviceSample};
use crate::os::clock;
use crate::status::Outcome;

impl NvmlCall {
    fn init(&self) -> Outcome {
        library::use_once_more();
        Ok(())
    }

    /// Returns the utilisation of a device in the newest window that can be read.
    pub(super) fn utilization(&self, device: nvmlDevice_t) -> Result<DeviceSample, Status> {
        let view = self.library()?.view;
        let (mut state, device) = self.whole(device)?;
        let engine = view.device(&mut state, device);
        Ok(engine.utilization(clock::now()))
    }

    /// Returns the samples of a device since an instant, in microseconds of the wall clock. The oldest is first.
    fn samples(&self, device: nvmlDevice_t, kind: c_uint, last_seen: u64) -> Result<Vec<Sample>, Status> {
        let value: fn(&DeviceSample) -> u32 = match kind {
            1 => |sample| sample.gpu,
            2 => |sample| sample.memory,
            _ => return Err(statuses::NOT_SUPPORTED),
        };
        let view = self.library()?.view;
        let (mut state, device) = self.whole(device)?;
        let engine = view.device(&mut state, device);
        let mut samples = Vec::new();
        engine.device_samples(clock::now(), last_seen.saturating_sub(view.epoch_us), |sample| {
            let timestamp = sample.timestamp_us.saturating_add(view.epoch_us);
            samples.push(Sample { timestamp, value: value(&sample), rest: 0 });
        });
        Ok(samples)
    }
}

impl Usage for NvmlCall {
    fn nvmlInit(&self) -> Outcome {
        self.init()
    }

    fn nvmlInit_v2(&self) -> Outcome {
        self.init()
    }

    fn nvmlInitWithFlags(&self, _flags: c_uint) -> Outcome {
        self.init()
    }

    fn nvmlShutdown(&self) -> Outcome {
        library::use_once_less();
        Ok(())
    }

    fn nvmlDeviceGetMemoryInfo(&self, device: nvmlDevice_t, memory: *mut nvmlMemory_t) -> Outcome {
        self.memory(device, memory)
    }

    fn nvmlDeviceGetMemoryInfo_v2(&self, device: nvmlDevice_t, memory: *mut nvmlMemory_v2_t) -> Outcome {
        self.memory_v2(device, memory)
    }

    fn nvmlDeviceGetBAR1MemoryInfo(
        &self,
        device: nvmlDevice_t,
        bar1_memory: *mut nvmlBAR1Memory_t,
    ) -> Outcome {
        self.bar1(device, bar1_memory.cast())
    }

    fn nvmlDeviceGetComputeRunningProcesses(
        &self,
        device: nvmlDevice_t,
        info_count: *mut c_uint,
        infos: *mut nvmlProcessInfo_v1_t,
    ) -> Outcome {
        self.compute::<ProcessInfoV1>(device, info_count, infos.cast())
    }

    fn nvmlDeviceGetComputeRunningProcesses_v2(
        &self,
        device: nvmlDevice_t,
        info_count: *mut c_uint,
        infos: *mut nvmlProcessInfo_v2_t,
    ) -> Outcome {
        self.compute::<ProcessInfo>(device, info_count, infos.cast())
    }

    fn nvmlDeviceGetComputeRunningProcesses_v3(
        &self,
        device: nvmlDevice_t,
        info_count: *mut c_uint,
        infos: *mut nvmlProcessInfo_t,
    ) -> Outcome {
        self.compute::<ProcessInfo>(device, info_count, infos.cast())
    }

    fn nvmlDeviceGetGraphicsRunningProcesses(
        &self,
        device: nvmlDevice_t,
        info_count: *mut c_uint,
        _infos: *mut nvmlProcessInfo_v1_t,
    ) -> Outcome {
        self.no_processes(device, info_count)
    }

    fn nvmlDeviceGetGraphicsRunningProcesses_v2(
        &self,
        device: nvmlDevice_t,
        info_count: *mut c_uint,
        _infos: *mut nvmlProcessInfo_v2_t,
    ) -> Outcome {
        self.no_processes(device, info_count)
    }

    fn nvmlDeviceGetGraphicsRunningProcesses_v3(
        &self,
        device: nvmlDevice_t,
        info_count: *mut c_uint,
        _infos: *mut nvmlProcessInfo_t,
    ) -> Outcome {
        self.no_processes(device, info_count)
    }

    fn nvmlDeviceGetMPSComputeRunningProcesses(
        &self,
        device: nvmlDevice_t,
        info_count: *mut c_uint,
        _infos: *mut nvmlProcessInfo_v1_t,
    ) -> Outcome {
        self.no_processes(device, info_count)
    }

    fn nvmlDeviceGetMPSComputeRunningProcesses_v2(
        &self,
        device: nvmlDevice_t,
        info_count: *mut c_uint,
        _infos: *mut nvmlProcessInfo_v2_t,
    ) -> Outcome {
        self.no_processes(device, info_count)
    }

    fn nvmlDeviceGetMPSComputeRunningProcesses_v3(
        &self,
        device: nvmlDevice_t,
        info_count: *mut c_uint,
        _infos: *mut nvmlProcessInfo_t,
    ) -> Outcome {
        self.no_processes(device, info_count)
    }

    fn nvmlDeviceGetRunningProcessDetailList(
        &self,
        device: nvmlDevice_t,
        plist: *mut nvmlProcessDetailList_t,
    ) -> Outcome {
        self.details(device, plist.cast())
    }

    fn nvmlDeviceGetProcessUtilization(
        &self,
        device: nvmlDevice_t,
        utilization: *mut nvmlProcessUtilizationSample_t,
        process_samples_count: *mut c_uint,
        last_seen_time_stamp: c_ulonglong,
    ) -> Outcome {
        self.utilization_of_processes(device, utilization, process_samples_count, last_seen_time_stamp)
    }

    fn nvmlDeviceGetProcessesUtilizationInfo(
        &self,
        device: nvmlDevice_t,
        proceses_util_info: *mut nvmlProcessesUtilizationInfo_t,
    ) -> Outcome {
        self.utilization_list(device, proceses_util_info.cast())
    }

    fn nvmlSystemGetProcessName(&self, pid: c_uint, name: *mut c_char, length: c_uint) -> Outcome {
        self.process_name(pid, name, length)
    }

    fn nvmlDeviceGetUtilizationRates(
        &self,
        device: nvmlDevice_t,
        utilization: *mut nvmlUtilization_t,
    ) -> Outcome {
        let DeviceSample { gpu, memory, .. } = self.utilization(device)?;
        self.write(utilization, nvmlUtilization_t { gpu, memory })
    }

    fn nvmlDeviceGetDynamicPstatesInfo(
        &self,
        device: nvmlDevice_t,
        p_dynamic_pstates_info: *mut nvmlGpuDynamicPstatesInfo_t,
    ) -> Outcome {
        let DeviceSample { gpu, memory, .. } = self.utilization(device)?;
        let mut domains = Domains::default();
        for (domain, percentage) in domains.domains.iter_mut().zip([gpu, memory]) {
            *domain = Domain { present: 1, percentage, ..Domain::default() };
        }
        self.write(p_dynamic_pstates_info.cast(), domains)
    }

    fn nvmlDeviceGetSamples(
        &self,
        device: nvmlDevice_t,
        kind: c_uint,
        last_seen_time_stamp: c_ulonglong,
        sample_val_type: *mut c_uint,
        sample_count: *mut c_uint,
        samples: *mut nvmlSample_t,
    ) -> Outcome {
        /// Each value is an unsigned integer.
        const UNSIGNED: c_uint = 1;
        let mut found = self.samples(device, kind, last_seen_time_stamp)?;
        let room = self.read(sample_count)?;
        self.write(sample_val_type, UNSIGNED)?;
        if samples.is_null() {
            return self.write(sample_count, c_uint::try_from(DEVICE_SAMPLES).unwrap_or(0));
        }
        if room == 0 {
            return Err(statuses::INVALID_ARGUMENT);
        }
        if found.is_empty() {
            return Err(statuses::NOT_FOUND);
        }
        found.truncate(room as usize);
        self.write_list(sample_count, samples.cast(), &found)
    }

    fn nvmlDeviceGetAccountingMode(&self, device: nvmlDevice_t, mode: *mut c_uint) -> Outcome {
        self.tell(device, mode, 0)
    }
}
