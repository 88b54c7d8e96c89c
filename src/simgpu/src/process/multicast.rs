//! Multicast objects: one object stands for memory of several devices.
//!
//! An object has a handle, and the program can map it like memory. The object takes no memory itself. Memory that is bound to
//! it stays bound until the program unbinds it, or until the object has neither a handle nor a mapping. Bytes that are
//! written to an object are lost.

use gpuslice_driver::types::{Status, status};

use super::objects::ProcessObjects;
use super::simulation::Simulation;
use crate::model::multicast::{BoundMemory, MulticastGroup, MulticastProperties, Part};
use crate::model::regions::Origin;
use crate::model::virtual_memory::{GRANULARITY, PhysicalMemory, Properties};
use crate::status::{Outcome, statuses};

impl MulticastProperties {
    pub(crate) fn check(&self) -> Outcome {
        let size = self.size as u64;
        let wrong = self.devices == 0 || self.flags != 0 || size == 0 || !size.is_multiple_of(GRANULARITY);
        if wrong { Err(status::INVALID_VALUE) } else { Ok(()) }
    }
}

impl ProcessObjects {
    /// Makes a multicast object, and returns its handle.
    pub(crate) fn make_group(
        &mut self,
        simulation: &Simulation,
        wanted: MulticastProperties,
    ) -> Result<u64, Status> {
        wanted.check()?;
        let size = wanted.size as u64;
        let backing = simulation.arena.take(size, GRANULARITY).ok_or(status::OUT_OF_MEMORY)?;
        let properties = Properties { kind: 1, handle_types: 0, location: (0, 0), flags: [0; 8] };
        let handle = self.note_memory(PhysicalMemory::new(size, properties, None, backing));
        let wanted = wanted.devices as usize;
        self.vmm.groups.insert(handle, MulticastGroup { wanted, devices: Vec::new(), bound: Vec::new() });
        Ok(handle)
    }

    fn group(&mut self, handle: u64) -> Result<&mut MulticastGroup, Status> {
        self.memory(handle)?;
        self.vmm.groups.get_mut(&handle).ok_or(status::INVALID_VALUE)
    }

    /// Adds a device to a multicast object.
    pub(crate) fn add_to_group(&mut self, handle: u64, device: usize) -> Outcome {
        let group = self.group(handle)?;
        if group.devices.contains(&device) || group.devices.len() == group.wanted {
            return Err(status::INVALID_VALUE);
        }
        group.devices.push(device);
        Ok(())
    }

    /// Binds memory of a device that was added.
    pub(crate) fn bind(
        &mut self,
        simulation: &Simulation,
        handle: u64,
        at: u64,
        part: Part,
        on: Option<usize>,
    ) -> Outcome {
        let whole = self.memory(handle)?.size;
        let memory = self.memory_behind(part.memory)?;
        let device = memory.device.ok_or(status::INVALID_VALUE)?;
        let inside = |start: u64, size: u64| start.checked_add(part.size).is_some_and(|end| end <= size);
        let even = [at, part.offset, part.size].iter().all(|value| value.is_multiple_of(GRANULARITY));
        let fits = part.size > 0 && inside(at, whole) && inside(part.offset, memory.size);
        let group = self.group(handle)?;
        let free = |bound: &BoundMemory| {
            bound.device != device || at >= bound.offset + bound.size || bound.offset >= at + part.size
        };
        if group.devices.len() < group.wanted {
            return Err(statuses::ILLEGAL_STATE);
        }
        let known = group.devices.contains(&device) && on.is_none_or(|on| on == device);
        if !even || !fits || !known || !group.bound.iter().all(free) {
            return Err(status::INVALID_VALUE);
        }
        group.bound.push(BoundMemory { device, offset: at, size: part.size, memory: part.memory });
        self.change(simulation, part.memory, |memory| memory.mappings += 1);
        Ok(())
    }

    /// Returns the memory that is mapped at an address, as a part that can be bound.
    pub(crate) fn part_at(&self, address: u64, size: u64) -> Result<Part, Status> {
        let (base, region) = self.regions.around(address).ok_or(status::INVALID_VALUE)?;
        let Origin::Mapped(memory) = region.origin else { return Err(status::INVALID_VALUE) };
        Ok(Part { memory, offset: address - base, size })
    }

    /// Unbinds the memory of a device that is bound in a range.
    pub(crate) fn unbind(
        &mut self,
        simulation: &Simulation,
        handle: u64,
        device: usize,
        at: u64,
        size: u64,
    ) -> Outcome {
        let end = at.checked_add(size).ok_or(status::INVALID_VALUE)?;
        let group = self.group(handle)?;
        let inside = |bound: &mut BoundMemory| {
            bound.device == device && at <= bound.offset && bound.offset + bound.size <= end
        };
        let gone: Vec<BoundMemory> = group.bound.extract_if(.., inside).collect();
        if gone.is_empty() {
            return Err(status::INVALID_VALUE);
        }
        self.let_go(simulation, &gone);
        Ok(())
    }

    /// Ends the multicast object with this handle. Does nothing if the handle is of other memory.
    pub(crate) fn end_group(&mut self, simulation: &Simulation, handle: u64) {
        if let Some(group) = self.vmm.groups.remove(&handle) {
            self.let_go(simulation, &group.bound);
        }
    }

    fn let_go(&mut self, simulation: &Simulation, gone: &[BoundMemory]) {
        for bound in gone {
            self.change(simulation, bound.memory, |memory| memory.mappings -= 1);
        }
    }
}
