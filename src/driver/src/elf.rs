//! Reads the symbol tables of the libraries that the process has loaded.
//!
//! The library exports `dlsym` and `dlvsym` itself, so it cannot ask the loader for the C library's functions of these
//! names. It reads them from the dynamic symbol table of the C library instead.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;

/// A loaded library in memory.
#[derive(Debug, Clone, Copy)]
pub struct Image {
    base: usize,
    start: usize,
    end: usize,
    dynamic: *const Dynamic,
    headers: *const libc::Elf64_Phdr,
    header_count: usize,
}

// SAFETY: the pointers lead to tables of a loaded library, which no thread writes. A caller that keeps an image keeps
// the library loaded.
unsafe impl Send for Image {}
// SAFETY: the tables behind the pointers do not change while the library is loaded, so all threads may read them at the
// same time.
unsafe impl Sync for Image {}

/// An entry of a dynamic section.
#[repr(C)]
#[derive(Clone, Copy)]
struct Dynamic {
    tag: i64,
    value: usize,
}

const DT_HASH: i64 = 4;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_SONAME: i64 = 14;
const DT_GNU_HASH: i64 = 0x6fff_fef5;

impl Image {
    /// Returns the library that contains an address, in any namespace of the loader.
    #[must_use]
    pub fn containing(address: *const c_void) -> Option<Self> {
        let info = about(address)?;
        Self::at(info.dli_fbase.cast())
    }

