//! Start of the library's own threads.
//!
//! The standard library is not used, because it takes memory for each thread from the system's allocator, not from the library's
//! own (`os::allocator`). If the system's allocator had no memory, the process would end.

use core::ffi::{CStr, c_void};
use core::mem::MaybeUninit;
use core::ptr;
use std::io;

/// The body of a thread. It must catch all panics.
pub(crate) type Body = extern "C" fn(*mut c_void) -> *mut c_void;

/// Starts a detached thread with a stack of `stack` bytes. The stack is larger if the process's thread-local data does not fit
/// into `stack` bytes. The body gets the address of `argument`.
///
/// # Errors
/// The kernel or the C library cannot start a thread.
pub(crate) fn spawn<T: Sync>(argument: &'static T, stack: usize, body: Body) -> io::Result<()> {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    // SAFETY: `pthread_attr_init` needs an output that is valid for writes: `attributes` is on this stack.
    check(unsafe { libc::pthread_attr_init(attributes.as_mut_ptr()) })?;
    // SAFETY: `pthread_attr_setdetachstate` needs initialised attributes: `pthread_attr_init` has succeeded above.
    unsafe { libc::pthread_attr_setdetachstate(attributes.as_mut_ptr(), libc::PTHREAD_CREATE_DETACHED) };
    let argument = ptr::from_ref(argument).cast_mut().cast::<c_void>();
    let mut thread = MaybeUninit::<libc::pthread_t>::uninit();
    // SAFETY: `pthread_create` needs initialised attributes, an output that is valid for writes, and an argument that outlives
    // the thread. The two calls below pass `attributes` and `thread`, and `argument` is `'static`.
    let create = |attributes: *const _, thread: *mut _| unsafe {
        libc::pthread_create(thread, attributes, body, argument)
    };
    // SAFETY: `pthread_attr_setstacksize` needs initialised attributes: `pthread_attr_init` has succeeded above.
    unsafe { libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), stack) };
    let mut code = create(attributes.as_ptr(), thread.as_mut_ptr());
    if code == libc::EINVAL {
        /// Stack of a thread of the standard library, in bytes.
        const USUAL: usize = 2 << 20;
        // SAFETY: `pthread_attr_setstacksize` needs initialised attributes: `pthread_attr_init` has succeeded above.
        unsafe { libc::pthread_attr_setstacksize(attributes.as_mut_ptr(), USUAL) };
        code = create(attributes.as_ptr(), thread.as_mut_ptr());
    }
    // SAFETY: `pthread_attr_destroy` needs initialised attributes that no later call uses: this is the last use.
    unsafe { libc::pthread_attr_destroy(attributes.as_mut_ptr()) };
    check(code)
}

/// Returns the argument that [`spawn`] got for a thread.
///
/// # Safety
/// `argument` is the pointer that the thread's body got, and [`spawn`] got a reference to a `T` for that thread.
pub(crate) unsafe fn argument_of<T>(argument: *mut c_void) -> Option<&'static T> {
    // SAFETY: `as_ref` requires null or a pointer to a living `T`. By the contract above the pointer comes from a `&'static T`.
    unsafe { argument.cast::<T>().cast_const().as_ref() }
}

/// Names the calling thread, for `top` and debuggers.
pub(crate) fn set_name(name: &CStr) {
    // SAFETY: `prctl` requires a zero-terminated text: `name` is one.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

fn check(code: libc::c_int) -> io::Result<()> {
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(code)) }
}
