//! What is said about a configuration, word for word? Every line that a user can read about one is here.
//!
//! Each line begins with `gpuslice: `, is printable ASCII, names where the value was said, the value
//! (shortened, the rest escaped), and what would be right. None ends with a newline.

use core::error::Error;
use core::fmt;

use super::choices::LogLevel;
use super::keys;
use super::layers::CONFIG_FILE;
use super::{MAX_FILE_BYTES, MAX_VALUE_BYTES};
use crate::units::Bytes;

/// How every line begins.
const PREFIX: &str = "gpuslice: ";
/// What follows from a limit that cannot be honoured; how such a line ends.
const REFUSED: &str = "GPU work is refused.";
/// How much of a value is repeated.
const SHOWN_BYTES: usize = 80;
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

/// What is wrong with a value.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Not UTF-8, or with a NUL in it.
    NotText,
    /// Longer than any value may be.
    TooLong,
    /// Neither a size nor a percentage.
    NotASize,
    /// A size whose unit stands apart from its number.
    SpacedUnit,
    /// A fraction without a unit.
    PartOfAByte,
    /// So few bytes, without a unit, that another unit must be meant.
    FewBytes(u64),
    /// A number with a comma in the place of its point; this is how it is written.
    DecimalComma(String),
    /// A value between quotes.
    Quoted,
    /// A value in the environment with a comment behind it.
    Commented,
    /// A size of nothing.
    ZeroSize,
    /// A size that does not fit 64 bits.
    HugeSize,
    /// Not what HAMi takes for a size.
    NotAHamiSize,
    /// Not a share of a device.
    NotAShare,
    /// Not what HAMi takes for a share.
    NotAHamiShare,
    /// An item of a list that is not `device=value`.
    NotAnItem,
    /// Not the name of a device.
    NotADevice,
    /// A device that an earlier item of the list may mean too.
    DeviceTwice,
    /// The beginning of a UUID that several devices of this machine have.
    SeveralDevices,
    /// Not a word of a list of words.
    NotOneOf(&'static str),
    /// Not a weight.
    NotAWeight,
    /// Not a burst.
    NotABurst,
    /// A burst beyond [`super::Burst::MOST`].
    LongBurst,
    /// Neither on nor off.
    NotASwitch,
    /// Not an absolute path.
    NotAPath,
    /// Not a log level with or without a path.
    NotALog,
    /// A line of a file that is not `KEY=value`.
    NotALine,
    /// A key without a value in a file.
    NoValue,
    /// A key in a file that is no setting's, and the setting's that it resembles.
    UnknownKey(Option<&'static str>),
    /// The name of another file, in a file.
    FileInFile,
    /// A key that an earlier line, whose number this is, has set.
    SetTwice(usize),
    /// The named file is not there.
    NoFile,
    /// The file is there and cannot be read, for this reason.
    UnreadableFile(String),
    /// The file is longer than any may be.
    LongFile,
}

impl fmt::Display for Fault {
    /// Reads on after the value: `is not a size; write it like …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotText => "is not text; write it in UTF-8 without NUL bytes",
            Self::TooLong => return write!(f, "is too long; write at most {MAX_VALUE_BYTES} bytes"),
            Self::NotASize => "is not a size; write it like 4GiB, 1.5GiB, 4096MiB, 1500000000 or 50%",
            Self::SpacedUnit => "has a space before its unit; write it without, like 4GiB or 50%",
            Self::PartOfAByte => "is no whole number of bytes; write its unit as well, like 1.5GiB",
            Self::FewBytes(bytes) => {
                let unit = match bytes {
                    0..=256 => "GiB",
                    257..=262_144 => "MiB",
                    _ => return write!(f, "is {bytes} bytes, less than any program needs; write a unit, like 4GiB"),
                };
                return write!(f, "is {bytes} bytes, less than any program needs; write {bytes}{unit} if that is meant");
            }
            Self::DecimalComma(point) => {
                return write!(
                    f,
                    "has a comma, which separates the items of a list; write {}",
                    shortened(point.as_bytes(), SHOWN_BYTES)
                );
            }
            Self::Quoted => {
                "has quotes around it, which belong to the value here, as in a file for docker --env-file; write it \
                 without them"
            }
            Self::Commented => {
                "has a comment behind it, which belongs to the value in the environment; write the value alone"
            }
            Self::ZeroSize => "is a quota of nothing; write a size like 4GiB, or leave it out for no quota",
            Self::HugeSize => "is more than any device holds; write a size like 4GiB or 50%",
            Self::NotAHamiSize => "is not a size as HAMi takes it; write it like 4g, 4096m or 1500000000",
            Self::NotAShare => {
                "is not a share of a GPU; write a number from 1 to 100 like 30 or 12.5, without a % sign"
            }
            Self::NotAHamiShare => {
                "is not a share as HAMi takes it; write a whole number from 0 to 100 like 30"
            }
            Self::NotAnItem => {
                "is not an item of a list; write a list like 0=VALUE,1=VALUE or GPU-<uuid>=VALUE"
            }
            Self::NotADevice => {
                "does not name a device; name it by its number or its UUID like 0, GPU-8932f937 or MIG-<uuid>"
            }
            Self::DeviceTwice => "names a device that the list has named before; name each device once",
            Self::SeveralDevices => "is the beginning of several devices' UUIDs; write more of the UUID",
            Self::NotOneOf(words) => return write!(f, "is not known; write {words}"),
            Self::NotAWeight => "is not a weight; write a whole number from 1 to 1000",
            Self::LongBurst => "is a burst beyond 60s; save up at most 60s of GPU time",
            Self::NotABurst => "is not a burst; write strict, latency or a duration like 20ms, 500us or 1s",
            Self::NotASwitch => "is not a switch; write 1 (or true, yes, on) or 0 (or false, no, off)",
            Self::NotAPath => "is not an absolute path; write one that begins with a /",
            Self::NotALog => "is not a log level; write off, error, warn, info or debug, or a level:path",
            Self::NotALine => "is not a setting; write KEY=value, a comment after a #, or nothing",
            Self::NoValue => "has no value; write one, or remove the line",
            Self::UnknownKey(Some(meant)) => {
                return write!(
                    f,
                    "is not a setting of gpuslice; write {meant} if that is meant, or remove the line"
                );
            }
            Self::UnknownKey(None) => {
                let keys: Vec<&str> = keys::settings().filter(|key| *key != CONFIG_FILE).collect();
                return write!(
                    f,
                    "is not a setting of gpuslice; write one of {}, or remove the line",
                    keys.join(", ")
                );
            }
            Self::FileInFile => "has no effect in a file; write the settings of that file here",
            Self::SetTwice(line) => return write!(f, "was set in line {line} already; set it once"),
            Self::NoFile => "names a file that is not there; name the operator's file, or leave it out",
            Self::UnreadableFile(reason) => {
                return write!(
                    f,
                    "cannot be read ({}); let this process read it",
                    shortened(reason.as_bytes(), SHOWN_BYTES)
                );
            }
            Self::LongFile => return write!(f, "is too long; write at most {}", Bytes::new(MAX_FILE_BYTES)),
        })
    }
}

impl Error for Fault {}

/// What is wrong with a value that may be a list, and with which part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueError {
    /// The part, where it is not the whole value.
    pub part: Option<String>,
    /// What is wrong.
    pub fault: Fault,
}

impl From<Fault> for ValueError {
    fn from(fault: Fault) -> Self {
        Self { part: None, fault }
    }
}

impl fmt::Display for ValueError {
    /// Reads on after the value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(part) = &self.part {
            write!(f, "is malformed: {} ", quoted(part.as_bytes()))?;
        }
        self.fault.fmt(f)
    }
}

impl Error for ValueError {}

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

/// A value between quotes, shortened, with everything that is not printable ASCII escaped.
fn quoted(value: &[u8]) -> String {
    format!("\"{}\"", shortened(value, SHOWN_BYTES))
}

/// As much of a value as there is room for, escaped.
fn shortened(value: &[u8], room: usize) -> String {
    match value.get(..room) {
        Some(start) if start.len() < value.len() => format!("{}...", escaped(start)),
        _ => escaped(value),
    }
}

fn escaped(value: &[u8]) -> String {
    value.escape_ascii().to_string()
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
