//! Handles of the objects of the driver API.
//!
//! A handle is a number that looks like a pointer. It contains the kind of its object, and it is never used again. It points to
//! nothing, so a program that follows it crashes.

use std::collections::HashMap;

use gpuslice_driver::types::Status;

use crate::status::statuses;

/// Kinds of objects. The kind is a part of the handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Tag {
    Context = 1,
    Stream,
    Event,
    Module,
    Function,
    Library,
    Kernel,
    Pool,
    Array,
    Mipmap,
    Graph,
    Node,
    Exec,
    Linker,
    Texture,
    UserObject,
    Green,
    View,
    Descriptor,
    External,
}

/// The first handle. On this architecture no program has memory at this address or in the range of handles.
const HANDLES: u64 = 0x0100_0000_0000;

/// The table of all objects of one kind.
#[derive(Debug)]
pub(crate) struct Objects<T> {
    tag: Tag,
    last: u64,
    objects: HashMap<u64, T>,
}

impl<T> Objects<T> {
    pub(crate) fn new(tag: Tag) -> Self {
        Self { tag, last: 0, objects: HashMap::new() }
    }

    /// Returns a handle for an object that the caller adds later with [`Self::put`].
    pub(crate) fn reserve(&mut self) -> u64 {
        self.last += 1;
        (HANDLES * self.tag as u64) | (self.last << 4)
    }

    /// Adds an object, and returns its handle.
    pub(crate) fn add(&mut self, object: T) -> u64 {
        let handle = self.reserve();
        self.put(handle, object);
        handle
    }

    /// Adds the object for a handle that [`Self::reserve`] returned.
    pub(crate) fn put(&mut self, handle: u64, object: T) {
        self.objects.insert(handle, object);
    }

    /// Returns the object that a handle stands for.
    pub(crate) fn get(&self, handle: u64) -> Result<&T, Status> {
        self.objects.get(&handle).ok_or(statuses::INVALID_HANDLE)
    }

    /// Returns the object that a handle stands for, so that the caller can change it.
    pub(crate) fn get_mut(&mut self, handle: u64) -> Result<&mut T, Status> {
        self.objects.get_mut(&handle).ok_or(statuses::INVALID_HANDLE)
    }

    /// Removes the object that a handle stands for, and returns it.
    pub(crate) fn remove(&mut self, handle: u64) -> Result<T, Status> {
        self.objects.remove(&handle).ok_or(statuses::INVALID_HANDLE)
    }

    /// Returns all objects with their handles, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        self.objects.iter().map(|(handle, object)| (*handle, object))
    }

    /// Returns all objects with their handles, so that the caller can change them.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u64, &mut T)> {
        self.objects.iter_mut().map(|(handle, object)| (*handle, object))
    }

    /// Returns the handles of all objects for which `fits` returns true, the oldest first.
    pub(crate) fn matching(&self, fits: impl Fn(&T) -> bool) -> Vec<u64> {
        let mut handles: Vec<u64> =
            self.objects.iter().filter(|(_, object)| fits(object)).map(|(handle, _)| *handle).collect();
        handles.sort_unstable();
        handles
    }
}

/// Returns a handle as the pointer that the API has for it.
pub(crate) fn pointer<T>(handle: u64) -> *mut T {
    core::ptr::without_provenance_mut(usize::try_from(handle).unwrap_or(0))
}

/// Returns the handle that a pointer of the API is.
pub(crate) fn handle<T>(pointer: *mut T) -> u64 {
    pointer.addr() as u64
}
