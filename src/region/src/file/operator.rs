//! Reads the operator's configuration files.
//!
//! Two kinds of programs read them: the library in a program, and commands that look for the region of that library.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use gpuslice_policy::config::{self, FileRead, OperatorFiles};

/// Result of reading one file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Contents {
    /// The file does not exist.
    #[default]
    Absent,
    /// The file could not be read, for this reason.
    Unreadable(String),
    /// The bytes of the file.
    Read(Vec<u8>),
}

impl Contents {
    /// Reads a file.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        match File::open(path) {
            Ok(file) => Self::from_file(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::Absent,
            Err(error) => Self::Unreadable(error.to_string()),
        }
    }

    /// Reads a file that was opened.
    #[must_use]
    pub fn from_file(file: File) -> Self {
        let mut contents = Vec::new();
        // One byte more than allowed, so that the parser notices a file that is too long.
        match file.take(config::MAX_FILE_BYTES.saturating_add(1)).read_to_end(&mut contents) {
            Ok(_) => Self::Read(contents),
            Err(error) => Self::Unreadable(error.to_string()),
        }
    }

    /// Returns the contents, for the parser.
    #[must_use]
    pub fn as_read(&self) -> FileRead<'_> {
        match self {
            Self::Absent => FileRead::Absent,
            Self::Unreadable(why) => FileRead::Unreadable(why),
            Self::Read(contents) => FileRead::Contents(contents),
        }
    }
}

/// The operator's files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Operator {
    /// The file that `GPUSLICE_CONFIG` names.
    pub named: Contents,
    /// The file at [`config::FIXED_FILE`].
    pub fixed: Contents,
}

impl Operator {
    /// Reads the files. `env` returns the value of a variable.
    #[must_use]
    pub fn look(env: &dyn Fn(&str) -> Option<Vec<u8>>) -> Self {
        let named = config::operator_file(env).ok().flatten();
        Self {
            named: named.map_or(Contents::Absent, |path| Contents::of(&path)),
            fixed: Contents::of(Path::new(config::FIXED_FILE)),
        }
    }

    /// Returns the files in the form that [`config::Config`] needs.
    #[must_use]
    pub fn files(&self) -> OperatorFiles<'_> {
        OperatorFiles { named: self.named.as_read(), fixed: self.fixed.as_read() }
    }
}
