//! NVML symbols that describe devices.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_nvml_device {
    ({ $next:ident $($files:ident)* } $then:tt $($rows:tt)*) => { $crate::$next! { { $($files)* } $then $($rows)*
    identity: "Handles, identity and version are never altered" {
        pass nvmlDeviceGetArchitecture(device: nvmlDevice_t, arch: *mut nvmlDeviceArchitecture_t);
        pass nvmlDeviceGetBoardId(device: nvmlDevice_t, board_id: *mut c_uint);
        pass nvmlDeviceGetBoardPartNumber(device: nvmlDevice_t, part_number: *mut c_char, length: c_uint);
        pass nvmlDeviceGetBrand(device: nvmlDevice_t, kind: *mut c_uint);
        pass nvmlDeviceGetBusType(device: nvmlDevice_t, kind: *mut nvmlBusType_t);
        pass nvmlDeviceGetCount(device_count: *mut c_uint);
        pass nvmlDeviceGetCount_v2(device_count: *mut c_uint);
        pass nvmlDeviceGetCudaComputeCapability(device: nvmlDevice_t, major: *mut c_int, minor: *mut c_int);
        pass nvmlDeviceGetGpuUptime_v1(device: nvmlDevice_t, uptime: *mut nvmlGpuUptime_v1_t);
        pass nvmlDeviceGetHandleByIndex(index: c_uint, device: *mut nvmlDevice_t);
        pass nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: *mut nvmlDevice_t);
        pass nvmlDeviceGetHandleByPciBusId(pci_bus_id: *const c_char, device: *mut nvmlDevice_t);
        pass nvmlDeviceGetHandleByPciBusId_v2(pci_bus_id: *const c_char, device: *mut nvmlDevice_t);
        pass nvmlDeviceGetHandleBySerial(serial: *const c_char, device: *mut nvmlDevice_t);
        pass nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: *mut nvmlDevice_t);
        pass nvmlDeviceGetHandleByUUIDV(uuid: *const nvmlUUID_t, device: *mut nvmlDevice_t);
        pass nvmlDeviceGetHostname_v1(device: nvmlDevice_t, hostname: *mut nvmlHostname_v1_t);
        pass nvmlDeviceGetIndex(device: nvmlDevice_t, index: *mut c_uint);
        pass nvmlDeviceGetIrqNum(device: nvmlDevice_t, irq_num: *mut c_uint);
        pass nvmlDeviceGetMinorNumber(device: nvmlDevice_t, minor_number: *mut c_uint);
        pass nvmlDeviceGetModuleId(device: nvmlDevice_t, module_id: *mut c_uint);
        pass nvmlDeviceGetMultiGpuBoard(device: nvmlDevice_t, multi_gpu_bool: *mut c_uint);
        pass nvmlDeviceGetName(device: nvmlDevice_t, name: *mut c_char, length: c_uint);
        pass nvmlDeviceGetNumGpuCores(device: nvmlDevice_t, num_cores: *mut c_uint);
        pass nvmlDeviceGetPciInfo(device: nvmlDevice_t, pci: *mut nvmlPciInfo_t);
        pass nvmlDeviceGetPciInfoExt(device: nvmlDevice_t, pci: *mut nvmlPciInfoExt_t);
        pass nvmlDeviceGetPciInfo_v2(device: nvmlDevice_t, pci: *mut nvmlPciInfo_t);
        pass nvmlDeviceGetPciInfo_v3(device: nvmlDevice_t, pci: *mut nvmlPciInfo_t);
        pass nvmlDeviceGetPdi(device: nvmlDevice_t, pdi: *mut nvmlPdi_t);
        pass nvmlDeviceGetPlatformInfo(device: nvmlDevice_t, platform_info: *mut nvmlPlatformInfo_t);
        pass nvmlDeviceGetSerial(device: nvmlDevice_t, serial: *mut c_char, length: c_uint);
        pass nvmlDeviceGetUUID(device: nvmlDevice_t, uuid: *mut c_char, length: c_uint);
        pass nvmlDeviceOnSameBoard(device1: nvmlDevice_t, device2: nvmlDevice_t, on_same_board: *mut c_int);
        pass nvmlDeviceSetHostname_v1(device: nvmlDevice_t, hostname: *mut nvmlHostname_v1_t);
        pass nvmlSystemGetCudaDriverVersion(cuda_driver_version: *mut c_int);
        pass nvmlSystemGetCudaDriverVersion_v2(cuda_driver_version: *mut c_int);
        pass nvmlSystemGetDriverBranch(branch_info: *mut nvmlSystemDriverBranchInfo_t, length: c_uint);
        pass nvmlSystemGetDriverVersion(version: *mut c_char, length: c_uint);
        pass nvmlSystemGetHicVersion(hwbc_count: *mut c_uint, hwbc_entries: *mut nvmlHwbcEntry_t);
        pass nvmlSystemGetNVMLVersion(version: *mut c_char, length: c_uint);
    }
    hardware_misc: "Hardware properties and switches without memory use or processes" {
        pass nvmlDeviceClearFieldValues(device: nvmlDevice_t, values_count: c_int, values: *mut nvmlFieldValue_t);
        pass nvmlDeviceDiscoverGpus(pci_info: *mut nvmlPciInfo_t);
        pass nvmlDeviceGetAPIRestriction(device: nvmlDevice_t, api_type: c_uint, is_restricted: *mut c_uint);
        pass nvmlDeviceGetCapabilities(device: nvmlDevice_t, caps: *mut nvmlDeviceCapabilities_t);
        pass nvmlDeviceGetComputeMode(device: nvmlDevice_t, mode: *mut c_uint);
        pass nvmlDeviceGetCurrPcieLinkGeneration(device: nvmlDevice_t, curr_link_gen: *mut c_uint);
        pass nvmlDeviceGetCurrPcieLinkWidth(device: nvmlDevice_t, curr_link_width: *mut c_uint);
        pass nvmlDeviceGetDisplayActive(device: nvmlDevice_t, is_active: *mut c_uint);
        pass nvmlDeviceGetDisplayMode(device: nvmlDevice_t, display: *mut c_uint);
        pass nvmlDeviceGetDriverModel(device: nvmlDevice_t, current: *mut c_uint, pending: *mut c_uint);
        pass nvmlDeviceGetDriverModel_v2(device: nvmlDevice_t, current: *mut c_uint, pending: *mut c_uint);
        pass nvmlDeviceGetFieldValues(device: nvmlDevice_t, values_count: c_int, values: *mut nvmlFieldValue_t);
        pass nvmlDeviceGetGpuMaxPcieLinkGeneration(device: nvmlDevice_t, max_link_gen_device: *mut c_uint);
        pass nvmlDeviceGetGpuOperationMode(device: nvmlDevice_t, current: *mut c_uint, pending: *mut c_uint);
        pass nvmlDeviceGetGspFirmwareMode(device: nvmlDevice_t, is_enabled: *mut c_uint, default_mode: *mut c_uint);
        pass nvmlDeviceGetGspFirmwareVersion(device: nvmlDevice_t, version: *mut c_char);
        pass nvmlDeviceGetInforomConfigurationChecksum(device: nvmlDevice_t, checksum: *mut c_uint);
        pass nvmlDeviceGetInforomImageVersion(device: nvmlDevice_t, version: *mut c_char, length: c_uint);
        pass nvmlDeviceGetInforomVersion(device: nvmlDevice_t, object: c_uint, version: *mut c_char, length: c_uint);
        pass nvmlDeviceGetMaxPcieLinkGeneration(device: nvmlDevice_t, max_link_gen: *mut c_uint);
        pass nvmlDeviceGetMaxPcieLinkWidth(device: nvmlDevice_t, max_link_width: *mut c_uint);
        pass nvmlDeviceGetMemoryBusWidth(device: nvmlDevice_t, bus_width: *mut c_uint);
        pass nvmlDeviceGetPcieLinkMaxSpeed(device: nvmlDevice_t, max_speed: *mut c_uint);
        pass nvmlDeviceGetPcieReplayCounter(device: nvmlDevice_t, value: *mut c_uint);
        pass nvmlDeviceGetPcieSpeed(device: nvmlDevice_t, pcie_speed: *mut c_uint);
        pass nvmlDeviceGetPcieThroughput(device: nvmlDevice_t, counter: c_uint, value: *mut c_uint);
        pass nvmlDeviceGetPersistenceMode(device: nvmlDevice_t, mode: *mut c_uint);
        pass nvmlDeviceGetVbiosVersion(device: nvmlDevice_t, version: *mut c_char, length: c_uint);
        pass nvmlDeviceModifyDrainState(pci_info: *mut nvmlPciInfo_t, new_state: c_uint);
        pass nvmlDeviceQueryDrainState(pci_info: *mut nvmlPciInfo_t, current_state: *mut c_uint);
        pass nvmlDeviceReadPRMCounters_v1(device: nvmlDevice_t, counter_list: *mut nvmlPRMCounterList_v1_t);
        pass nvmlDeviceReadWritePRM_v1(device: nvmlDevice_t, buffer: *mut nvmlPRMTLV_v1_t);
        pass nvmlDeviceRemoveGpu(pci_info: *mut nvmlPciInfo_t);
        pass nvmlDeviceRemoveGpu_v2(pci_info: *mut nvmlPciInfo_t, gpu_state: c_uint, link_state: c_uint);
        pass nvmlDeviceSetAPIRestriction(device: nvmlDevice_t, api_type: c_uint, is_restricted: c_uint);
        pass nvmlDeviceSetComputeMode(device: nvmlDevice_t, mode: c_uint);
        pass nvmlDeviceSetDriverModel(device: nvmlDevice_t, driver_model: c_uint, flags: c_uint);
        pass nvmlDeviceSetGpuOperationMode(device: nvmlDevice_t, mode: c_uint);
        pass nvmlDeviceSetPersistenceMode(device: nvmlDevice_t, mode: c_uint);
        pass nvmlDeviceSetRusdSettings_v1(device: nvmlDevice_t, settings: *mut nvmlRusdSettings_v1_t);
        pass nvmlDeviceValidateInforom(device: nvmlDevice_t);
    }
    health: "ECC, retired pages, row remapping" {
        pass nvmlDeviceClearEccErrorCounts(device: nvmlDevice_t, counter_type: c_uint);
        pass nvmlDeviceGetBBXTimeData_v1(device: nvmlDevice_t, time_data: *mut nvmlBBXTimeData_v1_t);
        pass nvmlDeviceGetBankRemapperStatus_v1(device: nvmlDevice_t, p_bank_remapper_status: *mut nvmlEccBankRemapperStatus_v1_t);
        pass nvmlDeviceGetDefaultEccMode(device: nvmlDevice_t, default_mode: *mut c_uint);
        pass nvmlDeviceGetDetailedEccErrors(device: nvmlDevice_t, error_type: c_uint, counter_type: c_uint, ecc_counts: *mut nvmlEccErrorCounts_t);
        pass nvmlDeviceGetDramEncryptionMode(device: nvmlDevice_t, current: *mut nvmlDramEncryptionInfo_t, pending: *mut nvmlDramEncryptionInfo_t);
        pass nvmlDeviceGetEccMode(device: nvmlDevice_t, current: *mut c_uint, pending: *mut c_uint);
        pass nvmlDeviceGetLastBBXFlushTime(device: nvmlDevice_t, timestamp: *mut c_ulonglong, duration_us: *mut c_ulong);
        pass nvmlDeviceGetMemoryErrorCounter(device: nvmlDevice_t, error_type: c_uint, counter_type: c_uint, location_type: c_uint, count: *mut c_ulonglong);
        pass nvmlDeviceGetRemappedRows(device: nvmlDevice_t, corr_rows: *mut c_uint, unc_rows: *mut c_uint, is_pending: *mut c_uint, failure_occurred: *mut c_uint);
        pass nvmlDeviceGetRemappedRows_v2(device: nvmlDevice_t, info: *mut nvmlRemappedRowsInfo_v2_t);
        pass nvmlDeviceGetRepairStatus(device: nvmlDevice_t, repair_status: *mut nvmlRepairStatus_t);
        pass nvmlDeviceGetRetiredPages(device: nvmlDevice_t, cause: c_uint, page_count: *mut c_uint, addresses: *mut c_ulonglong);
        pass nvmlDeviceGetRetiredPagesPendingStatus(device: nvmlDevice_t, is_pending: *mut c_uint);
        pass nvmlDeviceGetRetiredPages_v2(device: nvmlDevice_t, cause: c_uint, page_count: *mut c_uint, addresses: *mut c_ulonglong, timestamps: *mut c_ulonglong);
        pass nvmlDeviceGetRowRemapperHistogram(device: nvmlDevice_t, values: *mut nvmlRowRemapperHistogramValues_t);
        pass nvmlDeviceGetSramEccErrorStatus(device: nvmlDevice_t, status: *mut nvmlEccSramErrorStatus_t);
        pass nvmlDeviceGetSramUniqueUncorrectedEccErrorCounts(device: nvmlDevice_t, error_counts: *mut nvmlEccSramUniqueUncorrectedErrorCounts_t);
        pass nvmlDeviceGetTotalEccErrors(device: nvmlDevice_t, error_type: c_uint, counter_type: c_uint, ecc_counts: *mut c_ulonglong);
        pass nvmlDeviceGetUnrepairableMemoryFlag_v1(device: nvmlDevice_t, unrepairable_memory_status: *mut nvmlUnrepairableMemoryStatus_v1_t);
        pass nvmlDeviceSetDramEncryptionMode(device: nvmlDevice_t, dram_encryption: *const nvmlDramEncryptionInfo_t);
        pass nvmlDeviceSetEccMode(device: nvmlDevice_t, ecc: c_uint);
        pass nvmlSystemGetCPER_v1(cper: *mut nvmlGetCPER_v1_t);
    }
    events: "Event sets; no memory, no processes" {
        pass nvmlDeviceGetSupportedEventTypes(device: nvmlDevice_t, event_types: *mut c_ulonglong);
        pass nvmlDeviceRegisterEvents(device: nvmlDevice_t, event_types: c_ulonglong, set: nvmlEventSet_t);
        pass nvmlEventSetCreate(set: *mut nvmlEventSet_t);
        pass nvmlEventSetFree(set: nvmlEventSet_t);
        pass nvmlEventSetGetContextCount_v1(set: nvmlEventSet_t, params: *mut nvmlEventSetGetContextCount_v1_t);
        pass nvmlEventSetGetContextData_v1(set: nvmlEventSet_t, params: *mut nvmlEventSetGetContextData_v1_t);
        pass nvmlEventSetGetContextInfo_v1(set: nvmlEventSet_t, params: *mut nvmlEventSetGetContextInfo_v1_t);
        pass nvmlEventSetGetGpuOperationalEventContextLegacyXid_v1(set: nvmlEventSet_t, params: *mut nvmlEventSetGetGpuOperationalEventContextLegacyXid_v1_t);
        pass nvmlEventSetRegisterGpuOperationalEvents_v1(event_set: nvmlEventSet_t, config: *const nvmlGpuOperationalEventConfig_v1_t);
        pass nvmlEventSetWait(set: nvmlEventSet_t, data: *mut nvmlEventData_t, timeoutms: c_uint);
        pass nvmlEventSetWait_v2(set: nvmlEventSet_t, data: *mut nvmlEventData_t, timeoutms: c_uint);
        pass nvmlEventSetWait_v3(set: nvmlEventSet_t, params: *mut nvmlEventSetWait_v3_t);
        pass nvmlSystemEventSetCreate(request: *mut nvmlSystemEventSetCreateRequest_t);
        pass nvmlSystemEventSetFree(request: *mut nvmlSystemEventSetFreeRequest_t);
        pass nvmlSystemEventSetWait(request: *mut nvmlSystemEventSetWaitRequest_t);
        pass nvmlSystemRegisterEvents(request: *mut nvmlSystemRegisterEventRequest_t);
    }
    excluded: "Devices the driver leaves out" {
        pass nvmlGetExcludedDeviceCount(device_count: *mut c_uint);
        pass nvmlGetExcludedDeviceInfoByIndex(index: c_uint, info: *mut nvmlExcludedDeviceInfo_t);
    }
    conf_compute: "Confidential computing" {
        pass nvmlDeviceGetConfComputeGpuAttestationReport(device: nvmlDevice_t, gpu_atst_report: *mut nvmlConfComputeGpuAttestationReport_t);
        pass nvmlDeviceGetConfComputeGpuCertificate(device: nvmlDevice_t, gpu_cert: *mut nvmlConfComputeGpuCertificate_t);
        pass nvmlDeviceSetConfComputeUnprotectedMemSize(device: nvmlDevice_t, size_ki_b: c_ulonglong);
        pass nvmlSystemGetConfComputeCapabilities(capabilities: *mut nvmlConfComputeSystemCaps_t);
        pass nvmlSystemGetConfComputeGpusReadyState(is_accepting_work: *mut c_uint);
        pass nvmlSystemGetConfComputeKeyRotationThresholdInfo(p_key_rotation_thr_info: *mut nvmlConfComputeGetKeyRotationThresholdInfo_t);
        pass nvmlSystemGetConfComputeSettings(settings: *mut nvmlSystemConfComputeSettings_t);
        pass nvmlSystemGetConfComputeSettings_v2(settings: *mut nvmlSystemConfComputeSettings_v2_t);
        pass nvmlSystemGetConfComputeState(state: *mut nvmlConfComputeSystemState_t);
        pass nvmlSystemSetConfComputeGpusReadyState(is_accepting_work: c_uint);
        pass nvmlSystemSetConfComputeKeyRotationThresholdInfo(p_key_rotation_thr_info: *mut nvmlConfComputeSetKeyRotationThresholdInfo_t);
    }
    profiling: "Counters of the whole GPU, privileged" {
        pass nvmlDevicePerfMetricsGetSamples_v1(device: nvmlDevice_t, samples: *mut nvmlPerfMetricsSamples_v1_t);
        pass nvmlGpmMetricsGet(metrics_get: *mut nvmlGpmMetricsGet_t);
        pass nvmlGpmMigSampleGet(device: nvmlDevice_t, gpu_instance_id: c_uint, gpm_sample: nvmlGpmSample_t);
        pass nvmlGpmQueryDeviceSupport(device: nvmlDevice_t, gpm_support: *mut nvmlGpmSupport_t);
        pass nvmlGpmQueryIfStreamingEnabled(device: nvmlDevice_t, state: *mut c_uint);
        pass nvmlGpmSampleAlloc(gpm_sample: *mut nvmlGpmSample_t);
        pass nvmlGpmSampleFree(gpm_sample: nvmlGpmSample_t);
        pass nvmlGpmSampleGet(device: nvmlDevice_t, gpm_sample: nvmlGpmSample_t);
        pass nvmlGpmSetStreamingEnabled(device: nvmlDevice_t, state: c_uint);
    }
    unit: "Chassis units" {
        pass nvmlUnitGetCount(unit_count: *mut c_uint);
        pass nvmlUnitGetDevices(unit: nvmlUnit_t, device_count: *mut c_uint, devices: *mut nvmlDevice_t);
        pass nvmlUnitGetFanSpeedInfo(unit: nvmlUnit_t, fan_speeds: *mut nvmlUnitFanSpeeds_t);
        pass nvmlUnitGetHandleByIndex(index: c_uint, unit: *mut nvmlUnit_t);
        pass nvmlUnitGetLedState(unit: nvmlUnit_t, state: *mut nvmlLedState_t);
        pass nvmlUnitGetPsuInfo(unit: nvmlUnit_t, psu: *mut nvmlPSUInfo_t);
        pass nvmlUnitGetTemperature(unit: nvmlUnit_t, kind: c_uint, temp: *mut c_uint);
        pass nvmlUnitGetUnitInfo(unit: nvmlUnit_t, info: *mut nvmlUnitInfo_t);
        pass nvmlUnitSetLedState(unit: nvmlUnit_t, color: c_uint);
    }
    } };
}
