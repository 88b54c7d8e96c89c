//! Size of the code that a program wants to load. The hook reads as little of the image as tells it, before the driver does.

use core::ffi::{c_char, c_void};
use gpuslice_driver::arguments::read_in;
use gpuslice_policy::sizes::code::{Form, HEADER, Image, elf_length, fat_length};
use std::os::unix::ffi::OsStrExt;

/// What is known of an image in a file.
pub(crate) fn file(name: *const c_char) -> Option<Image> {
    if name.is_null() {
        return None;
    }
    // SAFETY: not null, so a text that ends in zero, as the driver requires.
    let name = unsafe { core::ffi::CStr::from_ptr(name) };
    let content = std::fs::read(std::ffi::OsStr::from_bytes(name.to_bytes())).ok()?;
    Some(Image::of(&content))
}

/// What is known of an image in memory.
pub(crate) fn data(image: *const c_void) -> Option<Image> {
    let image = image.cast::<u8>();
    if image.is_null() {
        return None;
    }
    if let Some(text) = text(image) {
        return Some(Image::of(text));
    }
    // SAFETY: binary by its first bytes, so there are those of its header.
    let start = unsafe { read_in(image.cast::<[u8; 16]>()) }?;
    match Form::of(*start.first_chunk()?) {
        Form::Elf => {
            // SAFETY: as above.
            let header = unsafe { read_in(image.cast::<[u8; HEADER]>()) }?;
            let length = usize::try_from(elf_length(&header)?).ok()?;
            // SAFETY: the image is as long as it says, as the driver requires.
            Some(Image::of(unsafe { core::slice::from_raw_parts(image, length) }))
        }
        // SAFETY: as above.
        Form::Fat => unsafe { fat(image) },
        Form::Wrapper => {
            // SAFETY: a wrapper holds the address of a fat binary.
            let inner = unsafe { read_in(image.wrapping_add(8).cast::<*const u8>()) }?;
            // SAFETY: as above.
            unsafe { fat(inner) }
        }
        Form::Text => None,
    }
}

/// The size and the variables of a fat binary.
///
/// # Safety
/// The image is null or as long as its header says, as the driver requires.
unsafe fn fat(image: *const u8) -> Option<Image> {
    // SAFETY: by the contract above.
    let start = unsafe { read_in(image.cast::<[u8; 16]>()) }?;
    if Form::of(*start.first_chunk()?) != Form::Fat {
        return None;
    }
    let length = usize::try_from(fat_length(&start)?).ok()?;
    // SAFETY: by the contract above.
    Some(Image::of(unsafe { core::slice::from_raw_parts(image, length) }))
}

/// The image, if it is text: read byte by byte, since a short one ends before a header would.
fn text<'a>(image: *const u8) -> Option<&'a [u8]> {
    let mut start = [0_u8; 4];
    for (index, byte) in start.iter_mut().enumerate() {
        // SAFETY: no byte before this one was the zero that ends a text.
        *byte = unsafe { read_in(image.wrapping_add(index)) }?;
        if *byte == 0 {
            break;
        }
    }
    // SAFETY: no binary form begins like this, so a text that ends in zero.
    (Form::of(start) == Form::Text).then(|| unsafe { core::ffi::CStr::from_ptr(image.cast()) }.to_bytes())
}
