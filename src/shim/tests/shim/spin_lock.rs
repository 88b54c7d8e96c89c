//! Tests that a spin lock admits one thread at a time, and that a waiting thread leaves the processor to others.
//!
//! The tests do not cover the order of memory accesses: the processors of PCs keep that order by themselves.

use crate::os::spin_lock::SpinLocked;
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

const THREADS: usize = 4;
const TURNS: u64 = 200_000;

#[test]
fn one_thread_at_a_time_changes_the_guarded_value() {
    let locked = SpinLocked::new((0_u64, 0_u64));
    let all_begin = Barrier::new(THREADS);
    let turns = || {
        all_begin.wait();
        for turn in 0..TURNS {
            let mut pair = locked.lock();
            pair.0 += 1;
            assert_eq!(pair.0, pair.1 + 1, "somebody else is inside");
            // Other threads begin to wait meanwhile, and see at the same instant that the lock is free.
            if turn % 16 == 0 {
                (0..100).for_each(|_| core::hint::spin_loop());
            }
            assert_eq!(pair.0, pair.1 + 1, "somebody else has come in");
            pair.1 += 1;
        }
    };
    thread::scope(|scope| (0..THREADS).for_each(|_| drop(scope.spawn(turns))));
    let all = THREADS as u64 * TURNS;
    assert_eq!(*locked.lock(), (all, all));
}

#[test]
fn try_lock_fails_while_the_lock_is_taken() {
    let locked = SpinLocked::new(());
    let held = locked.lock();
    assert!(locked.try_lock().is_none());
    drop(held);
    assert!(locked.try_lock().is_some());
}

/// Returns the time for which this thread has had a processor.
fn worked() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the function needs an output that is valid for writes: `time` is on this stack.
    let code = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(code, 0);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the holder keeps it for so long")]
fn a_thread_that_waits_long_leaves_the_processor_to_others() {
    let locked = SpinLocked::new(());
    let (say, hear) = mpsc::channel();
    thread::scope(|scope| {
        let held = locked.lock();
        let waiter = scope.spawn(|| {
            say.send(()).unwrap();
            let (began, before) = (Instant::now(), worked());
            drop(locked.lock());
            (began.elapsed(), worked() - before)
        });
        hear.recv().unwrap();
        thread::sleep(Duration::from_millis(300));
        drop(held);
        let (waited, worked) = waiter.join().unwrap();
        assert!(worked < waited * 2 / 5, "{worked:?} of {waited:?}");
    });
}
