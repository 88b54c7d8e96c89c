//! How do two threads order what they say and look at, where one does it all the time and the other hardly ever?
//!
//! Two threads that each write a word and then read the other's both need a full fence in between, or neither may see
//! the other. A fence costs as much as an eighth of a launch. Linux has `membarrier`, by which one thread makes all
//! others of its process pass one: so the frequent side needs none. Where the kernel does not have it, or a sandbox forbids it,
//! both sides have their own.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use core::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};

/// Whether the frequent side relies on [`heavy`]. Never taken back.
static ONE_SIDED: AtomicBool = AtomicBool::new(false);

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
        // Release: who sees it comes after the registration.
        ONE_SIDED.store(true, Ordering::Release);
    }
}

/// The frequent side's fence, between what it says and what it looks at.
#[inline]
pub(super) fn light() {
    // Acquire: pairs with `prepare`.
    if ONE_SIDED.load(Ordering::Acquire) {
        compiler_fence(Ordering::SeqCst);
    } else {
        fence(Ordering::SeqCst);
    }
}

/// The rare side's, for all threads. False where the kernel will not do it any more: the other side may not be seen then.
/// What was written before must have been written by an exchange: another thread may have just been freed of its fence
/// when this one finds that it was not yet.
pub(super) fn heavy() -> bool {
    fence(Ordering::SeqCst);
    // A forked child may have to say anew that it will ask.
    let passed = || membarrier(ALL_THREADS) || (membarrier(REGISTER) && membarrier(ALL_THREADS));
    !ONE_SIDED.load(Ordering::Acquire) || passed()
}
