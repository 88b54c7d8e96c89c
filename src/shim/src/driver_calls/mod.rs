//! The library's own calls of the driver and NVML. They use the real functions, never the library's entries. This folder does not
//! use limits or settings.

use gpuslice_driver::elf::Image;
use gpuslice_driver::{Symbol, slot};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// Calls a real function whose first argument is an output, and returns that output if the call succeeded.
macro_rules! ask {
    ($name:ident, $output:ty $(, $argument:expr)*) => {{
        let mut output = core::mem::MaybeUninit::<$output>::zeroed();
        let function = slot::real::<real::$name>(Symbol::$name)?;
        // SAFETY: the function requires an output that is valid for writes: the local `output`. The other arguments are values.
        let code = unsafe { function(output.as_mut_ptr().cast() $(, $argument)*) };
        // SAFETY: `assume_init` requires initialised bytes: they were zeroed first, and the type is plain data.
        (code == status::SUCCESS).then(|| unsafe { output.assume_init() })
    }};
}

pub(crate) mod capture_mode;
pub(crate) mod code;
pub(crate) mod contexts;
pub(crate) mod devices;
pub(crate) mod directory;
pub(crate) mod events;
pub(crate) mod graphs;
pub(crate) mod locations;
pub(crate) mod memory;
pub(crate) mod nvml;
pub(crate) mod pools;
pub(crate) mod streams;

/// Returns the paths of the driver's libraries: of NVML, if it is there, and of CUDA.
///
/// NVML comes first, because most containers have that of the node. The CUDA library may be the image's own, for example from one
/// of CUDA's compatibility packages. A container without NVIDIA's `utility` has no NVML.
pub(crate) fn libraries() -> impl Iterator<Item = &'static Path> {
    nvml::initialization::load();
    [Symbol::nvmlInit_v2, Symbol::cuInit].into_iter().filter_map(|symbol| {
        let path = Image::containing(slot::address(symbol)?.as_ptr())?.path()?;
        Some(Path::new(OsStr::from_bytes(path.to_bytes())))
    })
}
