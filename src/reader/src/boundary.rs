//! Converts arguments and results between C and Rust. Null pointers become a status, statuses become numbers, and a panic
//! becomes a status.

use crate::status::Status;
use core::ffi::{CStr, c_char, c_int};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A structure of the header: integers without padding.
///
/// # Safety
/// The type is `repr(C)` and has integers only, without padding, so each of its bytes may be copied.
pub(crate) unsafe trait Plain: Sized {
    /// The structure's size in the first release. Every caller has at least this much room.
    const FIRST_SIZE: usize;
}

/// Returns the status of `ask`. A panic, which would be a defect of the library, becomes [`Status::Internal`].
pub(crate) fn answer(ask: impl FnOnce() -> Result<(), Status>) -> c_int {
    // State that a panic leaves half written is dropped with the panic. Only handles outlive a call, and they never change.
    let answered = catch_unwind(AssertUnwindSafe(ask)).unwrap_or(Err(Status::Internal));
    answered.map_or_else(Status::number, |()| Status::OK)
}

/// Returns the value behind a pointer. A null pointer is [`Status::Argument`].
///
/// # Safety
/// `pointer` is null, or leads to a value that lives and that no thread changes while the reference exists.
pub(crate) unsafe fn reference<'value, T>(pointer: *const T) -> Result<&'value T, Status> {
    // SAFETY: `as_ref` needs null or a valid pointer, which this function's contract demands of `pointer`.
    unsafe { pointer.as_ref() }.ok_or(Status::Argument)
}

/// Returns a text of the caller. A null pointer or an empty text is [`Status::Argument`].
///
/// # Safety
/// `pointer` is null, or leads to a string that ends with a zero and lives while the reference exists.
pub(crate) unsafe fn text<'value>(pointer: *const c_char) -> Result<&'value OsStr, Status> {
    if pointer.is_null() {
        return Err(Status::Argument);
    }
    // SAFETY: `from_ptr` needs a string that ends with a zero. `pointer` is not null here, so by this function's
    // contract it is one.
    let bytes = unsafe { CStr::from_ptr(pointer) }.to_bytes();
    if bytes.is_empty() { Err(Status::Argument) } else { Ok(OsStr::from_bytes(bytes)) }
}

/// Writes a value, unless the caller passes a null pointer.
///
/// # Safety
/// `pointer` is null, or has room for a value.
pub(crate) unsafe fn write<T>(pointer: *mut T, value: T) {
    if !pointer.is_null() {
        // SAFETY: `write_unaligned` needs room for a value. `pointer` is not null here, so by this function's contract
        // it has. It may have any alignment.
        unsafe { pointer.write_unaligned(value) };
    }
}

/// Fills a structure of the caller that is `size` bytes long. A caller with an older header gets the fields that it
/// knows. A caller with a newer header gets zeroes in the fields that this library does not know.
///
/// # Safety
/// `pointer` is null, or has room for `size` bytes.
pub(crate) unsafe fn fill<T: Plain>(pointer: *mut u8, size: usize, value: &T) -> Result<(), Status> {
    if pointer.is_null() || size < T::FIRST_SIZE {
        return Err(Status::Argument);
    }
    let known = size.min(size_of::<T>());
    let from = core::ptr::from_ref(value).cast::<u8>();
    // SAFETY: both sides have `known` bytes. The caller's side has them by this function's contract, since `known <= size`.
    // `value` has them by [`Plain`], and is a reference of this library, so the two do not overlap.
    unsafe { pointer.copy_from_nonoverlapping(from, known) };
    // SAFETY: `write_bytes` needs room for the rest of the `size` bytes, which this function's contract demands of
    // `pointer`.
    unsafe { pointer.wrapping_add(known).write_bytes(0, size.saturating_sub(known)) };
    Ok(())
}
