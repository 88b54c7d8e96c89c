//! How do programs in C, Python, Go and the like read a slice's figures? `libgpuslice_read.so`, as
//! `include/gpuslice_read.h` declares it and says what may be called when.
//!
//! - The functions are those of the header, one each; `tests` compares names, structures and numbers with it and with a
//!   file of what was released.
//! - Each converts its arguments, asks a [`Reader`], and converts the answer. None keeps anything between calls but in
//!   the handle, and a handle never changes: so all may be called on all threads.
//! - No panic leaves them (`boundary`).

#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod boundary;
mod figures;
mod status;

#[cfg(test)]
mod tests;

use boundary::{answer, fill, reference, text, write};
use core::ffi::{c_char, c_int};
use figures::{DeviceFigures, ProcessFigures};
use gpuslice_region::names::{self, Found};
use gpuslice_region::{Monitor, Reader, Reaped, Trust, layout};
use status::Status;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// The version of the interface: counted up when something is added. What would break programs has another soname.
const API_VERSION: u32 = 2;

/// An open slice.
#[derive(Debug)]
struct Slice {
    reader: Reader,
    name: CString,
    path: CString,
}

/// The version of the interface.
#[unsafe(no_mangle)]
extern "C" fn gpuslice_api_version() -> u32 {
    API_VERSION
}

/// The version of regions that can be read.
#[unsafe(no_mangle)]
extern "C" fn gpuslice_layout_version() -> u32 {
    layout::VERSION
}

/// What a status means, in a sentence that lives for ever.
#[unsafe(no_mangle)]
extern "C" fn gpuslice_error_text(status: c_int) -> *const c_char {
    Status::text(status).as_ptr()
}

