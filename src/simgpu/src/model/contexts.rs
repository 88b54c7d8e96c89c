//! Contexts and their limits.

use crate::engine::ClientId;

/// A context.
#[derive(Debug)]
pub(crate) struct Context {
    /// The simulation's number of its device.
    pub(crate) device: usize,
    /// Whether it is the device's primary one.
    pub(crate) primary: bool,
    /// Flags it was made with.
    pub(crate) flags: u32,
    /// The version that `cuCtxGetApiVersion` tells.
    pub(crate) version: u32,
    /// Its number, never used twice.
    pub(crate) number: u64,
    /// Limits by `CUlimit`.
    pub(crate) limits: [u64; LIMITS],
    /// Device memory of the context itself.
    pub(crate) charged: u64,
    /// How the device's time knows it.
    pub(crate) client: ClientId,
    /// `CUfunc_cache`.
    pub(crate) cache: u32,
    /// `CUsharedconfig`.
    pub(crate) banks: u32,
    /// Uses through `cuCtxAttach`.
    pub(crate) attached: u32,
}

/// Values of `CUlimit`.
pub(crate) const LIMITS: usize = 10;
/// The values that limits begin with: stack, printf buffer, heap, nesting depth, pending launches, granularity
/// of the second-level cache, persisting second-level cache, heap of shared memory, and the two that follow.
pub(crate) const DEFAULT_LIMITS: [u64; LIMITS] = [1024, 1 << 20, 8 << 20, 2, 2048, 64, 0, 0, 0, 0];

/// The primary context of a device.
#[derive(Debug, Default)]
pub(crate) struct Primary {
    /// Its handle once it was ever retained: it stays the same.
    pub(crate) handle: u64,
    /// Uses.
    pub(crate) uses: u32,
    /// Flags for when it is made.
    pub(crate) flags: u32,
}

/// What limits cost in device memory beyond what the defaults cost: buffers in full, stacks for every thread
/// that can be resident, room for launches that wait.
pub(crate) fn limits_cost(limits: &[u64; LIMITS]) -> u64 {
    const THREADS: u64 = 132 * 2048;
    /// What a launch costs that a kernel made and that has not begun.
    const LAUNCH: u64 = 4096;
    let [stack, printf, heap, _, pending, ..] = *limits;
    let [default_stack, default_printf, default_heap, _, default_pending, ..] = DEFAULT_LIMITS;
    let stacks = stack.saturating_sub(default_stack).saturating_mul(THREADS);
    let buffers = printf.saturating_sub(default_printf).saturating_add(heap.saturating_sub(default_heap));
    let launches = pending.saturating_sub(default_pending).saturating_mul(LAUNCH);
    let sum = stacks.saturating_add(buffers).saturating_add(launches);
    sum.checked_next_multiple_of(2 << 20).unwrap_or(u64::MAX)
}
