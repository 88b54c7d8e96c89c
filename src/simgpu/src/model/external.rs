//! Memory of other interfaces that the program has imported.

use std::os::fd::OwnedFd;

/// `CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD`.
pub(crate) const DESCRIPTOR: u32 = 1;

/// Memory that the program has imported from another interface.
#[derive(Debug)]
pub(crate) struct External {
    pub(crate) file: OwnedFd,
    pub(crate) size: u64,
    /// Number of the export by CUDA; 0 if another interface made the memory.
    pub(crate) number: u64,
}
