//! How do two threads order what they say and look at, where one does it all the time and the other hardly ever?
//!
//! Two threads that each write a word and then read the other's both need a full fence in between, or neither may see
//! the other. A fence costs as much as an eighth of a launch. Linux has `membarrier`, by which one thread makes all
//! others of its process pass one: so the frequent side needs none. Where the kernel does not have it, or a sandbox forbids it,
//! both sides have their own.
//!
//! A sandbox may also be entered later. Then the frequent side is told to have its own fence again, and says when it has
//! heard that: until then nobody knows what it has just looked at.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use core::sync::atomic::{AtomicBool, AtomicU8, Ordering, compiler_fence, fence};

/// What the frequent side does. It only ever grows.
static SIDES: AtomicU8 = AtomicU8::new(BOTH);
/// It has its own fence: as yet, or for good.
const BOTH: u8 = 0;
/// It relies on [`heavy`].
const ONE: u8 = 1;
/// It has its own fence again, for good.
const BOTH_AGAIN: u8 = 2;

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED` and the registration that it needs, from `linux/membarrier.h`.
const ALL_THREADS: libc::c_int = 1 << 3;
const REGISTER: libc::c_int = 1 << 4;

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: the call reads and writes no memory of ours.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

/// Frees the frequent side of its fence, where that can be done. It takes tens of milliseconds in a process of several
/// threads, so no thread calls this that anybody waits for.
pub(super) fn prepare() {
    if membarrier(REGISTER) && membarrier(ALL_THREADS) {
        // Release: who sees it comes after the registration. Not where it was tried and has failed since.
        let _before = SIDES.compare_exchange(BOTH, ONE, Ordering::Release, Ordering::Relaxed);
    }
}

/// The frequent side's fence, between what it says and what it looks at. `has_heard` is set by a thread that has its own
/// for good, before what it looks at.
#[inline]
pub(super) fn light(has_heard: &AtomicBool) {
    // Acquire: pairs with `prepare`.
    if SIDES.load(Ordering::Acquire) == ONE {
        compiler_fence(Ordering::SeqCst);
    } else {
        own(has_heard);
    }
}

#[cold]
fn own(has_heard: &AtomicBool) {
    if SIDES.load(Ordering::Relaxed) == BOTH_AGAIN {
        // Release: who sees it sees what the thread has said before.
        has_heard.store(true, Ordering::Release);
    }
    fence(Ordering::SeqCst);
}

/// The rare side's, for all threads. False where the kernel will not do it any more: the other side may not be seen then,
/// unless it has heard of that.
/// What was written before must have been written by an exchange: another thread may have just been freed of its fence
/// when this one finds that it was not yet.
pub(super) fn heavy() -> bool {
    fence(Ordering::SeqCst);
    // A forked child may have to say anew that it will ask.
    let passed = || membarrier(ALL_THREADS) || (membarrier(REGISTER) && membarrier(ALL_THREADS));
    match SIDES.load(Ordering::Acquire) {
        BOTH => true,
        ONE if passed() => true,
        _ => {
            SIDES.store(BOTH_AGAIN, Ordering::Release);
            false
        }
    }
}
