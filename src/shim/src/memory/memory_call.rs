//! Calls that take memory or give it back.
//!
//! While one is under way, the ledger has bytes that the device does not have, or does not have any more. The region counts the
//! calls of all processes of the folder (`gpuslice_region`, `Calls`), so that a measurement of free memory knows whether it is
//! exact.

use gpuslice_region::Member;

/// A memory call of this thread. It is counted until it is dropped.
#[derive(Debug)]
pub(crate) struct MemoryCall(&'static Member);

impl MemoryCall {
    /// Counts the call, before the ledger or the device changes.
    #[inline]
    pub(crate) fn begin(member: &'static Member) -> Self {
        member.begin_memory_call();
        Self(member)
    }
}

impl Drop for MemoryCall {
    #[inline]
    fn drop(&mut self) {
        self.0.end_memory_call();
    }
}

/// Wait within a memory call. Of two waiting threads each must find no other call under way, so neither counts meanwhile.
#[derive(Debug)]
pub(crate) struct Waiting<'a>(&'a Member);

impl<'a> Waiting<'a> {
    /// Stops counting the memory call that the thread is in. The thread's ledger has no bytes that the driver is still to take or
    /// has freed.
    pub(crate) fn within_call(member: &'a Member) -> Self {
        member.end_memory_call();
        Self(member)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.begin_memory_call();
    }
}
