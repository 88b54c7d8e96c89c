//! What passes between a caller in C and us? Pointers are looked at before they are used, statuses are numbers, and a
//! panic becomes one.

use crate::status::Status;
use core::ffi::{CStr, c_char, c_int};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A structure of the header: numbers only, with no byte between them that means nothing.
///
/// # Safety
/// `repr(C)`, of integers, without padding: each byte of it may be copied.
pub(crate) unsafe trait Plain: Sized {
    /// Its size when it was released first. A caller has room for so much.
    const FIRST_SIZE: usize;
}

/// The status of what a function does. A panic, which would be a mistake of ours, is one too.
pub(crate) fn answer(ask: impl FnOnce() -> Result<(), Status>) -> c_int {
    // What could be seen half done is dropped with the panic: nothing outlives a call but handles, which never change.
    let answered = catch_unwind(AssertUnwindSafe(ask)).unwrap_or(Err(Status::Internal));
    answered.map_or_else(Status::number, |()| Status::OK)
}

/// What a pointer leads to.
///
/// # Safety
/// It is null, or leads to a value that lives and that nobody changes for as long as it is used.
pub(crate) unsafe fn reference<'value, T>(pointer: *const T) -> Result<&'value T, Status> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }.ok_or(Status::Argument)
}

/// A text of the caller's.
///
/// # Safety
/// It is null, or ends with a zero and lives for as long as it is used.
pub(crate) unsafe fn text<'value>(pointer: *const c_char) -> Result<&'value OsStr, Status> {
    if pointer.is_null() {
        return Err(Status::Argument);
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { CStr::from_ptr(pointer) }.to_bytes();
    if bytes.is_empty() { Err(Status::Argument) } else { Ok(OsStr::from_bytes(bytes)) }
}

/// Gives a number to a caller who wants it.
///
/// # Safety
/// The pointer is null, or has room for a value.
pub(crate) unsafe fn write<T>(pointer: *mut T, value: T) {
    if !pointer.is_null() {
        // SAFETY: the caller's promise. A program may have put it anywhere.
        unsafe { pointer.write_unaligned(value) };
    }
}

/// Fills a structure that is `size` bytes long for the caller: one of an older header gets what it knows, one of a newer
/// header zeroes for what is not known here.
///
/// # Safety
/// The pointer is null, or has room for `size` bytes.
pub(crate) unsafe fn fill<T: Plain>(pointer: *mut u8, size: usize, value: &T) -> Result<(), Status> {
    if pointer.is_null() || size < T::FIRST_SIZE {
        return Err(Status::Argument);
    }
    let known = size.min(size_of::<T>());
    let from = core::ptr::from_ref(value).cast::<u8>();
    // SAFETY: both have so many bytes, by the caller's promise and by `Plain`; ours cannot be the caller's.
    unsafe { pointer.copy_from_nonoverlapping(from, known) };
    // SAFETY: the rest of the caller's bytes.
    unsafe { pointer.wrapping_add(known).write_bytes(0, size.saturating_sub(known)) };
    Ok(())
}
