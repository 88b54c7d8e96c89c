//! NVML symbols of virtual GPUs.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_nvml_vgpu {
    ({ $next:ident $($files:ident)* } $then:tt $($rows:tt)*) => { $crate::$next! { { $($files)* } $then $($rows)*
    vgpu: "Virtual GPU management on hosts" {
        pass nvmlDeviceGetActiveVgpus(device: nvmlDevice_t, vgpu_count: *mut c_uint, vgpu_instances: *mut nvmlVgpuInstance_t);
        pass nvmlDeviceGetCreatableVgpus(device: nvmlDevice_t, vgpu_count: *mut c_uint, vgpu_type_ids: *mut nvmlVgpuTypeId_t);
        pass nvmlDeviceGetGridLicensableFeatures(device: nvmlDevice_t, p_grid_licensable_features: *mut nvmlGridLicensableFeatures_t);
        pass nvmlDeviceGetGridLicensableFeatures_v2(device: nvmlDevice_t, p_grid_licensable_features: *mut nvmlGridLicensableFeatures_t);
        pass nvmlDeviceGetGridLicensableFeatures_v3(device: nvmlDevice_t, p_grid_licensable_features: *mut nvmlGridLicensableFeatures_t);
        pass nvmlDeviceGetGridLicensableFeatures_v4(device: nvmlDevice_t, p_grid_licensable_features: *mut nvmlGridLicensableFeatures_t);
        pass nvmlDeviceGetHostVgpuMode(device: nvmlDevice_t, p_host_vgpu_mode: *mut c_uint);
        pass nvmlDeviceGetPgpuMetadataString(device: nvmlDevice_t, pgpu_metadata: *mut c_char, buffer_size: *mut c_uint);
        pass nvmlDeviceGetSupportedVgpus(device: nvmlDevice_t, vgpu_count: *mut c_uint, vgpu_type_ids: *mut nvmlVgpuTypeId_t);
        pass nvmlDeviceGetVgpuCapabilities(device: nvmlDevice_t, capability: c_uint, cap_result: *mut c_uint);
        pass nvmlDeviceGetVgpuHeterogeneousMode(device: nvmlDevice_t, p_heterogeneous_mode: *mut nvmlVgpuHeterogeneousMode_t);
        pass nvmlDeviceGetVgpuInstancesUtilizationInfo(device: nvmlDevice_t, vgpu_util_info: *mut nvmlVgpuInstancesUtilizationInfo_t);
        pass nvmlDeviceGetVgpuMetadata(device: nvmlDevice_t, pgpu_metadata: *mut nvmlVgpuPgpuMetadata_t, buffer_size: *mut c_uint);
        pass nvmlDeviceGetVgpuProcessUtilization(device: nvmlDevice_t, last_seen_time_stamp: c_ulonglong, vgpu_process_samples_count: *mut c_uint, utilization_samples: *mut nvmlVgpuProcessUtilizationSample_t);
        pass nvmlDeviceGetVgpuProcessesUtilizationInfo(device: nvmlDevice_t, vgpu_proc_util_info: *mut nvmlVgpuProcessesUtilizationInfo_t);
        pass nvmlDeviceGetVgpuSchedulerCapabilities(device: nvmlDevice_t, p_capabilities: *mut nvmlVgpuSchedulerCapabilities_t);
        pass nvmlDeviceGetVgpuSchedulerLog(device: nvmlDevice_t, p_scheduler_log: *mut nvmlVgpuSchedulerLog_t);
        pass nvmlDeviceGetVgpuSchedulerLog_v2(device: nvmlDevice_t, p_scheduler_log_info: *mut nvmlVgpuSchedulerLogInfo_v2_t);
        pass nvmlDeviceGetVgpuSchedulerState(device: nvmlDevice_t, p_scheduler_state: *mut nvmlVgpuSchedulerGetState_t);
        pass nvmlDeviceGetVgpuSchedulerState_v2(device: nvmlDevice_t, p_scheduler_state_info: *mut nvmlVgpuSchedulerStateInfo_v2_t);
        pass nvmlDeviceGetVgpuTypeCreatablePlacements(device: nvmlDevice_t, vgpu_type_id: nvmlVgpuTypeId_t, p_placement_list: *mut nvmlVgpuPlacementList_t);
        pass nvmlDeviceGetVgpuTypeSupportedPlacements(device: nvmlDevice_t, vgpu_type_id: nvmlVgpuTypeId_t, p_placement_list: *mut nvmlVgpuPlacementList_t);
        pass nvmlDeviceGetVgpuUtilization(device: nvmlDevice_t, last_seen_time_stamp: c_ulonglong, sample_val_type: *mut c_uint, vgpu_instance_samples_count: *mut c_uint, utilization_samples: *mut nvmlVgpuInstanceUtilizationSample_t);
        pass nvmlDeviceGetVirtualizationMode(device: nvmlDevice_t, p_virtual_mode: *mut c_uint);
        pass nvmlDeviceSetVgpuCapabilities(device: nvmlDevice_t, capability: c_uint, state: c_uint);
        pass nvmlDeviceSetVgpuHeterogeneousMode(device: nvmlDevice_t, p_heterogeneous_mode: *const nvmlVgpuHeterogeneousMode_t);
        pass nvmlDeviceSetVgpuSchedulerState(device: nvmlDevice_t, p_scheduler_state: *mut nvmlVgpuSchedulerSetState_t);
        pass nvmlDeviceSetVgpuSchedulerState_v2(device: nvmlDevice_t, p_scheduler_state: *mut nvmlVgpuSchedulerState_v2_t);
        pass nvmlDeviceSetVirtualizationMode(device: nvmlDevice_t, virtual_mode: c_uint);
        pass nvmlDeviceVgpuForceGspUnload(device: nvmlDevice_t);
        pass nvmlGetVgpuCompatibility(vgpu_metadata: *mut nvmlVgpuMetadata_t, pgpu_metadata: *mut nvmlVgpuPgpuMetadata_t, compatibility_info: *mut nvmlVgpuPgpuCompatibility_t);
        pass nvmlGetVgpuDriverCapabilities(capability: c_uint, cap_result: *mut c_uint);
        pass nvmlGetVgpuVersion(supported: *mut nvmlVgpuVersion_t, current: *mut nvmlVgpuVersion_t);
        pass nvmlGpuInstanceGetActiveVgpus(gpu_instance: nvmlGpuInstance_t, p_vgpu_instance_info: *mut nvmlActiveVgpuInstanceInfo_t);
        pass nvmlGpuInstanceGetCreatableVgpus(gpu_instance: nvmlGpuInstance_t, p_vgpus: *mut nvmlVgpuTypeIdInfo_t);
        pass nvmlGpuInstanceGetVgpuHeterogeneousMode(gpu_instance: nvmlGpuInstance_t, p_heterogeneous_mode: *mut nvmlVgpuHeterogeneousMode_t);
        pass nvmlGpuInstanceGetVgpuSchedulerLog(gpu_instance: nvmlGpuInstance_t, p_scheduler_log_info: *mut nvmlVgpuSchedulerLogInfo_t);
        pass nvmlGpuInstanceGetVgpuSchedulerLog_v2(gpu_instance: nvmlGpuInstance_t, p_scheduler_log_info: *mut nvmlVgpuSchedulerLogInfo_v2_t);
        pass nvmlGpuInstanceGetVgpuSchedulerState(gpu_instance: nvmlGpuInstance_t, p_scheduler_state_info: *mut nvmlVgpuSchedulerStateInfo_t);
        pass nvmlGpuInstanceGetVgpuSchedulerState_v2(gpu_instance: nvmlGpuInstance_t, p_scheduler_state_info: *mut nvmlVgpuSchedulerStateInfo_v2_t);
        pass nvmlGpuInstanceGetVgpuTypeCreatablePlacements(gpu_instance: nvmlGpuInstance_t, p_creatable_placement_info: *mut nvmlVgpuCreatablePlacementInfo_t);
        pass nvmlGpuInstanceSetVgpuHeterogeneousMode(gpu_instance: nvmlGpuInstance_t, p_heterogeneous_mode: *const nvmlVgpuHeterogeneousMode_t);
        pass nvmlGpuInstanceSetVgpuSchedulerState(gpu_instance: nvmlGpuInstance_t, p_scheduler: *mut nvmlVgpuSchedulerState_t);
        pass nvmlGpuInstanceSetVgpuSchedulerState_v2(gpu_instance: nvmlGpuInstance_t, p_scheduler_state: *mut nvmlVgpuSchedulerState_v2_t);
        pass nvmlSetVgpuVersion(vgpu_version: *mut nvmlVgpuVersion_t);
        pass nvmlVgpuInstanceClearAccountingPids(vgpu_instance: nvmlVgpuInstance_t);
        pass nvmlVgpuInstanceGetAccountingMode(vgpu_instance: nvmlVgpuInstance_t, mode: *mut c_uint);
        pass nvmlVgpuInstanceGetAccountingPids(vgpu_instance: nvmlVgpuInstance_t, count: *mut c_uint, pids: *mut c_uint);
        pass nvmlVgpuInstanceGetAccountingStats(vgpu_instance: nvmlVgpuInstance_t, pid: c_uint, stats: *mut nvmlAccountingStats_t);
        pass nvmlVgpuInstanceGetEccMode(vgpu_instance: nvmlVgpuInstance_t, ecc_mode: *mut c_uint);
        pass nvmlVgpuInstanceGetEncoderCapacity(vgpu_instance: nvmlVgpuInstance_t, encoder_capacity: *mut c_uint);
        pass nvmlVgpuInstanceGetEncoderSessions(vgpu_instance: nvmlVgpuInstance_t, session_count: *mut c_uint, session_info: *mut nvmlEncoderSessionInfo_t);
        pass nvmlVgpuInstanceGetEncoderStats(vgpu_instance: nvmlVgpuInstance_t, session_count: *mut c_uint, average_fps: *mut c_uint, average_latency: *mut c_uint);
        pass nvmlVgpuInstanceGetFBCSessions(vgpu_instance: nvmlVgpuInstance_t, session_count: *mut c_uint, session_info: *mut nvmlFBCSessionInfo_t);
        pass nvmlVgpuInstanceGetFBCStats(vgpu_instance: nvmlVgpuInstance_t, fbc_stats: *mut nvmlFBCStats_t);
        pass nvmlVgpuInstanceGetFbUsage(vgpu_instance: nvmlVgpuInstance_t, fb_usage: *mut c_ulonglong);
        pass nvmlVgpuInstanceGetFrameRateLimit(vgpu_instance: nvmlVgpuInstance_t, frame_rate_limit: *mut c_uint);
        pass nvmlVgpuInstanceGetGpuInstanceId(vgpu_instance: nvmlVgpuInstance_t, gpu_instance_id: *mut c_uint);
        pass nvmlVgpuInstanceGetGpuPciId(vgpu_instance: nvmlVgpuInstance_t, vgpu_pci_id: *mut c_char, length: *mut c_uint);
        pass nvmlVgpuInstanceGetLicenseInfo(vgpu_instance: nvmlVgpuInstance_t, license_info: *mut nvmlVgpuLicenseInfo_t);
        pass nvmlVgpuInstanceGetLicenseInfo_v2(vgpu_instance: nvmlVgpuInstance_t, license_info: *mut nvmlVgpuLicenseInfo_t);
        pass nvmlVgpuInstanceGetLicenseStatus(vgpu_instance: nvmlVgpuInstance_t, licensed: *mut c_uint);
        pass nvmlVgpuInstanceGetMdevUUID(vgpu_instance: nvmlVgpuInstance_t, mdev_uuid: *mut c_char, size: c_uint);
        pass nvmlVgpuInstanceGetMetadata(vgpu_instance: nvmlVgpuInstance_t, vgpu_metadata: *mut nvmlVgpuMetadata_t, buffer_size: *mut c_uint);
        pass nvmlVgpuInstanceGetPlacementId(vgpu_instance: nvmlVgpuInstance_t, p_placement: *mut nvmlVgpuPlacementId_t);
        pass nvmlVgpuInstanceGetRuntimeStateSize(vgpu_instance: nvmlVgpuInstance_t, p_state: *mut nvmlVgpuRuntimeState_t);
        pass nvmlVgpuInstanceGetType(vgpu_instance: nvmlVgpuInstance_t, vgpu_type_id: *mut nvmlVgpuTypeId_t);
        pass nvmlVgpuInstanceGetUUID(vgpu_instance: nvmlVgpuInstance_t, uuid: *mut c_char, size: c_uint);
        pass nvmlVgpuInstanceGetVmDriverVersion(vgpu_instance: nvmlVgpuInstance_t, version: *mut c_char, length: c_uint);
        pass nvmlVgpuInstanceGetVmID(vgpu_instance: nvmlVgpuInstance_t, vm_id: *mut c_char, size: c_uint, vm_id_type: *mut c_uint);
        pass nvmlVgpuInstanceSetEncoderCapacity(vgpu_instance: nvmlVgpuInstance_t, encoder_capacity: c_uint);
        pass nvmlVgpuTypeGetBAR1Info(vgpu_type_id: nvmlVgpuTypeId_t, bar1_info: *mut nvmlVgpuTypeBar1Info_t);
        pass nvmlVgpuTypeGetCapabilities(vgpu_type_id: nvmlVgpuTypeId_t, capability: c_uint, cap_result: *mut c_uint);
        pass nvmlVgpuTypeGetClass(vgpu_type_id: nvmlVgpuTypeId_t, vgpu_type_class: *mut c_char, size: *mut c_uint);
        pass nvmlVgpuTypeGetDeviceID(vgpu_type_id: nvmlVgpuTypeId_t, device_id: *mut c_ulonglong, subsystem_id: *mut c_ulonglong);
        pass nvmlVgpuTypeGetFbReservation(vgpu_type_id: nvmlVgpuTypeId_t, fb_reservation: *mut c_ulonglong);
        pass nvmlVgpuTypeGetFrameRateLimit(vgpu_type_id: nvmlVgpuTypeId_t, frame_rate_limit: *mut c_uint);
        pass nvmlVgpuTypeGetFramebufferSize(vgpu_type_id: nvmlVgpuTypeId_t, fb_size: *mut c_ulonglong);
        pass nvmlVgpuTypeGetGpuInstanceProfileId(vgpu_type_id: nvmlVgpuTypeId_t, gpu_instance_profile_id: *mut c_uint);
        pass nvmlVgpuTypeGetGspHeapSize(vgpu_type_id: nvmlVgpuTypeId_t, gsp_heap_size: *mut c_ulonglong);
        pass nvmlVgpuTypeGetLicense(vgpu_type_id: nvmlVgpuTypeId_t, vgpu_type_license_string: *mut c_char, size: c_uint);
        pass nvmlVgpuTypeGetMaxInstances(device: nvmlDevice_t, vgpu_type_id: nvmlVgpuTypeId_t, vgpu_instance_count: *mut c_uint);
        pass nvmlVgpuTypeGetMaxInstancesPerGpuInstance(p_max_instance: *mut nvmlVgpuTypeMaxInstance_t);
        pass nvmlVgpuTypeGetMaxInstancesPerVm(vgpu_type_id: nvmlVgpuTypeId_t, vgpu_instance_count_per_vm: *mut c_uint);
        pass nvmlVgpuTypeGetName(vgpu_type_id: nvmlVgpuTypeId_t, vgpu_type_name: *mut c_char, size: *mut c_uint);
        pass nvmlVgpuTypeGetNumDisplayHeads(vgpu_type_id: nvmlVgpuTypeId_t, num_display_heads: *mut c_uint);
        pass nvmlVgpuTypeGetResolution(vgpu_type_id: nvmlVgpuTypeId_t, display_index: c_uint, xdim: *mut c_uint, ydim: *mut c_uint);
    }
    } };
}
