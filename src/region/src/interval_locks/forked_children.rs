//! Closes the files of interval locks in forked children.
//!
//! A lock belongs to the open file description, and a forked child has a descriptor of it. Without this module, a child
//! that executes no other program would keep the locks of its dead parent. Other slices would then take the parent's last
//! intervals for true as long as the child lives.
//!
//! The C library runs the handler in each child of `fork`. A child of a plain `clone` system call does not run it, and
//! keeps the descriptors.

#![allow(clippy::disallowed_types, reason = "words of this process alone")]

use core::{
    ffi::{CStr, c_void},
    mem,
    ptr::{self, NonNull},
    sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering},
};
use std::{fs::File, io, os::fd::AsRawFd as _};

use libc::c_int;

use crate::{file::map::FileId, layout::constants::MAX_DEVICES};

/// A descriptor that forked children close.
struct Place {
    /// The descriptor, or [`NO_DESCRIPTOR`]. Written after the identity.
    descriptor: AtomicI32,
    is_taken: AtomicBool,
    device: AtomicU64,
    inode: AtomicU64,
}

const NO_DESCRIPTOR: c_int = -1;

/// Two libraries for each device of a slice: NVML's and CUDA's.
pub(super) const MOST_OPEN_LIBRARIES: usize = 2 * MAX_DEVICES;

static PLACES: [Place; MOST_OPEN_LIBRARIES] = [const {
    Place {
        descriptor: AtomicI32::new(NO_DESCRIPTOR),
        is_taken: AtomicBool::new(false),
        device: AtomicU64::new(0),
        inode: AtomicU64::new(0),
    }
}; MOST_OPEN_LIBRARIES];

/// Whether the handler is set.
static HAS_HANDLER: AtomicBool = AtomicBool::new(false);

/// Makes forked children close a file, until this value is dropped.
#[derive(Debug)]
pub(super) struct ClosedInChildren(usize);

impl ClosedInChildren {
    /// Makes forked children close `file`, whose identity is `id`.
    ///
    /// # Errors
    ///
    /// There is no memory for the handler, or there are more than [`MOST_OPEN_LIBRARIES`].
    pub(super) fn begin(file: &File, id: FileId) -> io::Result<Self> {
        set_handler()?;
        let at = PLACES.iter().position(|place| !place.is_taken.swap(true, Ordering::Acquire));
        let Some((at, place)) = at.and_then(|at| Some((at, PLACES.get(at)?))) else {
            return Err(io::ErrorKind::OutOfMemory.into());
        };
        place.device.store(id.device, Ordering::Relaxed);
        place.inode.store(id.inode, Ordering::Relaxed);
        // Release: pairs with the load in `close_files`.
        place.descriptor.store(file.as_raw_fd(), Ordering::Release);
        Ok(Self(at))
    }
}

impl Drop for ClosedInChildren {
    fn drop(&mut self) {
        let Some(place) = PLACES.get(self.0) else { return };
        place.descriptor.store(NO_DESCRIPTOR, Ordering::Relaxed);
        // Release: the next thread that takes the place writes to it after this thread.
        place.is_taken.store(false, Ordering::Release);
    }
}

/// Sets the handler, once for a process and its forked children together.
fn set_handler() -> io::Result<()> {
    if HAS_HANDLER.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    match register(close_files) {
        Some(0) => Ok(()),
        status => {
            HAS_HANDLER.store(false, Ordering::Relaxed);
            Err(status.map_or_else(|| io::ErrorKind::Unsupported.into(), io::Error::from_raw_os_error))
        }
    }
}

/// Makes the C library call `in_child` in each child of `fork`. Returns its status, or `None` if it has no such function.
///
/// The function looks these names up at run time: glibc exports only `__register_atfork`, and musl only `pthread_atfork`. A
/// library that is linked with one of them does not load beside the other C library.
fn register(in_child: extern "C" fn()) -> Option<c_int> {
    type Handler = Option<extern "C" fn()>;
    type OfGlibc = unsafe extern "C" fn(Handler, Handler, Handler, *mut c_void) -> c_int;
    type OfMusl = unsafe extern "C" fn(Handler, Handler, Handler) -> c_int;
    if let Some(address) = exported(c"__register_atfork") {
        // SAFETY: `transmute` needs the type of the function at the address. glibc's `__register_atfork` has the type
        // `OfGlibc`.
        let register = unsafe { mem::transmute::<NonNull<c_void>, OfGlibc>(address) };
        // SAFETY: the function may run in a forked child: `close_files` only reads and writes atomics and makes system calls. The
        // last argument names no library, because this one is never unloaded.
        return Some(unsafe { register(None, None, Some(in_child), ptr::null_mut()) });
    }
    let address = exported(c"pthread_atfork")?;
    // SAFETY: `transmute` needs the type of the function at the address. POSIX gives `pthread_atfork` the type `OfMusl`.
    let register = unsafe { mem::transmute::<NonNull<c_void>, OfMusl>(address) };
    // SAFETY: the function may run in a forked child: `close_files` only reads and writes atomics and makes system calls.
    Some(unsafe { register(None, None, Some(in_child)) })
}

/// Returns the address of a function that a loaded library exports.
fn exported(name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: `dlsym` needs a zero-terminated name, which a `CStr` is.
    NonNull::new(unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) })
}

/// Closes the files, in a forked child. If the program has given the number of a descriptor to another file, that file
/// stays open.
extern "C" fn close_files() {
    // SAFETY: `__errno_location` has no requirement; it returns this thread's own variable.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: `errno` points to this thread's own variable, which lives as long as the thread.
    let saved = unsafe { *errno };
    for place in &PLACES {
        let descriptor = place.descriptor.swap(NO_DESCRIPTOR, Ordering::Acquire);
        let id = FileId {
            device: place.device.load(Ordering::Relaxed),
            inode: place.inode.load(Ordering::Relaxed),
        };
        if descriptor != NO_DESCRIPTOR && id_of_descriptor(descriptor) == Some(id) {
            // SAFETY: `close` needs a descriptor that no other code closes. The child has one thread, which is here, and a
            // child never drops the parent's value of type `File`.
            unsafe { libc::close(descriptor) };
        }
        // The parent's value that holds the place is never dropped in a child. Otherwise the children of children would run out
        // of places.
        place.is_taken.store(false, Ordering::Relaxed);
    }
    // SAFETY: `errno` points to this thread's own variable, which lives as long as the thread.
    unsafe { *errno = saved };
}

/// Returns the identity of the file of a descriptor. Makes one system call and allocates nothing.
fn id_of_descriptor(descriptor: c_int) -> Option<FileId> {
    // SAFETY: `stat` is plain data, for which all zeroes are a valid value.
    let mut found: libc::stat = unsafe { mem::zeroed() };
    // SAFETY: `fstat` needs room for a `stat`, which `found` is. It fails for a number that is no descriptor.
    let status = unsafe { libc::fstat(descriptor, &raw mut found) };
    (status == 0).then_some(FileId { device: found.st_dev, inode: found.st_ino })
}
