//! How is a caller's pointer read and written?
//!
//! The driver's answer for a null pointer is the driver's to give, so a null pointer here is an absent value
//! and never an error of ours.

/// The value behind a caller's pointer; nothing where it is null.
///
/// # Safety
/// `pointer` is null or valid for reads of `T`, as the driver API requires of its caller.
#[must_use]
pub unsafe fn read_in<T: Copy>(pointer: *const T) -> Option<T> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: not null, so valid for reads by the caller's contract; alignment is not assumed.
    Some(unsafe { pointer.read_unaligned() })
}

/// Writes to a caller's output pointer; nothing happens where it is null.
///
/// # Safety
/// `pointer` is null or valid for writes of `T`, as the driver API requires of its caller.
pub unsafe fn write_out<T: Copy>(pointer: *mut T, value: T) {
    if pointer.is_null() {
        return;
    }
    // SAFETY: not null, so valid for writes by the caller's contract; alignment is not assumed.
    unsafe { pointer.write_unaligned(value) }
}
