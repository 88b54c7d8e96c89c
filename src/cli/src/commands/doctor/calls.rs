//! Calls of the doctor to the C library that the standard library does not wrap.
#![allow(unsafe_code, reason = "calls the C library")]

use std::ffi::{CStr, CString, OsStr, c_char, c_void};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// The size of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    /// Total bytes.
    pub(super) total: u64,
    /// Bytes that this user can still use.
    pub(super) free: u64,
}

fn text(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().as_bytes()).ok()
}

/// Returns the kernel's description of the file system that contains `path`.
fn file_system(path: &Path) -> Option<libc::statvfs> {
    let path = text(path)?;
    let mut found = MaybeUninit::<libc::statvfs>::zeroed();
    // SAFETY: `path` is a text that ends in zero, and `found` has room for the answer.
    let status = unsafe { libc::statvfs(path.as_ptr(), found.as_mut_ptr()) };
    // SAFETY: `found` began as zeroes, which are a valid `statvfs` even if the call failed.
    let found = unsafe { found.assume_init() };
    (status == 0).then_some(found)
}

/// Returns the size of the file system that contains `path`.
pub(super) fn room(path: &Path) -> Option<Room> {
    let found = file_system(path)?;
    let bytes = |blocks: libc::fsblkcnt_t| blocks.saturating_mul(found.f_frsize);
    Some(Room { total: bytes(found.f_blocks), free: bytes(found.f_bavail) })
}

/// Returns true if this process and its children cannot gain rights. Example: a container that sets `PR_SET_NO_NEW_PRIVS`.
pub(super) fn gets_no_rights() -> bool {
    // SAFETY: `prctl` needs arguments that fit its first one. `PR_GET_NO_NEW_PRIVS` reads a flag, and needs zeroes.
    unsafe { libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 }
}

/// Returns true if programs on the file system of `path` get the rights that their files grant.
pub(super) fn gives_rights(path: &Path) -> bool {
    file_system(path).is_none_or(|found| found.f_flag & libc::ST_NOSUID == 0)
}

/// Returns true if this user may read and write a path.
pub(super) fn may_use(path: &Path) -> bool {
    let Some(path) = text(path) else { return false };
    // SAFETY: `path` is a text that ends in zero.
    unsafe { libc::access(path.as_ptr(), libc::R_OK | libc::W_OK) == 0 }
}

/// Returns true if this user may execute a path.
pub(super) fn may_execute(path: &Path) -> bool {
    let Some(path) = text(path) else { return false };
    // SAFETY: `path` is a text that ends in zero.
    unsafe { libc::access(path.as_ptr(), libc::X_OK) == 0 }
}

/// Returns true if a file grants capabilities to the process that executes it.
pub(super) fn has_capabilities(path: &Path) -> bool {
    let Some(path) = text(path) else { return false };
    let name = c"security.capability";
    // SAFETY: `path` and `name` are texts that end in zero. Without a buffer the call returns only the size.
    unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), std::ptr::null_mut(), 0) > 0 }
}

/// Returns the effective group of this process.
pub(super) fn group() -> u32 {
    // SAFETY: `getegid` takes nothing and cannot fail.
    unsafe { libc::getegid() }
}

/// Returns the version of this process's C library, if the library is glibc.
pub(super) fn glibc() -> Option<String> {
    type Version = unsafe extern "C" fn() -> *const c_char;
    let this = libloading::os::unix::Library::this();
    // SAFETY: `get` needs the symbol's type. glibc's function of this name takes nothing and returns a text.
    let version = unsafe { this.get::<Version>(b"gnu_get_libc_version\0") }.ok()?;
    // SAFETY: `version` is glibc's function of this name, which takes no arguments.
    let text = unsafe { version() };
    // SAFETY: `from_ptr` needs a text that ends in zero and stays alive. glibc returns such a text, and never frees it.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}

/// Returns the file of the object of this process that contains an address.
pub(super) fn object_at(address: *const c_void) -> Option<PathBuf> {
    let mut found = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `dladdr` takes any address, and `found` has room for the answer.
    let status = unsafe { libc::dladdr(address, found.as_mut_ptr()) };
    // SAFETY: `assume_init` needs an initialised value: `found` began as zeroes, which are a valid
    // `Dl_info` even if the call failed.
    let found = unsafe { found.assume_init() };
    if status == 0 || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: `from_ptr` needs a text that ends in zero. `dli_fname` is the loader's own name of the object, which
    // stays while the object is loaded.
    let name = unsafe { CStr::from_ptr(found.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

/// Returns the object whose `dlsym` this program calls. It is the first object that exports one.
pub(super) fn owner_of_dlsym() -> Option<PathBuf> {
    object_at((libc::dlsym as *const ()).cast())
}

/// Returns true if the kernel gave this process rights that its caller does not have.
pub(super) fn is_secure() -> bool {
    // SAFETY: `getauxval` reads a number and cannot fail.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}
