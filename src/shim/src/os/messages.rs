//! Log messages for the user of the program.
//!
//! A message is one line, written with one call. A process writes a few of them in its life. A reader that has ended, or a file
//! that may not grow, must not end the program. So the library blocks the signals of such writes during the call.

use super::signals::without_signals_of_writes;
use core::fmt::Display;
use gpuslice_policy::config::{Log, LogLevel};
use gpuslice_policy::time::WallTime;
use once_cell::race::OnceBox;
use std::fs::OpenOptions;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;

/// Time between two messages of one kind about denied memory. A program tries again and again.
pub(crate) const MESSAGE_PAUSE: WallTime = WallTime::from_millis(60_000);

/// Level and destination of messages. Empty before the settings are read: nothing is written then.
static LOG: OnceBox<Log> = OnceBox::new();

/// Sets the level and the destination, once.
pub(crate) fn set(log: Log) {
    let _already = LOG.set(Box::new(log));
}

/// Writes a message if the settings admit messages of this level. The message begins with `gpuslice: `.
pub(crate) fn say(level: LogLevel, message: &dyn Display) {
    let Some(log) = LOG.get() else { return };
    if !log.level.admits(level) {
        return;
    }
    let line = format!("{message}\n");
    match &log.path {
        None => write(libc::STDERR_FILENO, line.as_bytes()),
        Some(path) => {
            // The path may lead to a pipe, such as `/dev/stdout`.
            let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
            if let Ok(file) = OpenOptions::new().append(true).create(true).custom_flags(flags).open(path) {
                write(file.as_raw_fd(), line.as_bytes());
            }
        }
    }
}

/// Writes a text to standard error without allocation. The text ends its line itself. The log file does not get it.
pub(crate) fn say_plainly(level: LogLevel, line: &str) {
    if LOG.get().is_some_and(|log| log.level.admits(level)) {
        write(libc::STDERR_FILENO, line.as_bytes());
    }
}

/// Writes without the standard library's locks and without signals of a failed write. A line that cannot be written is lost. A
/// line for which a pipe has no room is lost too: the program must not wait for its reader.
fn write(descriptor: i32, line: &[u8]) {
    let mut room = libc::pollfd { fd: descriptor, events: libc::POLLOUT, revents: 0 };
    // SAFETY: `poll` needs one valid entry, `room`; with timeout 0 it returns at once.
    if unsafe { libc::poll(&raw mut room, 1, 0) } == 0 {
        return;
    }
    without_signals_of_writes(|| {
        // SAFETY: `write` reads `line.len()` bytes from `line`, which has as many.
        unsafe { libc::write(descriptor, line.as_ptr().cast(), line.len()) };
    });
}