    /// Returns the path by which the loader opened the library.
    #[must_use]
    pub fn path(&self) -> Option<&'static CStr> {
        let info =
            about(ptr::with_exposed_provenance(self.start)).filter(|info| !info.dli_fname.is_null())?;
        // SAFETY: `dli_fname` is the loader's own name of the library, which ends in zero and stays while the library is
        // loaded.
        Some(unsafe { CStr::from_ptr(info.dli_fname) })
    }

    /// Keeps the library loaded until the process ends. Calls the loader, and so clears a pending `dlerror`.
    pub fn pin(&self) {
        if let Some(info) = about(ptr::with_exposed_provenance(self.start)) {
            // SAFETY: `dlopen` needs a string that ends with a zero; `dli_fname` is the loader's own. `RTLD_NOLOAD`
            // loads nothing new.
            unsafe { libc::dlopen(info.dli_fname, libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
        }
    }

    /// Returns the library with this file header.
    fn at(header: *const libc::Elf64_Ehdr) -> Option<Self> {
        // SAFETY: the loader maps the file header of a library at the start of its first segment, and `header` is that
        // address.
        let file = unsafe { *header };
        if !file.e_ident.starts_with(b"\x7fELF") {
            return None;
        }
        let headers = header.wrapping_byte_add(usize::try_from(file.e_phoff).ok()?).cast();
        // SAFETY: the program headers follow the file header within the first segment, which stays mapped.
        let headers: &[libc::Elf64_Phdr] =
            unsafe { core::slice::from_raw_parts(headers, file.e_phnum.into()) };
        let first =
            headers.iter().filter(|header| header.p_type == libc::PT_LOAD).map(|header| header.p_vaddr).min();
        #[allow(clippy::cast_possible_truncation, reason = "addresses fit the machine word")]
        Self::new(header.addr().wrapping_sub(first? as usize), headers)
    }

    /// Calls `keep` with each library after `this` in the loader's order, in the namespace of this library.
    pub fn each_behind(this: &Self, mut keep: impl FnMut(Self)) {
        let mut behind = false;
        find(|image| {
            if behind {
                keep(*image);
            }
            behind |= image.dynamic == this.dynamic;
            false
        });
    }

    /// Returns the numbers of libraries loaded and unloaded so far. While they stay the same, the list of libraries does too.
    #[must_use]
    pub fn generation() -> (u64, u64) {
        let mut generation = (0, 0);
        visit(|info| {
            generation = (info.dlpi_adds, info.dlpi_subs);
            true
        });
        generation
    }

    /// Returns the first loaded library with one of these names (`DT_SONAME`) that defines a symbol.
    #[must_use]
    pub fn defining(symbol: &CStr, sonames: &[&CStr]) -> Option<Self> {
        find(|image| {
            image.soname().is_some_and(|soname| sonames.contains(&soname)) && image.symbol(symbol).is_some()
        })
    }

    /// Returns the first `DT_SONAME` of a loaded library that `wanted` accepts.
    #[must_use]
    pub fn soname_where(mut wanted: impl FnMut(&CStr) -> bool) -> Option<&'static CStr> {
        find(|image| image.soname().is_some_and(&mut wanted))?.soname()
    }

    fn new(base: usize, headers: &[libc::Elf64_Phdr]) -> Option<Self> {
        #[allow(clippy::cast_possible_truncation, reason = "addresses fit the machine word")]
        let place = |header: &libc::Elf64_Phdr| {
            let start = base.wrapping_add(header.p_vaddr as usize);
            (start, start.wrapping_add(header.p_memsz as usize))
        };
        let loaded = headers.iter().filter(|header| header.p_type == libc::PT_LOAD).map(place);
        let (start, end) = loaded.reduce(|(first, last), (start, end)| (first.min(start), last.max(end)))?;
        let dynamic = headers.iter().find(|header| header.p_type == libc::PT_DYNAMIC).map(place)?.0;
        let dynamic = ptr::with_exposed_provenance(dynamic);
        Some(Self { base, start, end, dynamic, headers: headers.as_ptr(), header_count: headers.len() })
    }

    /// Returns true if an address lies in the library.
    #[must_use]
    pub fn contains(&self, address: *const c_void) -> bool {
        (self.start..self.end).contains(&address.addr())
    }

    /// Returns the first address, and last address plus one.
    #[must_use]
    pub fn bounds(&self) -> (usize, usize) {
        (self.start, self.end)
    }

    /// Returns the `DT_SONAME` of the library.
    #[must_use]
    pub fn soname(&self) -> Option<&'static CStr> {
        let offset = self.entry(DT_SONAME)?;
        let strings: *const c_char = self.address(DT_STRTAB)?;
        // SAFETY: the loader has accepted this library, so the offset lies in its string table.
        let name = unsafe { strings.add(offset) };
        // SAFETY: entries of a string table end with a zero.
        Some(unsafe { CStr::from_ptr(name) })
    }

    /// Returns the address of a symbol that the library defines, by name, in any version.
    #[must_use]
    pub fn symbol(&self, name: &CStr) -> Option<*const c_void> {
        let symbol = SymbolTable::of(self)?.find(name)?;
        Some(ptr::with_exposed_provenance(self.base.wrapping_add(symbol.value)))
    }

    /// Returns the address, the size and the alignment of each segment of notes.
    pub(crate) fn segments_of_notes(&self) -> impl Iterator<Item = (usize, usize, usize)> {
        // SAFETY: the image was made of these headers, which stay mapped while the library is loaded.
        let headers = unsafe { core::slice::from_raw_parts(self.headers, self.header_count) };
        let base = self.base;
        #[allow(clippy::cast_possible_truncation, reason = "addresses fit the machine word")]
        let segment = move |header: &libc::Elf64_Phdr| {
            let start = base.wrapping_add(header.p_vaddr as usize);
            (start, header.p_memsz as usize, header.p_align as usize)
        };
        headers.iter().filter(|header| header.p_type == libc::PT_NOTE).map(segment)
    }

    fn entry(&self, tag: i64) -> Option<usize> {
        let mut at = self.dynamic;
        loop {
            // SAFETY: a dynamic section ends with tag 0, at which this loop ends, so `at` points to an entry.
            let entry = unsafe { *at };
            match entry.tag {
                0 => return None,
                found if found == tag => return Some(entry.value),
                _ => {}
            }
            // SAFETY: the entry was not the last one, so another one follows.
            at = unsafe { at.add(1) };
        }
    }

    /// Returns an entry that is an address. glibc stores the relocated address, musl the one in the file.
    fn address<T>(&self, tag: i64) -> Option<*const T> {
        let value = self.entry(tag)?;
        let address = if value < self.base { self.base.wrapping_add(value) } else { value };
        Some(ptr::with_exposed_provenance(address))
    }
}

