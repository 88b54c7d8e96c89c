//! Physical memory with handles, and reserved addresses.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use gpuslice_driver::types::AllocationProperties;

use super::multicast::Group;

/// What sizes, offsets and addresses are multiples of.
pub(crate) const GRANULARITY: u64 = 2 << 20;

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
pub(crate) const FILE_DESCRIPTOR: u32 = 1;

/// `CU_MEM_HANDLE_TYPE_FABRIC`.
pub(crate) const FABRIC: u32 = 8;

/// Physical memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) size: u64,
    pub(crate) properties: Properties,
    /// The device whose memory it is; none for memory of the host.
    pub(crate) device: Option<usize>,
    pub(crate) backing: u64,
    /// Uses through handles.
    pub(crate) handles: u32,
    /// Mappings of it.
    pub(crate) mappings: u32,
    /// Number of its export; 0 while no other process can use it.
    pub(crate) export: u64,
}

/// What memory was asked for as.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Properties {
    pub(crate) kind: u32,
    pub(crate) handle_types: u32,
    pub(crate) location: (u32, i32),
    pub(crate) flags: [u8; 8],
}

/// All memory with handles, and all reserved addresses.
#[derive(Debug, Default)]
pub(crate) struct Vmm {
    pub(crate) memory: BTreeMap<u64, Memory>,
    pub(crate) made: u64,
    /// Files of memory that can be shared.
    pub(crate) files: BTreeMap<u64, OwnedFd>,
    /// Objects that stand for memory of several devices.
    pub(crate) groups: BTreeMap<u64, Group>,
    /// Start and size.
    pub(crate) reserved: BTreeMap<u64, u64>,
    /// Rights that were given, by start of a mapping.
    pub(crate) access: BTreeMap<u64, u32>,
    /// Which memory arrays have parts of: array and handle, with counts.
    pub(crate) arrays: Vec<(u64, u64)>,
}

/// Kinds of locations.
pub(crate) mod location {
    pub(crate) const DEVICE: u32 = 1;
    pub(crate) const HOST_KINDS: core::ops::RangeInclusive<u32> = 2..=4;
    pub(crate) const PART_OF_DEVICE: u32 = 6;
}

impl Memory {
    pub(crate) fn new(size: u64, properties: Properties, device: Option<usize>, backing: u64) -> Self {
        Self { size, properties, device, backing, handles: 1, mappings: 0, export: 0 }
    }
}

impl Properties {
    pub(crate) fn of(given: &AllocationProperties) -> Self {
        let location = (given.location.kind, given.location.id);
        Self { kind: given.kind, handle_types: given.handle_types, location, flags: given.flags }
    }
}
