//! NVML symbols through which a slice sees its own use.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_nvml_slice {
    ({ $next:ident $($files:ident)* } $then:tt $($rows:tt)*) => { $crate::$next! { { $($files)* } $then $($rows)*
    init: "First NVML use: the settings are read, and a limit that cannot be enforced makes the call return 4" {
        answer nvmlInit() by start::nvml_init;
        answer nvmlInitWithFlags(flags: c_uint) by start::nvml_init_with_flags;
        answer nvmlInit_v2() by start::nvml_init;
    }
    memory_info: "The quota is shown as the device's size" {
        pass nvmlDeviceGetAttributes(device: nvmlDevice_t, attributes: *mut nvmlDeviceAttributes_t);
        pass nvmlDeviceGetAttributes_v2(device: nvmlDevice_t, attributes: *mut nvmlDeviceAttributes_t);
        pass nvmlDeviceGetBAR1MemoryInfo(device: nvmlDevice_t, bar1_memory: *mut nvmlBAR1Memory_t);
        pass nvmlDeviceGetConfComputeMemSizeInfo(device: nvmlDevice_t, mem_info: *mut nvmlConfComputeMemSizeInfo_t);
        answer nvmlDeviceGetConfComputeProtectedMemoryUsage(device: nvmlDevice_t, memory: *mut nvmlMemory_t) by nvml::memory_info;
        answer nvmlDeviceGetMemoryInfo(device: nvmlDevice_t, memory: *mut nvmlMemory_t) by nvml::memory_info;
        answer nvmlDeviceGetMemoryInfo_v2(device: nvmlDevice_t, memory: *mut nvmlMemory_v2_t) by nvml::memory_info_v2;
    }
    process_list: "Names processes: a program sees those of its own slice" {
        answer nvmlDeviceGetComputeRunningProcesses(device: nvmlDevice_t, info_count: *mut c_uint, infos: *mut nvmlProcessInfo_v1_t) by processes::compute_v1;
        answer nvmlDeviceGetComputeRunningProcesses_v2(device: nvmlDevice_t, info_count: *mut c_uint, infos: *mut nvmlProcessInfo_v2_t) by processes::compute_v2;
        answer nvmlDeviceGetComputeRunningProcesses_v3(device: nvmlDevice_t, info_count: *mut c_uint, infos: *mut nvmlProcessInfo_t) by processes::compute_v3;
        answer nvmlDeviceGetGraphicsRunningProcesses(device: nvmlDevice_t, info_count: *mut c_uint, infos: *mut nvmlProcessInfo_v1_t) by processes::others_v1;
        answer nvmlDeviceGetGraphicsRunningProcesses_v2(device: nvmlDevice_t, info_count: *mut c_uint, infos: *mut nvmlProcessInfo_v2_t) by processes::others_v2;
        answer nvmlDeviceGetGraphicsRunningProcesses_v3(device: nvmlDevice_t, info_count: *mut c_uint, infos: *mut nvmlProcessInfo_t) by processes::others_v3;
        answer nvmlDeviceGetMPSComputeRunningProcesses(device: nvmlDevice_t, info_count: *mut c_uint, infos: *mut nvmlProcessInfo_v1_t) by processes::others_v1;
        answer nvmlDeviceGetMPSComputeRunningProcesses_v2(device: nvmlDevice_t, info_count: *mut c_uint, infos: *mut nvmlProcessInfo_v2_t) by processes::others_v2;
        answer nvmlDeviceGetMPSComputeRunningProcesses_v3(device: nvmlDevice_t, info_count: *mut c_uint, infos: *mut nvmlProcessInfo_t) by processes::others_v3;
        answer nvmlDeviceGetRunningProcessDetailList(device: nvmlDevice_t, plist: *mut nvmlProcessDetailList_t) by processes::details;
    }
    process_util: "Share of each process: a program sees those of its own slice" {
        answer nvmlDeviceGetProcessUtilization(device: nvmlDevice_t, utilization: *mut nvmlProcessUtilizationSample_t, process_samples_count: *mut c_uint, last_seen_time_stamp: c_ulonglong) by process_use::utilization;
        answer nvmlDeviceGetProcessesUtilizationInfo(device: nvmlDevice_t, proceses_util_info: *mut nvmlProcessesUtilizationInfo_t) by process_use::utilization_list;
    }
    process_name: "Answers for the process numbers that the lists contain" {
        answer nvmlSystemGetProcessName(pid: c_uint, name: *mut c_char, length: c_uint);
    }
    utilisation: "Use of the whole GPU becomes the slice's own; video engines are outside the share" {
        pass nvmlDeviceGetDecoderUtilization(device: nvmlDevice_t, utilization: *mut c_uint, sampling_period_us: *mut c_uint);
        answer nvmlDeviceGetDynamicPstatesInfo(device: nvmlDevice_t, p_dynamic_pstates_info: *mut nvmlGpuDynamicPstatesInfo_t) by use_rates::domains;
        pass nvmlDeviceGetEncoderCapacity(device: nvmlDevice_t, encoder_query_type: c_uint, encoder_capacity: *mut c_uint);
        pass nvmlDeviceGetEncoderSessions(device: nvmlDevice_t, session_count: *mut c_uint, session_infos: *mut nvmlEncoderSessionInfo_t);
        pass nvmlDeviceGetEncoderStats(device: nvmlDevice_t, session_count: *mut c_uint, average_fps: *mut c_uint, average_latency: *mut c_uint);
        pass nvmlDeviceGetEncoderUtilization(device: nvmlDevice_t, utilization: *mut c_uint, sampling_period_us: *mut c_uint);
        pass nvmlDeviceGetFBCSessions(device: nvmlDevice_t, session_count: *mut c_uint, session_info: *mut nvmlFBCSessionInfo_t);
        pass nvmlDeviceGetFBCStats(device: nvmlDevice_t, fbc_stats: *mut nvmlFBCStats_t);
        pass nvmlDeviceGetJpgUtilization(device: nvmlDevice_t, utilization: *mut c_uint, sampling_period_us: *mut c_uint);
        pass nvmlDeviceGetOfaUtilization(device: nvmlDevice_t, utilization: *mut c_uint, sampling_period_us: *mut c_uint);
        answer nvmlDeviceGetSamples(device: nvmlDevice_t, kind: c_uint, last_seen_time_stamp: c_ulonglong, sample_val_type: *mut c_uint, sample_count: *mut c_uint, samples: *mut nvmlSample_t) by use_rates::samples;
        answer nvmlDeviceGetUtilizationRates(device: nvmlDevice_t, utilization: *mut nvmlUtilization_t) by use_rates::rates;
    }
    accounting: "Names processes and their peak memory: a program sees those of its own slice" {
        pass nvmlDeviceClearAccountingPids(device: nvmlDevice_t);
        pass nvmlDeviceGetAccountingBufferSize(device: nvmlDevice_t, buffer_size: *mut c_uint);
        pass nvmlDeviceGetAccountingMode(device: nvmlDevice_t, mode: *mut c_uint);
        answer nvmlDeviceGetAccountingPids(device: nvmlDevice_t, count: *mut c_uint, pids: *mut c_uint) by process_use::accounting;
        answer nvmlDeviceGetAccountingStats(device: nvmlDevice_t, pid: c_uint, stats: *mut nvmlAccountingStats_t) by process_use::accounting_stats;
        answer nvmlDeviceGetAccountingStats_v2(device: nvmlDevice_t, stats: *mut nvmlAccountingStats_v2_t) by process_use::accounting_stats_v2;
        pass nvmlDeviceSetAccountingMode(device: nvmlDevice_t, mode: c_uint);
    }
    shutdown: "Ends the program's own initialisation" {
        answer nvmlShutdown() by start::nvml_shutdown;
    }
    memory_limit: "Limits that newer drivers enforce themselves, per cgroup" {
        pass nvmlDeviceGetMemoryLimits_v1(device: nvmlDevice_t, limits: *mut nvmlGetMemoryLimits_v1_t);
        pass nvmlDeviceSetMemoryLimits_v1(device: nvmlDevice_t, limits: *mut nvmlSetMemoryLimits_v1_t);
    }
    error_text: "Static texts; works before any init" {
        pass nvmlErrorString(result: c_uint) -> (*const c_char);
    }
    private_table: "A private table must be the driver's own" {
    }
    undeclared: "Exported by drivers but declared in no header: the arguments pass through as they are" {
        pass nvmlDeviceCcuGetStreamState();
        pass nvmlDeviceCcuSetStreamState();
        pass nvmlGetBlacklistDeviceCount();
        pass nvmlGetBlacklistDeviceInfoByIndex();
        pass nvmlInternalGetExportTable();
        pass nvmlRetry_NvRmControl();
    }
    } };
}
