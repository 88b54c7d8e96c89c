//! Kernels and variables of GPU code.
//!
//! The module reads names and sizes from PTX text and from ELF images. simgpu does not know the contents of other images. So for
//! such an image it acts as if every name that a program asks for were there.

/// The contents of an image, as far as simgpu reads them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Image {
    /// Names of the image's kernels. `None` if they are unknown.
    pub(crate) kernels: Option<Vec<String>>,
    /// Variables: the name and the bytes of each. For an ELF image these are whole sections that hold variables.
    pub(crate) variables: Vec<(String, u64)>,
    /// Names inside those sections, and inside sections of constants, which belong to the code.
    pub(crate) symbols: Vec<Symbol>,
}

/// A variable inside a section of an ELF image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Symbol {
    pub(crate) name: String,
    /// Index in [`Image::variables`] of the section that holds the symbol. `None` if the symbol is in the code.
    pub(crate) inside: Option<usize>,
    /// Offset in the section, in bytes.
    pub(crate) offset: u64,
    /// Size in bytes.
    pub(crate) size: u64,
}

/// The first bytes of an ELF image.
pub(crate) const ELF_MAGIC: [u8; 4] = *b"\x7fELF";
/// The first bytes of a fat binary.
pub(crate) const FAT: [u8; 4] = 0xba55_ed50_u32.to_le_bytes();
/// The first bytes of the wrapper that a compiler puts around a fat binary.
pub(crate) const WRAPPER: [u8; 4] = 0x4662_43b1_u32.to_le_bytes();

impl Image {
    /// Reads PTX. Returns `None` if the text is not PTX.
    pub(crate) fn of_text(text: &str) -> Option<Self> {
        let code = without_comments(text);
        if !code.contains(".version") {
            return None;
        }
        let mut kernels = Vec::new();
        for after in code.split(".entry").skip(1) {
            let name =
                after.trim_start().split(|c: char| c == '(' || c == '{' || c.is_whitespace()).next()?;
            if !name.is_empty() {
                kernels.push(name.to_owned());
            }
        }
        let statements = code.split([';', '{', '}']);
        let variables = statements.filter_map(|statement| variable(statement.trim())).collect();
        Some(Self { kernels: Some(kernels), variables, symbols: Vec::new() })
    }

    /// Reads an ELF image. Parts that it cannot read count as unknown.
    pub(crate) fn of_elf(bytes: &[u8]) -> Self {
        elf(bytes).unwrap_or_default()
    }

    /// Returns true if the image has a kernel of this name.
    pub(crate) fn has_kernel(&self, name: &str) -> bool {
        self.kernels.as_ref().is_none_or(|kernels| kernels.iter().any(|kernel| kernel == name))
    }

    /// Returns the variable of a name that [`Self::variables`] does not have. An image with unknown contents has every name as a
    /// variable, of a size that is large enough for any use.
    pub(crate) fn symbol(&self, name: &str) -> Option<Symbol> {
        const ANY: u64 = 64 << 10;
        if self.kernels.is_none() && !name.is_empty() {
            return Some(Symbol { name: name.to_owned(), inside: None, offset: 0, size: ANY });
        }
        self.symbols.iter().find(|symbol| symbol.name == name).cloned()
    }

    /// Returns the duration of the image's kernels, if the name of a variable tells it.
    pub(crate) fn duration(&self) -> Option<u64> {
        self.variables.iter().find_map(|(name, _)| duration(name))
    }
}

/// Returns a text of PTX without its comments.
fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("/*") {
        let (before, comment) = rest.split_at(start);
        out.push_str(before);
        rest = comment.find("*/").and_then(|end| comment.get(end + 2..)).unwrap_or("");
    }
    out.push_str(rest);
    let lines: Vec<_> = out.lines().map(|line| line.split("//").next().unwrap_or("")).collect();
    lines.join("\n")
}

