//! Types of NVML.
#![allow(
    non_camel_case_types,
    missing_docs,
    reason = "the names are NVML's, so that a row reads like its declaration; most are never looked into"
)]

use super::cuda::opaque;
use core::ffi::{c_uint, c_ulonglong, c_void};

/// Memory of a device in bytes, first form.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct nvmlMemory_t {
    /// Size of the device's memory.
    pub total: c_ulonglong,
    /// Bytes that no process holds.
    pub free: c_ulonglong,
    /// Bytes held, including the driver's own reserve.
    pub used: c_ulonglong,
}

/// Memory of a device in bytes, second form.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct nvmlMemory_v2_t {
    /// Size and version of this structure, set by the caller: `0x0200_0028`.
    pub version: c_uint,
    /// Size of the device's memory.
    pub total: c_ulonglong,
    /// Bytes that the driver keeps for itself.
    pub reserved: c_ulonglong,
    /// Bytes that no process holds.
    pub free: c_ulonglong,
    /// Bytes held, without the driver's reserve.
    pub used: c_ulonglong,
}

/// Use of a device over the last sample period, in percent.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct nvmlUtilization_t {
    /// Time during which a kernel ran.
    pub gpu: c_uint,
    /// Time during which device memory was read or written.
    pub memory: c_uint,
}

/// Use of a device by one process in one sample.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct nvmlProcessUtilizationSample_t {
    /// Process number.
    pub pid: c_uint,
    /// Time of the sample, in microseconds.
    pub timestamp: c_ulonglong,
    /// Multiprocessors, percent.
    pub sm: c_uint,
    /// Memory, percent.
    pub memory: c_uint,
    /// Encoder, percent.
    pub encoder: c_uint,
    /// Decoder, percent.
    pub decoder: c_uint,
}

/// A process in a list of the first form.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct nvmlProcessInfo_v1_t {
    /// Process number.
    pub pid: c_uint,
    /// Bytes of the device's memory that the process uses.
    pub used_gpu_memory: c_ulonglong,
}

/// A process in a list of the second form, and of the third as headers declare it.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct nvmlProcessInfo_v2_t {
    /// Process number.
    pub pid: c_uint,
    /// Bytes of the device's memory that the process uses.
    pub used_gpu_memory: c_ulonglong,
    /// The GPU instance; all ones if there is none.
    pub gpu_instance_id: c_uint,
    /// The compute instance; all ones if there is none.
    pub compute_instance_id: c_uint,
}

/// The type that current headers have under this name. Drivers 535.43 to 535.86 write [`nvmlProcessDetail_v1_t`] instead.
pub type nvmlProcessInfo_t = nvmlProcessInfo_v2_t;

/// A process in a list with details.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct nvmlProcessDetail_v1_t {
    /// Process number.
    pub pid: c_uint,
    /// Bytes of the device's memory that the process uses.
    pub used_gpu_memory: c_ulonglong,
    /// The GPU instance; all ones if there is none.
    pub gpu_instance_id: c_uint,
    /// The compute instance; all ones if there is none.
    pub compute_instance_id: c_uint,
    /// Bytes of protected memory that the process uses.
    pub used_gpu_cc_protected_memory: c_ulonglong,
}

/// A list with details.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct nvmlProcessDetailList_t {
    /// Size and version of this structure, set by the caller: `0x0100_0018`.
    pub version: c_uint,
    /// The kind of processes: 0 compute, 1 graphics, 2 clients of the multi-process service, 3 all.
    pub mode: c_uint,
    /// Before the call the number of entries that fit, after it the number of entries.
    pub num_proc_array_entries: c_uint,
    /// The caller's memory for the entries.
    pub proc_array: *mut nvmlProcessDetail_v1_t,
}

/// Use of a device by one process, all engines, in percent.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct nvmlProcessUtilizationInfo_v1_t {
    /// Time of the sample, in microseconds.
    pub timestamp: c_ulonglong,
    /// Process number.
    pub pid: c_uint,
    /// Multiprocessors.
    pub sm: c_uint,
    /// Memory.
    pub memory: c_uint,
    /// Encoder.
    pub encoder: c_uint,
    /// Decoder.
    pub decoder: c_uint,
    /// JPEG decoder.
    pub jpeg: c_uint,
    /// Optical flow.
    pub optical_flow: c_uint,
}

/// A list of the use of a device by processes.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct nvmlProcessesUtilizationInfo_t {
    /// Size and version of this structure, set by the caller: `0x0100_0018`.
    pub version: c_uint,
    /// Before the call the number of entries that fit, after it the number of entries.
    pub process_samples_count: c_uint,
    /// Only samples after this time are in the answer, in microseconds.
    pub last_seen_time_stamp: c_ulonglong,
    /// The caller's memory for the entries.
    pub proc_util_array: *mut nvmlProcessUtilizationInfo_v1_t,
}

