//! Bounds of the device memory of GPU code, from its image on the host.
//!
//! The bounds have two uses. They limit a measurement that could belong to another process. They give the bytes to reserve
//! before the driver call. The module reads only sizes. It counts variables if the format shows them. The rest counts as a
//! multiple of the image.

/// The first bytes of an ELF image.
const ELF: [u8; 4] = *b"\x7fELF";
/// Bytes of an ELF image's header.
pub const ELF_HEADER: usize = 64;
/// The first bytes of a fat binary.
const FAT: [u8; 4] = 0xba55_ed50_u32.to_le_bytes();
/// The first bytes of the wrapper that a compiler puts around a fat binary.
const WRAPPER: [u8; 4] = 0x4662_43b1_u32.to_le_bytes();

/// Unit of device memory that the driver takes for code, in bytes.
const CODE_GRANULE: u64 = 2 << 20;
/// Largest growth of code on its way to the device, as a factor. Images are compressed, and text is compiled.
const MOST_CODE_GROWTH: u64 = 8;
/// Further bytes of a module, for constants, local memory and the driver's tables.
const MODULE_REST: u64 = 8 << 20;

/// Known properties of an image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CodeImage {
    /// Bytes on the host.
    pub bytes: u64,
    /// Bytes of the declared variables, as far as they can be read.
    pub variables: u64,
    /// True if the image may declare more variables, because a part is compressed or of an unknown kind.
    pub unread: bool,
}

/// Format of an image, from its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageFormat {
    /// ELF; [`elf_length`] reads its length.
    Elf,
    /// A fat binary; [`fat_length`] reads its length.
    Fat,
    /// A wrapper; bytes 8 to 15 are the address of a fat binary.
    Wrapper,
    /// Text that ends with a zero byte.
    Text,
}

impl ImageFormat {
    /// Returns the format of an image with these first bytes.
    #[must_use]
    pub fn of(start: [u8; 4]) -> Self {
        match start {
            ELF => Self::Elf,
            FAT => Self::Fat,
            WRAPPER => Self::Wrapper,
            _ => Self::Text,
        }
    }
}

impl CodeImage {
    /// Reads a complete image.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let format = bytes.first_chunk().map_or(ImageFormat::Text, |start| ImageFormat::of(*start));
        let variables = match format {
            ImageFormat::Elf => of_elf(bytes),
            ImageFormat::Text => Some(of_text(bytes)),
            ImageFormat::Fat => return of_fat(bytes),
            ImageFormat::Wrapper => None,
        };
        Self { bytes: bytes.len() as u64, variables: variables.unwrap_or(0), unread: variables.is_none() }
    }

    /// Returns the lower bound in bytes. Large variables get memory of their own. Small variables may fit into memory that
    /// the driver has already.
    #[must_use]
    pub fn least(&self) -> u64 {
        if self.variables < CODE_GRANULE { 0 } else { self.variables }
    }

    /// Returns true if [`least`](Self::least) counts all variables.
    #[must_use]
    pub fn shows_all(&self) -> bool {
        !self.unread && self.least() == self.variables
    }

    /// Returns the size in bytes that is assumed if nothing can be measured.
    #[must_use]
    pub fn likely(&self) -> u64 {
        let sum = self.bytes.saturating_add(self.variables);
        sum.checked_next_multiple_of(CODE_GRANULE).unwrap_or(u64::MAX)
    }

    /// Returns the upper bound in bytes.
    #[must_use]
    pub fn most(&self) -> u64 {
        self.bytes.saturating_mul(MOST_CODE_GROWTH).saturating_add(MODULE_REST).saturating_add(self.variables)
    }
}

/// `EM_CUDA`, and its position in an ELF header.
const MACHINE: (usize, u64) = (0x12, 190);

/// Returns the length of an ELF image of GPU code, from its header: the end of its tables, which come last. `None` for
/// other images, because their headers may be wrong.
#[must_use]
pub fn elf_length(header: &[u8]) -> Option<u64> {
    if word(header, MACHINE.0, 2)? != MACHINE.1 {
        return None;
    }
    let table = |offset_at, size_at, count_at| {
        let entries = word(header, size_at, 2)?.checked_mul(word(header, count_at, 2)?)?;
        word(header, offset_at, 8)?.checked_add(entries)
    };
    Some(table(0x28, 0x3a, 0x3c)?.max(table(0x20, 0x36, 0x38)?))
}

