//! Contexts and their limits.

use crate::engine::ClientId;

/// A context.
#[derive(Debug)]
pub(crate) struct Context {
    /// The machine's number of its device.
    pub(crate) device: usize,
    /// True if it is the device's primary context.
    pub(crate) primary: bool,
    /// The context's creation flags.
    pub(crate) flags: u32,
    /// The version that `cuCtxGetApiVersion` returns.
    pub(crate) version: u32,
    /// The context's number, never reused.
    pub(crate) number: u64,
    /// Limits by `CUlimit`.
    pub(crate) limits: [u64; LIMITS],
    /// Bytes charged for the context itself.
    pub(crate) charged: u64,
    /// The context's client in the engine.
    pub(crate) client: ClientId,
    /// `CUfunc_cache`.
    pub(crate) cache: u32,
    /// `CUsharedconfig`.
    pub(crate) banks: u32,
    /// Number of uses through `cuCtxAttach`.
    pub(crate) attached: u32,
}

/// Number of limits (`CUlimit`).
pub(crate) const LIMITS: usize = 10;
/// Default limits: stack, printf buffer, heap, nesting depth, pending launches, granularity of the second-level
/// cache, persisting second-level cache, heap of shared memory, and two more.
pub(crate) const DEFAULT_LIMITS: [u64; LIMITS] = [1024, 1 << 20, 8 << 20, 2, 2048, 64, 0, 0, 0, 0];

/// The primary context of a device.
#[derive(Debug, Default)]
pub(crate) struct Primary {
    /// The context's handle once it was retained. It never changes after that.
    pub(crate) handle: u64,
    /// Number of uses.
    pub(crate) uses: u32,
    /// Flags for its next creation.
    pub(crate) flags: u32,
}

/// Returns the bytes of device memory that limits cost beyond the defaults. They are buffers in full, stacks of all threads that
/// can be resident, and room for pending launches.
pub(crate) fn limits_cost(limits: &[u64; LIMITS]) -> u64 {
    const THREADS: u64 = 132 * 2048;
    /// Bytes of a pending launch that a kernel made.
    const LAUNCH: u64 = 4096;
    let [stack, printf, heap, _, pending, ..] = *limits;
    let [default_stack, default_printf, default_heap, _, default_pending, ..] = DEFAULT_LIMITS;
    let stacks = stack.saturating_sub(default_stack).saturating_mul(THREADS);
    let buffers = printf.saturating_sub(default_printf).saturating_add(heap.saturating_sub(default_heap));
    let launches = pending.saturating_sub(default_pending).saturating_mul(LAUNCH);
    let sum = stacks.saturating_add(buffers).saturating_add(launches);
    sum.checked_next_multiple_of(2 << 20).unwrap_or(u64::MAX)
}
