//! Fat binaries: several images of the same code, of which a device takes one.
//!
//! A fat binary begins with a header of 16 bytes: the mark, a version, the header's own length, and the length of
//! the rest. Then follow the entries. An entry is a head of 64 bytes or more that describes an image, and then the
//! image. The image may be compressed.

use crate::model::image::{Image, word};

/// Length of the header, in bytes.
pub(crate) const HEADER: usize = 16;

/// Kinds of entries: text in PTX, or machine code in ELF.
const PTX_KIND: u64 = 1;
const ELF_KIND: u64 = 2;
/// Flag of an entry whose image is compressed with LZ4.
const LZ4: u64 = 0x2000;
/// Flag of an entry whose image is compressed with Zstandard. simgpu does not read such images.
const ZSTANDARD: u64 = 0x8000;
/// The device's compute capability, without the point.
const CAPABILITY: u64 = 90;
/// Largest image, in bytes after unpacking, that simgpu unpacks.
const LARGEST_IMAGE_BYTES: usize = 256 << 20;

/// Returns the length in bytes of the fat binary that has this header.
pub(crate) fn length(header: &[u8]) -> Option<usize> {
    usize::try_from(word(header, 8, 8)?).ok()?.checked_add(usize::try_from(word(header, 6, 2)?).ok()?)
}

/// One image of a fat binary.
#[derive(Debug, Clone, Copy)]
struct FatImage<'a> {
    kind: u64,
    capability: u64,
    flags: u64,
    /// Bytes of the image after unpacking.
    unpacked: usize,
    content: &'a [u8],
}

/// Returns the entry at the start of these bytes, and the bytes that follow the entry.
fn entry(bytes: &[u8]) -> Option<(FatImage<'_>, &[u8])> {
    let size = |at, length| usize::try_from(word(bytes, at, length)?).ok();
    let (head, padded, packed) = (size(4, 4)?, size(8, 8)?, size(16, 4)?);
    let next = head.checked_add(padded)?;
    let flags = word(bytes, 40, 8)?;
    let is_packed = flags & (LZ4 | ZSTANDARD) != 0;
    let content = bytes.get(head..head.checked_add(if is_packed { packed } else { padded })?)?;
    let unpacked = if is_packed { size(56, 8)? } else { content.len() };
    let entry =
        FatImage { kind: word(bytes, 0, 2)?, capability: word(bytes, 28, 4)?, flags, unpacked, content };
    // An entry whose head has no bytes would be found again and again for ever.
    (head > 0).then_some((entry, bytes.get(next..)?))
}

impl FatImage<'_> {
    /// Returns a rank by which images are compared: machine code of the device's generation is better than text to compile, and
    /// newer is better than older. Returns `None` if the device cannot run the image.
    fn rank(&self) -> Option<(bool, u64)> {
        let older = self.capability <= CAPABILITY;
        match self.kind {
            ELF_KIND if older && self.capability / 10 == CAPABILITY / 10 => Some((true, self.capability)),
            PTX_KIND if older => Some((false, self.capability)),
            _ => None,
        }
    }

    fn image(&self) -> Option<Image> {
        let unpacked = match self.flags & (LZ4 | ZSTANDARD) {
            0 => None,
            LZ4 => Some(unpack(self.content, self.unpacked)?),
            _ => return None,
        };
        let bytes = unpacked.as_deref().unwrap_or(self.content);
        if self.kind == ELF_KIND {
            Some(Image::of_elf(bytes))
        } else {
            Image::of_text(&String::from_utf8_lossy(bytes))
        }
    }
}

/// Returns the image that the device takes from a fat binary. The image has no known contents if the binary cannot be read.
pub(crate) fn image(bytes: &[u8]) -> Image {
    let mut rest = word(bytes, 6, 2).and_then(|head| bytes.get(usize::try_from(head).ok()?..)).unwrap_or(&[]);
    let mut best: Option<FatImage<'_>> = None;
    while let Some((found, behind)) = entry(rest) {
        if found.rank() > best.and_then(|best| best.rank()) {
            best = Some(found);
        }
        rest = behind;
    }
    best.and_then(|best| best.image()).unwrap_or_default()
}

