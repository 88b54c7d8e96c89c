//! The lock of a process's credit: a waiting thread is woken by each release.

use crate::limiter::credit::CreditLock;
use gpuslice_policy::compute::cost::estimate::Estimate;
use gpuslice_policy::time::{GpuTime, Monotonic, WallTime};
use std::fs;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Time after which a waiting thread counts as not woken. A futex wait ends after a second at most.
const NOT_WOKEN: Duration = Duration::from_millis(900);
const ROUNDS: usize = 20;
const SECOND: Monotonic = Monotonic::from_nanos(1_000_000_000);

/// Waits until a thread of this process sleeps, or has ended.
fn sleeps(thread: libc::pid_t) {
    let stat = format!("/proc/self/task/{thread}/stat");
    while fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") S ")) {
        thread::yield_now();
    }
}

#[test]
fn a_release_wakes_a_waiting_thread() {
    let lock = &CreditLock::default();
    for round in 0..ROUNDS {
        let guard = lock.try_lock().unwrap();
        let (waits, begun) = mpsc::channel();
        thread::scope(|scope| {
            let waiter = scope.spawn(move || {
                // SAFETY: `gettid` requires nothing.
                waits.send(unsafe { libc::gettid() }).unwrap();
                let began = Instant::now();
                (lock.try_lock_for(Duration::from_secs(1)).is_some(), began.elapsed())
            });
            let thread = begun.recv().unwrap();
            // In even rounds the waiter sleeps before the release. In odd rounds the release comes while the waiter begins to
            // wait.
            if round % 2 == 0 {
                sleeps(thread);
            }
            drop(guard);
            let (has_begun, waited) = waiter.join().unwrap();
            assert!(has_begun && waited < NOT_WOKEN, "waited for {waited:?}");
        });
    }
}

#[test]
fn a_thread_that_is_not_woken_stops_waiting() {
    let lock = CreditLock::default();
    let _guard = lock.try_lock().unwrap();
    assert!(lock.try_lock().is_none());
    assert!(lock.try_lock_for(Duration::from_millis(1)).is_none());
}

#[test]
fn a_lock_that_is_not_renewed_is_abandoned() {
    let lock = CreditLock::default();
    lock.renew(SECOND);
    assert!(!lock.is_abandoned(SECOND + WallTime::from_millis(1_000)));
    assert!(lock.is_abandoned(SECOND + WallTime::from_millis(2_000)));
}

#[test]
fn a_lock_is_not_abandoned_before_its_holder_renews_it() {
    let lock = CreditLock::default();
    let late = SECOND + WallTime::from_millis(60_000);
    let first = lock.try_lock().unwrap();
    assert!(!lock.is_abandoned(late), "the first holder has just locked");
    lock.renew(SECOND);
    drop(first);
    let _second = lock.try_lock().unwrap();
    assert!(!lock.is_abandoned(late), "the second holder has just locked");
}

#[test]
fn credit_that_is_not_spent_is_taken_out_after_a_while() {
    let lock = CreditLock::default();
    let mut credit = lock.try_lock().unwrap();
    let (amount, kept) = (GpuTime::from_micros(1), WallTime::from_nanos(2));
    credit.add(amount, SECOND);
    let early = SECOND + WallTime::NANOSECOND;
    assert_eq!((credit.take_unspent(early, kept), credit.is_empty()), (GpuTime::ZERO, false));
    assert_eq!((credit.take_unspent(SECOND + kept, kept), credit.is_empty()), (amount, true));
}

#[test]
fn on_one_stream_nothing_overlaps() {
    let lock = CreditLock::default();
    let credit = lock.try_lock().unwrap();
    let mut estimate = Estimate::NONE;
    (estimate.duration, estimate.charged) = (WallTime::from_micros(100), GpuTime::from_micros(20));
    assert_eq!(credit.least_for_overlap(&estimate, 1), GpuTime::ZERO);
    assert!(credit.least_for_overlap(&estimate, 2) >= estimate.duration.gpu_if_alone());
}
