//! Which of the doctor's questions to the system have no words in the standard library?
#![allow(unsafe_code, reason = "calls the C library")]

use std::ffi::{CStr, CString, OsStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// The room of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    /// Bytes in all.
    pub(super) total: u64,
    /// Bytes that this user can still have.
    pub(super) free: u64,
}

fn text(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().as_bytes()).ok()
}

/// What the system says of the file system that a path is on.
fn file_system(path: &Path) -> Option<libc::statvfs> {
    let path = text(path)?;
    let mut found = MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: a text that ends in zero, and room for the answer.
    let status = unsafe { libc::statvfs(path.as_ptr(), found.as_mut_ptr()) };
    // SAFETY: all zeroes is a valid value too.
    let found = unsafe { found.assume_init() };
    (status == 0).then_some(found)
}

/// The room of the file system that a path is on.
pub(super) fn room(path: &Path) -> Option<Room> {
    let found = file_system(path)?;
    let bytes = |blocks: libc::fsblkcnt_t| blocks.saturating_mul(found.f_frsize);
    Some(Room { total: bytes(found.f_blocks), free: bytes(found.f_bavail) })
}

/// Returns true if this process and all that it starts can get no more rights than it has, as in containers that say
/// so.
pub(super) fn gets_no_rights() -> bool {
    // SAFETY: asks for a flag; the arguments that it does not use are zero.
    unsafe { libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 }
}

/// Returns true if programs on the file system that a path is on get the rights that their files give them.
pub(super) fn gives_rights(path: &Path) -> bool {
    file_system(path).is_none_or(|found| found.f_flag & libc::ST_NOSUID == 0)
}

/// Returns true if this user may read and write a path.
pub(super) fn may_use(path: &Path) -> bool {
    let Some(path) = text(path) else { return false };
    // SAFETY: a text that ends in zero.
    unsafe { libc::access(path.as_ptr(), libc::R_OK | libc::W_OK) == 0 }
}

/// Returns true if this user may execute a path.
pub(super) fn may_execute(path: &Path) -> bool {
    let Some(path) = text(path) else { return false };
    // SAFETY: a text that ends in zero.
    unsafe { libc::access(path.as_ptr(), libc::X_OK) == 0 }
}

/// Returns true if a file gives capabilities to who executes it.
pub(super) fn has_capabilities(path: &Path) -> bool {
    let Some(path) = text(path) else { return false };
    let name = c"security.capability";
    // SAFETY: two texts that end in zero; without room, only the size is told.
    unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

/// The group that this process acts as.
pub(super) fn group() -> u32 {
    // SAFETY: asks for a number; cannot fail.
    unsafe { libc::getegid() }
}

/// The version of the C library in this process, if it is glibc.
pub(super) fn glibc() -> Option<String> {
    type Version = unsafe extern "C" fn() -> *const c_char;
    let this = libloading::os::unix::Library::this();
    // SAFETY: glibc's function of this name takes nothing and returns a text.
    let version = unsafe { this.get::<Version>(b"gnu_get_libc_version\0") }.ok()?;
    // SAFETY: no arguments.
    let text = unsafe { version() };
    // SAFETY: a text that ends in zero and is never freed.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// The object of this process in which an address lies.
pub(super) fn object_at(address: *const c_void) -> Option<PathBuf> {
    let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: any address may be asked for, and there is room for the answer.
    let status = unsafe { libc::dladdr(address, found.as_mut_ptr()) };
    // SAFETY: all zeroes is a valid value too.
    let found = unsafe { found.assume_init() };
    if status == 0 || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's own name of the object, which stays loaded.
    let name = unsafe { CStr::from_ptr(found.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

/// The object whose `dlsym` this program calls: the first that exports one.
pub(super) fn owner_of_dlsym() -> Option<PathBuf> {
    object_at((libc::dlsym as *const ()).cast())
}

/// Returns true if the kernel has this process run with rights that whoever started it has not.
pub(super) fn is_secure() -> bool {
    // SAFETY: asks for a number; cannot fail.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}