/// A symbol of a dynamic symbol table, 64 bits.
#[repr(C)]
#[derive(Clone, Copy)]
struct SymbolEntry {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    size: usize,
}

/// The dynamic symbols of a library, and a hash table by which to find them.
struct SymbolTable {
    symbols: *const SymbolEntry,
    strings: *const c_char,
    index: Index,
}

/// A hash table over the symbols. A library has one of two kinds, or both.
enum Index {
    /// Header, Bloom filter, buckets, chains.
    Gnu(*const u32),
    /// Header, buckets, chains. Drivers before the 500 series have only this kind.
    Classic(*const u32),
}

impl SymbolTable {
    fn of(image: &Image) -> Option<Self> {
        let gnu = image.address(DT_GNU_HASH).map(Index::Gnu);
        let index = gnu.or_else(|| image.address(DT_HASH).map(Index::Classic))?;
        Some(Self { symbols: image.address(DT_SYMTAB)?, strings: image.address(DT_STRTAB)?, index })
    }

    fn find(&self, name: &CStr) -> Option<SymbolEntry> {
        match self.index {
            Index::Gnu(table) => self.find_gnu(table, name),
            Index::Classic(table) => self.find_classic(table, name),
        }
    }

    /// Finds a symbol by the GNU hash table. The table's header has the number of buckets and the number of the first
    /// symbol in the table. It also has the size of the Bloom filter in words of 64 bits.
    ///
    /// A bucket has the number of its first symbol, and the other symbols of the bucket follow that one. For each symbol the
    /// chain has a hash, whose lowest bit marks the last symbol of a bucket. The function does not use the filter, which only
    /// shortens a search without a result.
    fn find_gnu(&self, table: *const u32, name: &CStr) -> Option<SymbolEntry> {
        let hash = name
            .to_bytes()
            .iter()
            .fold(5381_u32, |hash, byte| hash.wrapping_mul(33).wrapping_add((*byte).into()));
        let (buckets, first, bloom) = (word(table, 0) as usize, word(table, 1), word(table, 2) as usize);
        let bucket_base = 4 + bloom * 2;
        let mut number = word(table, bucket_base + (hash as usize).checked_rem(buckets)?);
        if number < first {
            return None;
        }
        loop {
            let chain = word(table, bucket_base + buckets + (number - first) as usize);
            if chain | 1 == hash | 1
                && let Some(symbol) = self.defined(number, name)
            {
                return Some(symbol);
            }
            if chain & 1 == 1 {
                return None;
            }
            number += 1;
        }
    }

    /// Finds a symbol by the classic hash table. A bucket has the number of its first symbol. The chain has, for each symbol,
    /// the number of the next symbol in the same bucket, or 0 after the last one.
    fn find_classic(&self, table: *const u32, name: &CStr) -> Option<SymbolEntry> {
        let hash = name.to_bytes().iter().fold(0_u32, |hash, byte| {
            let hash = (hash << 4).wrapping_add((*byte).into());
            let high = hash & 0xf000_0000;
            (hash ^ high >> 24) & !high
        });
        let buckets = word(table, 0) as usize;
        let mut number = word(table, 2 + (hash as usize).checked_rem(buckets)?);
        while number != 0 {
            if let Some(symbol) = self.defined(number, name) {
                return Some(symbol);
            }
            number = word(table, 2 + buckets + number as usize);
        }
        None
    }

    /// Returns the symbol with this number, if it has this name and the library defines it.
    fn defined(&self, number: u32, name: &CStr) -> Option<SymbolEntry> {
        let place = self.symbols.wrapping_add(number as usize);
        // SAFETY: a hash table holds numbers of symbols of its own library, so `place` lies in the symbol table.
        let symbol = unsafe { *place };
        (symbol.section != 0 && self.text(symbol.name) == name).then_some(symbol)
    }

