//! Objects of the program that graphs keep alive.

use core::ffi::c_void;

use gpuslice_driver::types::CUhostFn;

/// An object with a destructor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct UserObject {
    pub(crate) data: usize,
    pub(crate) end: CUhostFn,
    pub(crate) uses: u32,
}

/// Objects without remaining uses. Their destructors must run without any lock held.
#[must_use]
#[derive(Debug, Default)]
pub(crate) struct EndedObjects(pub(crate) Vec<UserObject>);

impl EndedObjects {
    /// Runs the destructors.
    pub(crate) fn call(self) {
        for object in self.0 {
            if let Some(end) = object.end {
                let data: *mut c_void = core::ptr::with_exposed_provenance_mut(object.data);
                // SAFETY: `end` needs the argument that the program gave with it, and one call: `data` is that
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
