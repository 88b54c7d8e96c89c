//! Physical memory that has a handle, and reserved addresses at which it can be mapped.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;

use gpuslice_driver::types::AllocationProperties;

use super::multicast::MulticastGroup;

/// Sizes, offsets and addresses are multiples of this number of bytes.
pub(crate) const GRANULARITY: u64 = 2 << 20;

/// `CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR`.
pub(crate) const FILE_DESCRIPTOR: u32 = 1;

/// `CU_MEM_HANDLE_TYPE_FABRIC`.
pub(crate) const FABRIC: u32 = 8;

/// Physical memory that has a handle.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PhysicalMemory {
    pub(crate) size: u64,
    pub(crate) properties: Properties,
    /// The device of the memory. `None` for host memory.
    pub(crate) device: Option<usize>,
    pub(crate) backing: u64,
    /// How many times the program holds the handle.
    pub(crate) handles: u32,
    /// How many times the memory is mapped.
    pub(crate) mappings: u32,
    /// Number of the memory's export; 0 while no other process can use the memory.
    pub(crate) export: u64,
}

/// The properties that the program asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Properties {
    pub(crate) kind: u32,
    pub(crate) handle_types: u32,
    pub(crate) location: (u32, i32),
    pub(crate) flags: [u8; 8],
}

/// All physical memory with handles, and all reserved addresses of this process.
#[derive(Debug, Default)]
pub(crate) struct Vmm {
    pub(crate) memory: BTreeMap<u64, PhysicalMemory>,
    pub(crate) made: u64,
    /// The files of memory that can be shared, by handle.
    pub(crate) files: BTreeMap<u64, OwnedFd>,
    /// Multicast objects, by handle.
    pub(crate) groups: BTreeMap<u64, MulticastGroup>,
    /// The reserved address ranges: the size of each, by start.
    pub(crate) reserved: BTreeMap<u64, u64>,
    /// The access rights of each mapping, by start.
    pub(crate) access: BTreeMap<u64, u32>,
    /// Arrays with mapped parts: the array, and the handle of the memory, once for each part.
    pub(crate) arrays: Vec<(u64, u64)>,
}

/// Kinds of locations.
pub(crate) mod location {
    pub(crate) const NONE: u32 = 0;
    pub(crate) const DEVICE: u32 = 1;
    pub(crate) const HOST_KINDS: core::ops::RangeInclusive<u32> = 2..=4;
    pub(crate) const PART_OF_DEVICE: u32 = 6;
}

impl PhysicalMemory {
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
