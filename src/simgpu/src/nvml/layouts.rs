//! Structures that NVML receives from callers or fills for them.

use core::ffi::{c_int, c_uint, c_ulonglong};

/// The instance number of a device that is not divided.
pub(super) const NO_INSTANCE: c_uint = c_uint::MAX;

/// Returns the version word of a structure. By this word a caller tells which form of the structure it uses.
pub(super) const fn version<T>(number: u32) -> c_uint {
    #[allow(clippy::cast_possible_truncation, reason = "structures are small; asserted below")]
    let size = size_of::<T>() as c_uint;
    size | (number << 24)
}

/// A process, in the first form of the list of processes.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ProcessInfoV1 {
    pub(super) pid: c_uint,
    pub(super) used: c_ulonglong,
}

/// A process, in the second and third form of the list.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ProcessInfo {
    pub(super) pid: c_uint,
    pub(super) used: c_ulonglong,
    pub(super) gpu_instance: c_uint,
    pub(super) compute_instance: c_uint,
}

/// A process, in the detailed list.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ProcessDetail {
    pub(super) pid: c_uint,
    pub(super) used: c_ulonglong,
    pub(super) gpu_instance: c_uint,
    pub(super) compute_instance: c_uint,
    pub(super) protected: c_ulonglong,
}

/// The detailed list of processes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct ProcessDetailList {
    pub(super) version: c_uint,
    pub(super) mode: c_uint,
    pub(super) count: c_uint,
    pub(super) entries: *mut ProcessDetail,
}

/// How much one process used each engine of a device.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ProcessUse {
    pub(super) timestamp: c_ulonglong,
    pub(super) pid: c_uint,
    pub(super) sm: c_uint,
    pub(super) memory: c_uint,
    pub(super) others: [c_uint; 4],
}

/// The list of the use by each process.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct ProcessUseList {
    pub(super) version: c_uint,
    pub(super) count: c_uint,
    pub(super) last_seen: c_ulonglong,
    pub(super) entries: *mut ProcessUse,
}

/// One sample of a device.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Sample {
    pub(super) timestamp: c_ulonglong,
    /// A union of eight bytes. An unsigned integer is in the first four of them.
    pub(super) value: c_uint,
    pub(super) rest: c_uint,
}

/// The part of the device's memory that the host can access through the bus.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Bar1Memory {
    pub(super) total: c_ulonglong,
    pub(super) free: c_ulonglong,
    pub(super) used: c_ulonglong,
}

/// Bus address of a device. This is the oldest form, and all later forms begin with it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct PciInfoV1 {
    pub(super) legacy_bus_id: [u8; 16],
    pub(super) domain: c_uint,
    pub(super) bus: c_uint,
    pub(super) device: c_uint,
    pub(super) device_id: c_uint,
}

/// The second form, without the reserved words at its end.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct PciInfoV2 {
    pub(super) first: PciInfoV1,
    pub(super) subsystem_id: c_uint,
}

/// The form that begins with a version.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct PciInfoExt {
    pub(super) version: c_uint,
    pub(super) domain: c_uint,
    pub(super) bus: c_uint,
    pub(super) device: c_uint,
    pub(super) device_id: c_uint,
    pub(super) subsystem_id: c_uint,
    pub(super) base_class: c_uint,
    pub(super) sub_class: c_uint,
    pub(super) bus_id: [u8; 32],
}

/// A UUID: a text of at most 41 bytes, or 16 bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Uuid {
    pub(super) version: c_uint,
    /// 1 for a text, 2 for bytes.
    pub(super) kind: c_uint,
    pub(super) value: [u8; 41],
}

/// A temperature, in the form that begins with a version.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(super) struct Temperature {
    pub(super) version: c_uint,
    pub(super) sensor: c_uint,
    pub(super) degrees: c_int,
}

/// How busy one part of a device was over the last second.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Domain {
    pub(super) present: c_uint,
    pub(super) percentage: c_uint,
    pub(super) raise_at: c_uint,
    pub(super) lower_at: c_uint,
}

/// How busy each part of a device was.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Domains {
    pub(super) flags: c_uint,
    pub(super) domains: [Domain; 8],
}

const _: () = {
    assert!(size_of::<ProcessInfoV1>() == 16);
    assert!(size_of::<ProcessInfo>() == 24);
    assert!(size_of::<ProcessDetail>() == 32);
    assert!(size_of::<ProcessDetailList>() == 24);
    assert!(size_of::<ProcessUse>() == 40);
    assert!(size_of::<ProcessUseList>() == 24);
    assert!(size_of::<Sample>() == 16);
    assert!(size_of::<Bar1Memory>() == 24);
    assert!(size_of::<PciInfoV1>() == 32);
    assert!(size_of::<PciInfoV2>() == 36);
    assert!(size_of::<PciInfoExt>() == 64);
    assert!(size_of::<Uuid>() == 52);
    assert!(size_of::<Temperature>() == 12);
    assert!(size_of::<Domains>() == 132);
    assert!(version::<gpuslice_driver::types::nvmlMemory_v2_t>(2) == 0x0200_0028);
};