/// Returns the name and size of a variable such as `.visible .global .align 4 .b8 table[1024] = ...`.
fn variable(statement: &str) -> Option<(String, u64)> {
    let (_, declaration) = statement.split_once(".global")?;
    if statement.contains(".extern") || statement.contains('%') {
        return None;
    }
    let declaration = declaration.split('=').next()?;
    let (mut element, mut vector, mut name) = (0, 1, None);
    let mut words = declaration.split_whitespace();
    while let Some(word) = words.next() {
        match word.strip_prefix('.') {
            Some("align") => {
                words.next()?;
            }
            Some("v2") => vector = 2,
            Some("v4") => vector = 4,
            Some(kind) => element = element_size(kind).unwrap_or(element),
            None => {
                name = Some(declaration.get(declaration.find(word)?..)?);
                break;
            }
        }
    }
    let name = name?;
    let end = name.find(|c: char| c == '[' || c.is_whitespace()).unwrap_or(name.len());
    let (name, dimensions) = name.split_at(end);
    let mut size = u64::max(element, 1) * vector;
    for dimension in dimensions.split('[').skip(1) {
        let number = dimension.split(']').next()?.trim();
        size = size.checked_mul(number.parse().ok()?)?;
    }
    Some((name.to_owned(), size))
}

fn element_size(kind: &str) -> Option<u64> {
    let bits: u64 = kind.trim_start_matches(['b', 'u', 's', 'f']).parse().ok()?;
    Some(bits / 8)
}

/// Returns the duration that a kernel's name tells, in nanoseconds. The part `spin_250us` means 250
/// µs, also inside a mangled name.
pub(crate) fn duration(name: &str) -> Option<u64> {
    let (_, rest) = name.split_once("spin_")?;
    let end = rest.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = rest.split_at(end);
    let factor = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
    let (_, factor) = factor.into_iter().find(|(name, _)| unit.starts_with(name))?;
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// Returns the little-endian number in the `length` bytes at offset `at`.
pub(crate) fn word(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(length)?)?;
    Some(bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)))
}

fn offset(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(word(bytes, at, 8)?).ok()
}

/// Returns the length of an ELF image from its first 64 bytes. It is the end of the image's tables, because these come last.
pub(crate) fn elf_length(header: &[u8]) -> Option<usize> {
    let table = |offset_at, size_at, count_at| {
        let entries = word(header, size_at, 2)? * word(header, count_at, 2)?;
        offset(header, offset_at)?.checked_add(usize::try_from(entries).ok()?)
    };
    Some(table(0x28, 0x3a, 0x3c)?.max(table(0x20, 0x36, 0x38)?))
}

/// Those fields of a section's header that simgpu uses.
#[derive(Debug, Clone)]
struct Section {
    name: String,
    kind: u64,
    offset: u64,
    size: u64,
    /// The section that this section refers to. A symbol table refers to the section with its names.
    link: u64,
}

/// Returns the name at an offset of a section of names.
fn name_at(bytes: &[u8], section: u64, offset: u64) -> Option<String> {
    let start = usize::try_from(section.checked_add(offset)?).ok()?;
    let name = bytes.get(start..)?.split(|byte| *byte == 0).next()?;
    Some(String::from_utf8_lossy(name).into_owned())
}

fn sections(bytes: &[u8]) -> Option<Vec<Section>> {
    let start = offset(bytes, 0x28)?;
    let size = usize::try_from(word(bytes, 0x3a, 2)?).ok()?;
    let count = usize::try_from(word(bytes, 0x3c, 2)?).ok()?;
    let header = |index: usize| start.checked_add(index.checked_mul(size)?);
    let names = word(bytes, header(usize::try_from(word(bytes, 0x3e, 2)?).ok()?)?.checked_add(0x18)?, 8)?;
    (0..count)
        .map(|index| {
            let at = header(index)?;
            let of = |place: usize, length| word(bytes, at.checked_add(place)?, length);
            let name = name_at(bytes, names, of(0, 4)?)?;
            let (kind, offset, size, link) = (of(4, 4)?, of(0x18, 8)?, of(0x20, 8)?, of(0x28, 4)?);
            Some(Section { name, kind, offset, size, link })
        })
        .collect()
}

