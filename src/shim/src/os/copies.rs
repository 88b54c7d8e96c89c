//! Copies of this library in one process.
//!
//! Example: an image preloads a copy of its own, and the operator's `/etc/ld.so.preload` preloads another copy. Both would be
//! members of the slice and charge each allocation. So only the first copy in the loader's order limits. It calls the driver
//! past the other copies. These forward all calls that reach them in another way.

use super::version_note;
use core::fmt;
use gpuslice_driver::elf::Image;
use gpuslice_driver::notes::each_copy;
use std::ffi::CStr;

/// Place of this copy among the copies of the process.
pub(crate) enum CopyOrder {
    /// There is no other copy.
    Only,
    /// This copy limits. Another copy comes behind it in the loader's order.
    First(PassedOver),
    /// Another copy limits. It comes before this copy in the loader's order.
    Behind,
}

/// The message about a copy that does nothing.
#[derive(Debug)]
pub(crate) struct PassedOver {
    /// Path of this copy.
    own: String,
    /// Path of the copy that does nothing.
    other: String,
}

impl fmt::Display for PassedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { own, other } = self;
        write!(
            f,
            "gpuslice: {own} limits, and {other} does nothing, because it is a second copy; preload one of them."
        )
    }
}

/// Returns the place of this copy among the copies that the process has loaded.
pub(crate) fn order() -> CopyOrder {
    let mut copies = Vec::new();
    each_copy(|image| copies.push(image));
    let path = |image: &Image| image.path().map(CStr::to_string_lossy).unwrap_or_default().into_owned();
    match copies.as_slice() {
        [first, other, ..] if first.contains(version_note::address()) => {
            CopyOrder::First(PassedOver { own: path(first), other: path(other) })
        }
        [_, _, ..] => CopyOrder::Behind,
        _ => CopyOrder::Only,
    }
}
