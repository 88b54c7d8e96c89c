//! Size of the code that a program wants to load. The hook reads as little of the image as the size needs, before the driver
//! reads it.

use core::ffi::{c_char, c_void};
use gpuslice_driver::arguments::read_in;
use gpuslice_policy::sizes::code::{CodeImage, ELF_HEADER, ImageFormat, elf_length, fat_length};
use std::os::unix::ffi::OsStrExt;

/// Reads the sizes of an image from a file.
pub(crate) fn file(name: *const c_char) -> Option<CodeImage> {
    if name.is_null() {
        return None;
    }
    // SAFETY: `from_ptr` requires a text that ends in zero. `name` is not null, and the driver requires the same of it.
    let name = unsafe { core::ffi::CStr::from_ptr(name) };
    let content = std::fs::read(std::ffi::OsStr::from_bytes(name.to_bytes())).ok()?;
    Some(CodeImage::of(&content))
}

/// Reads the sizes of an image from memory.
pub(crate) fn data(image: *const c_void) -> Option<CodeImage> {
    let image = image.cast::<u8>();
    if image.is_null() {
        return None;
    }
    if let Some(text) = text(image) {
        return Some(CodeImage::of(text));
    }
    // SAFETY: `read_in` requires readable bytes. The first four show a binary form, so the 16 of its header are there.
    let start = unsafe { read_in(image.cast::<[u8; 16]>()) }?;
    match ImageFormat::of(*start.first_chunk()?) {
        ImageFormat::Elf => {
            // SAFETY: `read_in` requires readable bytes. An ELF image has all bytes of its header.
            let header = unsafe { read_in(image.cast::<[u8; ELF_HEADER]>()) }?;
            let length = usize::try_from(elf_length(&header)?).ok()?;
            // SAFETY: `from_raw_parts` requires `length` readable bytes. The driver requires an image as long as its header says.
            Some(CodeImage::of(unsafe { core::slice::from_raw_parts(image, length) }))
        }
        // SAFETY: `fat` requires an image as long as its header says, and so does the driver.
        ImageFormat::Fat => unsafe { fat(image) },
        ImageFormat::Wrapper => {
            // SAFETY: `read_in` requires a readable address. A wrapper has the address of its fat binary at byte 8.
            let inner = unsafe { read_in(image.wrapping_add(8).cast::<*const u8>()) }?;
            // SAFETY: `fat` requires null or an image as long as its header says, and so does the driver of a wrapper's image.
            unsafe { fat(inner) }
        }
        ImageFormat::Text => None,
    }
}

/// Reads the size and the variables of a fat binary.
///
/// # Safety
/// The image is null or as long as its header says, as the driver requires.
unsafe fn fat(image: *const u8) -> Option<CodeImage> {
    // SAFETY: by this function's contract `image` is null or has all bytes of its header.
    let start = unsafe { read_in(image.cast::<[u8; 16]>()) }?;
    if ImageFormat::of(*start.first_chunk()?) != ImageFormat::Fat {
        return None;
    }
    let length = usize::try_from(fat_length(&start)?).ok()?;
    // SAFETY: `from_raw_parts` requires `length` readable bytes. By this function's contract the image is that long.
    Some(CodeImage::of(unsafe { core::slice::from_raw_parts(image, length) }))
}

/// Returns the image if it is text. Reads byte by byte, because a short text ends before a header would.
fn text<'a>(image: *const u8) -> Option<&'a [u8]> {
    let mut start = [0_u8; 4];
    for (index, byte) in start.iter_mut().enumerate() {
        // SAFETY: `read_in` requires a readable byte. No byte before this one was the zero that ends a text.
        *byte = unsafe { read_in(image.wrapping_add(index)) }?;
        if *byte == 0 {
            break;
        }
    }
    // SAFETY: `from_ptr` requires a text that ends in zero. No binary form begins like this, so the image is one.
    (ImageFormat::of(start) == ImageFormat::Text)
        .then(|| unsafe { core::ffi::CStr::from_ptr(image.cast()) }.to_bytes())
}
