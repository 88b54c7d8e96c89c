//! Calls that take memory or give it back.
//!
//! During such a call, ledger and device disagree: the ledger has bytes that the driver has not given yet, or has freed already.
//! Each region counts the calls of its slice's processes (`gpuslice_region`, `Calls`). So a thread that measures free memory can
//! check whether the measurement is exact.

use gpuslice_region::Member;

/// A memory call of this thread. The region counts it until it is dropped.
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

/// Wait within a memory call. The region does not count the call during the wait. Otherwise each of two waiting threads would see
/// the call of the other thread and never find an instant without calls.
#[derive(Debug)]
pub(crate) struct Waiting<'a>(&'a Member);

impl<'a> Waiting<'a> {
    /// Stops counting the memory call that the thread is in. At that time the ledger has no bytes of this call that the driver has
    /// not given yet, or has already freed.
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
