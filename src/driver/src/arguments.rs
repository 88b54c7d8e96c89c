//! Reads and writes through pointers of the program.
//!
//! The driver decides how it answers a null pointer. A null pointer is therefore an absent value here, and never an
//! error of the library.

/// Returns the value behind a pointer of the program; `None` for a null pointer.
///
/// # Safety
/// `pointer` is null or valid for reads of `T`, as the driver API requires of its caller.
#[must_use]
pub unsafe fn read_in<T: Copy>(pointer: *const T) -> Option<T> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: `read_unaligned` needs a pointer that is valid for reads. `pointer` is not null here, so by this
    // function's contract it is.
    Some(unsafe { pointer.read_unaligned() })
}

/// Writes through an output pointer of the program. A null pointer is ignored.
///
/// # Safety
/// `pointer` is null or valid for writes of `T`, as the driver API requires of its caller.
pub unsafe fn write_out<T: Copy>(pointer: *mut T, value: T) {
    if pointer.is_null() {
        return;
    }
    // SAFETY: `write_unaligned` needs a pointer that is valid for writes. `pointer` is not null here, so by this
    // function's contract it is.
    unsafe { pointer.write_unaligned(value) }
}