    fn text(&self, offset: u32) -> &CStr {
        // SAFETY: the offset comes from this library's symbol table, so it lies in its string table.
        let text = unsafe { self.strings.add(offset as usize) };
        // SAFETY: entries of a string table end with a zero.
        unsafe { CStr::from_ptr(text) }
    }
}

/// Returns a word of a hash table.
fn word(table: *const u32, at: usize) -> u32 {
    let place = table.wrapping_add(at);
    // SAFETY: the callers stay within the table as its header describes it.
    unsafe { *place }
}

/// Returns the loader's description of the library that contains an address.
fn about(address: *const c_void) -> Option<libc::Dl_info> {
    let mut info = libc::Dl_info {
        dli_fname: ptr::null(),
        dli_fbase: ptr::null_mut(),
        dli_sname: ptr::null(),
        dli_saddr: ptr::null_mut(),
    };
    // SAFETY: `dladdr` needs room for a `Dl_info`, which `info` is. It reads no memory at `address`.
    let found = unsafe { libc::dladdr(address, &raw mut info) } != 0;
    (found && !info.dli_fbase.is_null()).then_some(info)
}

/// Returns the first loaded library that `wanted` accepts.
pub(crate) fn find(mut wanted: impl FnMut(&Image) -> bool) -> Option<Image> {
    let mut found = None;
    visit(|info| {
        found = image(info).filter(&mut wanted);
        found.is_some()
    });
    found
}

/// Calls `each` with the loader's description of each library of this library's namespace, until it returns true.
fn visit<F: FnMut(&libc::dl_phdr_info) -> bool>(mut each: F) {
    unsafe extern "C" fn step<F: FnMut(&libc::dl_phdr_info) -> bool>(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes the pointer given to `dl_iterate_phdr` below, which leads to `each`.
        let each = unsafe { &mut *data.cast::<F>() };
        // SAFETY: the loader passes a valid description of a loaded library.
        c_int::from(each(unsafe { &*info }))
    }

    // SAFETY: `dl_iterate_phdr` needs a function of this signature, which `step` is. The closure outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(step::<F>), ptr::from_mut(&mut each).cast()) };
}

fn image(info: &libc::dl_phdr_info) -> Option<Image> {
    if info.dlpi_phdr.is_null() {
        return None;
    }
    // SAFETY: the loader describes an array of `dlpi_phnum` headers at `dlpi_phdr`.
    let headers = unsafe { core::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    #[allow(clippy::cast_possible_truncation, reason = "addresses fit the machine word")]
    Image::new(info.dlpi_addr as usize, headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIBC: &[&CStr] = &[c"libc.so.6"];

    #[test]
    fn a_symbol_of_the_c_library_is_where_the_loader_finds_it() {
        let libc_image = Image::defining(c"dlsym", LIBC).expect("tests run on the C library");
        for name in [c"dlsym", c"dlvsym", c"dlopen", c"getpid"] {
            // SAFETY: `dlsym` needs a string that ends with a zero, which `name` is.
            let expected = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            assert_eq!(libc_image.symbol(name), Some(expected.cast_const()), "{name:?}");
        }
    }

    #[test]
    fn a_name_that_is_not_there_is_not_found() {
        let libc_image = Image::defining(c"dlsym", LIBC).expect("tests run on the C library");
        assert_eq!(libc_image.symbol(c"cuInit"), None);
        assert!(Image::defining(c"dlsym", &[c"libno-such-library.so.9"]).is_none());
    }

    #[test]
    fn an_address_belongs_to_the_library_it_lies_in() {
        let inside = libc::getpid as *const c_void;
        let image = Image::containing(inside).expect("the C library is loaded");
        assert!(image.contains(inside));
        assert_eq!(image.soname(), Some(c"libc.so.6"));
        assert!(Image::containing(ptr::without_provenance(16)).is_none());
    }
}
