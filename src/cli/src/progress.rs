//! What do people see while a command takes its time?
//!
//! One line on standard error, written over, and only where that is a terminal.

use std::io::{self, IsTerminal as _, Write as _};
use std::thread;
use std::time::{Duration, Instant};

/// What takes no longer needs no words.
pub(crate) const SHORT: Duration = Duration::from_secs(1);
/// How often the line is written anew.
const STEP: Duration = Duration::from_secs(1);

/// The line: gone when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Line {
    /// What it shows, where it is shown.
    shown: Option<String>,
}

impl Line {
    /// Shows this instead of what it showed.
    pub(crate) fn show(&mut self, text: String) {
        let mut out = io::stderr();
        if self.shown.as_ref() == Some(&text) || !out.is_terminal() {
            return;
        }
        let _nobody_looks = write!(out, "\r\x1b[K{text}");
        self.shown = Some(text);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.shown.is_some() {
            let _nobody_looks = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// Waits for so long, and says for what.
pub(crate) fn wait(what: &str, long: Duration) {
    if long <= SHORT {
        return thread::sleep(long);
    }
    let (end, mut line) = (Instant::now() + long, Line::default());
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        line.show(format!("{what}: {} s left", left.as_secs_f64().ceil()));
        thread::sleep(left.min(STEP));
    }
}
