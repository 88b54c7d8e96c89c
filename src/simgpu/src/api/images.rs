//! Reads the program's code, and adds it to modules and libraries.

use gpuslice_driver::types::*;

use crate::call::DriverCall;
use crate::model::fat_binary;
use crate::model::image::{ELF_MAGIC, FAT, Image, WRAPPER, elf_length};
use crate::model::objects::{handle, pointer};
use crate::status::{Outcome, statuses};

/// Bytes of the header of an ELF image.
const ELF_HEADER: usize = 64;

impl DriverCall {
    /// Returns the image at a pointer.
    pub(super) fn image(&self, code: *const c_void) -> Result<Image, Status> {
        let start: [u8; 4] = self.read_start(code)?;
        if start == ELF_MAGIC {
            let length = elf_length(self.bytes(code, ELF_HEADER)?).ok_or(statuses::INVALID_IMAGE)?;
            return Ok(Image::of_elf(self.bytes(code, length)?));
        }
        if start == WRAPPER {
            let inner: u64 = self.read(code.cast::<u8>().wrapping_add(8).cast())?;
            return self.fat_image(core::ptr::with_exposed_provenance(inner as usize));
        }
        if start == FAT {
            return self.fat_image(code);
        }
        let text = self.text(code.cast())?.to_string_lossy();
        Image::of_text(&text).ok_or(statuses::INVALID_IMAGE)
    }

    /// Returns the image of a fat binary.
    fn fat_image(&self, code: *const c_void) -> Result<Image, Status> {
        let length =
            fat_binary::length(self.bytes(code, fat_binary::HEADER)?).ok_or(statuses::INVALID_IMAGE)?;
        Ok(fat_binary::image(self.bytes(code, length)?))
    }

    /// Returns the first bytes at a pointer. Does not read beyond the end of a short text.
    fn read_start(&self, code: *const c_void) -> Result<[u8; 4], Status> {
        let mut start = [0; 4];
        for (index, byte) in start.iter_mut().enumerate() {
            *byte = self.read_at(code.cast::<u8>(), index)?;
            if *byte == 0 {
                break;
            }
        }
        Ok(start)
    }

    /// Returns the image of a file.
    pub(super) fn image_file(&self, name: *const c_char) -> Result<Image, Status> {
        use std::os::unix::ffi::OsStrExt;
        let name = std::ffi::OsStr::from_bytes(self.text(name)?.to_bytes());
        let content = std::fs::read(name).map_err(|_| statuses::FILE_NOT_FOUND)?;
        if content.starts_with(&ELF_MAGIC) {
            return Ok(Image::of_elf(&content));
        }
        match content.first_chunk() {
            Some(start) if *start == FAT => Ok(fat_binary::image(&content)),
            _ => Image::of_text(&String::from_utf8_lossy(&content)).ok_or(statuses::INVALID_IMAGE),
        }
    }

    /// Loads a module into the current context.
    pub(super) fn load_module(&self, to: *mut CUmodule, image: Image) -> Outcome {
        if to.is_null() {
            return Err(status::INVALID_VALUE);
        }
        let simulation = self.simulation()?;
        let mut objects = simulation.objects();
        let context = objects.current()?.0;
        objects.unsafe_call()?;
        let module = objects.load(simulation, context, image, 0)?;
        self.write(to, pointer(module))
    }

    /// Adds a library. With lazy loading, the driver loads nothing yet. Otherwise it loads the library into every context.
    pub(super) fn load_library(&self, to: *mut CUlibrary, image: Image) -> Outcome {
        if to.is_null() {
            return Err(status::INVALID_VALUE);
        }
        let simulation = self.simulation()?;
        let mut objects = simulation.objects();
        let library = objects.add_library(image);
        if let Err(why) = objects.load_everywhere(simulation, library) {
            objects.end_library(simulation, library)?;
            return Err(why);
        }
        self.write(to, pointer(library))
    }

    pub(super) fn module_variable(
        &self,
        address: *mut CUdeviceptr,
        bytes: *mut usize,
        module: u64,
        name: *const c_char,
    ) -> Outcome {
        let name = self.text(name)?.to_string_lossy();
        let (found, size) = {
            let simulation = self.simulation()?;
            simulation.objects().variable(simulation, module, &name)?
        };
        self.offer(address, found);
        self.offer(bytes, size as usize);
        Ok(())
    }

    pub(super) fn library_variable(
        &self,
        address: *mut CUdeviceptr,
        bytes: *mut usize,
        library: CUlibrary,
        name: *const c_char,
    ) -> Outcome {
        let simulation = self.simulation()?;
        let module = simulation.objects().library_module(simulation, handle(library))?;
        self.module_variable(address, bytes, module, name)
    }

    pub(super) fn create_linker(&self, to: *mut CUlinkState) -> Outcome {
        let mut objects = self.simulation()?.objects();
        objects.current()?;
        self.write(to, pointer(objects.linkers.add(Vec::new())))
    }

    /// Adds input to a linker. The linked image is the first input, because the simulation uses only the names in it.
    pub(super) fn add_to_linker(&self, linker: CUlinkState, data: *mut c_void, size: usize) -> Outcome {
        let mut objects = self.simulation()?.objects();
        let made = objects.linkers.get_mut(handle(linker))?;
        if made.is_empty() {
            made.extend_from_slice(self.bytes(data, size)?);
            made.push(0);
        }
        Ok(())
    }
}
