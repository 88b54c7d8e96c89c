//! Modules, libraries, and their kernels.

use std::collections::HashMap;
use std::ffi::CString;

use gpuslice_driver::types::{Status, status};

use super::clusters::Clusters;
use super::image::Image;
use super::objects::{Objects, Tag};
use crate::hardware::attributes;
use crate::status::Outcome;

/// A module: code that is loaded into one context.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) context: u64,
    pub(crate) device: usize,
    pub(crate) image: Image,
    /// Bytes of device memory charged for the module. Variables are not included, because each is a region of its own.
    pub(crate) charged: u64,
    /// True if the code of the module is on the device.
    pub(crate) loaded: bool,
    pub(crate) functions: HashMap<String, u64>,
    pub(crate) variables: HashMap<String, (u64, u64)>,
    /// The library that the module belongs to; 0 for none.
    pub(crate) library: u64,
}

/// A function: a kernel in one context.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) module: u64,
    pub(crate) context: u64,
    pub(crate) name: CString,
    /// How long one run of the function takes, in nanoseconds.
    pub(crate) ns: u64,
    /// True if a run of the function is part of a collective.
    pub(crate) is_collective: bool,
    pub(crate) settings: FunctionAttributes,
    /// The library's kernel that the function belongs to; 0 for none.
    pub(crate) kernel: u64,
    /// Block shape and bytes of shared memory, which launches of the first generation use.
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
}

/// The attributes of a function that a program can set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FunctionAttributes {
    pub(crate) dynamic_shared: i32,
    pub(crate) carveout: i32,
    pub(crate) clusters: Clusters,
}

/// A library: code that belongs to no context.
#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) image: Image,
    pub(crate) kernels: HashMap<String, u64>,
    /// The modules that the library is loaded as, by context.
    pub(crate) loaded: HashMap<u64, u64>,
}

/// A kernel of a library.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) library: u64,
    pub(crate) name: CString,
    pub(crate) settings: FunctionAttributes,
}

/// All modules, functions, libraries and kernels of this process.
#[derive(Debug)]
pub(crate) struct Code {
    pub(crate) modules: Objects<Module>,
    pub(crate) functions: Objects<Function>,
    pub(crate) libraries: Objects<Library>,
    pub(crate) kernels: Objects<Kernel>,
}

impl Code {
    pub(crate) fn new() -> Self {
        Self {
            modules: Objects::new(Tag::Module),
            functions: Objects::new(Tag::Function),
            libraries: Objects::new(Tag::Library),
            kernels: Objects::new(Tag::Kernel),
        }
    }
}

impl FunctionAttributes {
    pub(crate) const NEW: Self = Self {
        dynamic_shared: 49_152,
        carveout: -1,
        clusters: Clusters { required: [0; 3], beyond_portable: false, scheduling: 0 },
    };

    /// Returns the value of a `CUfunction_attribute`. Attributes that the program has not set are the same for all kernels.
    pub(crate) fn get(&self, attribute: u32) -> Result<i32, Status> {
        let [width, height, depth] = self.clusters.required;
        Ok(match attribute {
            0 => 1024,
            1..=3 | 7 | 10 | 16..=18 => 0,
            4 => 32,
            5 | 6 => 90,
            8 => self.dynamic_shared,
            9 => self.carveout,
            11 => width,
            12 => height,
            13 => depth,
            14 => i32::from(self.clusters.beyond_portable),
            15 => self.clusters.scheduling,
            _ => return Err(status::INVALID_VALUE),
        })
    }

    pub(crate) fn set(&mut self, attribute: u32, value: i32) -> Outcome {
        let most = i32::try_from(attributes::SHARED_OPT_IN).unwrap_or(i32::MAX);
        match attribute {
            8 if (0..=most).contains(&value) => self.dynamic_shared = value,
            9 if (-1..=100).contains(&value) => self.carveout = value,
            _ => self.clusters.set(attribute, value)?,
        }
        Ok(())
    }
}