/// The paths that may be regions, each ended by a zero, and an empty one behind the last.
///
/// # Safety
/// `paths` is null or has `room` bytes; `needed` is null or has room for a number.
#[unsafe(no_mangle)]
unsafe extern "C" fn gpuslice_list(paths: *mut c_char, room: usize, needed: *mut usize) -> c_int {
    answer(|| {
        let mut bytes = Vec::new();
        for path in names::all()? {
            bytes.extend_from_slice(path.as_os_str().as_bytes());
            bytes.push(0);
        }
        bytes.push(0);
        // SAFETY: the caller's promise.
        unsafe { write(needed, bytes.len()) };
        if bytes.len() > room || paths.is_null() {
            return Err(Status::Room);
        }
        // SAFETY: the caller's promise, and there is room for them.
        unsafe { paths.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        Ok(())
    })
}

/// Opens a slice by its name or by the path of its region.
///
/// # Safety
/// `slice` is null or a text that ends with a zero; `opened` is null or has room for a pointer.
#[unsafe(no_mangle)]
unsafe extern "C" fn gpuslice_open(slice: *const c_char, opened: *mut *mut Slice) -> c_int {
    answer(|| {
        // SAFETY: the caller's promise.
        let slice = unsafe { text(slice) }?;
        if opened.is_null() {
            return Err(Status::Argument);
        }
        // SAFETY: it is not null, and so has room.
        unsafe { write(opened, core::ptr::null_mut()) };
        let path = match names::find(slice)? {
            Found::One(path) => path,
            Found::Nothing => return Err(Status::NoSlice),
            Found::Several(_) => return Err(Status::Ambiguous),
        };
        let handle = Slice::open(&path)?;
        // SAFETY: as above.
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
/// `slice` is null or what [`gpuslice_open`] gave; nobody uses it now or later.
#[unsafe(no_mangle)]
unsafe extern "C" fn gpuslice_close(slice: *mut Slice) {
    if !slice.is_null() {
        // SAFETY: `gpuslice_open` made it from a box, and nobody uses it, by the caller's promise.
        let slice = unsafe { Box::from_raw(slice) };
        let _closed = answer(|| {
            drop(slice);
            Ok(())
        });
    }
}

/// What the slice is called. Lives until it is closed.
///
/// # Safety
/// `slice` is null or open.
#[unsafe(no_mangle)]
unsafe extern "C" fn gpuslice_name(slice: *const Slice) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { reference(slice) }.map_or(core::ptr::null(), |slice| slice.name.as_ptr())
}

/// Where the slice's region is. Lives until it is closed.
///
/// # Safety
/// `slice` is null or open.
#[unsafe(no_mangle)]
unsafe extern "C" fn gpuslice_path(slice: *const Slice) -> *const c_char {
    // SAFETY: the caller's promise.
    unsafe { reference(slice) }.map_or(core::ptr::null(), |slice| slice.path.as_ptr())
}

/// How often the region had been made anew when it was opened.
///
/// # Safety
/// `slice` is null or open; `epoch` is null or has room for a number.
#[unsafe(no_mangle)]
unsafe extern "C" fn gpuslice_epoch(slice: *const Slice, epoch: *mut u64) -> c_int {
    answer(|| {
        // SAFETY: the caller's promise.
        let slice = unsafe { reference(slice) }?;
        slice.reader.check()?;
        // SAFETY: the caller's promise.
        unsafe { write(epoch, slice.reader.epoch()) };
        Ok(())
    })
}

/// How many devices the slice has.
///
/// # Safety
/// As [`gpuslice_epoch`].
#[unsafe(no_mangle)]
unsafe extern "C" fn gpuslice_device_count(slice: *const Slice, count: *mut u32) -> c_int {
    answer(|| {
        // SAFETY: the caller's promise.
        let slice = unsafe { reference(slice) }?;
        let devices = u32::try_from(slice.reader.device_count()?).unwrap_or(u32::MAX);
        // SAFETY: the caller's promise.
        unsafe { write(count, devices) };
        Ok(())
    })
}

/// The figures of a device.
///
/// # Safety
/// `slice` is null or open; `figures` is null or has `size` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn gpuslice_read_device(
    slice: *const Slice,
    device: u32,
    figures: *mut DeviceFigures,
    size: usize,
) -> c_int {
    answer(|| {
        // SAFETY: the caller's promise.
        let slice = unsafe { reference(slice) }?;
        let index = usize::try_from(device).unwrap_or(usize::MAX);
        let read = slice.reader.device(index)?.ok_or(Status::NoDevice)?;
        // SAFETY: the caller's promise.
        unsafe { fill(figures.cast(), size, &DeviceFigures::of(device, &read)) }
    })
}

/// How many processes of the slice live.
///
/// # Safety
/// As [`gpuslice_epoch`].
#[unsafe(no_mangle)]
unsafe extern "C" fn gpuslice_process_count(slice: *const Slice, count: *mut u32) -> c_int {
    answer(|| {
        // SAFETY: the caller's promise.
        let slice = unsafe { reference(slice) }?;
        let processes = u32::try_from(slice.reader.process_count()?).unwrap_or(u32::MAX);
        // SAFETY: the caller's promise.
        unsafe { write(count, processes) };
        Ok(())
    })
}

/// The figures of the processes that live, on a device.
///
/// # Safety
/// `slice` is null or open; `figures` is null or has `room` structures of `size` bytes; `count` is null or has room for
/// a number.
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
        // SAFETY: the caller's promise.
        let slice = unsafe { reference(slice) }?;
        let index = usize::try_from(device).unwrap_or(usize::MAX);
        if index >= slice.reader.device_count()? {
            return Err(Status::NoDevice);
        }
        let processes = slice.reader.processes()?;
        // SAFETY: the caller's promise.
        unsafe { write(count, processes.len()) };
        let mut place = figures.cast::<u8>();
        for process in processes.iter().take(room) {
            // SAFETY: the caller's promise: less than `room` structures were filled.
            unsafe { fill(place, size, &ProcessFigures::of(index, process)) }?;
            place = place.wrapping_add(size);
        }
        if processes.len() > room { Err(Status::Room) } else { Ok(()) }
    })
}

/// Clears what dead processes hold: the one function that writes.
///
/// # Safety
/// As [`gpuslice_epoch`].
#[unsafe(no_mangle)]
unsafe extern "C" fn gpuslice_reap(slice: *const Slice, cleared: *mut u32) -> c_int {
    answer(|| {
        // SAFETY: the caller's promise.
        let slice = unsafe { reference(slice) }?;
        slice.reader.check()?;
        let monitor = Monitor::open(slice.reader.path(), Trust::AnyOwner)?.ok_or(Status::Renewed)?;
        let dead = match monitor.reap()? {
            Reaped::Nobody => 0,
            Reaped::Dead(dead) => u32::try_from(dead).unwrap_or(u32::MAX),
            Reaped::UnderWay => return Err(Status::Busy),
        };
        // SAFETY: the caller's promise.
        unsafe { write(cleared, dead) };
        Ok(())
    })
}
