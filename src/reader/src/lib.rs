//! `libgpuslice_read.so`: reads a slice's figures for programs in C, Python, Go and others.
//!
//! `include/gpuslice_read.h` declares the functions and says when each may be called.
//!
//! - Each function of the header is one function here. `tests` compares names, structures and numbers with the header,
//!   and with a file for each release.
//! - Each function converts its arguments, asks a [`Reader`], and converts the answer. Only handles keep state between
//!   calls, and a handle never changes. So all functions may be called in all threads.
//! - No panic leaves a function: see `boundary`.

#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod boundary;
mod figures;
mod status;

#[cfg(test)]
mod tests;

use boundary::{answer, fill, reference, text, write};
use core::ffi::{c_char, c_int};
use figures::{DeviceFigures, ProcessFigures};
use gpuslice_region::names::{self, NameMatch};
use gpuslice_region::{Monitor, Reader, Reaped, Trust, layout};
use status::Status;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// The version of the interface. Each addition increases it. A change that would break programs needs another soname.
const API_VERSION: u32 = 3;

/// An open slice.
#[derive(Debug)]
struct Slice {
    reader: Reader,
    name: CString,
    path: CString,
}

/// Returns the version of the interface.
#[unsafe(no_mangle)]
extern "C" fn gpuslice_api_version() -> u32 {
    API_VERSION
}

/// Returns the version of regions that this library reads.
#[unsafe(no_mangle)]
extern "C" fn gpuslice_layout_version() -> u32 {
    layout::VERSION
}

/// Returns a sentence that explains a status. The caller must not free it.
#[unsafe(no_mangle)]
extern "C" fn gpuslice_error_text(status: c_int) -> *const c_char {
    Status::text(status).as_ptr()
}

/// Writes the paths that may be regions. Each path ends with a zero, and an empty path follows the last one.
///
/// # Safety
/// `paths` is null or has `room` bytes. `needed` is null or has room for a number.
#[unsafe(no_mangle)]
unsafe extern "C" fn gpuslice_list(paths: *mut c_char, room: usize, needed: *mut usize) -> c_int {
    answer(|| {
        let mut bytes = Vec::new();
        for path in names::all()? {
            bytes.extend_from_slice(path.as_os_str().as_bytes());
            bytes.push(0);
        }
        bytes.push(0);
        // SAFETY: `write` needs null or room for a value, which this function's contract demands of `needed`.
        unsafe { write(needed, bytes.len()) };
        if bytes.len() > room || paths.is_null() {
            return Err(Status::Room);
        }
        // SAFETY: `paths` is not null and has `room` bytes by this function's contract, and `bytes` is not longer.
        // `bytes` belongs to this library, so the two do not overlap.
        unsafe { paths.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    })
}

/// Opens a slice by its name or by the path of its region.
///
/// # Safety
/// `slice` is null or a text that ends with a zero. `opened` is null or has room for a pointer.
#[unsafe(no_mangle)]
unsafe extern "C" fn gpuslice_open(slice: *const c_char, opened: *mut *mut Slice) -> c_int {
    answer(|| {
        // SAFETY: `text` needs null or a string that ends with a zero, which this function's contract demands of
        // `slice`.
        let slice = unsafe { text(slice) }?;
        if opened.is_null() {
            return Err(Status::Argument);
        }
        // SAFETY: `opened` is not null, so by this function's contract it has room for a pointer.
        unsafe { write(opened, core::ptr::null_mut()) };
        let path = match names::find(slice)? {
            NameMatch::One(path) => path,
            NameMatch::Nothing => return Err(Status::NoSlice),
            NameMatch::Several(_) => return Err(Status::Ambiguous),
        };
        let handle = Slice::open(&path)?;
        // SAFETY: `opened` is not null, so by this function's contract it has room for a pointer.
        unsafe { write(opened, Box::into_raw(Box::new(handle))) };
        Ok(())
    })
}

impl Slice {
    fn open(path: &Path) -> Result<Self, Status> {
        let reader = Reader::open(path, Trust::AnyOwner)?.ok_or(Status::NoSlice)?;
        let name = CString::new(names::name_of(reader.path())).map_err(|_zero| Status::Argument)?;
        let path = CString::new(reader.path().as_os_str().as_bytes()).map_err(|_zero| Status::Argument)?;
        Ok(Self { reader, name, path })
    }
}

/// Closes a slice.
///
/// # Safety
/// `slice` is null, or a handle from [`gpuslice_open`] that no thread uses now or later.
#[unsafe(no_mangle)]
unsafe extern "C" fn gpuslice_close(slice: *mut Slice) {
    if !slice.is_null() {
        // SAFETY: `from_raw` needs a pointer from `into_raw` that is used once. `gpuslice_open` made it so, and by this
        // function's contract no thread uses it again.
        let slice = unsafe { Box::from_raw(slice) };
        let _closed = answer(|| {
            drop(slice);
            Ok(())
        });
    }
}

/// Returns the name of the slice. It lives until the slice is closed.
///
/// # Safety
/// `slice` is null or an open handle.
#[unsafe(no_mangle)]
unsafe extern "C" fn gpuslice_name(slice: *const Slice) -> *const c_char {
    // SAFETY: `reference` needs null or a value that lives. An open handle lives until it is closed, and never changes.
    unsafe { reference(slice) }.map_or(core::ptr::null(), |slice| slice.name.as_ptr())
}

/// Returns the path of the slice's region. It lives until the slice is closed.
///
/// # Safety
/// `slice` is null or an open handle.
#[unsafe(no_mangle)]
unsafe extern "C" fn gpuslice_path(slice: *const Slice) -> *const c_char {
    // SAFETY: `reference` needs null or a value that lives. An open handle lives until it is closed, and never changes.
    unsafe { reference(slice) }.map_or(core::ptr::null(), |slice| slice.path.as_ptr())
}

/// Writes the epoch in which the slice was opened into `epoch`.
///
/// # Safety
/// `slice` is null or an open handle. `epoch` is null or has room for a number.
#[unsafe(no_mangle)]
unsafe extern "C" fn gpuslice_epoch(slice: *const Slice, epoch: *mut u64) -> c_int {
    answer(|| {
        // SAFETY: `reference` needs null or a value that lives. An open handle lives until it is closed, and never
        // changes.
        let slice = unsafe { reference(slice) }?;
        slice.reader.check()?;
        // SAFETY: `write` needs null or room for a value, which this function's contract demands of `epoch`.
        unsafe { write(epoch, slice.reader.epoch()) };
        Ok(())
    })
}

/// Writes the number of devices of the slice into `count`.
///
/// # Safety
/// `slice` is null or an open handle. `count` is null or has room for a number.
#[unsafe(no_mangle)]
unsafe extern "C" fn gpuslice_device_count(slice: *const Slice, count: *mut u32) -> c_int {
    answer(|| {
        // SAFETY: `reference` needs null or a value that lives. An open handle lives until it is closed, and never
        // changes.
        let slice = unsafe { reference(slice) }?;
        let devices = u32::try_from(slice.reader.device_count()?).unwrap_or(u32::MAX);
        // SAFETY: `write` needs null or room for a value, which this function's contract demands of `count`.
        unsafe { write(count, devices) };
        Ok(())
    })
}

/// Reads the figures of a device.
///
/// # Safety
/// `slice` is null or an open handle. `figures` is null or has `size` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn gpuslice_read_device(
    slice: *const Slice,
    device: u32,
    figures: *mut DeviceFigures,
    size: usize,
) -> c_int {
    answer(|| {
        // SAFETY: `reference` needs null or a value that lives. An open handle lives until it is closed, and never
        // changes.
        let slice = unsafe { reference(slice) }?;
        let index = usize::try_from(device).unwrap_or(usize::MAX);
        let read = slice.reader.device(index)?.ok_or(Status::NoDevice)?;
        // SAFETY: `fill` needs null or room for `size` bytes, which this function's contract demands of `figures`.
        unsafe { fill(figures.cast(), size, &DeviceFigures::of(device, &read)) }
    })
}

