//! Reads ELF files: their loader, libraries, exports and gpuslice's note.

use object::Endianness;
use object::elf::{self, FileHeader64};
use object::read::elf::{Dyn as _, FileHeader as _, ProgramHeader as _, Sym as _};
use std::collections::BTreeSet;
use std::path::Path;

/// A version of glibc: the major and the minor number.
pub(super) type Glibc = (u32, u32);

/// The architecture for which the preload library is built.
const OUR_MACHINE: u16 = elf::EM_X86_64;
/// Name of the ELF note in the preload library.
const NOTE: &[u8] = b"gpuslice";
/// Most bytes of a file that the doctor reads. For a program of several gigabytes, its beginning is enough.
const MOST_FILE_BYTES: u64 = 1 << 30;

/// Facts about an ELF file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Elf {
    /// The name of the file's architecture, if it differs from this program's.
    pub(super) foreign: Option<String>,
    /// The loader that the file asks for. Static programs and most libraries ask for none.
    pub(super) interpreter: Option<String>,
    /// True if the file has a dynamic segment, so that a loader must process it.
    pub(super) is_dynamic: bool,
    /// The name that the file gives itself.
    pub(super) soname: Option<String>,
    /// The libraries that the file needs.
    pub(super) needed: Vec<String>,
    /// The newest version of glibc that the file needs.
    pub(super) glibc: Option<Glibc>,
    /// The functions that the file exports.
    pub(super) exports: BTreeSet<String>,
    /// Versions of the package and of the region, from the note of the preload library.
    pub(super) label: Option<(String, u32)>,
}

impl Elf {
    /// Reads a file. Returns `None` if it is no ELF file, or if it is damaged.
    ///
    /// # Errors
    /// The file cannot be read, or is no regular file. Opening a pipe would wait for a writer.
    pub(super) fn read(path: &Path) -> std::io::Result<Option<Self>> {
        use std::io::Read as _;
        if !path.metadata()?.is_file() {
            return Err(std::io::ErrorKind::InvalidInput.into());
        }
        let mut bytes = Vec::new();
        let mut file = std::fs::File::open(path)?.take(MOST_FILE_BYTES);
        // The doctor reads only the beginning of a file that is no ELF file, because the file may have any size.
        (&mut file).take(64).read_to_end(&mut bytes)?;
        if !bytes.starts_with(&elf::ELFMAG) {
            return Ok(None);
        }
        file.read_to_end(&mut bytes)?;
        Ok(Self::parse(&bytes))
    }

    /// Reads the bytes of a file. Returns `None` if they are no ELF file, or if they are damaged.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        if !bytes.starts_with(&elf::ELFMAG) {
            return None;
        }
        if bytes.get(4) != Some(&elf::ELFCLASS64) {
            return Some(Self { foreign: Some("32 bits".to_owned()), ..Self::default() });
        }
        let header = FileHeader64::<Endianness>::parse(bytes).ok()?;
        let endian = header.endian().ok()?;
        let machine = header.e_machine(endian);
        let mut read = Self { foreign: foreign(machine), ..Self::default() };
        for segment in header.program_headers(endian, bytes).ok()? {
            if let Ok(Some(interpreter)) = segment.interpreter(endian, bytes) {
                read.interpreter =
                    Some(text(interpreter.split(|byte| *byte == 0).next().unwrap_or_default()));
            }
            read.is_dynamic |= segment.p_type(endian) == elf::PT_DYNAMIC;
        }
        // A file without sections can be run too. It only has fewer facts.
        let _less = read.sections(header, endian, bytes);
        Some(read)
    }

    fn sections(
        &mut self,
        header: &FileHeader64<Endianness>,
        endian: Endianness,
        bytes: &[u8],
    ) -> object::Result<()> {
        let sections = header.sections(endian, bytes)?;
        if let Some((entries, link)) = sections.dynamic(endian, bytes)? {
            let strings = sections.strings(endian, bytes, link)?;
            for entry in entries {
                match entry.tag32(endian) {
                    Some(elf::DT_NEEDED) => self.needed.push(text(entry.string(endian, strings)?)),
                    Some(elf::DT_SONAME) => self.soname = Some(text(entry.string(endian, strings)?)),
                    _ => {}
                }
            }
        }
        let symbols = sections.symbols(endian, bytes, elf::SHT_DYNSYM)?;
        for symbol in symbols.iter() {
            let is_function = matches!(symbol.st_type(), elf::STT_FUNC | elf::STT_GNU_IFUNC);
            if is_function && !symbol.is_undefined(endian) && symbol.st_bind() != elf::STB_LOCAL {
                self.exports.insert(text(symbol.name(endian, symbols.strings())?));
            }
        }
        for section in sections.iter() {
            let Some(mut notes) = object::read::elf::SectionHeader::notes(section, endian, bytes)? else {
                continue;
            };
            while let Some(note) = notes.next()? {
                if note.name() == NOTE {
                    self.label = label(note.desc());
                }
            }
        }
        let Some((mut files, link)) = sections.gnu_verneed(endian, bytes)? else { return Ok(()) };
        let strings = sections.strings(endian, bytes, link)?;
        while let Some((_file, mut versions)) = files.next()? {
            while let Some(version) = versions.next()? {
                self.glibc = self.glibc.max(glibc_of(version.name(endian, strings)?));
            }
        }
        Ok(())
    }

    /// Returns the number of exports whose names are those of functions of the CUDA driver or NVML.
    pub(super) fn intercepts(&self) -> usize {
        let is_driver = |name: &&String| {
            let rest = name.strip_prefix("cu").or_else(|| name.strip_prefix("nvml"));
            rest.is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_uppercase()))
        };
        self.exports.iter().filter(is_driver).count()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the name of an architecture, unless it is that of the preload library.
