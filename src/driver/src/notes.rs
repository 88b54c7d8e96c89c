//! Finds the copies of the preload library in a process, by their ELF note.

use super::elf::{Image, find};
use core::ptr;

/// Name of the note in each copy of the preload library, with its final zero.
pub const NOTE: &[u8] = b"gpuslice\0";

/// The start of a note: bytes of its name and of its text, and its kind. The name follows.
const NOTE_HEADER: usize = 12;

/// Calls `keep` with each copy of the preload library, in the loader's order.
pub fn each_copy(mut keep: impl FnMut(Image)) {
    find(|image| {
        if image.has_note(NOTE) {
            keep(*image);
        }
        false
    });
}

impl Image {
    /// Returns true if the library has a note with this name, which ends with a zero.
    pub(crate) fn has_note(&self, name: &[u8]) -> bool {
        self.segments_of_notes().any(|(start, size, align)| {
            let start: *const u8 = ptr::with_exposed_provenance(start);
            // SAFETY: the loader has mapped the segment, which stays while the library is loaded.
            let segment = unsafe { core::slice::from_raw_parts(start, size) };
            names(segment, align.max(4)).any(|found| found == name)
        })
    }
}

/// Returns the names of the notes in a segment. Names and texts are padded to a multiple of `align` bytes. The names end at the
/// first note that does not fit into the segment.
fn names(mut segment: &[u8], align: usize) -> impl Iterator<Item = &[u8]> {
    core::iter::from_fn(move || {
        let word =
            |at: usize| Some(u32::from_ne_bytes(segment.get(at..at.checked_add(4)?)?.try_into().ok()?));
        let [name_size, text_size] = [usize::try_from(word(0)?).ok()?, usize::try_from(word(4)?).ok()?];
        let text = NOTE_HEADER.checked_add(name_size)?.checked_next_multiple_of(align)?;
        let name = segment.get(NOTE_HEADER..NOTE_HEADER.checked_add(name_size)?)?;
        let next = text.checked_add(text_size)?.checked_next_multiple_of(align)?;
        segment = segment.get(next..).unwrap_or_default();
        Some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(name: &[u8], text: &[u8]) -> Vec<u8> {
        let size = |part: &[u8]| u32::try_from(part.len()).unwrap().to_ne_bytes();
        let mut note = [&size(name)[..], &size(text), &[1, 0, 0, 0], name].concat();
        note.resize(note.len().next_multiple_of(4), 0);
        note.extend_from_slice(text);
        note.resize(note.len().next_multiple_of(4), 0);
        note
    }

    #[test]
    fn names_of_notes_are_read_until_one_does_not_fit() {
        let segment = [note(b"GNU\0", b"12345"), note(b"gpuslice\0", &[0; 32])].concat();
        let read = |length: usize| names(&segment[..length], 4).collect::<Vec<_>>();
        assert_eq!(read(segment.len()), [&b"GNU\0"[..], b"gpuslice\0"]);
        assert_eq!(read(30), [&b"GNU\0"[..]]);
        assert_eq!(read(8), [&b""[..]; 0]);
        let wild = [&u32::MAX.to_ne_bytes()[..], &[0; 20]].concat();
        assert_eq!(names(&wild, 4).count(), 0);
    }

    #[test]
    fn a_library_is_found_by_its_note() {
        let found = find(|image| image.has_note(b"GNU\0")).expect("the C library has a build number");
        assert!(found.bounds().0 < found.bounds().1);
        assert!(find(|image| image.has_note(b"no such\0")).is_none());
    }
}
