//! What do people see while a command takes its time?
//!
//! One line on standard error, written over once a second, and only where that is a terminal.

use std::io::{self, IsTerminal as _, Write as _};
use std::thread;
use std::time::{Duration, Instant};

/// What takes no longer needs no words.
const SHORT: Duration = Duration::from_secs(1);
/// How often the line is written anew.
const STEP: Duration = Duration::from_secs(1);

/// Waits for so long, and says for what.
pub(crate) fn wait(what: &str, long: Duration) {
    let mut out = io::stderr();
    if long <= SHORT || !out.is_terminal() {
        return thread::sleep(long);
    }
    let end = Instant::now() + long;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        let _nobody_looks = write!(out, "\r\x1b[K{what}: {} s left", left.as_secs_f64().ceil());
        thread::sleep(left.min(STEP));
    }
    let _nobody_looks = write!(out, "\r\x1b[K");
}
