//! Physical memory, and addresses that the program reserves without memory.
//!
//! Memory lives as long as it has a handle or a mapping. The program reserves addresses, and maps memory at them.

use std::os::fd::{AsRawFd, OwnedFd};

use gpuslice_driver::types::{Status, status};

use super::objects::ProcessObjects;
use super::simulation::Simulation;
use crate::model::ipc_handles::{self, IpcHandle, Label, Purpose};
use crate::model::regions::{Origin, Region};
use crate::model::virtual_memory::{
    FABRIC, FILE_DESCRIPTOR, GRANULARITY, PhysicalMemory, Properties, location,
};
use crate::state::layout::MemoryKind;
use crate::status::{Outcome, statuses};

/// Returns the device of a location. Returns `None` for the host.
pub(crate) fn device_of(simulation: &Simulation, (kind, id): (u32, i32)) -> Result<Option<usize>, Status> {
    match kind {
        location::DEVICE | location::PART_OF_DEVICE => simulation.device(id).map(Some),
        kind if location::HOST_KINDS.contains(&kind) => Ok(None),
        _ => Err(status::INVALID_VALUE),
    }
}

fn aligned(values: &[u64]) -> Outcome {
    if values.iter().all(|value| value.is_multiple_of(GRANULARITY)) {
        Ok(())
    } else {
        Err(status::INVALID_VALUE)
    }
}

impl ProcessObjects {
    /// Takes physical memory, and returns its handle.
    pub(crate) fn create_memory(
        &mut self,
        simulation: &Simulation,
        size: u64,
        given: Properties,
    ) -> Result<u64, Status> {
        aligned(&[size])?;
        if size == 0 || given.kind != 1 {
            return Err(status::INVALID_VALUE);
        }
        let device = device_of(simulation, given.location)?;
        if let Some(device) = device {
            simulation.allocate(device, MemoryKind::Vmm, size)?;
        }
        let Some(backing) = simulation.arena.take(size, GRANULARITY) else {
            if let Some(device) = device {
                simulation.release(device, MemoryKind::Vmm, size);
            }
            return Err(status::OUT_OF_MEMORY);
        };
        let handle = self.note_memory(PhysicalMemory::new(size, given, device, backing));
        if given.handle_types & (FILE_DESCRIPTOR | FABRIC) != 0 {
            let file =
                ipc_handles::make_file(size).filter(|file| simulation.arena.put_file(backing, size, file, 0));
            self.vmm.files.extend(file.map(|file| (handle, file)));
        }
        Ok(handle)
    }

    pub(crate) fn note_memory(&mut self, memory: PhysicalMemory) -> u64 {
        self.vmm.made += 1;
        let handle = 0x0e00_0000_0000 | (self.vmm.made << 4);
        self.vmm.memory.insert(handle, memory);
        handle
    }

    /// Returns a descriptor by which another process can import the memory.
    pub(crate) fn export_memory(&mut self, simulation: &Simulation, handle: u64) -> Result<i32, Status> {
        self.label(simulation, handle, FILE_DESCRIPTOR)?;
        let file = self.vmm.files.get(&handle).ok_or(status::INVALID_VALUE)?;
        ipc_handles::hand_over(file)
    }

    /// Returns the bytes by which another process can import the memory. The API allows another node, too.
    pub(crate) fn export_to_fabric(
        &mut self,
        simulation: &Simulation,
        handle: u64,
    ) -> Result<[u8; 64], Status> {
        let label = self.label(simulation, handle, FABRIC)?;
        let file = self.vmm.files.get(&handle).ok_or(status::INVALID_VALUE)?;
        let descriptor = u64::try_from(file.as_raw_fd()).map_err(|_| statuses::UNKNOWN)?;
        let (pid, serial) = (u64::from(std::process::id()), simulation.serial);
        IpcHandle { pid, serial, descriptor, offset: 0, label }.bytes(Purpose::Fabric)
    }

    /// Makes the memory an export, for handles of type `kind`, and returns the label of the export.
    fn label(&mut self, simulation: &Simulation, handle: u64, kind: u32) -> Result<Label, Status> {
        let memory = self.memory(handle)?;
        let file = self.vmm.files.get(&handle).ok_or(status::INVALID_VALUE)?;
        if memory.properties.handle_types & kind == 0 {
            return Err(status::INVALID_VALUE);
        }
        let mut number = memory.export;
        let device = memory.device.ok_or(status::NOT_SUPPORTED)?;
        if number == 0 {
            let exported =
                simulation.shared.lock().export(simulation.slot, device, MemoryKind::Vmm, memory.size);
            number = exported.ok_or(status::OUT_OF_MEMORY)?;
            ipc_handles::write_label(file, Label { number, device: device as u64, size: memory.size })?;
            self.change(simulation, handle, |memory| memory.export = number);
        }
        Ok(Label { number, device: device as u64, size: memory.size })
    }

