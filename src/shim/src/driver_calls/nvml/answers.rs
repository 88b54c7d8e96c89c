//! Lists that NVML writes, and the version of its driver.

use core::ffi::{c_char, c_uint};
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{
    Status, nvmlProcessDetail_v1_t, nvmlProcessInfo_v1_t, nvmlProcessInfo_v2_t,
    nvmlProcessUtilizationInfo_v1_t, nvmlProcessUtilizationSample_t, status,
};
use gpuslice_driver::{Symbol, slot};

/// Room for the answer in the first question to the driver, in entries.
const FIRST_ROOM: c_uint = 1024;
/// Room for the answer in the last question, in entries.
const MOST_ROOM: c_uint = 1 << 16;
/// Number of the instance in an entry if the device is no instance.
pub(crate) const NO_INSTANCE: c_uint = c_uint::MAX;
/// Word that marks memory which the driver did not write. No entry ends with this word: its last field is a small number, or all
/// ones for "not available".
pub(crate) const UNWRITTEN: u64 = 0xa5a5_a5a5_a5a5_a5a5;

/// Words of an entry of the first form.
pub(crate) const SHORT_ENTRY: usize = size_of::<nvmlProcessInfo_v1_t>() / size_of::<u64>();

/// Words of an entry of the second form, and of the third as headers declare it.
pub(crate) const USUAL_ENTRY: usize = size_of::<nvmlProcessInfo_v2_t>() / size_of::<u64>();

/// Words of an entry of the third form as drivers 535.43 to 535.86 write it.
pub(crate) const LONG_ENTRY: usize = size_of::<nvmlProcessDetail_v1_t>() / size_of::<u64>();

/// Room for one entry of unknown form.
pub(crate) type UnknownEntry = [u64; LONG_ENTRY];

/// An entry before the driver writes to it.
pub(crate) trait Blank {
    /// The blank entry.
    const BLANK: Self;
}

macro_rules! blank {
    ($($form:ident { $($field:ident: $blank:expr),* })*) => { $(
        impl Blank for $form {
            const BLANK: Self = Self { $($field: $blank),* };
        }
    )* };
}

blank! {
    nvmlProcessInfo_v1_t { pid: 0, used_gpu_memory: 0 }
    nvmlProcessInfo_v2_t {
        pid: 0, used_gpu_memory: 0, gpu_instance_id: NO_INSTANCE, compute_instance_id: NO_INSTANCE
    }
    nvmlProcessDetail_v1_t {
        pid: 0, used_gpu_memory: 0, gpu_instance_id: NO_INSTANCE, compute_instance_id: NO_INSTANCE,
        used_gpu_cc_protected_memory: 0
    }
    nvmlProcessUtilizationSample_t { pid: 0, timestamp: 0, sm: 0, memory: 0, encoder: 0, decoder: 0 }
    nvmlProcessUtilizationInfo_v1_t {
        timestamp: 0, pid: 0, sm: 0, memory: 0, encoder: 0, decoder: 0, jpeg: 0, optical_flow: 0
    }
}

impl Blank for c_uint {
    const BLANK: Self = 0;
}

impl Blank for UnknownEntry {
    const BLANK: Self = [UNWRITTEN; LONG_ENTRY];
}

/// Returns the first two numbers of the driver's version.
pub(crate) fn driver_version() -> Option<(u32, u32)> {
    const SIZE: c_uint = 80;
    let function = slot::real::<real::nvmlSystemGetDriverVersion>(Symbol::nvmlSystemGetDriverVersion)?;
    let mut text = [0_u8; SIZE as usize];
    // SAFETY: the function requires room for the `SIZE` bytes that it may write: `text` has as many.
    let code = unsafe { function(text.as_mut_ptr().cast::<c_char>(), SIZE) };
    let mut numbers = text.split(|byte| !byte.is_ascii_digit());
    let mut next = || core::str::from_utf8(numbers.next()?).ok()?.parse::<u32>().ok();
    (code == status::SUCCESS).then(|| Some((next()?, next()?)))?
}

/// Repeats a question with more room until the answer fits. Returns the entries, and the number of entries that the driver wrote.
///
/// # Errors
/// The driver's status.
pub(crate) fn ask<T: Copy + Blank>(
    call: impl Fn(*mut c_uint, *mut T) -> Status,
) -> Result<(Vec<T>, usize), Status> {
    let mut room = FIRST_ROOM;
    loop {
        let mut entries = vec![T::BLANK; usize::try_from(room).unwrap_or(0)];
        let mut count = room;
        let code = call(&raw mut count, entries.as_mut_ptr());
        if code == status::SUCCESS {
            return Ok((entries, usize::try_from(count).unwrap_or(0)));
        }
        if code != status::NVML_INSUFFICIENT_SIZE || room >= MOST_ROOM {
            return Err(code);
        }
        // The next room is larger than the number that the driver named, because other processes may start meanwhile.
        room = count.max(room).saturating_mul(2).min(MOST_ROOM);
    }
}
