//! Monotonic clock, and the processor's time stamp counter.
//!
//! Instants that are compared with GPU events come from the monotonic clock, which the library reads once in a batch of launches.
//! The time between two launches is counted in cycles of the time stamp counter, which costs a fifth of the clock. On processors
//! whose counter does not run evenly (no "invariant TSC"), the library reads the clock instead.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use gpuslice_policy::time::{Monotonic, WallTime};

use core::arch::x86_64::{__cpuid, _rdtsc};
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Returns the present instant of the monotonic clock.
pub(crate) fn now() -> Monotonic {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `clock_gettime` needs a pointer that is valid for writes; `time` is on this stack.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let rest = u64::try_from(time.tv_nsec).unwrap_or(0);
    Monotonic::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(rest))
}

/// Duration of a cycle in nanoseconds, in units of 2^-32; 0 before the first comparison of the clocks.
static SCALE: AtomicU64 = AtomicU64::new(0);
/// Tells whether the counter runs evenly: one of the three values below.
static EVEN: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const IS_EVEN: u8 = 1;
const IS_NOT: u8 = 2;

/// An instant of the time stamp counter. It cannot be compared with instants of the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CycleInstant(u64);

/// A time in cycles of the time stamp counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Cycles(u64);

impl CycleInstant {
    /// The instant at which the counter began.
    pub(crate) const BEGIN: Self = Self(0);

    /// Reads the counter.
    #[inline]
    pub(crate) fn now() -> Self {
        Self(read_counter())
    }

    /// Returns the time since an earlier instant; zero if `earlier` is later.
    #[inline]
    pub(crate) const fn since(self, earlier: Self) -> Cycles {
        Cycles(self.0.saturating_sub(earlier.0))
    }
}

impl Cycles {
    /// Returns the time on the clock; zero before the first [`compare`].
    #[inline]
    pub(crate) fn wall_time(self) -> WallTime {
        let product = u128::from(self.0) * u128::from(SCALE.load(Ordering::Relaxed));
        WallTime::from_nanos(u64::try_from(product >> 32).unwrap_or(u64::MAX))
    }

    /// Returns true if the time is less than `time`.
    #[inline]
    pub(crate) fn is_less_than(self, time: WallTime) -> bool {
        // No processor with the counter has cycles longer than a nanosecond. So the usual comparison needs no conversion.
        self.0 < time.nanos() || self.wall_time() < time
    }

    /// Returns the sum. It does not wrap in practice, because no process runs for 2^64 cycles.
    #[inline]
    pub(crate) const fn plus(self, other: Self) -> Self {
        Self(self.0.wrapping_add(other.0))
    }

    /// Returns the difference; zero if `other` is longer.
    #[inline]
    pub(crate) const fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

#[inline]
fn read_counter() -> u64 {
    match EVEN.load(Ordering::Relaxed) {
        // SAFETY: `_rdtsc` requires a processor with this instruction: every x86-64 processor has it.
        IS_EVEN => unsafe { _rdtsc() },
        _ => first_reading(),
    }
}

#[cold]
fn first_reading() -> u64 {
    if EVEN.load(Ordering::Relaxed) == UNKNOWN {
        EVEN.store(if is_even() { IS_EVEN } else { IS_NOT }, Ordering::Relaxed);
        return read_counter();
    }
    now().nanos()
}

/// Returns true if the counter runs evenly. That is bit 8 of EDX in leaf `0x8000_0007` of `cpuid`, "invariant TSC". Sources:
/// Intel SDM volume 3, 18.17.1; AMD APM volume 3, appendix E.
fn is_even() -> bool {
    let is_known = __cpuid(0x8000_0000).eax >= 0x8000_0007;
    is_known && __cpuid(0x8000_0007).edx & 1 << 8 != 0
}

/// An instant, read from both clocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ClockPair {
    instant: Monotonic,
    cycles: CycleInstant,
}

impl ClockPair {
    /// Reads both clocks now.
    pub(crate) fn read() -> Self {
        Self { instant: now(), cycles: CycleInstant::now() }
    }
}

/// Learns the duration of a cycle from the time since a reading of both clocks. An earlier reading gives a more exact figure.
pub(crate) fn compare(past: ClockPair) {
    let present = ClockPair::read();
    let nanoseconds = u128::from(present.instant.since(past.instant).nanos()) << 32;
    let cycles = u128::from(present.cycles.since(past.cycles).0);
    if let Some(scale) = nanoseconds.checked_div(cycles).and_then(|scale| u64::try_from(scale).ok())
        && scale != 0
    {
        SCALE.store(scale, Ordering::Relaxed);
    }
}

/// Learns the duration of a cycle roughly, unless it is known. This takes 20 microseconds.
pub(crate) fn compare_first() {
    /// Duration of the comparison. To read either clock takes some tens of nanoseconds, so the error is below 1 %.
    const TAKES: WallTime = WallTime::from_micros(20);
    if SCALE.load(Ordering::Relaxed) != 0 {
        return;
    }
    let start = ClockPair::read();
    while now().since(start.instant) < TAKES {
        core::hint::spin_loop();
    }
    compare(start);
}
