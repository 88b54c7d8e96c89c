//! How does memory get from one process to another?
//!
//! Memory that was made to be shared lies in a file of its own, whose descriptor is what is exported: behind the
//! bytes stands what an importer must know. Ordinary memory is shared by a handle that says where it is.

use std::fs::{File, OpenOptions};
use std::os::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use gpuslice_driver::types::{Status, status};

use crate::arena::PAGE;
use crate::driver::{Outcome, statuses};
use crate::local::Local;
use crate::regions::{Origin, Region};
use crate::simulation::Simulation;

/// What stands behind the bytes of exported memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Label {
    /// Number of the export.
    pub(crate) number: u64,
    /// The simulation's number of the device.
    pub(crate) device: u64,
    /// Bytes.
    pub(crate) size: u64,
}

/// The first word of a label and of a handle.
const MARK: u64 = 0x5347_5055_5348_4152;

fn words<const N: usize>(words: [u64; N]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn word(bytes: &[u8], index: usize) -> u64 {
    let chunk = bytes.chunks_exact(8).nth(index).and_then(|chunk| chunk.try_into().ok());
    chunk.map_or(0, u64::from_le_bytes)
}

/// A file for memory that is to be shared.
pub(crate) fn make_file(size: u64) -> Option<OwnedFd> {
    // SAFETY: makes a file; the name ends in zero.
    let made = unsafe { libc::memfd_create(c"simgpu-shared".as_ptr(), libc::MFD_CLOEXEC) };
    if made < 0 {
        return None;
    }
    // SAFETY: the descriptor was made above and is nobody else's.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(made) });
    file.set_len(size + PAGE).ok()?;
    Some(file.into())
}

/// Writes the label of exported memory.
pub(crate) fn write_label(file: &OwnedFd, label: Label) -> Outcome {
    let file = File::from(file.try_clone().map_err(|_| statuses::UNKNOWN)?);
    let bytes = words([MARK, label.number, label.device, label.size]);
    file.write_all_at(&bytes, label.size).map_err(|_| statuses::UNKNOWN)
}

/// A descriptor of the program's own for the same file.
pub(crate) fn duplicate(descriptor: i32) -> Result<OwnedFd, Status> {
    if descriptor < 0 {
        return Err(status::INVALID_VALUE);
    }
    // SAFETY: borrowed only for the call; a number that is no descriptor is refused by it.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    borrowed.try_clone_to_owned().map_err(|_| status::INVALID_VALUE)
}

/// Reads the label behind imported memory.
pub(crate) fn read_label(file: &OwnedFd) -> Result<Label, Status> {
    let file = File::from(file.try_clone().map_err(|_| status::INVALID_VALUE)?);
    let length = file.metadata().map_err(|_| status::INVALID_VALUE)?.len();
    let mut bytes = [0; 32];
    let place = length.checked_sub(PAGE).ok_or(status::INVALID_VALUE)?;
    file.read_exact_at(&mut bytes, place).map_err(|_| status::INVALID_VALUE)?;
    let label = Label { number: word(&bytes, 1), device: word(&bytes, 2), size: word(&bytes, 3) };
    if word(&bytes, 0) == MARK && label.size == place { Ok(label) } else { Err(status::INVALID_VALUE) }
}

impl Local {
    /// The handle by which another process can open ordinary memory.
    pub(crate) fn ipc_handle(&self, simulation: &Simulation, address: u64) -> Result<[u8; 64], Status> {
        let (base, region) = self.regions.around(address).ok_or(status::INVALID_VALUE)?;
        let device =
            region.device.filter(|_| region.origin == Origin::Linear).ok_or(status::INVALID_VALUE)?;
        let (descriptor, offset) = simulation.arena.file(region.backing);
        let descriptor = u64::try_from(descriptor).map_err(|_| statuses::UNKNOWN)?;
        let own = u64::from(std::process::id());
        let bytes =
            words([MARK, own, simulation.serial, descriptor, offset, region.size, device as u64, base]);
        bytes.try_into().map_err(|_| statuses::UNKNOWN)
    }

    /// Opens memory of another process: its bytes, at an address of this one.
    pub(crate) fn open_ipc(&mut self, simulation: &Simulation, handle: &[u8; 64]) -> Result<u64, Status> {
        let context = self.current()?.0;
        let [mark, pid, serial, descriptor, offset, size, device] =
            [0, 1, 2, 3, 4, 5, 6].map(|index| word(handle, index));
        if mark != MARK || serial == simulation.serial {
            return Err(status::INVALID_VALUE);
        }
        let path = format!("/proc/{pid}/fd/{descriptor}");
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(|_| statuses::MAP_FAILED)?;
        let first = offset - offset % PAGE;
        let spread = (offset + size - first).next_multiple_of(PAGE);
        let start = simulation.arena.take(spread, PAGE).ok_or(status::OUT_OF_MEMORY)?;
        if !simulation.arena.put_file(start, spread, &file.into(), first) {
            simulation.arena.give(start, spread);
            return Err(statuses::MAP_FAILED);
        }
        let address = start + (offset - first);
        let (backing, device, origin) = (address, usize::try_from(device).ok(), Origin::Imported);
        self.regions.add(address, Region { size, backing, device, context, origin, charged: 0, number: 0 });
        Ok(address)
    }

    /// Closes it.
    pub(crate) fn close_ipc(&mut self, simulation: &Simulation, address: u64) -> Outcome {
        let region = self.regions.at(address).filter(|region| region.origin == Origin::Imported);
        let size = region.ok_or(status::INVALID_VALUE)?.size;
        self.regions.remove(address);
        let start = address - address % PAGE;
        let spread = (address + size - start).next_multiple_of(PAGE);
        if simulation.arena.take_file_away(start, spread) {
            simulation.arena.give(start, spread);
        }
        Ok(())
    }

    /// Closes what was opened in a context.
    pub(crate) fn close_ipc_of(&mut self, simulation: &Simulation, context: u64) {
        let opened =
            self.regions.matching(|region| region.origin == Origin::Imported && region.context == context);
        for address in opened {
            let _ = self.close_ipc(simulation, address);
        }
    }
}

/// A descriptor's number, given away.
pub(crate) fn hand_over(file: &OwnedFd) -> Result<i32, Status> {
    let copy = file.try_clone().map_err(|_| statuses::UNKNOWN)?;
    Ok(copy.into_raw_fd())
}