/// Returns the symbols of an image that name data. `inside` has one entry for each section: the index of the image's variable
/// that the section is, if it is one. A symbol in a section of constants, which belongs to the code, has no such index.
fn symbols(bytes: &[u8], sections: &[Section], inside: &[Option<usize>]) -> Vec<Symbol> {
    /// Kind of a section that is a symbol table, and the bytes of one symbol.
    const TABLE: u64 = 2;
    const EACH: u64 = 24;
    /// Kind of a symbol that names data.
    const DATA: u64 = 1;
    let mut found = Vec::new();
    for table in sections.iter().filter(|section| section.kind == TABLE) {
        let Some(names) = usize::try_from(table.link).ok().and_then(|link| sections.get(link)) else {
            continue;
        };
        for index in 0..table.size / EACH {
            let Some(at) = table.offset.checked_add(index * EACH) else { break };
            let of = |place: u64, length| word(bytes, usize::try_from(at.checked_add(place)?).ok()?, length);
            let (Some(kind), Some(section)) = (of(4, 1), of(6, 2)) else { break };
            let Some(place) = usize::try_from(section).ok().filter(|_| kind & 15 == DATA) else { continue };
            let code = sections.get(place).is_some_and(|section| section.name.starts_with(".nv.constant3"));
            let inside = inside.get(place).copied().flatten();
            let (Some(name), Some(offset), Some(size)) =
                (of(0, 4).and_then(|name| name_at(bytes, names.offset, name)), of(8, 8), of(16, 8))
            else {
                break;
            };
            if (inside.is_some() || code) && !name.is_empty() {
                found.push(Symbol { name, inside, offset, size });
            }
        }
    }
    found
}

