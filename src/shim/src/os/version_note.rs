//! ELF note with the version of this library. `readelf -n` shows it, and `gpuslice doctor` reads it without loading the library.

use core::ffi::c_void;
use core::ptr;
use gpuslice_driver::notes::NOTE;

/// Bytes of the note's name.
#[allow(clippy::cast_possible_truncation, reason = "a short name")]
const NAME_SIZE: u32 = NOTE.len() as u32;
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

// SAFETY: `link_section` requires a section in which this data does no harm. Only this library uses the section, and the loader
// skips notes that it does not know.
#[used]
#[unsafe(link_section = ".note.gpuslice")]
static LABEL: Note = Note {
    name_size: NAME_SIZE,
    text_size: TEXT_SIZE,
    kind: 1,
    name: padded(NOTE),
    region: gpuslice_region::layout::VERSION,
    version: padded(env!("CARGO_PKG_VERSION").as_bytes()),
};

/// Returns the address of the note of this copy of the library.
pub(super) fn address() -> *const c_void {
    ptr::from_ref(&LABEL).cast()
}

const fn padded<const SIZE: usize>(text: &[u8]) -> [u8; SIZE] {
    let mut padded = [0; SIZE];
    let (start, _zeroes) = padded.split_at_mut(text.len());
    start.copy_from_slice(text);
    padded
}
