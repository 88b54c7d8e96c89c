//! Asymmetric fence: cheap for a frequent side, expensive for a rare side.
//!
//! Two threads each write a word and then read the other's word. Both need a full fence in between, or neither may see the
//! other. A fence costs an eighth of a launch. With Linux's `membarrier` one thread makes all other threads of its process pass a
//! fence, so the frequent side needs none. Where the kernel lacks `membarrier`, or a sandbox forbids it, both sides have a fence.
//!
//! The process may also enter a sandbox later. Then the frequent side has to use its own fence again, and confirms that it does.
//! Until it confirms, the rare side does not know which words the frequent side has read.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use core::sync::atomic::{AtomicBool, AtomicU8, Ordering, compiler_fence, fence};

/// Side or sides that execute a fence. The value only grows.
static SIDES: AtomicU8 = AtomicU8::new(BOTH_SIDES);
/// Both sides: the frequent side executes its own fence, temporarily or permanently.
const BOTH_SIDES: u8 = 0;
/// One side: the frequent side relies on [`heavy`].
const ONE_SIDE: u8 = 1;
/// Both sides permanently: the frequent side executes its own fence again.
const BOTH_SIDES_AGAIN: u8 = 2;

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED` and the registration that it needs, from `linux/membarrier.h`.
const ALL_THREADS: libc::c_int = 1 << 3;
const REGISTER: libc::c_int = 1 << 4;

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: `membarrier` with these commands takes no pointer.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Frees the frequent side of its fence, if the kernel allows it. This takes tens of milliseconds in a process of several
/// threads, so only a thread calls it for which no other thread waits.
pub(crate) fn prepare() {
    if membarrier(REGISTER) && membarrier(ALL_THREADS) {
        // Release: a thread that sees the new value runs after the registration. If `heavy` has failed since, nothing changes.
        let _before = SIDES.compare_exchange(BOTH_SIDES, ONE_SIDE, Ordering::Release, Ordering::Relaxed);
    }
}

/// Executes the fence of the frequent side, between its write and its read. A thread that executes its own fence permanently sets
/// `fences_itself` before the read.
#[inline]
pub(crate) fn light(fences_itself: &AtomicBool) {
    // Acquire: pairs with `prepare`.
    if SIDES.load(Ordering::Acquire) == ONE_SIDE {
        compiler_fence(Ordering::SeqCst);
    } else {
        own(fences_itself);
    }
}

#[cold]
fn own(fences_itself: &AtomicBool) {
    if SIDES.load(Ordering::Relaxed) == BOTH_SIDES_AGAIN {
        // Release: a thread that sees it also sees the earlier writes of this thread.
        fences_itself.store(true, Ordering::Release);
    }
    fence(Ordering::SeqCst);
}

/// Executes the fence of the rare side, for all threads. Returns false if the kernel refuses it from now on. Then the caller may
/// not see the writes of the frequent side, unless that side has set `fences_itself`.
///
/// The caller's write before it must be an exchange: another thread may have just lost its fence when this thread finds that it
/// had one.
pub(crate) fn heavy() -> bool {
    fence(Ordering::SeqCst);
    // A forked child may have to register again.
    let passed = || membarrier(ALL_THREADS) || (membarrier(REGISTER) && membarrier(ALL_THREADS));
    match SIDES.load(Ordering::Acquire) {
        BOTH_SIDES => true,
        ONE_SIDE if passed() => true,
        _ => {
            SIDES.store(BOTH_SIDES_AGAIN, Ordering::Release);
            false
        }
    }
}