    /// Imports memory of another process, or of this one, from a descriptor. Returns a new handle.
    pub(crate) fn import_memory(&mut self, simulation: &Simulation, descriptor: i32) -> Result<u64, Status> {
        self.import_file(simulation, ipc_handles::duplicate(descriptor)?)
    }

    /// Imports memory from the bytes that [`ProcessObjects::export_to_fabric`] returned.
    pub(crate) fn import_from_fabric(
        &mut self,
        simulation: &Simulation,
        bytes: &[u8; 64],
    ) -> Result<u64, Status> {
        let file = IpcHandle::read(bytes, Purpose::Fabric)?.open().map_err(|_| status::INVALID_VALUE)?;
        self.import_file(simulation, file)
    }

    fn import_file(&mut self, simulation: &Simulation, file: OwnedFd) -> Result<u64, Status> {
        let label = ipc_handles::read_label(&file)?;
        let mut own = self.vmm.memory.iter_mut().filter(|(_, memory)| memory.export == label.number);
        if let Some((handle, memory)) = own.next() {
            memory.handles += 1;
            return Ok(*handle);
        }
        let backing = simulation.arena.take(label.size, GRANULARITY).ok_or(status::OUT_OF_MEMORY)?;
        let there = simulation.arena.put_file(backing, label.size, &file, 0);
        if !there || !simulation.shared.lock().import(simulation.slot, label.number) {
            simulation.arena.give_with_file(backing, label.size);
            return Err(status::INVALID_VALUE);
        }
        let device = usize::try_from(label.device).map_err(|_| status::INVALID_VALUE)?;
        let location = (location::DEVICE, simulation.ordinal(device));
        let handle_types = FILE_DESCRIPTOR | FABRIC;
        let properties = Properties { kind: 1, handle_types, location, flags: [0; 8] };
        let memory = PhysicalMemory::new(label.size, properties, Some(device), backing);
        let handle = self.note_memory(PhysicalMemory { export: label.number, ..memory });
        self.vmm.files.insert(handle, file);
        Ok(handle)
    }

    /// Returns true if this process has exported or imported memory with this number.
    pub(crate) fn has_export(&self, number: u64) -> bool {
        self.vmm.memory.values().any(|memory| memory.export == number)
    }

    /// Returns the memory that a handle stands for, even if the program has released the handle.
    pub(crate) fn memory_behind(&self, handle: u64) -> Result<PhysicalMemory, Status> {
        self.vmm.memory.get(&handle).copied().ok_or(status::INVALID_VALUE)
    }

    /// Returns the memory that a handle stands for, if the program holds the handle.
    pub(crate) fn memory(&self, handle: u64) -> Result<PhysicalMemory, Status> {
        let memory = self.vmm.memory.get(&handle).filter(|memory| memory.handles > 0);
        memory.copied().ok_or(status::INVALID_VALUE)
    }

    /// Releases a handle once.
    pub(crate) fn release_handle(&mut self, simulation: &Simulation, handle: u64) -> Outcome {
        self.memory(handle)?;
        self.change(simulation, handle, |memory| memory.handles -= 1);
        Ok(())
    }

    /// Changes how memory is used. If it has no handle and no mapping after that, it ends.
    pub(crate) fn change(
        &mut self,
        simulation: &Simulation,
        handle: u64,
        change: impl FnOnce(&mut PhysicalMemory),
    ) {
        let Some(memory) = self.vmm.memory.get_mut(&handle) else { return };
        change(memory);
        if memory.handles == 0 && memory.mappings == 0 {
            let memory = *memory;
            self.vmm.memory.remove(&handle);
            self.end_group(simulation, handle);
            match self.vmm.files.remove(&handle) {
                Some(_) => simulation.arena.give_with_file(memory.backing, memory.size),
                None => simulation.arena.give(memory.backing, memory.size),
            }
            match memory.device {
                Some(_) if memory.export != 0 => self.leave_export(simulation, memory.export),
                Some(device) => simulation.release(device, MemoryKind::Vmm, memory.size),
                None => {}
            }
        }
    }

    /// Reserves addresses, and returns the first one.
    pub(crate) fn reserve(
        &mut self,
        simulation: &Simulation,
        size: u64,
        alignment: u64,
        wish: u64,
    ) -> Result<u64, Status> {
        aligned(&[size])?;
        if size == 0 || (alignment != 0 && !alignment.is_power_of_two()) {
            return Err(status::INVALID_VALUE);
        }
        let wished = wish != 0 && wish.is_multiple_of(GRANULARITY) && simulation.arena.take_at(wish, size);
        let address = if wished {
            wish
        } else {
            let taken = simulation.arena.take(size, alignment.max(GRANULARITY));
            taken.ok_or(status::OUT_OF_MEMORY)?
        };
        self.vmm.reserved.insert(address, size);
        Ok(address)
    }

