//! User objects: objects of the program that graphs keep alive.

use core::ffi::c_void;

use gpuslice_driver::types::CUhostFn;

/// An object of the program, with the function that destroys it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UserObject {
    pub(crate) data: usize,
    pub(crate) end: CUhostFn,
    pub(crate) uses: u32,
}

/// Objects that nobody uses any more. Their destructors must run while the caller holds no lock.
#[must_use]
#[derive(Debug, Default)]
pub(crate) struct EndedObjects(pub(crate) Vec<UserObject>);

impl EndedObjects {
    /// Calls the destructor of each object.
    pub(crate) fn call(self) {
        for object in self.0 {
            if let Some(end) = object.end {
                let data: *mut c_void = core::ptr::with_exposed_provenance_mut(object.data);
                // SAFETY: `end` needs the argument that the program gave with it, and no second call: `data` is that
                // argument, and `self` is consumed.
                unsafe { end(data) };
            }
        }
    }

    pub(crate) fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }
}