/// Returns the length of a fat binary, from its first 16 bytes: header and content.
#[must_use]
pub fn fat_length(header: &[u8]) -> Option<u64> {
    word(header, 6, 2)?.checked_add(word(header, 8, 8)?)
}

fn word(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(length)?)?;
    Some(bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)))
}

/// Kind of a part in a fat binary: text.
const PART_TEXT: u64 = 1;
/// Kind of a part in a fat binary: ELF.
const PART_ELF: u64 = 2;
/// Flags of compressed parts.
const COMPRESSED_FLAGS: u64 = 0x2000 | 0x8000;

/// Reads a fat binary: the same code for several GPUs, of which the driver loads one part. The variables are the largest
/// sum of any part. Compressed parts are not read.
fn of_fat(bytes: &[u8]) -> CodeImage {
    let mut image = CodeImage { bytes: bytes.len() as u64, ..CodeImage::default() };
    let mut rest = word(bytes, 6, 2).and_then(|header| bytes.get(usize::try_from(header).ok()?..));
    // Each part has a header, with at least the fields that are read here, and its content.
    while let Some((part, after)) = rest.and_then(part_of_fat) {
        image.variables = image.variables.max(part.unwrap_or(0));
        image.unread |= part.is_none();
        rest = Some(after);
    }
    image
}

/// Returns the bytes of the variables of the first part, if it can be read, and the parts after it.
fn part_of_fat(bytes: &[u8]) -> Option<(Option<u64>, &[u8])> {
    const FIELDS: u64 = 48;
    let (kind, header, size) = (word(bytes, 0, 2)?, word(bytes, 4, 4)?, word(bytes, 8, 8)?);
    let flags = word(bytes, 40, 8)?;
    if header < FIELDS {
        return None;
    }
    let (_, content) = bytes.split_at_checked(usize::try_from(header).ok()?)?;
    let (content, after) = content.split_at_checked(usize::try_from(size).ok()?)?;
    let variables = match kind {
        _ if flags & COMPRESSED_FLAGS != 0 => None,
        PART_TEXT => Some(of_text(content)),
        PART_ELF => of_elf(content),
        _ => None,
    };
    Some((variables, after))
}

/// Reads the sections `.nv.global` and `.nv.global.init`, which have the variables.
fn of_elf(bytes: &[u8]) -> Option<u64> {
    let start = word(bytes, 0x28, 8)?;
    let (size, count, names) = (word(bytes, 0x3a, 2)?, word(bytes, 0x3c, 2)?, word(bytes, 0x3e, 2)?);
    let section = |index: u64| usize::try_from(start.checked_add(index.checked_mul(size)?)?).ok();
    let names = word(bytes, section(names)?.checked_add(0x18)?, 8)?;
    let mut sum = 0_u64;
    for index in 0..count {
        let at = section(index)?;
        let name = usize::try_from(names.checked_add(word(bytes, at, 4)?)?).ok()?;
        if bytes.get(name..)?.starts_with(b".nv.global") {
            sum = sum.saturating_add(word(bytes, at.checked_add(0x20)?, 8)?);
        }
    }
    Some(sum)
}

/// Reads declarations such as `.global .align 4 .b8 table[1024];`.
fn of_text(text: &[u8]) -> u64 {
    let statements = text.split(|byte| matches!(byte, b';' | b'{' | b'}'));
    statements.filter_map(variable).fold(0, u64::saturating_add)
}

fn variable(statement: &[u8]) -> Option<u64> {
    let has = |part: &[u8]| statement.windows(part.len()).position(|window| window == part);
    let at = has(b".global")?;
    if has(b".extern").is_some() || statement.contains(&b'%') {
        return None;
    }
    let declaration = core::str::from_utf8(statement.get(at..)?).ok()?.split('=').next()?;
    let (types, dimensions) = declaration.split_at(declaration.find('[').unwrap_or(declaration.len()));
    let mut size = 1_u64;
    for word in types.split_whitespace().filter_map(|word| word.strip_prefix('.')) {
        size = size.checked_mul(factor(word).unwrap_or(1))?;
    }
    for dimension in dimensions.split('[').skip(1) {
        size = size.checked_mul(dimension.split(']').next()?.trim().parse().ok()?)?;
    }
    Some(size)
}

