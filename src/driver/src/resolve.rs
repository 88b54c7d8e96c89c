//! Finds the C library's own `dlsym` and `dlvsym`, although the library exports functions with these names.

use crate::elf::Image;
use core::ffi::{CStr, c_char, c_void};
use core::mem::transmute;

/// The type of `dlsym`.
pub type Dlsym = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
/// The type of `dlvsym`.
pub type Dlvsym = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;

/// Names of the libraries that may have the loader functions: the C library, or `libdl.so.2` before glibc 2.34.
const HOMES: &[&CStr] = &[c"libc.so.6", c"libdl.so.2", c"libc.musl-x86_64.so.1"];

/// Returns the library that defines one of the C library's loader functions.
///
/// The library that contains `dladdr` comes first. A program built with a sanitizer replaces the loader function that
/// the other search needs, and asks for `dlsym` before that function works.
fn home(name: &CStr) -> Option<Image> {
    let beside = Image::containing(libc::dladdr as *const c_void);
    beside.filter(|image| image.symbol(name).is_some()).or_else(|| Image::defining(name, HOMES))
}

/// Versions under which glibc exports `dlsym` and `dlvsym`, newest first.
const VERSIONS: &[&CStr] = &[c"GLIBC_2.34", c"GLIBC_2.2.5"];

/// Returns the C library's own `dlsym`.
#[must_use]
pub fn own_dlsym() -> Option<Dlsym> {
    let address = home(c"dlsym")?.symbol(c"dlsym")?;
    // SAFETY: `transmute` needs the type of the function at the address. The C library's `dlsym` has the type `Dlsym`.
    Some(unsafe { transmute::<*const c_void, Dlsym>(address) })
}

/// Returns the C library's own `dlvsym`; musl has none.
#[must_use]
pub fn own_dlvsym() -> Option<Dlvsym> {
    let address = home(c"dlvsym")?.symbol(c"dlvsym")?;
    // SAFETY: `transmute` needs the type of the function at the address. The C library's `dlvsym` has the type `Dlvsym`.
    Some(unsafe { transmute::<*const c_void, Dlvsym>(address) })
}

/// Returns the next definition of a loader function after the library's own. It belongs to another preloaded library or to
/// the C library.
///
/// Calls the loader, and so clears a pending `dlerror`. The library may call this function only while the program
/// calls `dlsym`.
#[must_use]
pub fn next(name: &CStr) -> Option<*mut c_void> {
    let Some(dlvsym) = own_dlvsym() else {
        // SAFETY: `dlsym` needs a string that ends with a zero, which `name` is.
        return own_dlsym().map(|dlsym| unsafe { dlsym(libc::RTLD_NEXT, name.as_ptr()) });
    };
    VERSIONS
        .iter()
        // SAFETY: `dlvsym` needs strings that end with a zero, which `name` and `version` are.
        .map(|version| unsafe { dlvsym(libc::RTLD_NEXT, name.as_ptr(), version.as_ptr()) })
        .find(|found| !found.is_null())
}