    /// Gives a range of reserved addresses back.
    pub(crate) fn unreserve(&mut self, simulation: &Simulation, address: u64, size: u64) -> Outcome {
        let known = self.vmm.reserved.get(&address) == Some(&size);
        if !known || !self.regions.within(address, size).is_empty() {
            return Err(status::INVALID_VALUE);
        }
        self.vmm.reserved.remove(&address);
        simulation.arena.give(address, size);
        Ok(())
    }

    /// Returns true if a range lies inside one range of reserved addresses.
    fn is_reserved(&self, address: u64, size: u64) -> bool {
        let around = self.vmm.reserved.range(..=address).next_back();
        let end = address.checked_add(size);
        around.zip(end).is_some_and(|((start, length), end)| end <= start + length)
    }

    /// Maps memory at reserved addresses.
    pub(crate) fn map(
        &mut self,
        simulation: &Simulation,
        address: u64,
        size: u64,
        offset: u64,
        handle: u64,
    ) -> Outcome {
        aligned(&[address, size, offset])?;
        let memory = self.memory(handle)?;
        let fits = offset.checked_add(size).is_some_and(|end| end <= memory.size);
        let taken = !self.regions.within(address, size).is_empty() || self.regions.around(address).is_some();
        if size == 0 || !fits || taken || !self.is_reserved(address, size) {
            return Err(status::INVALID_VALUE);
        }
        let (backing, device, origin) = (memory.backing + offset, memory.device, Origin::Mapped(handle));
        self.regions
            .add(address, Region { size, backing, device, context: 0, origin, charged: 0, number: 0 });
        self.change(simulation, handle, |memory| memory.mappings += 1);
        Ok(())
    }

    /// Removes all mappings in a range. Fails unless the range consists of whole mappings.
    pub(crate) fn unmap(&mut self, simulation: &Simulation, address: u64, size: u64) -> Outcome {
        let mapped = self.regions.within(address, size);
        let covered: u64 = mapped.iter().map(|(_, region)| region.size).sum();
        let ours = mapped.iter().all(|(_, region)| matches!(region.origin, Origin::Mapped(_)));
        if mapped.is_empty() || covered != size || !ours {
            return Err(status::INVALID_VALUE);
        }
        for (start, region) in mapped {
            self.regions.remove(start);
            self.vmm.access.remove(&start);
            if let Origin::Mapped(handle) = region.origin {
                self.change(simulation, handle, |memory| memory.mappings -= 1);
            }
        }
        Ok(())
    }

    /// Takes one more use of the handle of the memory at an address, and returns the handle.
    pub(crate) fn retain(&mut self, simulation: &Simulation, address: u64) -> Result<u64, Status> {
        let (_, region) = self.regions.around(address).ok_or(status::INVALID_VALUE)?;
        let Origin::Mapped(handle) = region.origin else { return Err(status::INVALID_VALUE) };
        self.change(simulation, handle, |memory| memory.handles += 1);
        Ok(handle)
    }

    /// Sets the access rights of mapped addresses.
    pub(crate) fn set_access(&mut self, address: u64, size: u64, rights: u32) -> Outcome {
        if self.regions.parts(address, size).is_none() || !matches!(rights, 0 | 1 | 3) {
            return Err(status::INVALID_VALUE);
        }
        for (start, _) in self.regions.within(address, size) {
            self.vmm.access.insert(start, rights);
        }
        Ok(())
    }

    /// Returns the access rights of the mapping at an address.
    pub(crate) fn access(&self, address: u64) -> Result<u32, Status> {
        let (start, _) = self.regions.around(address).ok_or(status::INVALID_VALUE)?;
        Ok(self.vmm.access.get(&start).copied().unwrap_or(0))
    }

    /// Maps memory into a part of a sparse array. Without a handle, unmaps the newest part. A sparse
    /// array has no memory of its own.
    pub(crate) fn map_array(&mut self, simulation: &Simulation, array: u64, handle: Option<u64>) -> Outcome {
        match handle {
            Some(handle) => {
                self.memory(handle)?;
                self.vmm.arrays.push((array, handle));
                self.change(simulation, handle, |memory| memory.mappings += 1);
            }
            None => {
                let last = self.vmm.arrays.iter().rposition(|(other, _)| *other == array);
                let (_, handle) = self.vmm.arrays.remove(last.ok_or(status::INVALID_VALUE)?);
                self.change(simulation, handle, |memory| memory.mappings -= 1);
            }
        }
        Ok(())
    }

    /// Unmaps all parts of a sparse array.
    pub(crate) fn unmap_array(&mut self, simulation: &Simulation, array: u64) {
        while self.map_array(simulation, array, None).is_ok() {}
    }
}
