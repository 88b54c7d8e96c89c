//! Keeps a process alive when its region file is truncated.
//!
//! The guard also protects the [arbiter leases](crate::ArbiterLeases), which are mapped in the same way.
//!
//! A process that touches a mapping beyond the end of its file gets `SIGBUS`, which ends it. No check helps, since another
//! process can truncate the file after any check, and nothing prevents the truncation of a file with a name. A process that
//! maps a region therefore has a handler for `SIGBUS`. If the address lies in a region, the handler maps zeroes over the
//! whole region, and the instruction runs again. In zeroes every limit is 0, so the ledger grants nothing, and
//! [`Member::check`](crate::Member::check) reports the damage.
//!
//! Every other `SIGBUS` goes to the action that was set before, as the kernel would have delivered it: same stack, same
//! blocked signals, same arguments.
//!
//! The guard does not cover two cases. A program that sets its own handler later replaces the library's. The kernel ends a
//! thread that blocks `SIGBUS` without calling any handler.

#![allow(clippy::disallowed_types, reason = "words of this process alone")]

use core::{
    ffi::{c_int, c_void},
    mem,
    ptr::{self, NonNull},
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicUsize, Ordering},
};

use crate::{
    file::sigbus_forwarding,
    sync::backoff::{self, Backoff},
};
use libc::{SA_NODEFER, SA_ONSTACK, SA_RESETHAND, SA_RESTART, SA_SIGINFO, sigaction, siginfo_t};

/// The most mappings that are protected in one process: its own region, and one more for each region that it looks at. No process
/// opens a region beyond these. The agent has two mappings of each slice, and has 512 slices and finds 1024 at most.
pub(crate) const MAX_PROTECTED: usize = 4096;

/// A protected mapping.
struct ProtectedRange {
    /// The mapping's address. 0: the entry is free; [`TAKEN`]: a thread is filling it.
    start: AtomicUsize,
    /// The mapping's length in bytes. Written before the address.
    length: AtomicUsize,
}

/// An address at which nothing is mapped.
const TAKEN: usize = 1;

/// The protected mappings of this process.
static MAPPED: [ProtectedRange; MAX_PROTECTED] =
    [const { ProtectedRange { start: AtomicUsize::new(0), length: AtomicUsize::new(0) } }; MAX_PROTECTED];

/// State of the handler: [`UNSET`], [`BEING_SET`] or [`SET`]. A process and its forked children set the handler once. If a
/// process set it twice, the library's handler could call itself without end.
static HANDLER: AtomicU8 = AtomicU8::new(UNSET);
const UNSET: u8 = 0;
const BEING_SET: u8 = 1;
const SET: u8 = 2;

/// The action of the signal before the library's.
static BEFORE: AtomicPtr<sigaction> = AtomicPtr::new(ptr::null_mut());

/// Whether the earlier handler had `SA_RESETHAND` and was called.
static SPENT: AtomicBool = AtomicBool::new(false);

/// A signal handler. It may unwind or jump out of this file's code, because no code here has to run after it.
type Handler = unsafe extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void);

