//! Enforcement: gpuslice refuses GPU work if it cannot enforce a limit.
//!
//! `cuInit` then returns `CUDA_ERROR_NOT_PERMITTED`, and so does every later call that would take memory or submit work. If a
//! process loses its region while it runs, the library refuses it more memory. It refuses work too if the slice has a share.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use crate::os::messages;
use core::fmt::Display;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use gpuslice_driver::slot;
use gpuslice_driver::table::{ALL, Treatment};
use gpuslice_driver::types::{Status, status};
use gpuslice_policy::config::LogLevel;
use gpuslice_region::RegionError;

/// Result of reading the settings. It is a plain number, so that each call can compare it directly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stage(u8);

impl Stage {
    /// The settings are not read yet.
    pub(crate) const UNREAD: Self = Self(0);
    /// No limit was set.
    pub(crate) const FREE: Self = Self(1);
    /// A limit was set, and is enforced.
    pub(crate) const LIMITED: Self = Self(2);
    /// A limit was set that cannot be enforced.
    pub(crate) const REFUSED: Self = Self(3);
}

/// Stage of this process.
static STAGE: AtomicU8 = AtomicU8::new(Stage::UNREAD.0);
/// True if the settings give the slice a share of GPU time.
static HAS_SHARE: AtomicBool = AtomicBool::new(false);

/// Returns the stage of this process. It is one relaxed load.
#[inline]
pub(crate) fn stage() -> Stage {
    // Relaxed: `SETTINGS`, the cell that holds the settings, publishes them.
    Stage(STAGE.load(Ordering::Relaxed))
}

/// Notes that no limit was set.
pub(crate) fn set_free() {
    STAGE.store(Stage::FREE.0, Ordering::Relaxed);
}

/// Notes that a limit was set.
pub(crate) fn limit() {
    // If another thread has refused GPU work meanwhile, the refusal stays.
    let (unread, limited) = (Stage::UNREAD.0, Stage::LIMITED.0);
    let _kept = STAGE.compare_exchange(unread, limited, Ordering::Relaxed, Ordering::Relaxed);
}

/// Notes that the slice has a share of GPU time. Called before [`limit`].
pub(crate) fn note_share(has_share: bool) {
    HAS_SHARE.store(has_share, Ordering::Relaxed);
}

/// Refuses GPU work from now on. Logs no message, because the reason is not known.
pub(crate) fn refuse_silently() {
    STAGE.store(Stage::REFUSED.0, Ordering::Relaxed);
}

/// Refuses GPU work from now on, and logs the reason. The caller calls this before the process does any GPU work.
pub(crate) fn refuse(why: &dyn Display) {
    messages::say(LogLevel::Error, why);
    refuse_silently();
    close(|treatment| matches!(treatment, Treatment::Charge | Treatment::Gate));
}

/// Refuses memory from now on, because the slice has lost its region. Refuses launches too if the slice has a share,
/// because no process knows how much GPU time the other processes use. The process can still use and free the memory
/// that it has. Only the first thread that calls this logs the message.
pub(crate) fn lose(why: &RegionError) {
    if STAGE.swap(Stage::REFUSED.0, Ordering::Relaxed) == Stage::REFUSED.0 {
        return;
    }
    let has_share = HAS_SHARE.load(Ordering::Relaxed);
    let what =
        if has_share { "New allocations and launches are refused." } else { "New allocations are refused." };
    messages::say(LogLevel::Error, &format_args!("gpuslice: {why}. {what}"));
    close(|treatment| match treatment {
        Treatment::Charge => true,
        Treatment::Gate => has_share,
        _ => false,
    });
}

/// Refuses GPU work, because the process has no memory left for the library's own tables. The function allocates nothing, because
/// any thread may call it in the middle of an allocation.
#[cold]
pub(crate) fn run_out() {
    let (limited, refused) = (Stage::LIMITED.0, Stage::REFUSED.0);
    if STAGE.compare_exchange(limited, refused, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        messages::say_plainly(
            LogLevel::Error,
            "gpuslice: the process has no memory left to keep count in (RLIMIT_AS, or a limit of the container); raise \
             that limit and start it again. GPU work is refused.\n",
        );
        close(|treatment| matches!(treatment, Treatment::Charge | Treatment::Gate));
    }
}

/// Logs that the slice's file is gone. Only the first thread that calls this logs the message.
pub(crate) fn goes_on_without_file(removed: &RegionError) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        messages::say(LogLevel::Warn, &format_args!("gpuslice: {removed}."));
    }
}

/// Points the slots of all calls whose treatment `is_meant` accepts at [`refused`].
fn close(is_meant: impl Fn(Treatment) -> bool) {
    let Some(target) = NonNull::new((refused as *mut core::ffi::c_void).cast()) else { return };
    for symbol in ALL.iter().filter(|symbol| is_meant(symbol.treatment())) {
        slot::set(*symbol, target);
    }
}

/// Function that the entries of refused calls call in place of the driver's function.
extern "C" fn refused() -> Status {
    status::NOT_PERMITTED
}
