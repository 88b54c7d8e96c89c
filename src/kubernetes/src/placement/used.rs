//! The parts of a node's GPUs that pods have, and the room that is left.

use crate::objects::{Gpu, Inventory, Part, Topology};
use std::collections::BTreeMap;

/// Sums of the parts on each GPU, by UUID: mebibytes, and percent of time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Used(BTreeMap<String, (u64, u32)>);

impl Used {
    /// Returns the sum of `parts`.
    pub fn of<'a, P: IntoIterator<Item = &'a Part>>(parts: P) -> Self {
        let mut used = Self::default();
        used.add(parts);
        used
    }

    /// Adds parts.
    pub fn add<'a, P: IntoIterator<Item = &'a Part>>(&mut self, parts: P) {
        for part in parts {
            let (memory, core) = self.0.entry(part.uuid.clone()).or_default();
            *memory = memory.saturating_add(part.mem_mib);
            *core = core.saturating_add(part.core);
        }
    }

    /// Returns the sum of the mebibytes on all GPUs.
    #[must_use]
    pub fn memory(&self) -> u64 {
        self.0.values().map(|(memory, _)| *memory).fold(0, u64::saturating_add)
    }

    /// Returns the room that is left on the working GPUs of a node, in the node's order.
    #[must_use]
    pub fn left<'a>(&self, inventory: &'a Inventory) -> Vec<Room<'a>> {
        let healthy = inventory.gpus.iter().enumerate().filter(|(_, gpu)| gpu.healthy);
        let room = |(position, gpu): (usize, &'a Gpu)| {
            let (memory, core) = self.0.get(&gpu.uuid).copied().unwrap_or_default();
            Room {
                gpu,
                position,
                mem_mib: gpu.mem_mib.saturating_sub(memory),
                core: gpu.core.saturating_sub(core),
            }
        };
        healthy.map(room).collect()
    }
}

/// Takes a part from the room of its GPU.
///
/// # Errors
/// The room if it is too small, or none if the GPU is not among `rooms`.
pub fn take<'a, 'g>(rooms: &'a mut [Room<'g>], part: &Part) -> Result<(), Option<&'a Room<'g>>> {
    let Some(room) = rooms.iter_mut().find(|room| room.gpu.uuid == part.uuid) else { return Err(None) };
    if room.take(part.mem_mib, part.core) { Ok(()) } else { Err(Some(room)) }
}

/// Room that is left on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room<'a> {
    /// The GPU.
    pub gpu: &'a Gpu,
    /// Position of the GPU in the list of its node.
    pub position: usize,
    /// Mebibytes that are left.
    pub mem_mib: u64,
    /// Percent of time that is left.
    pub core: u32,
}

impl Room<'_> {
    /// Returns true if a part of this size fits.
    #[must_use]
    pub const fn has(&self, mem_mib: u64, core: u32) -> bool {
        self.mem_mib >= mem_mib && self.core >= core
    }

    /// Takes a part if it fits. Returns true if it fitted.
    pub fn take(&mut self, mem_mib: u64, core: u32) -> bool {
        let left = self.mem_mib.checked_sub(mem_mib).zip(self.core.checked_sub(core));
        left.map(|(mem_mib, core)| (self.mem_mib, self.core) = (mem_mib, core)).is_some()
    }

    /// Returns true if the two GPUs have this connection. GPUs without a known NUMA node count as GPUs of the same node.
    #[must_use]
    pub fn has_link(&self, other: &Self, topology: Topology) -> bool {
        match topology {
            Topology::Nvlink => self.gpu.nvlink.contains(&other.position),
            Topology::Numa => self.gpu.numa == other.gpu.numa,
        }
    }

    /// Reduces the room to the room that both have.
    pub fn cut(&mut self, other: &Self) {
        (self.mem_mib, self.core) = (self.mem_mib.min(other.mem_mib), self.core.min(other.core));
    }
}