/// Reads an ELF image. Each kernel is a section `.text.NAME`. Variables are in sections `.nv.global*`, and constant variables are
/// in sections `.nv.constant3*`. The latter belong to the code.
fn elf(bytes: &[u8]) -> Option<Image> {
    let sections = sections(bytes)?;
    let (mut kernels, mut variables, mut inside) = (Vec::new(), Vec::new(), Vec::new());
    for section in &sections {
        if let Some(kernel) = section.name.strip_prefix(".text.") {
            kernels.push(kernel.to_owned());
        }
        let holds = section.name.starts_with(".nv.global");
        inside.push(holds.then_some(variables.len()));
        if holds {
            variables.push((section.name.clone(), section.size));
        }
    }
    let symbols = symbols(bytes, &sections, &inside);
    Some(Image { kernels: Some(kernels), variables, symbols })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = "//\n.version 8.0\n.target sm_80\n.address_size 64\n\
        .visible .global .align 4 .b8 table[1024];\n.global .align 8 .u64 counter;\n\
        .global .align 16 .v4 .f32 grid[2][3] = {0};\n.extern .global .f32 elsewhere[4];\n\
        /* .entry hidden() */ .visible .entry spin_250us(\n .param .u64 p )\n{ .reg .b32 %r<2>; ld.global.u32 %r1, [p]; ret; }\n\
        .entry second() { ret; }";

    #[test]
    fn kernels_and_variables_of_ptx_are_found_with_their_sizes() {
        let image = Image::of_text(PTX).unwrap();
        assert_eq!(image.kernels.as_deref(), Some(&["spin_250us".to_owned(), "second".to_owned()][..]));
        let expected = [("table", 1024), ("counter", 8), ("grid", 96)];
        assert_eq!(image.variables, expected.map(|(name, size)| (name.to_owned(), size)));
        assert!(!image.has_kernel("third"));
        assert!(Image::default().has_kernel("third"));
    }

    #[test]
    fn a_name_can_say_how_long_a_kernel_runs() {
        assert_eq!(duration("spin_250us"), Some(250_000));
        assert_eq!(duration("_Z9spin_3msPf"), Some(3_000_000));
        assert_eq!(duration("spin_us"), None);
        assert_eq!(duration("matmul"), None);
    }

    #[test]
    fn a_text_that_is_no_ptx_is_refused() {
        assert_eq!(Image::of_text("hello"), None);
    }

    /// Returns an ELF image with these sections. Each has a name, a kind, a content, a size in memory, and a link.
    fn elf_of(sections: &[(&str, u32, &[u8], u64, u32)]) -> Vec<u8> {
        const HEADER: usize = 64;
        let mut names = vec![0];
        let mut heads = Vec::new();
        let mut content = Vec::new();
        for (name, kind, bytes, size, link) in sections {
            let mut head = vec![0; HEADER];
            head[0..4].copy_from_slice(&u32::try_from(names.len()).unwrap().to_le_bytes());
            head[4..8].copy_from_slice(&kind.to_le_bytes());
            head[0x18..0x20].copy_from_slice(&((HEADER + content.len()) as u64).to_le_bytes());
            head[0x20..0x28].copy_from_slice(&size.to_le_bytes());
            head[0x28..0x2c].copy_from_slice(&link.to_le_bytes());
            heads.push(head);
            content.extend_from_slice(bytes);
            names.extend(name.bytes().chain([0]));
        }
        let mut last = vec![0; HEADER];
        last[0x18..0x20].copy_from_slice(&((HEADER + content.len()) as u64).to_le_bytes());
        heads.push(last);
        content.extend(names);
        let mut file = ELF_MAGIC.to_vec();
        file.resize(HEADER, 0);
        file[0x28..0x30].copy_from_slice(&((HEADER + content.len()) as u64).to_le_bytes());
        for (at, value) in [(0x3a, HEADER), (0x3c, heads.len()), (0x3e, heads.len() - 1)] {
            file[at..at + 2].copy_from_slice(&u16::try_from(value).unwrap().to_le_bytes());
        }
        file.extend(content);
        file.extend(heads.concat());
        assert_eq!(elf_length(&file), Some(file.len()));
        file
    }

    fn entry_of_table(name: u32, kind: u8, section: u16, offset: u64, size: u64) -> Vec<u8> {
        let mut entry = name.to_le_bytes().to_vec();
        entry.extend([kind, 0]);
        entry.extend(section.to_le_bytes());
        entry.extend(offset.to_le_bytes());
        entry.extend(size.to_le_bytes());
        entry
    }

    #[test]
    fn variables_of_an_elf_image_are_found_by_name() {
        let names = b"\0table\0fixed\0kernel\0";
        let table = [
            entry_of_table(1, 0x11, 2, 16, 400),
            entry_of_table(7, 1, 3, 0, 32),
            entry_of_table(13, 0x12, 4, 0, 99),
        ];
        let table = table.concat();
        let sections: [(&str, u32, &[u8], u64, u32); 5] = [
            (".strtab", 3, names, names.len() as u64, 0),
            (".symtab", 2, &table, table.len() as u64, 0),
            (".nv.global", 8, &[], 1000, 0),
            (".nv.constant3", 1, &[0; 32], 32, 0),
            (".text.kernel", 1, &[0; 8], 8, 0),
        ];
        let file = elf_of(&sections);
        let image = Image::of_elf(&file);
        assert_eq!(image.kernels.as_deref(), Some(&["kernel".to_owned()][..]));
        assert_eq!(image.variables, [(".nv.global".to_owned(), 1000)]);
        let symbol = |name: &str| image.symbol(name).map(|found| (found.inside, found.offset, found.size));
        assert_eq!(symbol("table"), Some((Some(0), 16, 400)));
        assert_eq!(symbol("fixed"), Some((None, 0, 32)));
        assert_eq!((symbol("kernel"), symbol("missing"), symbol("")), (None, None, None));
        for place in 0..file.len() {
            let mut damaged = file.clone();
            damaged[place] ^= 0xff;
            Image::of_elf(&damaged);
            Image::of_elf(&file[..place]);
        }
    }

    #[test]
    fn in_an_image_of_which_nothing_is_known_every_name_is_a_variable() {
        let unknown = Image::default();
        assert!(
            unknown.symbol("anything").is_some_and(|symbol| symbol.inside.is_none() && symbol.size >= 4096)
        );
        assert_eq!(unknown.symbol(""), None);
        assert_eq!(Image::of_text(PTX).unwrap().symbol("anything"), None);
    }
}
