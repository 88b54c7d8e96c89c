//! Copies of this library in one process.
//!
//! Example: an image preloads a copy of its own, and the operator's `/etc/ld.so.preload` another one. Both would be members of the
//! slice and charge each allocation. So only the first in the loader's order limits. It passes the others over, and they forward
//! calls that reach them by another way.

use super::version_note;
use core::fmt;
use gpuslice_driver::elf::Image;
use gpuslice_driver::notes::first_with_note;
use gpuslice_driver::slot::NOTE;
use std::ffi::CStr;

/// Returns true if a copy that is loaded before this one limits.
pub(crate) fn is_behind_another() -> bool {
    first_with_note(NOTE).is_some_and(|first| !first.contains(version_note::address()))
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

/// Returns the message about a copy that is loaded behind this one. None: there is none.
pub(crate) fn passed_over() -> Option<PassedOver> {
    let own = Image::containing(version_note::address())?;
    let mut other = None;
    Image::each_behind(&own, |image| other = other.or_else(|| image.has_note(NOTE).then_some(image)));
    let path = |image: &Image| image.path().map(CStr::to_string_lossy).unwrap_or_default().into_owned();
    other.map(|other| PassedOver { own: path(&own), other: path(&other) })
}
