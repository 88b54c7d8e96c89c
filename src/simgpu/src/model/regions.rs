//! Regions: the memory behind device addresses.

use std::collections::BTreeMap;

use crate::state::layout::MemoryKind;

/// How a region came to be. It determines what happens when the region ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Memory from `cuMemAlloc` or `cuMemAllocPitch`.
    Linear,
    /// Memory from `cuMemAlloc` of the first generation. The address has 32 bits, and stands for another address.
    Low,
    /// Memory from `cuMemAllocManaged`.
    Managed,
    /// A block of the pool with this handle.
    Pool(u64),
    /// A mapping of the physical memory with this handle.
    Mapped(u64),
    /// A variable of a module.
    Variable,
    /// An allocation that a launched graph made.
    Graph,
    /// Memory that was imported from another process.
    Imported,
    /// A block of a pool that was imported from another process.
    ImportedBlock,
    /// Memory that was imported from another interface.
    External,
}

/// A range of device addresses with memory behind it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Region {
    /// Size in bytes.
    pub(crate) size: u64,
    /// Address of the region's bytes in the arena.
    pub(crate) backing: u64,
    /// The device of the memory. `None` for host memory.
    pub(crate) device: Option<usize>,
    /// The context whose end also ends the region; 0 for none.
    pub(crate) context: u64,
    /// How the region came to be.
    pub(crate) origin: Origin,
    /// Bytes of device memory charged for the region.
    pub(crate) charged: u64,
    /// The region's number, never reused.
    pub(crate) number: u64,
}

impl Region {
    /// Returns the kind of memory that the region is charged as. Returns `None` if the region has no charge of its own.
    pub(crate) fn kind(&self) -> Option<MemoryKind> {
        match self.origin {
            Origin::Linear | Origin::Low => Some(MemoryKind::Linear),
            Origin::Managed => Some(MemoryKind::Managed),
            Origin::Variable => Some(MemoryKind::Module),
            Origin::Pool(_)
            | Origin::Mapped(_)
            | Origin::Graph
            | Origin::Imported
            | Origin::ImportedBlock
            | Origin::External => None,
        }
    }
}

/// Host memory that the device can use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HostBlock {
    /// Size in bytes.
    pub(crate) size: u64,
    /// The flags with which the program made the memory.
    pub(crate) flags: u32,
    /// True if the memory is the program's own, which it registered.
    pub(crate) registered: bool,
    /// The context that the memory belongs to.
    pub(crate) context: u64,
}

/// All regions of this process, and the host memory that the device can use.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    device: BTreeMap<u64, Region>,
    host: BTreeMap<u64, HostBlock>,
    made: u64,
}

impl Regions {
    /// Adds a region, and gives it a number.
    pub(crate) fn add(&mut self, address: u64, mut region: Region) {
        self.made += 1;
        region.number = self.made;
        self.device.insert(address, region);
    }

    /// Removes the region that begins at an address, and returns it.
    pub(crate) fn remove(&mut self, address: u64) -> Option<Region> {
        self.device.remove(&address)
    }

    /// Sets the bytes charged for the region that begins at an address.
    pub(crate) fn set_charged(&mut self, address: u64, bytes: u64) {
        if let Some(region) = self.device.get_mut(&address) {
            region.charged = bytes;
        }
    }

    /// Returns the region that begins at an address.
    pub(crate) fn at(&self, address: u64) -> Option<&Region> {
        self.device.get(&address)
    }

    /// Returns the region that contains an address, and the region's start.
    pub(crate) fn around(&self, address: u64) -> Option<(u64, Region)> {
        let (&base, region) = self.device.range(..=address).next_back()?;
        (address - base < region.size).then_some((base, *region))
    }

    /// Returns the regions that begin inside a range.
    pub(crate) fn within(&self, address: u64, size: u64) -> Vec<(u64, Region)> {
        let end = address.saturating_add(size);
        self.device.range(address..end).map(|(base, region)| (*base, *region)).collect()
    }

    /// Returns the start addresses of all regions for which `fits` returns true.
    pub(crate) fn matching(&self, fits: impl Fn(&Region) -> bool) -> Vec<u64> {
        self.device.iter().filter(|(_, region)| fits(region)).map(|(base, _)| *base).collect()
    }

    /// Adds host memory that the device can use.
    pub(crate) fn add_host(&mut self, address: u64, block: HostBlock) {
        self.host.insert(address, block);
    }

    /// Removes the host memory that begins at an address, and returns it.
    pub(crate) fn remove_host(&mut self, address: u64) -> Option<HostBlock> {
        self.host.remove(&address)
    }

    /// Returns the host memory that contains an address, and its start.
    pub(crate) fn host_around(&self, address: u64) -> Option<(u64, HostBlock)> {
        let (&base, block) = self.host.range(..=address).next_back()?;
        (address - base < block.size).then_some((base, *block))
    }

    /// Returns the start addresses of all host memory that belongs to a context.
    pub(crate) fn host_of(&self, context: u64) -> Vec<u64> {
        self.host.iter().filter(|(_, block)| block.context == context).map(|(base, _)| *base).collect()
    }

    /// Splits a range of device addresses at the borders of regions. Returns, for each part, the address of its bytes in the
    /// arena, and its length. Returns `None` if a part of the range is in no region.
    pub(crate) fn parts(&self, address: u64, size: u64) -> Option<Vec<(u64, u64)>> {
        let mut parts = Vec::new();
        let (mut at, mut left) = (address, size);
        while left > 0 {
            let (base, region) = self.around(at)?;
            let length = left.min(region.size - (at - base));
            parts.push((region.backing + (at - base), length));
            (at, left) = (at.checked_add(length)?, left - length);
        }
        Some(parts)
    }
}
