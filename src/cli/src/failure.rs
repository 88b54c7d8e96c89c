//! How does a command say that it could not do what it was asked for?

use crate::arguments::Memory;
use crate::figures::printable;
use gpuslice_policy::config::in_powers_of_1000;
use gpuslice_region::RegionError;
use serde::Serialize;
use std::io::{self, IsTerminal as _, Write as _};

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What is said on standard error, how to mend it included, and the exit code.
    Message {
        /// One line, without the program's name.
        text: String,
        /// The exit code.
        code: u8,
    },
    /// Whoever read standard output has seen enough.
    ReaderGone,
}

impl Failure {
    /// The usual failure.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self::with_code(text, 1)
    }

    /// With words in front of it.
    pub(crate) fn behind(self, words: &str) -> Self {
        match self {
            Self::Message { text, code } => Self::Message { text: format!("{words}{text}"), code },
            other => other,
        }
    }

    /// A failure with an exit code of its own.
    pub(crate) fn with_code(text: impl Into<String>, code: u8) -> Self {
        Self::Message { text: text.into(), code }
    }

    /// The same failure with another exit code.
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

/// What a library says of its failure, as it is.
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

/// Writes a document for programs to standard output.
pub(crate) fn print_json(document: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(document);
    print(&format!("{}\n", text.map_err(|error| Failure::new(error.to_string()))?))
}

/// Says something on standard error that stops nothing.
pub(crate) fn note(text: &str) {
    complain(&format!("gpuslice: {}\n", printable(text)));
}

/// Says to a person at a terminal what a quota in powers of 1000 means.
pub(crate) fn remark(memory: &Memory) {
    let meaning = in_powers_of_1000(&memory.text).filter(|_| io::stderr().is_terminal());
    if let Some(meaning) = meaning {
        note(&meaning);
    }
}

/// Writes to standard error, as it is. Who does not listen is told by the exit code alone.
pub(crate) fn complain(text: &str) {
    let _nobody_listens = io::stderr().write_all(text.as_bytes());
}
