//! Monotonic clock, and the processor's time stamp counter.
//!
//! Instants that are compared with GPU events come from the monotonic clock, once in a batch of launches. The time between two
//! calls of a launch is counted in cycles of the time stamp counter, which costs a fifth of the clock. Processors whose counter
//! does not run evenly (no "invariant TSC") use the clock instead.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use core::arch::x86_64::{__cpuid, _rdtsc};
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Returns the monotonic clock in nanoseconds.
pub(crate) fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `clock_gettime` needs a pointer that is valid for writes; `time` is on this stack.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// Nanoseconds of a cycle, in units of 2^-32; 0 before the first comparison of the clocks.
static SCALE: AtomicU64 = AtomicU64::new(0);
/// Whether the counter runs evenly: one of the three values below.
static EVEN: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const IS_EVEN: u8 = 1;
const IS_NOT: u8 = 2;

/// Returns a number that grows with time, for [`between`].
#[inline]
pub(crate) fn cycles() -> u64 {
    match EVEN.load(Ordering::Relaxed) {
        // SAFETY: every x86-64 processor has the instruction.
        IS_EVEN => unsafe { _rdtsc() },
        _ => first_cycles(),
    }
}

#[cold]
fn first_cycles() -> u64 {
    if EVEN.load(Ordering::Relaxed) == UNKNOWN {
        EVEN.store(if is_even() { IS_EVEN } else { IS_NOT }, Ordering::Relaxed);
        return cycles();
    }
    now()
}

/// Returns bit 8 of EDX in the answer to `0x8000_0007`: "invariant TSC" (Intel SDM volume 3, 18.17.1; AMD APM volume 3, appendix
/// E).
fn is_even() -> bool {
    let is_known = __cpuid(0x8000_0000).eax >= 0x8000_0007;
    is_known && __cpuid(0x8000_0007).edx & 1 << 8 != 0
}

/// Returns the nanoseconds between two readings of [`cycles`], the later one first. 0 before the first [`compare`].
#[inline]
pub(crate) fn between(later: u64, earlier: u64) -> u64 {
    let product = u128::from(later.saturating_sub(earlier)) * u128::from(SCALE.load(Ordering::Relaxed));
    u64::try_from(product >> 32).unwrap_or(u64::MAX)
}

/// Returns true if `cycles` cycles took less than `nanoseconds` nanoseconds.
#[inline]
pub(crate) fn took_less(cycles: u64, nanoseconds: u64) -> bool {
    // No processor with the counter has cycles longer than a nanosecond: the usual answer needs no conversion.
    cycles < nanoseconds || between(cycles, 0) < nanoseconds
}

/// An instant, read from both clocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClockPair {
    nanoseconds: u64,
    cycles: u64,
}

impl ClockPair {
    /// Reads both clocks now.
    pub(crate) fn read() -> Self {
        Self { nanoseconds: now(), cycles: cycles() }
    }
}

/// Learns the duration of a cycle from an instant of the past. An earlier instant gives a better figure.
pub(crate) fn compare(past: ClockPair) {
    let present = ClockPair::read();
    let nanoseconds = u128::from(present.nanoseconds.saturating_sub(past.nanoseconds)) << 32;
    let cycles = u128::from(present.cycles.saturating_sub(past.cycles));
    if let Some(scale) = nanoseconds.checked_div(cycles).and_then(|scale| u64::try_from(scale).ok())
        && scale != 0
    {
        SCALE.store(scale, Ordering::Relaxed);
    }
}

/// Learns the duration of a cycle roughly, within 20 microseconds, unless it is known.
pub(crate) fn compare_first() {
    /// Nanoseconds of the comparison: long enough for an error below 1 %, because reading either clock takes some tens of
    /// nanoseconds.
    const TAKES: u64 = 20_000;
    if SCALE.load(Ordering::Relaxed) != 0 {
        return;
    }
    let start = ClockPair::read();
    while now().saturating_sub(start.nanoseconds) < TAKES {
        core::hint::spin_loop();
    }
    compare(start);
}
