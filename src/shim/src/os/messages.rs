//! Log messages for the user of the program.
//!
//! A message is one line, written with one call. A process writes only a few messages. A write to a pipe whose reader has ended,
//! or to a file that may not grow, raises a signal, which could end the program. So the library blocks these signals during the
//! call.

use super::signals::without_signals_of_writes;
use core::fmt::Display;
use gpuslice_policy::config::{Log, LogLevel};
use gpuslice_policy::time::WallTime;
use once_cell::race::OnceBox;
use std::fs::OpenOptions;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;

/// Least time between two messages of one kind about denied memory, because a program may repeat a denied request many times.
pub(crate) const MESSAGE_PAUSE: WallTime = WallTime::from_millis(60_000);

/// Level and destination of messages. Empty before the settings are read; until then the library writes no message.
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
            // The path may name a pipe, such as `/dev/stdout`. So the opening must not wait for a reader.
            let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
            if let Ok(file) = OpenOptions::new().append(true).create(true).custom_flags(flags).open(path) {
                write(file.as_raw_fd(), line.as_bytes());
            }
        }
    }
}

/// Writes a text to standard error without allocation. The text must end with a newline. It does not go to the log file.
pub(crate) fn say_plainly(level: LogLevel, line: &str) {
    if LOG.get().is_some_and(|log| log.level.admits(level)) {
        write(libc::STDERR_FILENO, line.as_bytes());
    }
}

/// Writes without the standard library's locks and without signals of a failed write. A line that cannot be written is lost. A
/// line for which a pipe has no room is lost too, because the program must not wait for the reader of the pipe.
fn write(descriptor: i32, line: &[u8]) {
    let mut room = libc::pollfd { fd: descriptor, events: libc::POLLOUT, revents: 0 };
    // SAFETY: `poll` requires as many valid entries as its second argument says: the one local `room`.
    if unsafe { libc::poll(&raw mut room, 1, 0) } == 0 {
        return;
    }
    without_signals_of_writes(|| {
        // SAFETY: `write` requires `line.len()` readable bytes: `line` has as many.
        unsafe { libc::write(descriptor, line.as_ptr().cast(), line.len()) };
    });
}
