//! Imported memory of other interfaces.

use std::os::fd::OwnedFd;

/// `CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD`.
pub(crate) const DESCRIPTOR: u32 = 1;

/// Imported memory.
#[derive(Debug)]
pub(crate) struct External {
    pub(crate) file: OwnedFd,
    pub(crate) size: u64,
    /// Number of CUDA's export; 0 if another interface made the memory.
    pub(crate) number: u64,
}
