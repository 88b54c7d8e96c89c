//! Allocates file space for parts of the region before they are used.
//!
//! A write into a mapped file without space raises `SIGBUS` on a full disk. With space allocated first, a full disk is
//! an ordinary error.

use core::{mem::offset_of, ops::Range};
use std::{fs::File, io, os::fd::AsRawFd as _};

use crate::layout::{
    Layout, SIZE,
    compute_words::DeviceTime,
    constants::{MAX_DEVICES, MAX_SLOTS},
};

/// Returns the bytes of a device's compute ledger in the file.
pub(crate) fn device_time(device: usize) -> Range<usize> {
    let size = size_of::<DeviceTime<MAX_SLOTS>>();
    let start = offset_of!(Layout, time).saturating_add(device.min(MAX_DEVICES).saturating_mul(size));
    start..start.saturating_add(size).min(SIZE)
}

/// Returns the bytes that the file of a region with this number of devices takes.
#[must_use]
pub fn file_space(devices: usize) -> usize {
    device_time(devices).start
}

/// Bytes that one call allocates. A signal during a call undoes the call. A profiler sends signals so often that every call
/// for much space could be undone. So each call asks for little. The value is guessed: the kernel takes microseconds for
/// it.
const SPACE_PIECE: usize = 64 << 10;

/// Allocates space for `bytes` of a file.
pub(crate) fn take_space(file: &File, bytes: Range<usize>) -> io::Result<()> {
    let mut start = bytes.start;
    while start < bytes.end {
        let end = start.saturating_add(SPACE_PIECE).min(bytes.end);
        match take_piece(file, start..end) {
            0 => start = end,
            libc::EINTR => {}
            status => return Err(io::Error::from_raw_os_error(status)),
        }
    }
    Ok(())
}

/// Allocates space by one call. Returns 0, or the number of the error.
fn take_piece(file: &File, bytes: Range<usize>) -> libc::c_int {
    let [start, length] =
        [bytes.start, bytes.len()].map(|bytes| libc::off_t::try_from(bytes).unwrap_or(libc::off_t::MAX));
    // SAFETY: `posix_fallocate` needs an open descriptor, which `file` owns. It takes no pointers.
    unsafe { libc::posix_fallocate(file.as_raw_fd(), start, length) }
}
