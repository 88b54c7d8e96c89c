//! Takes space for parts of the region file before they are used.

use core::{mem::offset_of, ops::Range};
use std::{fs::File, io, os::fd::AsRawFd as _};

use crate::layout::{
    Layout, SIZE,
    compute_words::DeviceTime,
    constants::{MAX_DEVICES, MAX_SLOTS},
};

/// The bytes of a device's time.
pub(crate) fn device_time(device: usize) -> Range<usize> {
    let size = size_of::<DeviceTime<MAX_SLOTS>>();
    let start = offset_of!(Layout, time).saturating_add(device.min(MAX_DEVICES).saturating_mul(size));
    start..start.saturating_add(size).min(SIZE)
}

/// Takes space for some bytes of a file, so that a full disk is an error now and not a signal later.
pub(crate) fn take_space(file: &File, bytes: Range<usize>) -> io::Result<()> {
    let [start, length] =
        [bytes.start, bytes.len()].map(|bytes| libc::off_t::try_from(bytes).unwrap_or(libc::off_t::MAX));
    if length == 0 {
        return Ok(());
    }
    // SAFETY: the descriptor is open; the call takes nothing else.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), start, length) } {
        0 => Ok(()),
        status => Err(io::Error::from_raw_os_error(status)),
    }
}
