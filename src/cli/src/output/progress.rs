//! Progress line of a command that takes some time.
//!
//! The line is on standard error, and only if that is a terminal. Each text replaces the one before.

use std::io::{self, IsTerminal as _, Write as _};
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait that shows no progress line.
pub(crate) const SHORT: Duration = Duration::from_secs(1);
/// Time between two updates of the line.
const UPDATE_PERIOD: Duration = Duration::from_secs(1);

/// The progress line. Dropping this value erases the line.
#[derive(Debug, Default)]
pub(crate) struct ProgressLine {
    /// The text that is on the terminal at present.
    shown: Option<String>,
}

impl ProgressLine {
    /// Shows `text` in the line.
    pub(crate) fn show(&mut self, text: String) {
        let mut out = io::stderr();
        if self.shown.as_ref() == Some(&text) || !out.is_terminal() {
            return;
        }
        let _nobody_looks = write!(out, "\r\x1b[K{text}");
        self.shown = Some(text);
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if self.shown.is_some() {
            let _nobody_looks = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// Waits for the time `long`. Shows `what` with the remaining time.
pub(crate) fn wait(what: &str, long: Duration) {
    if long <= SHORT {
        return thread::sleep(long);
    }
    let (end, mut line) = (Instant::now() + long, ProgressLine::default());
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        line.show(format!("{what}: {} s left", left.as_secs_f64().ceil()));
        thread::sleep(left.min(UPDATE_PERIOD));
    }
}
