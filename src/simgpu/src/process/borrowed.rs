//! Use of one process's ordinary memory by another process (CUDA IPC).
//!
//! The owner makes a handle and passes it to another process, which maps the memory at an address of its own. The memory lives as
//! long as any process uses it. If the owner frees the memory or dies, one of the other users is charged for it. A block of a
//! pool is different: it returns to the pool as soon as its owner frees it.

use std::os::fd::OwnedFd;

use gpuslice_driver::types::{Status, status};

use super::objects::ProcessObjects;
use super::simulation::Simulation;
use crate::hardware::allocation_sizes::PAGE;
use crate::model::borrowed::Opened;
use crate::model::ipc_handles::{IpcHandle, Label, Purpose};
use crate::model::pools::POOL_BLOCK_BYTES;
use crate::model::regions::{Origin, Region};
use crate::state::layout::MemoryKind;
use crate::status::{Outcome, statuses};

impl ProcessObjects {
    /// Returns the handle by which another process can open memory of this one. The shared state gets an export for the
    /// memory, once for all handles of it.
    pub(crate) fn ticket(
        &mut self,
        simulation: &Simulation,
        address: u64,
        purpose: Purpose,
    ) -> Result<[u8; 64], Status> {
        let (base, region) = self.regions.around(address).ok_or(status::INVALID_VALUE)?;
        let (kind, bytes) = match (region.origin, purpose) {
            (Origin::Linear, Purpose::Ipc) => (MemoryKind::Linear, region.charged),
            (Origin::Pool(pool), Purpose::PoolPointer) if self.pools.get(pool)?.handle_types != 0 => {
                (MemoryKind::Pool, region.size.next_multiple_of(POOL_BLOCK_BYTES))
            }
            _ => return Err(status::INVALID_VALUE),
        };
        let device = region.device.ok_or(status::INVALID_VALUE)?;
        let number = match self.borrowed.lent.get(&base) {
            Some(number) => *number,
            None => {
                let number = simulation.shared.lock().export(simulation.slot, device, kind, bytes);
                let number = number.ok_or(status::OUT_OF_MEMORY)?;
                self.borrowed.lent.insert(base, number);
                number
            }
        };
        let (descriptor, offset) = simulation.arena.file(region.backing);
        let descriptor = u64::try_from(descriptor).map_err(|_| statuses::UNKNOWN)?;
        let label = Label { number, device: device as u64, size: region.size };
        let (pid, serial) = (u64::from(std::process::id()), simulation.serial);
        IpcHandle { pid, serial, descriptor, offset, label }.bytes(purpose)
    }

    /// Maps memory of another process at an address of this one, and returns the address. If the memory is already open in the
    /// current context, only counts one more opening.
    ///
    /// The shared state learns about this user before the memory is mapped, because then the owner cannot end the memory in
    /// between. If the mapping fails, this user is removed again.
    pub(crate) fn open_ticket(
        &mut self,
        simulation: &Simulation,
        ticket: &[u8; 64],
        purpose: Purpose,
    ) -> Result<u64, Status> {
        let context = self.current()?.0;
        let ticket = IpcHandle::read(ticket, purpose)?;
        if ticket.serial == simulation.serial {
            return Err(status::INVALID_VALUE);
        }
        let number = ticket.label.number;
        let same = |opened: &Opened| (opened.context, opened.number) == (context, number);
        if let Some((address, opened)) = self.borrowed.opened.iter_mut().find(|(_, opened)| same(opened)) {
            opened.times += 1;
            return Ok(*address);
        }
        let file = ticket.open()?;
        if !simulation.shared.lock().import(simulation.slot, number) {
            return Err(statuses::MAP_FAILED);
        }
        let origin = if purpose == Purpose::Ipc { Origin::Imported } else { Origin::ImportedBlock };
        let device = usize::try_from(ticket.label.device).ok();
        let opened = self.open_file(simulation, &file, ticket.offset, (ticket.label.size, device, origin));
        match opened {
            Ok(address) => {
                self.borrowed.opened.insert(address, Opened { context, number, times: 1 });
            }
            Err(_) => self.leave_export(simulation, number),
        }
        opened
    }

    /// Maps memory that another interface made. The imported object keeps the memory alive.
    pub(crate) fn open_external(
        &mut self,
        simulation: &Simulation,
        file: &OwnedFd,
        offset: u64,
        size: u64,
    ) -> Result<u64, Status> {
        let (context, device) = self.current().map(|(handle, context)| (handle, context.device))?;
        let address = self.open_file(simulation, file, offset, (size, Some(device), Origin::External))?;
        self.borrowed.opened.insert(address, Opened { context, number: 0, times: 1 });
        Ok(address)
    }

    /// Maps bytes of a file at a new address, adds a region for them, and returns the address.
    fn open_file(
        &mut self,
        simulation: &Simulation,
        file: &OwnedFd,
        offset: u64,
        (size, device, origin): (u64, Option<usize>, Origin),
    ) -> Result<u64, Status> {
        let context = self.current()?.0;
        let first = offset - offset % PAGE;
        let spread = (offset + size - first).next_multiple_of(PAGE);
        let start = simulation.arena.take(spread, PAGE).ok_or(status::OUT_OF_MEMORY)?;
        if !simulation.arena.put_file(start, spread, file, first) {
            simulation.arena.give(start, spread);
            return Err(statuses::MAP_FAILED);
        }
        let address = start + (offset - first);
        let backing = address;
        self.regions.add(address, Region { size, backing, device, context, origin, charged: 0, number: 0 });
        Ok(address)
    }

    /// Closes memory that `cuIpcOpenMemHandle` opened.
    pub(crate) fn close_ipc(&mut self, simulation: &Simulation, address: u64) -> Outcome {
        let region = self.regions.at(address).filter(|region| region.origin == Origin::Imported);
        region.ok_or(status::INVALID_VALUE)?;
        self.close_borrowed(simulation, address)
    }

    /// Closes memory of another process once. The last close unmaps the memory.
    pub(crate) fn close_borrowed(&mut self, simulation: &Simulation, address: u64) -> Outcome {
        let opened = self.borrowed.opened.get_mut(&address).ok_or(status::INVALID_VALUE)?;
        opened.times -= 1;
        if opened.times > 0 {
            return Ok(());
        }
        let number = opened.number;
        self.borrowed.opened.remove(&address);
        let size = self.regions.remove(address).ok_or(status::INVALID_VALUE)?.size;
        let start = address - address % PAGE;
        let spread = (address + size - start).next_multiple_of(PAGE);
        simulation.arena.give_with_file(start, spread);
        self.leave_export(simulation, number);
        Ok(())
    }

    /// Ends the use of an export by something of this process. If nothing else of this process uses the export, the process no
    /// longer counts as a user of it.
    pub(crate) fn leave_export(&mut self, simulation: &Simulation, number: u64) {
        let opened = self.borrowed.opened.values().any(|opened| opened.number == number);
        if number != 0 && !opened && !self.has_external(number) && !self.has_export(number) {
            simulation.shared.lock().leave(simulation.slot, number);
        }
    }

    /// Closes all memory that was opened in a context, however often it was opened.
    pub(crate) fn close_borrowed_of(&mut self, simulation: &Simulation, context: u64) {
        let opened = self.borrowed.opened.iter_mut().filter(|(_, opened)| opened.context == context);
        let addresses: Vec<u64> = opened
            .map(|(address, opened)| {
                opened.times = 1;
                *address
            })
            .collect();
        for address in addresses {
            let _ = self.close_borrowed(simulation, address);
        }
    }
}