/// Protects `length` bytes at `start`. Returns whether there was room in the table.
///
/// The handler is set before the entry is published, and the length is written before the address. A handler that runs
/// in between finds either no entry or a whole one. The caller must not touch the mapping before this call.
pub(crate) fn protect(start: NonNull<c_void>, length: usize) -> bool {
    run_once(&HANDLER, set_handler);
    let start = start.as_ptr().expose_provenance();
    // Relaxed: only this thread touches the memory before it hands it to others.
    let free = |place: &&ProtectedRange| {
        place.start.compare_exchange(0, TAKEN, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    };
    let Some(place) = MAPPED.iter().find(free) else { return false };
    place.length.store(length, Ordering::Relaxed);
    // Release: pairs with the load in `range_of`.
    place.start.store(start, Ordering::Release);
    true
}

/// Ends the protection of a mapping, before it is unmapped.
pub(crate) fn forget(start: NonNull<c_void>) {
    let start = start.as_ptr().expose_provenance();
    if let Some(place) = MAPPED.iter().find(|place| place.start.load(Ordering::Relaxed) == start) {
        place.start.store(0, Ordering::Relaxed);
    }
}

/// Runs `set` in one thread, and makes all others wait until it is done. A thread that went on earlier could touch a
/// truncated region before there is a handler. The wait is bounded: in a child forked meanwhile no thread finishes the
/// work.
fn run_once(state: &AtomicU8, set: impl FnOnce()) {
    // Acquire and Release: a thread that finds `SET` sees all writes of `set`.
    match state.compare_exchange(UNSET, BEING_SET, Ordering::Acquire, Ordering::Acquire) {
        Ok(_) => set(),
        Err(SET) => return,
        Err(_) => {
            let mut backoff = Backoff::new(backoff::JOINING);
            while state.load(Ordering::Acquire) != SET && backoff.wait() {}
        }
    }
    state.store(SET, Ordering::Release);
}

/// Sets the library's handler before the present action.
///
/// The present action is stored first, because the handler may run as soon as it is set. Another thread of the program may
/// set an action between the two system calls. The function then stores that action instead.
fn set_handler() {
    let Some(before) = exchange(None) else { return };
    let ours = action_before(&before);
    BEFORE.store(Box::into_raw(Box::new(before)), Ordering::Release);
    // Another thread may have set another action between the two calls.
    if let Some(found) = exchange(Some(&ours))
        && (found.sa_sigaction, found.sa_flags) != (before.sa_sigaction, before.sa_flags)
    {
        BEFORE.store(Box::into_raw(Box::new(found)), Ordering::Release);
    }
}

/// Returns the library's action. The kernel delivers it on the stack and with the blocked signals of the action behind it.
fn action_before(before: &sigaction) -> sigaction {
    let mut ours = *before;
    let kept = match before.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => SA_ONSTACK | SA_RESTART,
        _ => before.sa_flags & (SA_ONSTACK | SA_NODEFER | SA_RESTART),
    };
    let handler: Handler = on_bus_error;
    ours.sa_sigaction = handler as usize;
    ours.sa_flags = SA_SIGINFO | kept;
    ours
}

/// Reads the action of the signal, and sets `new` if there is one. `None`: the system call failed.
fn exchange(new: Option<&sigaction>) -> Option<sigaction> {
    // SAFETY: `sigaction` is plain data, for which all zeroes are a valid value.
    let mut old: sigaction = unsafe { mem::zeroed() };
    let new = new.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: `sigaction` needs null or a valid action, and room for an action. `new` is null or from a reference, and
    // `old` is the room.
    (unsafe { sigaction(libc::SIGBUS, new, &raw mut old) } == 0).then_some(old)
}

/// The signal handler.
///
/// It only reads atomics and makes system calls, because it may interrupt any code, `malloc` included. After a fault in a
/// protected mapping it maps zeroes. It forwards to the program a `SIGBUS` that was sent to the library's own thread. All
/// others go to the earlier action.
///
/// # Safety
/// Only the kernel calls it, with the arguments of a signal delivery.
unsafe extern "C-unwind" fn on_bus_error(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: `as_ref` needs null or a valid pointer. The kernel passes a pointer to the `siginfo_t` on this thread's
    // stack.
    let Some(said) = (unsafe { info.as_ref() }) else { return };
    if said.si_code > 0 {
        // SAFETY: `si_addr` needs a signal with an address. `si_code > 0` says that the kernel raised this `SIGBUS`,
        // which has one.
        let address = unsafe { said.si_addr() }.expose_provenance();
        if range_of(address).is_some_and(map_zeroes) {
            return;
        }
    }
    // SAFETY: `forward` needs the arguments of a signal delivery, and these are the ones that the kernel passed to this
    // handler.
    if unsafe { sigbus_forwarding::forward(info, context) } {
        return;
    }
    // SAFETY: `as_ref` needs null or a valid pointer. `BEFORE` is null or a leaked `Box`, which is never freed.
    let before = unsafe { BEFORE.load(Ordering::Acquire).as_ref() };
    let Some(before) = before.filter(|_| !SPENT.load(Ordering::Relaxed)) else {
        return deliver_default(signal, said);
    };
    match before.sa_sigaction {
        libc::SIG_DFL => deliver_default(signal, said),
        // The kernel does not let a program ignore a fault.
        libc::SIG_IGN if is_fault(said) => deliver_default(signal, said),
        libc::SIG_IGN => {}
        handler => {
            SPENT.fetch_or(before.sa_flags & SA_RESETHAND != 0, Ordering::Relaxed);
            // SAFETY: the address is neither `SIG_DFL` nor `SIG_IGN`, so the program set it as a handler of this
            // signal. A handler without `SA_SIGINFO` reads the first argument only; the others do no harm.
            let handler = unsafe { mem::transmute::<usize, Handler>(handler) };
            // SAFETY: a handler needs the arguments of a signal delivery, and these are the ones that the kernel passed
            // to this handler.
            unsafe { handler(signal, info, context) };
        }
    }
}