/// Writes the number of living processes of the slice into `count`.
///
/// # Safety
/// `slice` is null or an open handle. `count` is null or has room for a number.
#[unsafe(no_mangle)]
unsafe extern "C" fn gpuslice_process_count(slice: *const Slice, count: *mut u32) -> c_int {
    answer(|| {
        // SAFETY: `reference` needs null or a value that lives. An open handle lives until it is closed, and never
        // changes.
        let slice = unsafe { reference(slice) }?;
        let processes = u32::try_from(slice.reader.process_count()?).unwrap_or(u32::MAX);
        // SAFETY: `write` needs null or room for a value, which this function's contract demands of `count`.
        unsafe { write(count, processes) };
        Ok(())
    })
}

/// Reads the figures of the living processes on a device.
///
/// # Safety
/// `slice` is null or an open handle. `figures` is null or has `room` structures of `size` bytes. `count` is null or
/// has room for a number.
#[unsafe(no_mangle)]
unsafe extern "C" fn gpuslice_read_processes(
    slice: *const Slice,
    device: u32,
    figures: *mut ProcessFigures,
    size: usize,
    room: usize,
    count: *mut usize,
) -> c_int {
    answer(|| {
        // SAFETY: `reference` needs null or a value that lives. An open handle lives until it is closed, and never
        // changes.
        let slice = unsafe { reference(slice) }?;
        let index = usize::try_from(device).unwrap_or(usize::MAX);
        if index >= slice.reader.device_count()? {
            return Err(Status::NoDevice);
        }
        let processes = slice.reader.processes()?;
        // SAFETY: `write` needs null or room for a value, which this function's contract demands of `count`.
        unsafe { write(count, processes.len()) };
        let mut place = figures.cast::<u8>();
        for process in processes.iter().take(room) {
            // SAFETY: `fill` needs room for `size` bytes. By this function's contract `figures` has `room` structures,
            // and fewer than `room` were filled.
            unsafe { fill(place, size, &ProcessFigures::of(index, process)) }?;
            place = place.wrapping_add(size);
        }
        if processes.len() > room { Err(Status::Room) } else { Ok(()) }
    })
}

/// Reaps dead processes, and writes their number into `cleared`. No other function writes into the region.
///
/// It opens the region again, because a [`Reader`] cannot write. While another process joins or reaps, the status is
/// [`Status::Busy`].
///
/// # Safety
/// `slice` is null or an open handle. `cleared` is null or has room for a number.
#[unsafe(no_mangle)]
unsafe extern "C" fn gpuslice_reap(slice: *const Slice, cleared: *mut u32) -> c_int {
    answer(|| {
        // SAFETY: `reference` needs null or a value that lives. An open handle lives until it is closed, and never
        // changes.
        let slice = unsafe { reference(slice) }?;
        slice.reader.check()?;
        let monitor = Monitor::open(slice.reader.path(), Trust::AnyOwner)?.ok_or(Status::Renewed)?;
        let dead = match monitor.reap()? {
            Reaped::Nobody => 0,
            Reaped::Dead(dead) => u32::try_from(dead).unwrap_or(u32::MAX),
            Reaped::UnderWay => return Err(Status::Busy),
        };
        // SAFETY: `write` needs null or room for a value, which this function's contract demands of `cleared`.
        unsafe { write(cleared, dead) };
        Ok(())
    })
}
