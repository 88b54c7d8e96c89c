//! How is a thread of ours started?
//!
//! Not by the standard library: what it keeps of a thread comes from the system's allocator, whatever a library's own is, and
//! the process ends where that has no memory (`reserve`).

use crate::slice::Slice;
use core::ffi::{CStr, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use std::io;

/// The body of a thread. Nothing may unwind out of it.
pub(super) type Body = extern "C" fn(*mut c_void) -> *mut c_void;

/// Starts a detached thread that gets the slice, with a stack of so many bytes, or the usual one where that is too small for
/// the process's thread-local data.
pub(super) fn spawn(slice: &'static Slice, stack: usize, body: Body) -> io::Result<()> {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: valid for writes.
    check(unsafe { libc::pthread_attr_init(attributes.as_mut_ptr()) })?;
    // SAFETY: initialised above.
    unsafe { libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED) };
    let argument = ptr::from_ref(slice).cast_mut().cast::<c_void>();
    let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
    // SAFETY: initialised attributes, and an argument that lives for good.
    let create = |attributes: *const _, thread: *mut _| unsafe {
        libc::pthread_create(thread, attributes, body, argument)
    };
    // SAFETY: initialised above.
    unsafe { libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), stack) };
    let mut code = create(attributes.as_ptr(), thread.as_mut_ptr());
    if code == libc::EINVAL {
        /// The stack of a thread of the standard library.
        const USUAL: usize = 2 << 20;
        // SAFETY: initialised above.
        unsafe { libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), USUAL) };
        code = create(attributes.as_ptr(), thread.as_mut_ptr());
    }
    // SAFETY: initialised above, and not used any more.
    unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
    check(code)
}

/// The slice that a thread was started with.
///
/// # Safety
/// `argument` is the one that [`spawn`] gave to the thread.
pub(super) unsafe fn slice_of(argument: *mut c_void) -> Option<&'static Slice> {
    // SAFETY: by the contract above it comes from a reference that lives for good.
    unsafe { argument.cast::<Slice>().cast_const().as_ref() }
}

/// Names the calling thread, for `top` and debuggers.
pub(super) fn name(name: &CStr) {
    // SAFETY: reads a text that ends in zero.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

fn check(code: libc::c_int) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}
