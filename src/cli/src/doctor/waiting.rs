//! What do people see while a child is waited for?
//!
//! One line on standard error, as of other commands that take their time, and only where that is a terminal.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

/// What takes no longer needs no words.
const SHORT: Duration = Duration::from_secs(1);

/// The line: gone when this is dropped.
#[derive(Debug)]
pub(super) struct Line {
    what: &'static str,
    /// The seconds that it shows, where it is shown.
    shown: Option<u64>,
}

impl Line {
    /// A line that says what is waited for.
    pub(super) fn new(what: &'static str) -> Self {
        Self { what, shown: None }
    }

    /// Says it, after so long a wait, of which so much may still come.
    pub(super) fn update(&mut self, waited: Duration, left: Duration) {
        let seconds = left.as_secs().saturating_add(1);
        let mut out = io::stderr();
        if waited < SHORT || self.shown == Some(seconds) || !out.is_terminal() {
            return;
        }
        self.shown = Some(seconds);
        let _nobody_looks = write!(out, "\r\x1b[K{}: up to {seconds} s more", self.what);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if self.shown.is_some() {
            let _nobody_looks = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
