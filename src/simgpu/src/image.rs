//! What is in a piece of GPU code: which kernels, which variables?
//!
//! PTX text and ELF images are read as far as names and sizes go. Of anything else nothing is known, so every
//! name that is asked for is found in it.

/// What is known of an image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Image {
    /// Names of its kernels; none where they cannot be known.
    pub(crate) kernels: Option<Vec<String>>,
    /// Variables with their bytes.
    pub(crate) variables: Vec<(String, u64)>,
}

/// The first bytes of an ELF image.
pub(crate) const ELF: [u8; 4] = *b"\x7fELF";
/// The first bytes of a fat binary.
const FAT: [u8; 4] = 0xba55_ed50_u32.to_le_bytes();
/// The first bytes of the wrapper that a compiler puts around one.
const WRAPPER: [u8; 4] = 0x4662_43b1_u32.to_le_bytes();

/// Whether these first bytes are those of something binary, which has no zero at its end.
pub(crate) fn is_binary(start: [u8; 4]) -> bool {
    [ELF, FAT, WRAPPER].contains(&start)
}

impl Image {
    /// Reads PTX. None where the text is no PTX.
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
        Some(Self { kernels: Some(kernels), variables })
    }

    /// Reads an ELF image. What cannot be read is unknown.
    pub(crate) fn of_elf(bytes: &[u8]) -> Self {
        elf(bytes).unwrap_or_default()
    }

    /// Whether a kernel of this name is found.
    pub(crate) fn has_kernel(&self, name: &str) -> bool {
        self.kernels.as_ref().is_none_or(|kernels| kernels.iter().any(|kernel| kernel == name))
    }

    /// How long its kernels run, where a variable says so.
    pub(crate) fn duration(&self) -> Option<u64> {
        self.variables.iter().find_map(|(name, _)| duration(name))
    }
}

/// The text without what the assembler does not read.
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

/// Name and size of a variable such as `.visible .global .align 4 .b8 table[1024] = ...`.
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

/// How long a kernel runs that carries its time in its name: `spin_250us`, also inside a mangled name.
pub(crate) fn duration(name: &str) -> Option<u64> {
    let (_, rest) = name.split_once("spin_")?;
    let end = rest.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = rest.split_at(end);
    let factor = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
    let (_, factor) = factor.into_iter().find(|(name, _)| unit.starts_with(name))?;
    number.parse::<u64>().ok()?.checked_mul(factor)
}

fn word(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(length)?)?;
    Some(bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)))
}

fn offset(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(word(bytes, at, 8)?).ok()
}

/// Length of an ELF image, from its first 64 bytes: up to the end of its tables, which stand last.
pub(crate) fn elf_length(header: &[u8]) -> Option<usize> {
    let table = |offset_at, size_at, count_at| {
        let entries = word(header, size_at, 2)? * word(header, count_at, 2)?;
        offset(header, offset_at)?.checked_add(usize::try_from(entries).ok()?)
    };
    Some(table(0x28, 0x3a, 0x3c)?.max(table(0x20, 0x36, 0x38)?))
}

/// Kernels are sections `.text.NAME`; variables are symbols in sections `.nv.global*`.
fn elf(bytes: &[u8]) -> Option<Image> {
    let start = offset(bytes, 0x28)?;
    let size = usize::try_from(word(bytes, 0x3a, 2)?).ok()?;
    let count = usize::try_from(word(bytes, 0x3c, 2)?).ok()?;
    let names = usize::try_from(word(bytes, 0x3e, 2)?).ok()?;
    let header = |index: usize| start.checked_add(index.checked_mul(size)?);
    let names_at = offset(bytes, header(names)? + 0x18)?;
    let mut image = Image { kernels: Some(Vec::new()), variables: Vec::new() };
    for index in 0..count {
        let section = header(index)?;
        let name = names_at.checked_add(usize::try_from(word(bytes, section, 4)?).ok()?)?;
        let name = bytes.get(name..)?.split(|byte| *byte == 0).next()?;
        let name = String::from_utf8_lossy(name);
        if let Some(kernel) = name.strip_prefix(".text.") {
            image.kernels.as_mut()?.push(kernel.to_owned());
        }
        if name.starts_with(".nv.global") {
            image.variables.push((name.into_owned(), word(bytes, section + 0x20, 8)?));
        }
    }
    Some(image)
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
    fn what_is_no_ptx_is_refused() {
        assert_eq!(Image::of_text("hello"), None);
    }
}
