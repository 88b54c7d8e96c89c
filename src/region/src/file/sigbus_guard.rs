//! What becomes of a process whose region is shortened under it?
//!
//! A region is meant here, and the [table of chairs](crate::Chairs), which is mapped as regions are.
//!
//! Memory that lies behind the end of its file cannot be touched: the kernel sends `SIGBUS`, which ends a program.
//! No look beforehand helps, since the file can be shortened after any look, and no file that has a name can be
//! kept from it. So whoever maps a region has a handler for `SIGBUS`. If the address lies in a region, zeroes are
//! mapped over the whole of it and the instruction runs again. In zeroes every limit is 0, so nothing is granted
//! any more, and [`Member::check`](crate::Member::check) says what happened.
//!
//! Every other `SIGBUS` goes to whom it went before, as the kernel would have delivered it: same stack, same
//! blocked signals, same arguments. A program that sets a handler of its own later has it, and loses ours. What
//! also cannot be helped: a thread that blocks `SIGBUS` is ended by the kernel without asking anybody.

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

/// Regions that one process maps at most: itself one, and one more for each it looks at. Those beyond are not kept
/// from ending the process.
const MOST: usize = 1024;

/// Where something is mapped.
struct ProtectedRange {
    /// Its address: 0 is nowhere, [`TAKEN`] not yet known.
    start: AtomicUsize,
    /// Its bytes. Written before the address.
    length: AtomicUsize,
}

/// An address that nothing is mapped at.
const TAKEN: usize = 1;

static MAPPED: [ProtectedRange; MOST] =
    [const { ProtectedRange { start: AtomicUsize::new(0), length: AtomicUsize::new(0) } }; MOST];

/// How far the handler is: [`UNSET`], [`BEING_SET`] or [`SET`]. It is set once in a process and its forked children, so that it
/// can never come to stand behind a handler which it stands before.
static HANDLER: AtomicU8 = AtomicU8::new(UNSET);
const UNSET: u8 = 0;
const BEING_SET: u8 = 1;
const SET: u8 = 2;

/// What was done about the signal before us.
static BEFORE: AtomicPtr<sigaction> = AtomicPtr::new(ptr::null_mut());

/// Whether a handler that wanted to be called once has been called.
static SPENT: AtomicBool = AtomicBool::new(false);

/// How a handler is called. One that unwinds or jumps out of it may do so: nothing here needs to be ended.
type Handler = unsafe extern "C-unwind" fn(c_int, *mut siginfo_t, *mut c_void);

/// Takes so many bytes at this address into protection, and tells whether there was room for it.
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

/// Ends the protection, before the region is unmapped.
pub(crate) fn forget(start: NonNull<c_void>) {
    let start = start.as_ptr().expose_provenance();
    if let Some(place) = MAPPED.iter().find(|place| place.start.load(Ordering::Relaxed) == start) {
        place.start.store(0, Ordering::Relaxed);
    }
}

/// Lets one thread `set` something, and all others wait until it is set: a thread that went on could touch a region that is
/// shortened before there is a handler. They do not wait for ever: in a child that was forked meanwhile nobody sets it any more.
fn run_once(state: &AtomicU8, set: impl FnOnce()) {
    // Acquire and Release: who finds it set finds what was set as well.
    match state.compare_exchange(UNSET, BEING_SET, Ordering::Acquire, Ordering::Acquire) {
        Ok(_) => set(),
        Err(SET) => return,
        Err(_) => {
            let mut patience = Backoff::new(backoff::JOINING);
            while state.load(Ordering::Acquire) != SET && patience.wait() {}
        }
    }
    state.store(SET, Ordering::Release);
}

/// Puts our handler before whatever there is.
fn set_handler() {
    let Some(before) = exchange(None) else { return };
    let ours = action_before(&before);
    BEFORE.store(Box::into_raw(Box::new(before)), Ordering::Release);
    // Between the two calls another thread may have set another one.
    if let Some(found) = exchange(Some(&ours))
        && (found.sa_sigaction, found.sa_flags) != (before.sa_sigaction, before.sa_flags)
    {
        BEFORE.store(Box::into_raw(Box::new(found)), Ordering::Release);
    }
}

/// Our action, which the kernel delivers on the stack and with the blocked signals of the one behind it.
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

