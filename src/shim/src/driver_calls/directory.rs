//! Look-up of the driver's functions by their addresses.

use core::ffi::{CStr, c_void};
use gpuslice_driver::elf::Image;
use gpuslice_driver::table::ALL;
use gpuslice_driver::{Api, Symbol};
use once_cell::race::OnceBox;

/// Returns the symbol at an address of the driver. `Some(None)`: the table has no symbol at that address of the driver. `None`:
/// the address is not in the driver.
pub(crate) fn symbol_at(address: *const c_void) -> Option<Option<Symbol>> {
    Some(Directory::of(address)?.symbol(address))
}

/// The driver's functions by address.
#[derive(Debug)]
struct Directory {
    image: Image,
    entries: Vec<(usize, Symbol)>,
}

impl Directory {
    /// Returns the directory of the driver whose code contains an address. The first call makes it.
    ///
    /// A program may load a second copy of the driver in a link namespace of its own. There is no directory for that copy, so the
    /// library does not hook its functions.
    fn of(address: *const c_void) -> Option<&'static Self> {
        static DIRECTORY: OnceBox<Directory> = OnceBox::new();
        let directory = match DIRECTORY.get() {
            Some(directory) => directory,
            None => {
                let image = Image::containing(address)?;
                DIRECTORY.get_or_init(|| Box::new(Self::new(image)))
            }
        };
        directory.image.contains(address).then_some(directory)
    }

    fn new(image: Image) -> Self {
        let mut entries: Vec<_> = ALL
            .iter()
            .filter(|symbol| symbol.api() == Api::Cuda)
            .filter_map(|symbol| Some((find(&image, *symbol)?.addr(), *symbol)))
            .collect();
        entries.sort_unstable();
        Self { image, entries }
    }

    fn symbol(&self, address: *const c_void) -> Option<Symbol> {
        let place = self.entries.partition_point(|(entry, _)| *entry < address.addr());
        self.entries.get(place).filter(|(entry, _)| *entry == address.addr()).map(|(_, symbol)| *symbol)
    }
}

fn find(image: &Image, symbol: Symbol) -> Option<*const c_void> {
    let mut name = [0; 128];
    name.get_mut(..symbol.name().len())?.copy_from_slice(symbol.name().as_bytes());
    image.symbol(CStr::from_bytes_until_nul(&name).ok()?)
}
