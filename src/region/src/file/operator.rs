//! What do the operator's files say?
//!
//! They are read by whoever the settings concern: the library in a program, and a command that is to find the region that
//! the library would.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use gpuslice_policy::config::{self, FileRead, OperatorFiles};

/// A file as it was found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Contents {
    /// There is none.
    #[default]
    Absent,
    /// It could not be read, for this reason.
    Unreadable(String),
    /// What is in it.
    Read(Vec<u8>),
}

impl Contents {
    /// Reads a file.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        let read = |file: File| {
            let mut contents = Vec::new();
            // One byte more than allowed, so that the reader sees what is too long.
            file.take(config::MAX_FILE_BYTES.saturating_add(1)).read_to_end(&mut contents)?;
            Ok(contents)
        };
        match File::open(path).and_then(read) {
            Ok(contents) => Self::Read(contents),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::Absent,
            Err(error) => Self::Unreadable(error.to_string()),
        }
    }

    fn as_read(&self) -> FileRead<'_> {
        match self {
            Self::Absent => FileRead::Absent,
            Self::Unreadable(why) => FileRead::Unreadable(why),
            Self::Read(contents) => FileRead::Contents(contents),
        }
    }
}

/// The operator's files as they were found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Operator {
    /// The one that `GPUSLICE_CONFIG` names.
    pub named: Contents,
    /// The one at [`config::FIXED_FILE`].
    pub fixed: Contents,
}

impl Operator {
    /// Reads them; `env` is asked for variables by name.
    #[must_use]
    pub fn look(env: &dyn Fn(&str) -> Option<Vec<u8>>) -> Self {
        let named = config::operator_file(env).ok().flatten();
        Self {
            named: named.map_or(Contents::Absent, |path| Contents::of(&path)),
            fixed: Contents::of(Path::new(config::FIXED_FILE)),
        }
    }

    /// As a configuration is made of them.
    #[must_use]
    pub fn files(&self) -> OperatorFiles<'_> {
        OperatorFiles { named: self.named.as_read(), fixed: self.fixed.as_read() }
    }
}