/// Position of a device on the bus.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct nvmlPciInfo_t {
    /// Short bus id, zero-terminated.
    pub legacy_bus_id: [u8; 16],
    /// Domain.
    pub domain: c_uint,
    /// Bus.
    pub bus: c_uint,
    /// Device.
    pub device: c_uint,
    /// Device and vendor.
    pub device_id: c_uint,
    /// Subsystem.
    pub subsystem_id: c_uint,
    /// Bus id, zero-terminated.
    pub bus_id: [u8; 32],
}

const _: () = assert!(size_of::<nvmlMemory_v2_t>() == 40);
const _: () = assert!(size_of::<nvmlProcessUtilizationSample_t>() == 32);
const _: () = assert!(size_of::<nvmlPciInfo_t>() == 68);
const _: () = assert!(size_of::<nvmlProcessInfo_v1_t>() == 16);
const _: () = assert!(size_of::<nvmlProcessInfo_v2_t>() == 24);
const _: () = assert!(size_of::<nvmlProcessDetail_v1_t>() == 32);
const _: () = assert!(size_of::<nvmlProcessDetailList_t>() == 24);
const _: () = assert!(size_of::<nvmlProcessUtilizationInfo_v1_t>() == 40);
const _: () = assert!(size_of::<nvmlProcessesUtilizationInfo_t>() == 24);

macro_rules! handles {
    ($($name:ident),* $(,)?) => { $( pub type $name = *mut c_void; )* };
}

macro_rules! integers {
    ($($name:ident),* $(,)?) => { $( pub type $name = c_uint; )* };
}

handles! {
    nvmlComputeInstance_t, nvmlDevice_t, nvmlEventSet_t, nvmlGpmSample_t, nvmlGpuInstance_t, nvmlUnit_t,
}

integers! {
    nvmlAffinityScope_t, nvmlBrandType_t, nvmlBusType_t, nvmlComputeMode_t, nvmlDeviceArchitecture_t,
    nvmlDriverModel_t, nvmlEnableState_t, nvmlFanControlPolicy_t, nvmlGpuOperationMode_t,
    nvmlGpuP2PStatus_t, nvmlGpuTopologyLevel_t, nvmlGpuVirtualizationMode_t, nvmlHostVgpuMode_t,
    nvmlIntNvLinkDeviceType_t, nvmlPowerSource_t, nvmlPstates_t, nvmlReturn_t, nvmlValueType_t,
    nvmlVgpuInstance_t, nvmlVgpuTypeId_t, nvmlVgpuVmIdType_t,
}

