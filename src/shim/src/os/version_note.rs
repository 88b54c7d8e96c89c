//! ELF note with the version of this library. `readelf -n` shows it, and `gpuslice doctor` reads it without loading the library.

use core::ffi::c_void;
use core::ptr;

/// Bytes of the note's name, [`NOTE`](gpuslice_driver::slot::NOTE).
const NAME_SIZE: u32 = 9;
/// Bytes of the note's text.
const TEXT_SIZE: u32 = 32;

/// A note in the form of the ELF specification.
#[repr(C)]
struct Note {
    name_size: u32,
    text_size: u32,
    kind: u32,
    /// Name, with zeroes behind it up to a multiple of four.
    name: [u8; 12],
    /// Version of the region's layout.
    region: u32,
    /// Version of the package, with zeroes behind it.
    version: [u8; 28],
}

// SAFETY: the section is the library's own, and the loader skips notes that it does not know.
#[used]
#[unsafe(link_section = ".note.gpuslice")]
static LABEL: Note = Note {
    name_size: NAME_SIZE,
    text_size: TEXT_SIZE,
    kind: 1,
    name: *b"gpuslice\0\0\0\0",
    region: gpuslice_region::layout::VERSION,
    version: padded(env!("CARGO_PKG_VERSION").as_bytes()),
};

/// Returns the address of the note of this copy of the library.
pub(super) fn address() -> *const c_void {
    ptr::from_ref(&LABEL).cast()
}

const fn padded(version: &[u8]) -> [u8; 28] {
    let mut text = [0; 28];
    let (start, _zeroes) = text.split_at_mut(version.len());
    start.copy_from_slice(version);
    text
}
