//! Memory of other interfaces.

use std::os::fd::OwnedFd;

/// `CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD`.
pub(crate) const DESCRIPTOR: u32 = 1;

/// Memory that was imported.
#[derive(Debug)]
pub(crate) struct External {
    pub(crate) file: OwnedFd,
    pub(crate) size: u64,
    /// Number of CUDA's export; 0 where another interface made it.
    pub(crate) number: u64,
}
