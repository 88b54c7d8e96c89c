//! How does the library speak to the person behind the program?
//!
//! A message is one line, written with one call, at most a few in a process's life. A reader that has gone away
//! must not end the program, so `SIGPIPE` stays away from it.

use core::fmt::Display;
use gpuslice_policy::config::{Log, LogLevel};
use once_cell::race::OnceBox;
use std::fs::OpenOptions;
use std::io::Write;
use std::{mem, ptr};

/// How much is said and where; nothing before the settings are read.
static LOG: OnceBox<Log> = OnceBox::new();

/// Says what was set about messages.
pub(crate) fn set(log: Log) {
    let _already = LOG.set(Box::new(log));
}

/// Writes a message that has its `gpuslice: ` already, if messages of this level are wanted.
pub(crate) fn say(level: LogLevel, message: &dyn Display) {
    let Some(log) = LOG.get() else { return };
    if !log.level.admits(level) {
        return;
    }
    let line = format!("{message}\n");
    match &log.path {
        None => write(libc::STDERR_FILENO, line.as_bytes()),
        Some(path) => {
            if let Ok(file) = OpenOptions::new().append(true).create(true).open(path) {
                let _lost = (&file).write_all(line.as_bytes());
            }
        }
    }
}

/// The same of a text that ends its line itself, without any memory. In a file of the log it is not found.
pub(crate) fn say_plainly(level: LogLevel, line: &str) {
    if LOG.get().is_some_and(|log| log.level.admits(level)) {
        write(libc::STDERR_FILENO, line.as_bytes());
    }
}

/// Writes past the Rust library's locks and past `SIGPIPE`; a line that cannot be written is lost. So is one for which a pipe
/// has no room: the program must not wait for a reader that it does not have.
fn write(descriptor: i32, line: &[u8]) {
    let mut room = libc::pollfd { fd: descriptor, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one valid entry; returns at once.
    if unsafe { libc::poll(&raw mut room, 1, 0) } == 0 {
        return;
    }
    without_sigpipe(|| {
        // SAFETY: reads `line.len()` bytes from a slice of that length.
        unsafe { libc::write(descriptor, line.as_ptr().cast(), line.len()) };
    });
}

/// Runs `work` with `SIGPIPE` held back on this thread, and takes back the one that it caused.
fn without_sigpipe(work: impl FnOnce()) {
    // SAFETY: a signal set is plain memory, and all zeroes is a valid one.
    let mut pipe: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: as above.
    let mut before: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: as above.
    let mut pending: libc::sigset_t = unsafe { mem::zeroed() };
    // SAFETY: a valid set and a valid signal.
    unsafe { libc::sigaddset(&raw mut pipe, libc::SIGPIPE) };
    // SAFETY: writes to a valid set.
    unsafe { libc::sigpending(&raw mut pending) };
    // SAFETY: a valid set and a valid signal.
    let was_pending = unsafe { libc::sigismember(&raw const pending, libc::SIGPIPE) } == 1;
    // SAFETY: valid sets; the mask of this thread is put back below.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const pipe, &raw mut before) };
    work();
    if !was_pending {
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: valid set and time; returns at once.
        unsafe { libc::sigtimedwait(&raw const pipe, ptr::null_mut(), &raw const now) };
    }
    // SAFETY: the mask that was in force before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
}
