//! Handles by which another process finds the memory and the events of this process.
//!
//! Memory that the program makes for sharing is in a file of its own, and its exported handle is a descriptor of the file. A
//! label after the bytes tells the importer the rest. Ordinary memory is shared by an [`IpcHandle`], which tells where the memory
//! is. A descriptor or a handle alone keeps no memory alive: only the use by a process does.

use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use gpuslice_driver::types::{Status, status};

use crate::hardware::allocation_sizes::PAGE;
use crate::status::{Outcome, statuses};

/// The label after the bytes of exported memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Label {
    /// Number of the export.
    pub(crate) number: u64,
    /// The number that the machine gives to the device of the memory.
    pub(crate) device: u64,
    /// Size of the memory, in bytes.
    pub(crate) size: u64,
}

/// The first word of a label. The first word of a handle is this word plus the number of its purpose.
const MARK: u64 = 0x5347_5055_5348_4152;

fn words<const N: usize>(words: [u64; N]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn word(bytes: &[u8], index: usize) -> u64 {
    let chunk = bytes.chunks_exact(8).nth(index).and_then(|chunk| chunk.try_into().ok());
    chunk.map_or(0, u64::from_le_bytes)
}

/// The kind of object that an [`IpcHandle`] shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Purpose {
    /// Memory, from `cuIpcGetMemHandle`.
    Ipc = MARK + 1,
    /// An allocation of a pool, from `cuMemPoolExportPointer`.
    PoolPointer,
    /// Physical memory, exported as `CU_MEM_HANDLE_TYPE_FABRIC`.
    Fabric,
    /// An event, from `cuIpcGetEventHandle`. In place of a descriptor, the handle has the event's own handle in the exporter. It
    /// also has the number by which the processes share the event.
    Event,
}

/// The 64 bytes by which another process finds memory or an event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IpcHandle {
    /// PID and serial of the process that made the handle.
    pub(crate) pid: u64,
    pub(crate) serial: u64,
    /// The descriptor, in that process, of the file with the bytes, and the offset of the bytes in the file.
    pub(crate) descriptor: u64,
    pub(crate) offset: u64,
    pub(crate) label: Label,
}

impl IpcHandle {
    pub(crate) fn bytes(&self, purpose: Purpose) -> Result<[u8; 64], Status> {
        let Self { pid, serial, descriptor, offset, label } = *self;
        let place = [purpose as u64, pid, serial, descriptor, offset];
        let [a, b, c, d, e] = place;
        words([a, b, c, d, e, label.size, label.device, label.number])
            .try_into()
            .map_err(|_| statuses::UNKNOWN)
    }

    /// Reads a handle, and checks that it is for this purpose.
    pub(crate) fn read(bytes: &[u8; 64], purpose: Purpose) -> Result<Self, Status> {
        let [mark, pid, serial, descriptor, offset, size, device, number] =
            [0, 1, 2, 3, 4, 5, 6, 7].map(|index| word(bytes, index));
        if mark != purpose as u64 {
            return Err(status::INVALID_VALUE);
        }
        Ok(Self { pid, serial, descriptor, offset, label: Label { number, device, size } })
    }

    /// Opens the file that holds the bytes.
    pub(crate) fn open(&self) -> Result<OwnedFd, Status> {
        let path = format!("/proc/{}/fd/{}", self.pid, self.descriptor);
        let file = OpenOptions::new().read(true).write(true).open(path);
        file.map(OwnedFd::from).map_err(|_| statuses::MAP_FAILED)
    }
}

/// Makes a file for memory that can be shared. One more page after the memory has room for the label.
pub(crate) fn make_file(size: u64) -> Option<OwnedFd> {
    // SAFETY: `memfd_create` needs a zero-terminated name: the literal is one.
    let made = unsafe { libc::memfd_create(c"simgpu-shared".as_ptr(), libc::MFD_CLOEXEC) };
    if made < 0 {
        return None;
    }
    // SAFETY: `from_raw_fd` needs an open descriptor without another owner: it was made above.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(made) });
    file.set_len(size + PAGE).ok()?;
    Some(file.into())
}

/// Writes the label of exported memory into the memory's file.
pub(crate) fn write_label(file: &OwnedFd, label: Label) -> Outcome {
    let file = File::from(file.try_clone().map_err(|_| statuses::UNKNOWN)?);
    let bytes = words([MARK, label.number, label.device, label.size]);
    file.write_all_at(&bytes, label.size).map_err(|_| statuses::UNKNOWN)
}

/// Makes a second descriptor of a file, from a descriptor of the program.
pub(crate) fn duplicate(descriptor: i32) -> Result<OwnedFd, Status> {
    if descriptor < 0 {
        return Err(status::INVALID_VALUE);
    }
    // SAFETY: `borrow_raw` needs a descriptor that stays open during the borrow: the program's stays open for this call. If the
    // number is no descriptor, the next line refuses it.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    borrowed.try_clone_to_owned().map_err(|_| status::INVALID_VALUE)
}

/// Reads the label of imported memory from the memory's file.
pub(crate) fn read_label(file: &OwnedFd) -> Result<Label, Status> {
    let file = File::from(file.try_clone().map_err(|_| status::INVALID_VALUE)?);
    let length = file.metadata().map_err(|_| status::INVALID_VALUE)?.len();
    let mut bytes = [0; 32];
    let place = length.checked_sub(PAGE).ok_or(status::INVALID_VALUE)?;
    file.read_exact_at(&mut bytes, place).map_err(|_| status::INVALID_VALUE)?;
    let label = Label { number: word(&bytes, 1), device: word(&bytes, 2), size: word(&bytes, 3) };
    if word(&bytes, 0) == MARK && label.size == place { Ok(label) } else { Err(status::INVALID_VALUE) }
}

/// Opens a new descriptor of a file, and gives it to the program. It is a new open of the file, so its position and flags are
/// independent of those of other descriptors. Real drivers do the same.
pub(crate) fn hand_over(file: &OwnedFd) -> Result<i32, Status> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let opened = OpenOptions::new().read(true).write(true).open(path).map_err(|_| statuses::UNKNOWN)?;
    Ok(opened.into_raw_fd())
}