opaque! {
    nvmlAccountingStats_t, nvmlAccountingStats_v2_t, nvmlActiveVgpuInstanceInfo_t,
    nvmlAdaptiveTgpModeInfo_v1_t, nvmlBAR1Memory_t, nvmlBBXTimeData_v1_t, nvmlBridgeChipHierarchy_t,
    nvmlC2cModeInfo_v1_t, nvmlClkMonStatus_t, nvmlClockOffset_t, nvmlComputeInstanceInfo_t,
    nvmlComputeInstancePlacement_t, nvmlComputeInstanceProfileInfo_t, nvmlComputeInstanceProfileInfo_v2_t,
    nvmlConfComputeGetKeyRotationThresholdInfo_t, nvmlConfComputeGpuAttestationReport_t,
    nvmlConfComputeGpuCertificate_t, nvmlConfComputeMemSizeInfo_t,
    nvmlConfComputeSetKeyRotationThresholdInfo_t, nvmlConfComputeSystemCaps_t,
    nvmlConfComputeSystemState_t, nvmlCoolerInfo_t, nvmlDeviceAddressingMode_t, nvmlDeviceAttributes_t,
    nvmlDeviceCapabilities_t, nvmlDeviceCurrentClockFreqs_t, nvmlDevicePerfModes_t,
    nvmlDevicePowerMizerModes_v1_t, nvmlDramEncryptionInfo_t, nvmlEccBankRemapperStatus_v1_t,
    nvmlEccErrorCounts_t, nvmlEccSramErrorStatus_t, nvmlEccSramUniqueUncorrectedErrorCounts_t,
    nvmlEncoderSessionInfo_t, nvmlEventData_t, nvmlEventSetGetContextCount_v1_t,
    nvmlEventSetGetContextData_v1_t, nvmlEventSetGetContextInfo_v1_t,
    nvmlEventSetGetGpuOperationalEventContextLegacyXid_v1_t, nvmlEventSetWait_v3_t,
    nvmlExcludedDeviceInfo_t, nvmlFBCSessionInfo_t, nvmlFBCStats_t, nvmlFanSpeedInfo_t, nvmlFieldValue_t,
    nvmlGetCPER_v1_t, nvmlGetMemoryLimits_v1_t, nvmlGpmMetricsGet_t, nvmlGpmSupport_t,
    nvmlGpuDynamicPstatesInfo_t, nvmlGpuFabricInfoV_t, nvmlGpuFabricInfo_t, nvmlGpuFabricInfo_v4_t,
    nvmlGpuInstanceInfo_t, nvmlGpuInstancePlacement_t, nvmlGpuInstanceProfileInfo_t,
    nvmlGpuInstanceProfileInfo_v2_t, nvmlGpuOperationalEventConfig_v1_t, nvmlGpuThermalSettings_t,
    nvmlGpuUptime_v1_t, nvmlGridLicensableFeatures_t, nvmlHostname_v1_t, nvmlHwbcEntry_t, nvmlLedState_t,
    nvmlMarginTemperature_t, nvmlNvLinkInfo_t, nvmlNvLinkInfo_v3_t, nvmlNvLinkPowerThres_t,
    nvmlNvLinkUtilizationControl_t, nvmlNvlinkGetBwMode_t, nvmlNvlinkGetRemapTableInfo_v1_t,
    nvmlNvlinkLockRemapTable_v1_t, nvmlNvlinkNvlePrivateInfo_v1_t, nvmlNvlinkSetBwModeAsync_v1_t,
    nvmlNvlinkSetBwMode_t, nvmlNvlinkSetNvleReady_v1_t, nvmlNvlinkSetupNvleEncryptionKey_v1_t,
    nvmlNvlinkSupportedBwModes_t, nvmlNvlinkTelemetrySamples_v1_t, nvmlPRMCounterList_v1_t,
    nvmlPRMTLV_v1_t, nvmlPSUInfo_t, nvmlPciInfoExt_t, nvmlPdi_t, nvmlPerfMetricsSamples_v1_t,
    nvmlPlatformInfo_t, nvmlPowerSmoothingProfile_t, nvmlPowerSmoothingState_t, nvmlPowerValue_v2_t,
    nvmlRemappedRowsInfo_v2_t, nvmlRepairStatus_t,
    nvmlRowRemapperHistogramValues_t, nvmlRusdSettings_v1_t, nvmlSample_t, nvmlSetMemoryLimits_v1_t,
    nvmlSystemConfComputeSettings_t, nvmlSystemConfComputeSettings_v2_t, nvmlSystemDriverBranchInfo_t,
    nvmlSystemEventSetCreateRequest_t, nvmlSystemEventSetFreeRequest_t, nvmlSystemEventSetWaitRequest_t,
    nvmlSystemRegisterEventRequest_t, nvmlTemperature_t, nvmlUUID_t, nvmlUnitFanSpeeds_t, nvmlUnitInfo_t,
    nvmlUnrepairableMemoryStatus_v1_t, nvmlVgpuCreatablePlacementInfo_t, nvmlVgpuHeterogeneousMode_t,
    nvmlVgpuInstanceUtilizationSample_t, nvmlVgpuInstancesUtilizationInfo_t, nvmlVgpuLicenseInfo_t,
    nvmlVgpuMetadata_t, nvmlVgpuPgpuCompatibility_t, nvmlVgpuPgpuMetadata_t, nvmlVgpuPlacementId_t,
    nvmlVgpuPlacementList_t, nvmlVgpuProcessUtilizationSample_t, nvmlVgpuProcessesUtilizationInfo_t,
    nvmlVgpuRuntimeState_t, nvmlVgpuSchedulerCapabilities_t, nvmlVgpuSchedulerGetState_t,
    nvmlVgpuSchedulerLogInfo_t, nvmlVgpuSchedulerLogInfo_v2_t, nvmlVgpuSchedulerLog_t,
    nvmlVgpuSchedulerSetState_t, nvmlVgpuSchedulerStateInfo_t, nvmlVgpuSchedulerStateInfo_v2_t,
    nvmlVgpuSchedulerState_t, nvmlVgpuSchedulerState_v2_t, nvmlVgpuTypeBar1Info_t, nvmlVgpuTypeIdInfo_t,
    nvmlVgpuTypeMaxInstance_t, nvmlVgpuVersion_t, nvmlViolationTime_t,
    nvmlWorkloadPowerProfileCurrentProfiles_t, nvmlWorkloadPowerProfileProfilesInfo_t,
    nvmlWorkloadPowerProfileRequestedProfiles_t, nvmlWorkloadPowerProfileUpdateProfiles_v1_t,
}