/// Unpacks a block of LZ4. Returns `None` if the block is damaged, or if it unpacks to more than `size` bytes.
fn unpack(packed: &[u8], size: usize) -> Option<Vec<u8>> {
    if size > LARGEST_IMAGE_BYTES {
        return None;
    }
    let mut out = Vec::with_capacity(size);
    let mut rest = packed.iter();
    // A length of 15 continues in the bytes that follow. They are added to it, up to and with the first byte that is not 255.
    let length = |start: u8, rest: &mut core::slice::Iter<'_, u8>| {
        let mut length = usize::from(start);
        if start == 15 {
            loop {
                let more = *rest.next()?;
                length = length.checked_add(usize::from(more))?;
                if more != u8::MAX {
                    break;
                }
            }
        }
        Some(length)
    };
    while let Some(token) = rest.next() {
        let literals = length(token >> 4, &mut rest)?;
        let (taken, behind) = rest.as_slice().split_at_checked(literals)?;
        out.extend_from_slice(taken);
        rest = behind.iter();
        // The last sequence has no match after its plain bytes.
        let Some(low) = rest.next() else { break };
        let distance = usize::from(*low) | usize::from(*rest.next()?) << 8;
        let matched = length(token & 15, &mut rest)?.checked_add(4)?;
        let start = out.len().checked_sub(distance).filter(|_| distance > 0)?;
        if out.len().checked_add(matched)? > size {
            return None;
        }
        // The source may overlap the bytes that this loop writes. So it copies one byte at a time.
        for place in start..start + matched {
            out.push(*out.get(place)?);
        }
    }
    // The size may count zeros at the end of a text, and these are not always in the block.
    (out.len() <= size && !out.is_empty()).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry_of(kind: u16, capability: u32, flags: u64, content: &[u8], unpacked: u64) -> Vec<u8> {
        let padded = content.len().next_multiple_of(8);
        let mut head = Vec::new();
        head.extend(kind.to_le_bytes());
        head.extend(0x101_u16.to_le_bytes());
        head.extend(64_u32.to_le_bytes());
        head.extend((padded as u64).to_le_bytes());
        head.extend(u32::try_from(content.len()).unwrap().to_le_bytes());
        head.extend([0; 8]);
        head.extend(capability.to_le_bytes());
        head.extend([0; 8]);
        head.extend(flags.to_le_bytes());
        head.extend([0; 8]);
        head.extend(unpacked.to_le_bytes());
        assert_eq!(head.len(), 64);
        head.extend(content);
        head.resize(64 + padded, 0);
        head
    }

    fn fat(entries: &[Vec<u8>]) -> Vec<u8> {
        let content = entries.concat();
        let mut bytes = 0xba55_ed50_u32.to_le_bytes().to_vec();
        bytes.extend(1_u16.to_le_bytes());
        bytes.extend(16_u16.to_le_bytes());
        bytes.extend((content.len() as u64).to_le_bytes());
        bytes.extend(content);
        assert_eq!(length(&bytes), Some(bytes.len()));
        bytes
    }

    fn text(kernel: &str) -> Vec<u8> {
        format!(".version 8.0\n.visible .global .b8 table[9];\n.entry {kernel}() {{}}\n").into_bytes()
    }

    #[test]
    fn the_device_takes_the_image_that_suits_it_best() {
        let of = |capability, kernel: &str| entry_of(1, capability, 0, &text(kernel), 0);
        let image = image(&fat(&[of(70, "old"), of(90, "own"), of(100, "new")]));
        assert_eq!(image.kernels.as_deref(), Some(&["own".to_owned()][..]));
        assert_eq!(image.variables, [("table".to_owned(), 9)]);
        assert_eq!(super::image(&fat(&[of(100, "new")])), Image::default());
        let machine = entry_of(2, 90, 0, b"no ELF after all", 0);
        assert_eq!(super::image(&fat(&[of(90, "own"), machine])), Image::default());
    }

    #[test]
    fn a_block_of_lz4_is_unpacked() {
        // The plain bytes "ab", then a match of 9 bytes that begins 2 bytes back, then the plain byte "c".
        let packed = [0x25, b'a', b'b', 2, 0, 0x10, b'c'];
        assert_eq!(unpack(&packed, 12).as_deref(), Some(&b"abababababac"[..]));
        assert_eq!(unpack(&packed, 10), None);
        let long = [[0xf0, 255, 5].as_slice(), &[b'x'; 275]].concat();
        assert_eq!(unpack(&long, 275).map(|bytes| bytes.len()), Some(275));
        for damaged in [
            &[0x25, b'a', b'b', 3, 0][..],
            &[0x25, b'a', b'b', 0, 0],
            &[0x25, b'a', b'b', 2],
            &[0xf0],
            &[0x50, b'a'],
        ] {
            assert_eq!(unpack(damaged, 100), None, "{damaged:?}");
        }
        assert_eq!(unpack(&[0x2f, b'a', b'b', 2, 0, 255, 255, 255, 0], 100), None);
    }

    #[test]
    fn packed_entries_are_read_or_unknown() {
        let plain = text("packed");
        // One sequence that has only plain bytes and no match.
        let extra = u8::try_from(plain.len() - 15).unwrap();
        let packed = [[0xf0, extra].as_slice(), &plain].concat();
        let of = |flags| fat(&[entry_of(1, 80, flags, &packed, plain.len() as u64)]);
        assert!(image(&of(LZ4)).has_kernel("packed") && !image(&of(LZ4)).has_kernel("other"));
        assert_eq!(image(&of(ZSTANDARD)), Image::default());
    }

    #[test]
    fn whatever_it_holds_it_is_read_without_harm() {
        let whole = fat(&[entry_of(1, 90, 0, &text("own"), 0), entry_of(2, 90, LZ4, &[0xff; 40], 1 << 60)]);
        for end in 0..whole.len() {
            image(&whole[..end]);
        }
        for place in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[place] ^= 0xff;
            image(&damaged);
        }
    }
}
