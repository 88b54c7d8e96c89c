//! What is said about a configuration, word for word? Every line that a user can read about one is here.
//!
//! Each line begins with `gpuslice: `, is printable ASCII, names where the value was said, the value
//! (shortened, the rest escaped), and what would be right. None ends with a newline.

use core::error::Error;
use core::fmt;

use super::choices::LogLevel;
use super::faults::{Fault, SHOWN_BYTES, ValueError, quoted, shortened};
use crate::units::Bytes;

/// How every line begins.
const PREFIX: &str = "gpuslice: ";

/// What follows from a limit that cannot be honoured; how such a line ends.
const REFUSED: &str = "GPU work is refused.";

/// How much of a file's name is repeated.
const SHOWN_PATH_BYTES: usize = 256;

/// Where a value was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// In the environment.
    Environment,
    /// In a line of a file, counted from one.
    Line {
        /// The file's name.
        file: String,
        /// The line's number.
        line: usize,
    },
}

/// A value as it was said, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Said {
    /// Where.
    pub origin: Origin,
    /// The variable.
    pub key: String,
    /// All of its value.
    pub value: Vec<u8>,
}

/// A value that cannot be honoured. With one of these, GPU work is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    /// The value.
    pub said: Box<Said>,
    /// What is wrong with it.
    pub error: ValueError,
}

impl Malformed {
    pub(super) fn new(said: Said, error: impl Into<ValueError>) -> Self {
        Self { said: Box::new(said), error: error.into() }
    }

    /// A value that cannot be read, for the reason that its quotes or a comment give where it has these.
    pub(super) fn unread(said: Said, error: impl Into<ValueError>) -> Self {
        let error = said.surrounds().map_or_else(|| error.into(), ValueError::from);
        Self::new(said, error)
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{} {}. {REFUSED}", self.said, self.error)
    }
}

impl Error for Malformed {}

/// Something that the user should know and that stops nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// A variable of the environment that resembles a setting's and is none.
    Misspelt {
        /// The variable.
        said: Said,
        /// The setting that it resembles.
        meant: &'static str,
    },
    /// A setting that has no effect beside the others, for this reason.
    WithoutEffect(Said, &'static str),
    /// A quota in powers of 1000, and what that means.
    PowersOf1000(Said, String),
    /// A log setting that says nothing; the default is used.
    Log(Said, Fault),
    /// A quota larger than the device.
    OverDevice {
        /// Where the quota was said; empty for a quota that was not read from a configuration.
        said: Option<Said>,
        /// The device.
        device: String,
        /// What it holds, which is the quota now.
        total: Bytes,
    },
    /// A device that a list names by its number and by its UUID; the smaller limit is used.
    TwoLimits {
        /// Where the list was said.
        said: Option<Said>,
        /// The device.
        device: String,
    },
    /// A device of a list that CUDA does not show.
    Absent {
        /// Where the list was said.
        said: Option<Said>,
        /// What names it in the list.
        name: String,
        /// Numbers, as the list counts, of the devices that CUDA shows and that the list says nothing of.
        unnamed: Vec<String>,
    },
}

impl Warning {
    /// From which log level on it is said.
    #[must_use]
    pub fn level(&self) -> LogLevel {
        match self {
            Self::PowersOf1000(..) => LogLevel::Info,
            _ => LogLevel::Warn,
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        match self {
            Self::Misspelt { said, meant } => write!(
                f,
                "{said} is not a setting of gpuslice and limits nothing; if {meant} is meant, rename it, otherwise unset it."
            ),
            Self::WithoutEffect(said, why) => write!(f, "{said} has no effect {why}."),
            Self::PowersOf1000(said, meaning) => write!(f, "{said}: {meaning}."),
            Self::Log(said, fault) => {
                write!(f, "{said} {fault}. Logging goes on at level warn to standard error.")
            }
            Self::OverDevice { said, device, total } => {
                write!(
                    f,
                    "{} is more than device {device} holds; its {total} are the quota.",
                    Quoted(said.as_ref())
                )
            }
            Self::TwoLimits { said, device } => {
                write!(f, "{} names device {device} twice; the smaller limit is used.", Quoted(said.as_ref()))
            }
            Self::Absent { said, name, unnamed } => {
                write!(
                    f,
                    "{} names device {name}, which CUDA does not show this process",
                    Quoted(said.as_ref())
                )?;
                match unnamed.as_slice() {
                    [] => f.write_str("."),
                    [one] => write!(f, "; of device {one}, which it shows, it says nothing."),
                    more => write!(f, "; of devices {}, which it shows, it says nothing.", more.join(", ")),
                }
            }
        }
    }
}

/// A setting where it is known, otherwise `the limit`.
struct Quoted<'a>(Option<&'a Said>);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(said) => said.fmt(f),
            None => f.write_str("the limit"),
        }
    }
}

/// `GPU_MEM_LIMIT="4GiB"`, and before it file and line where it stands in a file.
impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::Line { file, line: 0 } => write!(f, "{}", shortened(file.as_bytes(), SHOWN_PATH_BYTES))?,
            Origin::Line { file, line } => {
                write!(f, "{}:{line}: ", shortened(file.as_bytes(), SHOWN_PATH_BYTES))?;
            }
            Origin::Environment => {}
        }
        match (self.key.is_empty(), self.value.is_empty()) {
            (true, true) => Ok(()),
            (true, false) => f.write_str(&quoted(&self.value)),
            (false, _) => {
                write!(f, "{}={}", shortened(self.key.as_bytes(), SHOWN_BYTES), quoted(&self.value))
            }
        }
    }
}

impl Said {
    /// What was said in the environment.
    pub(super) fn environment(key: &str, value: Vec<u8>) -> Self {
        Self { origin: Origin::Environment, key: key.to_owned(), value }
    }

    /// Quotes or spaces that surround the value.
    pub(super) fn surrounds(&self) -> Option<Fault> {
        let value = self.value.trim_ascii();
        if value.starts_with(b"\"") || value.starts_with(b"'") {
            return Some(Fault::Quoted);
        }
        let is_comment = |pair: &[u8]| matches!(pair, [space, b'#'] if space.is_ascii_whitespace());
        let has_comment = !self.is_of_operator() && value.windows(2).any(is_comment);
        has_comment.then_some(Fault::Commented)
    }

    /// Whether it stands in an operator's file.
    pub(super) fn is_of_operator(&self) -> bool {
        matches!(self.origin, Origin::Line { .. })
    }

    /// What was said in a line of a file.
    pub(super) fn line(file: &str, line: usize, key: &str, value: &[u8]) -> Self {
        let origin = Origin::Line { file: file.to_owned(), line };
        Self { origin, key: key.to_owned(), value: value.to_vec() }
    }

    /// A file itself. Its lines are counted from one, so that line zero is none of them.
    pub(super) fn file(file: &str) -> Self {
        Self::line(file, 0, "", &[])
    }
}
