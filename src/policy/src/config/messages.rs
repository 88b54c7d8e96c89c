//! Messages about a configuration: every line that a user can read about a configuration.
//!
//! Each line begins with `gpuslice: ` and is printable ASCII. It names the place of the value, the value (shortened
//! and escaped), and the right form. No line ends with a newline.

use core::error::Error;
use core::fmt;

use super::choices::LogLevel;
use super::faults::{Fault, SHOWN_BYTES, ValueError, quoted, shortened};
use crate::units::Bytes;

/// Beginning of every line.
const LINE_PREFIX: &str = "gpuslice: ";

/// End of a line about a limit that cannot be enforced.
const REFUSED: &str = "GPU work is refused.";

/// Bytes of a file's name that a message repeats.
const SHOWN_PATH_BYTES: usize = 256;

/// The source of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueOrigin {
    /// The environment.
    Environment,
    /// A line of a file, counted from 1.
    Line {
        /// The file's name.
        file: String,
        /// The line's number.
        line: usize,
    },
}

/// A value, its key and its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcedValue {
    /// The source.
    pub origin: ValueOrigin,
    /// The variable.
    pub key: String,
    /// The complete value.
    pub value: Vec<u8>,
}

/// A value that cannot be enforced, so that GPU work is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    /// The value.
    pub said: Box<SourcedValue>,
    /// The fault.
    pub error: ValueError,
}

impl Malformed {
    pub(super) fn new(said: SourcedValue, error: impl Into<ValueError>) -> Self {
        Self { said: Box::new(said), error: error.into() }
    }

    /// Makes a fault of a value that cannot be read. If quotes or a comment surround the value, they are the fault.
    pub(super) fn unread(said: SourcedValue, error: impl Into<ValueError>) -> Self {
        let error = said.surrounds().map_or_else(|| error.into(), ValueError::from);
        Self::new(said, error)
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{LINE_PREFIX}{} {}. {REFUSED}", self.said, self.error)
    }
}

impl Error for Malformed {}

/// A remark for the user that stops nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// A variable of the environment that resembles a setting.
    Misspelt {
        /// The variable.
        said: SourcedValue,
        /// The setting that the variable resembles.
        meant: &'static str,
    },
    /// A setting that has no effect beside the others, and the reason.
    WithoutEffect(SourcedValue, &'static str),
    /// A quota in powers of 1000, and its meaning.
    PowersOf1000(SourcedValue, String),
    /// A log setting that cannot be read; the default applies.
    Log(SourcedValue, Fault),
    /// A quota larger than the device.
    OverDevice {
        /// The setting of the quota. `None`: the quota was not read from a configuration.
        said: Option<SourcedValue>,
        /// The device.
        device: String,
        /// The device's memory, which is now the quota.
        total: Bytes,
    },
    /// A device that a list names by its number and by its UUID. The smaller limit applies.
    TwoLimits {
        /// The setting with the list.
        said: Option<SourcedValue>,
        /// The device.
        device: String,
    },
    /// A device of a list that CUDA does not show.
    Absent {
        /// The setting with the list.
        said: Option<SourcedValue>,
        /// The device's name in the list.
        name: String,
        /// Numbers, as the list counts, of the devices that CUDA shows and the list does not name.
        unnamed: Vec<String>,
    },
}

impl Warning {
    /// Returns the log level from which the warning is written.
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
        f.write_str(LINE_PREFIX)?;
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

/// A setting if it is known, otherwise `the limit`.
struct Quoted<'a>(Option<&'a SourcedValue>);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(said) => said.fmt(f),
            None => f.write_str("the limit"),
        }
    }
}

/// Writes `GPU_MEM_LIMIT="4GiB"`; for a setting in a file, the file and the line come first.
impl fmt::Display for SourcedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            ValueOrigin::Line { file, line: 0 } => {
                write!(f, "{}", shortened(file.as_bytes(), SHOWN_PATH_BYTES))?;
            }
            ValueOrigin::Line { file, line } => {
                write!(f, "{}:{line}: ", shortened(file.as_bytes(), SHOWN_PATH_BYTES))?;
            }
            ValueOrigin::Environment => {}
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

impl SourcedValue {
    /// Makes a setting of the environment.
    pub(super) fn environment(key: &str, value: Vec<u8>) -> Self {
        Self { origin: ValueOrigin::Environment, key: key.to_owned(), value }
    }

    /// Returns the fault if quotes or a comment surround the value.
    pub(super) fn surrounds(&self) -> Option<Fault> {
        let value = self.value.trim_ascii();
        if value.starts_with(b"\"") || value.starts_with(b"'") {
            return Some(Fault::Quoted);
        }
        let is_comment = |pair: &[u8]| matches!(pair, [space, b'#'] if space.is_ascii_whitespace());
        let has_comment = !self.is_of_operator() && value.windows(2).any(is_comment);
        has_comment.then_some(Fault::Commented)
    }

    /// Returns true if the setting is in an operator's file.
    pub(super) fn is_of_operator(&self) -> bool {
        matches!(self.origin, ValueOrigin::Line { .. })
    }

    /// Makes a setting from a line of a file.
    pub(super) fn line(file: &str, line: usize, key: &str, value: &[u8]) -> Self {
        let origin = ValueOrigin::Line { file: file.to_owned(), line };
        Self { origin, key: key.to_owned(), value: value.to_vec() }
    }

    /// Makes the setting that stands for a whole file. Lines are counted from 1, so line 0 stands for the file.
    pub(super) fn file(file: &str) -> Self {
        Self::line(file, 0, "", &[])
    }
}
