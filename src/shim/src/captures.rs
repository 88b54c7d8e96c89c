//! May anything be captured in this process, and how do calls of ours spoil none of it?
//!
//! While a thread captures in global mode the driver refuses some calls to every thread that has not said that it knows what
//! it does, and whoever makes one spoils the capture. A program that makes only calls which are allowed must not lose its
//! capture to one of ours beside them. So what the driver may refuse is made [`apart`].
#![allow(
    clippy::disallowed_types,
    reason = "a word of this process alone: `region::sync` is for words shared between processes"
)]

use crate::driver;
use core::sync::atomic::{AtomicU32, Ordering};

/// Captures that are open. May be too high, never too low (`hooks::capture`).
static OPEN: AtomicU32 = AtomicU32::new(0);

/// A capture is about to begin: told before the driver.
pub(crate) fn begins() {
    OPEN.fetch_add(1, Ordering::Relaxed);
}

/// A capture has ended, or did not begin: told after the driver.
pub(crate) fn ended() {
    let less = |count: u32| count.checked_sub(1);
    let _before = OPEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
}

/// Whether a capture may be open. Cheap.
#[inline(always)]
pub(crate) fn is_open() -> bool {
    // Relaxed: whoever begins a capture is ordered with other calls by the program, or not at all.
    OPEN.load(Ordering::Relaxed) != 0
}

/// Makes calls of ours in the driver so that no capture is spoilt by them: while one is open, in relaxed mode, which concerns
/// the calling thread alone.
#[inline]
pub(crate) fn apart<T>(calls: impl FnOnce() -> T) -> T {
    if is_open() { driver::beside_captures(calls) } else { calls() }
}
