//! Contexts and their limits.

use crate::engine::ClientId;

/// A context.
#[derive(Debug)]
pub(crate) struct Context {
    /// The number that the machine (not the process) gives to the context's device.
    pub(crate) device: usize,
    /// True if this is the primary context of the device.
    pub(crate) primary: bool,
    /// The flags with which the context was made.
    pub(crate) flags: u32,
    /// The version that `cuCtxGetApiVersion` returns for the context.
    pub(crate) version: u32,
    /// The context's number, never reused.
    pub(crate) number: u64,
    /// The value of each limit, by `CUlimit`.
    pub(crate) limits: [u64; LIMITS],
    /// Bytes charged for the context itself.
    pub(crate) charged: u64,
    /// The context's client in the engine.
    pub(crate) client: ClientId,
    /// The preferred cache, a `CUfunc_cache`.
    pub(crate) cache: u32,
    /// The width of the banks of shared memory, a `CUsharedconfig`.
    pub(crate) banks: u32,
    /// Number of uses: one from the creation, and one more for each `cuCtxAttach`.
    pub(crate) attached: u32,
}

/// Number of limits, so of values of `CUlimit`.
pub(crate) const LIMITS: usize = 10;
/// Default limits: stack, printf buffer, heap, nesting depth, pending launches, granularity of the second-level cache, persisting
/// part of the second-level cache, heap of shared memory, and two more.
pub(crate) const DEFAULT_LIMITS: [u64; LIMITS] = [1024, 1 << 20, 8 << 20, 2, 2048, 64, 0, 0, 0, 0];

/// The primary context of a device.
#[derive(Debug, Default)]
pub(crate) struct Primary {
    /// The handle of the primary context; 0 until the program first retains the context. After that it never changes.
    pub(crate) handle: u64,
    /// How many times the program has retained the primary context and not released it.
    pub(crate) uses: u32,
    /// The flags with which the primary context is made next time.
    pub(crate) flags: u32,
}

/// Returns the bytes of device memory that these limits cost beyond the default limits. The cost is the full buffers, the stacks
/// of all threads that can be resident, and the memory for pending launches.
pub(crate) fn limits_cost(limits: &[u64; LIMITS]) -> u64 {
    const THREADS: u64 = 132 * 2048;
    /// Bytes of one pending launch that a kernel asked for.
    const LAUNCH: u64 = 4096;
    let [stack, printf, heap, _, pending, ..] = *limits;
    let [default_stack, default_printf, default_heap, _, default_pending, ..] = DEFAULT_LIMITS;
    let stacks = stack.saturating_sub(default_stack).saturating_mul(THREADS);
    let buffers = printf.saturating_sub(default_printf).saturating_add(heap.saturating_sub(default_heap));
    let launches = pending.saturating_sub(default_pending).saturating_mul(LAUNCH);
    let sum = stacks.saturating_add(buffers).saturating_add(launches);
    sum.checked_next_multiple_of(2 << 20).unwrap_or(u64::MAX)
}