/// Returns the bytes of an element (`b8`, `u64`, `f32`), or the number of elements of a vector (`v4`).
fn factor(kind: &str) -> Option<u64> {
    if let Some(elements) = kind.strip_prefix('v') {
        return elements.parse().ok();
    }
    let bits: u64 = kind.strip_prefix(['b', 'u', 's', 'f'])?.parse().ok()?;
    Some(bits / 8)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = ".version 8.0\n.target sm_80\n.visible .global .align 4 .b8 table[4194304];\n\
        .global .align 8 .u64 counter;\n.global .align 16 .v4 .f32 grid[2][3] = {0};\n\
        .extern .global .f32 elsewhere[4];\n.visible .entry f() { ld.global.u32 %r1, [p]; ret; }";

    #[test]
    fn variables_of_text_are_counted_and_others_declarations_are_not() {
        let image = CodeImage::of(PTX.as_bytes());
        assert_eq!((image.bytes, image.variables), (PTX.len() as u64, 4_194_304 + 8 + 96));
        assert_eq!(image.least(), image.variables);
        assert_eq!(image.likely(), 6 << 20);
    }

    #[test]
    fn small_variables_may_find_room_in_memory_held_already() {
        assert_eq!(CodeImage::of(b".global .b8 x[100];").least(), 0);
    }

    #[test]
    fn an_image_shows_all_if_its_variables_are_read_and_have_memory_of_their_own() {
        let shows = |variables: u64, unread: bool| CodeImage { bytes: 100, variables, unread }.shows_all();
        assert!(shows(0, false) && shows(CODE_GRANULE, false));
        assert!(!shows(1, false) && !shows(0, true) && !shows(CODE_GRANULE, true));
    }

    #[test]
    fn whatever_an_image_holds_it_is_read_without_harm() {
        for start in [&b"\x7fELF"[..], &FAT, &WRAPPER, b".global .v4 .b64 x[18446744073709551615][2];"] {
            for length in 0..80 {
                let mut bytes = start.to_vec();
                bytes.resize(length, 0xff);
                let image = CodeImage::of(&bytes);
                assert!(image.least() <= image.likely() && image.likely() <= image.most().max(CODE_GRANULE));
            }
        }
    }

    #[test]
    fn lengths_are_told_by_the_headers() {
        let mut elf = [0_u8; ELF_HEADER];
        elf[0x28] = 100;
        (elf[0x3a], elf[0x3c]) = (64, 3);
        assert_eq!(elf_length(&elf), None);
        elf[0x12] = 190;
        assert_eq!(elf_length(&elf), Some(100 + 64 * 3));
        assert_eq!(elf_length(&elf[..32]), None);
        let mut fat = [0_u8; 16];
        (fat[6], fat[8]) = (16, 200);
        assert_eq!(fat_length(&fat), Some(216));
    }

    #[test]
    fn parts_of_a_fat_binary_are_read_unless_they_are_compressed() {
        let part = |kind: u8, flags: u16, content: &[u8]| {
            let mut part = vec![0_u8; 64];
            (part[0], part[4]) = (kind, 64);
            part[8..10].copy_from_slice(&u16::try_from(content.len()).unwrap().to_le_bytes());
            part[40..42].copy_from_slice(&flags.to_le_bytes());
            part.extend_from_slice(content);
            part
        };
        let large = part(1, 0, b".global .b8 x[5000000];");
        let larger = part(1, 0x2000, b".global .b8 x[9000000];");
        let small = part(1, 0x11, b".global .b8 x[3000000];");
        let parts = [large, larger, small].concat();
        let mut fat = FAT.to_vec();
        fat.extend_from_slice(&[1, 0, 16, 0]);
        fat.extend_from_slice(&(parts.len() as u64).to_le_bytes());
        fat.extend_from_slice(&parts);
        assert_eq!(
            CodeImage::of(&fat),
            CodeImage { bytes: fat.len() as u64, variables: 5_000_000, unread: true }
        );
        // An image that is cut off is read up to its end.
        assert!((0..fat.len()).all(|length| CodeImage::of(&fat[..length]).variables <= 5_000_000));
    }

    #[test]
    fn variables_of_an_elf_image_are_sections() {
        let mut elf = vec![0_u8; 64 + 2 * 64 + 32];
        elf[..4].copy_from_slice(&ELF);
        (elf[0x28], elf[0x3a], elf[0x3c], elf[0x3e]) = (64, 64, 2, 0);
        elf[64 + 0x18] = 192;
        elf[128] = 1;
        elf[128 + 0x22] = 0x40;
        elf[193..193 + 10].copy_from_slice(b".nv.global");
        assert_eq!(CodeImage::of(&elf).variables, 0x40 << 16);
        assert!(
            !CodeImage::of(&elf).unread
                && CodeImage::of(&elf[..64]).unread
                && !CodeImage::of(PTX.as_bytes()).unread
        );
    }
}
