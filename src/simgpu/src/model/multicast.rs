//! Multicast objects, and the memory that is bound to them.

/// `CUmulticastObjectProp`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct MulticastProperties {
    pub(crate) devices: u32,
    pub(crate) size: usize,
    pub(crate) handle_types: u64,
    pub(crate) flags: u64,
}

/// The state of a multicast object beside its memory handle.
#[derive(Debug)]
pub(crate) struct MulticastGroup {
    /// Number of devices that the object is made for.
    pub(crate) wanted: usize,
    pub(crate) devices: Vec<usize>,
    pub(crate) bound: Vec<BoundMemory>,
}

/// A piece of memory that is bound to a multicast object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BoundMemory {
    pub(crate) device: usize,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) memory: u64,
}

/// A piece of memory that a call wants to bind: a handle, an offset and a size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub(crate) memory: u64,
    pub(crate) offset: u64,
    pub(crate) size: u64,
}
