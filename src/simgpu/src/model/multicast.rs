//! Multicast objects, and the memory that is bound to them.

/// `CUmulticastObjectProp`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) devices: u32,
    pub(crate) size: usize,
    pub(crate) handle_types: u64,
    pub(crate) flags: u64,
}

/// What is known of such an object beside what is known of all memory.
#[derive(Debug)]
pub(crate) struct Group {
    /// How many devices it is for.
    pub(crate) wanted: usize,
    pub(crate) devices: Vec<usize>,
    pub(crate) bound: Vec<Bound>,
}

/// Memory that is bound.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bound {
    pub(crate) device: usize,
    pub(crate) offset: u64,
    pub(crate) size: u64,
    pub(crate) memory: u64,
}

/// What is to be bound: a handle of memory and a place in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub(crate) memory: u64,
    pub(crate) offset: u64,
    pub(crate) size: u64,
}