/// Tells whether an instruction of this thread raised the signal. If the handler changes nothing, the instruction
/// raises the signal again.
fn is_fault(said: &siginfo_t) -> bool {
    said.si_code > 0 && said.si_code != libc::BUS_MCEERR_AO
}

/// Returns the start and length of the protected mapping that contains `address`.
fn range_of(address: usize) -> Option<(usize, usize)> {
    // Acquire: pairs with the store in `protect`.
    let places = MAPPED.iter().map(|place| {
        let start = place.start.load(Ordering::Acquire);
        (start, place.length.load(Ordering::Relaxed))
    });
    places.filter(|(start, _)| *start > TAKEN).find(|(start, length)| address.wrapping_sub(*start) < *length)
}

/// Maps zeroes over a range. Makes the system call directly: an `mmap` that another library interposes may not be safe
/// in a signal handler.
fn map_zeroes((start, length): (usize, usize)) -> bool {
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let (rights, none, offset) = (libc::PROT_READ | libc::PROT_WRITE, -1_i32, 0_usize);
    // SAFETY: `__errno_location` has no requirement; it returns this thread's own variable.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: `errno` points to this thread's own variable, which lives as long as the thread.
    let saved = unsafe { *errno };
    // SAFETY: `MAP_FIXED` replaces the mapping at `start`. `range_of` found it in the table, so it is the library's and `length`
    // bytes long. Its words are atomics, which may change to any value at any time.
    let result = unsafe { libc::syscall(libc::SYS_mmap, start, length, rights, kind, none, offset) };
    // SAFETY: `errno` points to this thread's own variable, which lives as long as the thread.
    unsafe { *errno = saved };
    result != -1
}

/// Delivers the signal with the default action. The instruction of a fault raises the signal again as soon as the handler
/// returns. Any other signal is sent to this thread again.
fn deliver_default(signal: c_int, said: &siginfo_t) {
    // SAFETY: `sigaction` is plain data, for which all zeroes are a valid value: the default action.
    let default: sigaction = unsafe { mem::zeroed() };
    exchange(Some(&default));
    if is_fault(said) {
        return;
    }
    // SAFETY: `getpid` has no arguments and cannot fail.
    let process = unsafe { libc::getpid() };
    // SAFETY: `gettid` has no arguments and cannot fail.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) };
    // SAFETY: `tgkill` takes numbers only.
    unsafe { libc::syscall(libc::SYS_tgkill, process, thread, signal) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::mpsc, thread, time::Duration};

    #[test]
    fn threads_wait_until_the_first_of_them_has_set_the_handler() {
        const LATE: usize = 4;
        let state = AtomicU8::new(UNSET);
        let is_set = AtomicBool::new(false);
        let (begun, begins) = mpsc::channel();
        let (comes, come) = mpsc::channel();
        thread::scope(|scope| {
            let (state, is_set) = (&state, &is_set);
            scope.spawn(move || {
                run_once(state, || {
                    begun.send(()).unwrap();
                    come.iter().take(LATE).for_each(drop);
                    thread::sleep(Duration::from_millis(20));
                    is_set.store(true, Ordering::Relaxed);
                });
            });
            begins.recv().unwrap();
            let late = |comes: mpsc::Sender<()>| {
                scope.spawn(move || {
                    comes.send(()).unwrap();
                    run_once(state, || unreachable!("it is being set"));
                    is_set.load(Ordering::Relaxed)
                })
            };
            let threads: Vec<_> = (0..LATE).map(|_| late(comes.clone())).collect();
            assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
        });
        run_once(&state, || unreachable!("it is set"));
    }

    #[test]
    fn a_forked_child_does_not_wait_for_ever_for_a_thread_of_its_parent() {
        let state = AtomicU8::new(BEING_SET);
        run_once(&state, || unreachable!("another thread began"));
        assert_eq!(state.load(Ordering::Relaxed), SET);
    }
}