fn foreign(machine: u16) -> Option<String> {
    let name = match machine {
        OUR_MACHINE => return None,
        elf::EM_AARCH64 => "aarch64",
        elf::EM_RISCV => "riscv",
        elf::EM_PPC64 => "ppc64",
        elf::EM_S390 => "s390x",
        _ => return Some(format!("machine {machine}")),
    };
    Some(name.to_owned())
}

fn label(note: &[u8]) -> Option<(String, u32)> {
    let (region, version) = note.split_first_chunk()?;
    let version = version.split(|byte| *byte == 0).next()?;
    Some((text(version), u32::from_le_bytes(*region)))
}

/// Parses a version like `GLIBC_2.31`.
fn glibc_of(name: &[u8]) -> Option<Glibc> {
    version_of(str::from_utf8(name).ok()?.strip_prefix("GLIBC_")?)
}

/// Parses a version like `2.31`.
pub(super) fn version_of(text: &str) -> Option<Glibc> {
    let (major, minor) = text.split_once('.')?;
    let minor = minor.split('.').next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::super::chance::seed;
    use super::*;

    #[test]
    fn the_elf_file_of_this_test_is_read_correctly() {
        let own = Elf::read(&std::env::current_exe().unwrap()).unwrap().unwrap();
        assert!(own.foreign.is_none() && own.is_dynamic && own.interpreter.is_some(), "{own:?}");
        assert!(own.needed.iter().any(|name| name.starts_with("libc.")), "{own:?}");
        assert!(own.glibc > Some((2, 2)) && own.label.is_none());
    }

    #[test]
    fn a_script_and_the_mere_start_of_an_elf_file_are_no_programs() {
        assert_eq!(Elf::parse(b"#!/bin/sh\n"), None);
        assert_eq!(Elf::parse(b"\x7fELF\x02\x01"), None);
        assert_eq!(Elf::parse(b"\x7fELF\x01\x01").unwrap().foreign.as_deref(), Some("32 bits"));
    }

    #[test]
    fn a_damaged_file_is_read_in_no_time_and_ends_nothing() {
        let whole = std::fs::read("/bin/true").unwrap();
        assert!(Elf::parse(&whole).unwrap().is_dynamic, "the undamaged file is read");
        let tables = [0, whole.len().saturating_sub(4096)];
        let (mut chance, start) = (seed("a damaged file"), std::time::Instant::now());
        for _ in 0..3000 {
            let mut bytes = whole.clone();
            for _ in 0..=chance.index(8) {
                // One change in four hits any place. The others hit the header or the table of sections.
                let place = match chance.index(4) {
                    0 => chance.index(whole.len()),
                    half => (tables[half % 2] + chance.index(4096)) % whole.len(),
                };
                bytes[place] = [0, 1, 0x7f, 0xff, chance.index(256).to_le_bytes()[0]][chance.index(5)];
            }
            if chance.index(8) == 0 {
                bytes.truncate(chance.index(whole.len()));
            }
            let _read = Elf::parse(&bytes);
        }
        assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
    }

    #[test]
    fn versions_of_glibc_are_compared_as_numbers() {
        assert!(glibc_of(b"GLIBC_2.4") < glibc_of(b"GLIBC_2.31"));
        assert_eq!(glibc_of(b"GLIBC_2.2.5"), Some((2, 2)));
        assert_eq!(glibc_of(b"GCC_3.0"), None);
    }
}
