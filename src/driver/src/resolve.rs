//! How are the C library's own `dlsym` and `dlvsym` reached past the ones that we export?

use crate::elf::Image;
use core::ffi::{CStr, c_char, c_void};
use core::mem::transmute;

/// The type of `dlsym`.
pub type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
/// The type of `dlvsym`.
pub type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

/// Where the C library keeps its loader functions: a library of its own before glibc 2.34, the C library since.
const HOMES: &[&CStr] = &[c"libc.so.6", c"libdl.so.2", c"libc.musl-x86_64.so.1"];

/// The library in which one of the C library's loader functions lies.
///
/// First the one that `dladdr` is in: programs built with a sanitizer ask for `dlsym` before the other way of
/// finding libraries works in them, since they put a function of their own in its place.
fn home(name: &CStr) -> Option<Image> {
    let beside = Image::containing(libc::dladdr as *const c_void);
    beside.filter(|image| image.symbol(name).is_some()).or_else(|| Image::defining(name, HOMES))
}

/// Versions under which glibc exports `dlsym` and `dlvsym`, newest first.
const VERSIONS: &[&CStr] = &[c"GLIBC_2.34", c"GLIBC_2.2.5"];

/// The C library's own `dlsym`.
#[must_use]
pub fn own_dlsym() -> Option<Dlsym> {
    let address = home(c"dlsym")?.symbol(c"dlsym")?;
    // SAFETY: the C library's function of this name has this type.
    Some(unsafe { transmute::<*const c_void, Dlsym>(address) })
}

/// The C library's own `dlvsym`; musl has none.
#[must_use]
pub fn own_dlvsym() -> Option<Dlvsym> {
    let address = home(c"dlvsym")?.symbol(c"dlvsym")?;
    // SAFETY: the C library's function of this name has this type.
    Some(unsafe { transmute::<*const c_void, Dlvsym>(address) })
}

/// The next definition of a loader function behind us: another preload's, or the C library's own.
///
/// Asks the loader, and so ends a pending `dlerror`: only for use within a `dlsym` of the program's.
#[must_use]
pub fn next(name: &CStr) -> Option<*mut c_void> {
    let Some(dlvsym) = own_dlvsym() else {
        // SAFETY: called as the C library documents it.
        return own_dlsym().map(|dlsym| unsafe { dlsym(libc::RTLD_NEXT, name.as_ptr()) });
    };
    VERSIONS
        .iter()
        // SAFETY: called as the C library documents it.
        .map(|version| unsafe { dlvsym(libc::RTLD_NEXT, name.as_ptr(), version.as_ptr()) })
        .find(|found| !found.is_null())
}
