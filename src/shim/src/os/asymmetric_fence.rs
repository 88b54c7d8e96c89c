//! Asymmetric fence: cheap for a frequent side, expensive for a rare side.
//!
//! Two threads each write a word and then read the word of the other thread. Both need a full fence between write and read.
//! Without it, it may happen that neither thread sees the other's write. A fence costs an eighth of a launch. With Linux's
//! `membarrier` one thread makes all other threads of its process pass a fence, so the frequent side needs none. If the kernel
//! lacks `membarrier`, or a sandbox forbids it, both sides execute a fence.
//!
//! The process may also enter a sandbox later. Then the frequent side has to execute its own fence again, and confirms this by a
//! flag. Before the confirmation the rare side cannot rely on the words that it reads.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use core::sync::atomic::{AtomicBool, AtomicU8, Ordering, compiler_fence, fence};

/// Side or sides that execute a fence: one of the three values below. The value only grows.
static SIDES: AtomicU8 = AtomicU8::new(BOTH_SIDES);
/// Both sides execute a fence. This is the state before [`prepare`] has succeeded.
const BOTH_SIDES: u8 = 0;
/// Only the rare side executes a fence. The frequent side relies on [`heavy`].
const ONE_SIDE: u8 = 1;
/// Both sides execute a fence from now on, because the kernel has refused the barrier.
const BOTH_SIDES_AGAIN: u8 = 2;

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED` and the registration that it needs, from `linux/membarrier.h`.
const ALL_THREADS: libc::c_int = 1 << 3;
const REGISTER: libc::c_int = 1 << 4;

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: `membarrier` with these commands takes no pointer.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Removes the fence of the frequent side, if the kernel allows it. This takes tens of milliseconds in a process of several
/// threads. So only a thread for which no other thread waits may call it.
pub(crate) fn prepare() {
    if membarrier(REGISTER) && membarrier(ALL_THREADS) {
        // Release: a thread that sees the new value runs after the registration. If `heavy` has failed meanwhile, the exchange
        // fails.
        let _before = SIDES.compare_exchange(BOTH_SIDES, ONE_SIDE, Ordering::Release, Ordering::Relaxed);
    }
}

/// Executes the fence of the frequent side, between its write and its read. If both sides need fences from now on, the thread
/// sets `fences_itself` before its read.
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
        // Release: a thread that sees this flag also sees the earlier writes of this thread.
        fences_itself.store(true, Ordering::Release);
    }
    fence(Ordering::SeqCst);
}

/// Executes the fence of the rare side, for all threads. Returns false if the kernel refuses the barrier. Then the caller may not
/// see the writes of the frequent side, unless that side has set `fences_itself`.
///
/// The caller's write before this call must be an exchange. This function may find that the frequent side still has its own
/// fence, while `prepare` removes that fence at the same moment.
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