/// What is done about the signal; sets something else if there is one.
fn exchange(new: Option<&sigaction>) -> Option<sigaction> {
    // SAFETY: plain memory, of which all zeroes are a valid value.
    let mut old: sigaction = unsafe { mem::zeroed() };
    let new = new.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: null or a valid action, and room for one.
    (unsafe { sigaction(libc::SIGBUS, new, &raw mut old) } == 0).then_some(old)
}

/// The handler. It only loads words and makes system calls, and so may interrupt anything.
///
/// # Safety
/// Called by the kernel, with its arguments.
unsafe extern "C-unwind" fn on_bus_error(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: null, or what the kernel says of the signal.
    let Some(said) = (unsafe { info.as_ref() }) else { return };
    if said.si_code > 0 {
        // SAFETY: the kernel sent it, so it has an address.
        let address = unsafe { said.si_addr() }.expose_provenance();
        if range_of(address).is_some_and(map_zeroes) {
            return;
        }
    }
    // SAFETY: the kernel's own arguments.
    if unsafe { sigbus_forwarding::forward(info, context) } {
        return;
    }
    // SAFETY: null, or an action that is never freed.
    let before = unsafe { BEFORE.load(Ordering::Acquire).as_ref() };
    let Some(before) = before.filter(|_| !SPENT.load(Ordering::Relaxed)) else {
        return deliver_default(signal, said);
    };
    match before.sa_sigaction {
        libc::SIG_DFL => deliver_default(signal, said),
        // The kernel does not let a fault be ignored.
        libc::SIG_IGN if is_fault(said) => deliver_default(signal, said),
        libc::SIG_IGN => {}
        handler => {
            SPENT.fetch_or(before.sa_flags & SA_RESETHAND != 0, Ordering::Relaxed);
            // SAFETY: the program set this address as a handler of this signal. Without `SA_SIGINFO` it takes the
            // first argument only, and the others do no harm.
            let handler = unsafe { mem::transmute::<usize, Handler>(handler) };
            // SAFETY: the kernel's own arguments.
            unsafe { handler(signal, info, context) };
        }
    }
}

/// Whether an instruction of this thread caused the signal, which then causes it again if nothing is done.
fn is_fault(said: &siginfo_t) -> bool {
    said.si_code > 0 && said.si_code != libc::BUS_MCEERR_AO
}

/// Start and length of what an address lies in.
fn range_of(address: usize) -> Option<(usize, usize)> {
    // Acquire: pairs with the store in `protect`.
    let places = MAPPED.iter().map(|place| {
        let start = place.start.load(Ordering::Acquire);
        (start, place.length.load(Ordering::Relaxed))
    });
    places.filter(|(start, _)| *start > TAKEN).find(|(start, length)| address.wrapping_sub(*start) < *length)
}

/// Maps zeroes over it. By the system call itself: others' `mmap` may do more than is allowed here.
fn map_zeroes((start, length): (usize, usize)) -> bool {
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let (rights, none, offset) = (libc::PROT_READ | libc::PROT_WRITE, -1_i32, 0_usize);
    // SAFETY: this thread's own.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let saved = unsafe { *errno };
    // SAFETY: a mapping of ours lies there, this long, whose words may change to anything at any time.
    let result = unsafe { libc::syscall(libc::SYS_mmap, start, length, rights, kind, none, offset) };
    // SAFETY: as above.
    unsafe { *errno = saved };
    result != -1
}

/// Lets the signal do what it does to a program without a handler. A fault comes again as soon as this returns; any
/// other signal is sent to this thread again.
fn deliver_default(signal: c_int, said: &siginfo_t) {
    // SAFETY: plain memory, of which all zeroes are a valid value: the default.
    let default: sigaction = unsafe { mem::zeroed() };
    exchange(Some(&default));
    if is_fault(said) {
        return;
    }
    // SAFETY: asks for a number.
    let process = unsafe { libc::getpid() };
    // SAFETY: as above.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) };
    // SAFETY: numbers only.
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
    fn nobody_waits_for_ever_for_a_thread_that_a_forked_child_does_not_have() {
        let state = AtomicU8::new(BEING_SET);
        run_once(&state, || unreachable!("another thread began"));
        assert_eq!(state.load(Ordering::Relaxed), SET);
    }
}
