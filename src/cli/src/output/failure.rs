//! Failures of commands, and output to standard output and standard error.

use crate::arguments::Memory;
use gpuslice_policy::config::in_powers_of_1000;
use gpuslice_region::RegionError;
use gpuslice_slices::figures::printable;
use gpuslice_slices::slot::Problem;
use serde::Serialize;
use std::io::{self, IsTerminal as _, Write as _};

/// Reason why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A message for standard error, and the exit code. The message names the remedy.
    Message {
        /// One line, without the program's name.
        text: String,
        /// The exit code.
        code: u8,
    },
    /// The reader of standard output has closed it.
    ReaderGone,
}

impl Failure {
    /// Returns a failure with exit code 1.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self::with_code(text, 1)
    }

    /// Returns the failure with `words` in front of its text.
    pub(crate) fn behind(self, words: &str) -> Self {
        match self {
            Self::Message { text, code } => Self::Message { text: format!("{words}{text}"), code },
            other => other,
        }
    }

    /// Returns a failure with its own exit code.
    pub(crate) fn with_code(text: impl Into<String>, code: u8) -> Self {
        Self::Message { text: text.into(), code }
    }

    /// Returns the failure with another exit code.
    pub(crate) fn coded(self, code: u8) -> Self {
        match self {
            Self::Message { text, .. } => Self::Message { text, code },
            Self::ReaderGone => self,
        }
    }
}

impl From<RegionError> for Failure {
    fn from(error: RegionError) -> Self {
        Self::new(error.to_string())
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Self::new(problem.to_string())
    }
}

/// Uses the text of a library's failure without a change.
impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self::new(text)
    }
}

/// Writes to standard output.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut output = io::stdout().lock();
    match output.write_all(text.as_bytes()).and_then(|()| output.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::ReaderGone),
        Err(error) => Err(Failure::new(format!("standard output cannot be written: {error}"))),
    }
}

/// Writes a JSON document to standard output.
pub(crate) fn print_json(document: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(document);
    print(&format!("{}\n", text.map_err(|error| Failure::new(error.to_string()))?))
}

/// Prints a line on standard error. The command goes on.
pub(crate) fn note(text: &str) {
    complain(&format!("gpuslice: {}\n", printable(text)));
}

/// If standard error is a terminal, explains a quota that is written in powers of 1000.
pub(crate) fn remark(memory: &Memory) {
    let meaning = in_powers_of_1000(&memory.text).filter(|_| io::stderr().is_terminal());
    if let Some(meaning) = meaning {
        note(&meaning);
    }
}

/// Writes a text to standard error without a change. If the write fails, only the exit code tells of the failure.
pub(crate) fn complain(text: &str) {
    let _nobody_listens = io::stderr().write_all(text.as_bytes());
}
