//! Faults of values, and the texts that explain them.

use core::error::Error;
use core::fmt;

use super::keys::{self, CONFIG_FILE};
use super::sources::{MAX_FILE_BYTES, MAX_VALUE_BYTES};
use crate::units::Bytes;

/// Bytes of a value that a message repeats.
pub(super) const SHOWN_BYTES: usize = 80;

/// A fault of a value.
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
    /// A number of bytes without a unit. It is so small that the user must mean another unit.
    FewBytes(u64),
    /// A number with a comma in place of the decimal point. The text is the right form.
    DecimalComma(String),
    /// A value between quotes.
    Quoted,
    /// A value in the environment with a comment behind it.
    Commented,
    /// A size of zero.
    ZeroSize,
    /// A size that does not fit 64 bits.
    HugeSize,
    /// Not a size in HAMi's form.
    NotAHamiSize,
    /// Not a share of a device.
    NotAShare,
    /// Not a share in HAMi's form.
    NotAHamiShare,
    /// An item of a list that is not `device=value`.
    NotAnItem,
    /// Not the name of a device.
    NotADevice,
    /// A device that an earlier item of the list may name too.
    DeviceTwice,
    /// A prefix that several UUIDs of this machine have.
    SeveralDevices,
    /// Not one of these words.
    NotOneOf(&'static str),
    /// Not a weight.
    NotAWeight,
    /// Not a burst.
    NotABurst,
    /// A burst beyond [`MOST_GPU_TIME`](crate::time::MOST_GPU_TIME).
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
    /// An unknown key in a file, and the setting that it resembles.
    UnknownKey(Option<&'static str>),
    /// The name of another file, in a file.
    FileInFile,
    /// A key that an earlier line has set; the number of that line.
    SetTwice(usize),
    /// The named file is not there.
    NoFile,
    /// The file exists and cannot be read, for this reason.
    UnreadableFile(String),
    /// The file is longer than the largest file.
    LongFile,
}

impl fmt::Display for Fault {
    /// Writes the text that follows the value: `is not a size; write it like …`.
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

/// A fault of a value that may be a list, and the part of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ValueError {
    /// The faulty part. `None`: the whole value.
    pub part: Option<String>,
    /// The fault.
    pub fault: Fault,
}

impl From<Fault> for ValueError {
    fn from(fault: Fault) -> Self {
        Self { part: None, fault }
    }
}

impl fmt::Display for ValueError {
    /// Writes the text that follows the value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(part) = &self.part {
            write!(f, "is malformed: {} ", quoted(part.as_bytes()))?;
        }
        self.fault.fmt(f)
    }
}

impl Error for ValueError {}

/// Returns a value in quotes, shortened. Bytes that are not printable ASCII are escaped.
pub(super) fn quoted(value: &[u8]) -> String {
    format!("\"{}\"", shortened(value, SHOWN_BYTES))
}

/// Returns the first `room` bytes of a value, escaped.
pub(super) fn shortened(value: &[u8], room: usize) -> String {
    match value.get(..room) {
        Some(start) if start.len() < value.len() => format!("{}...", escaped(start)),
        _ => escaped(value),
    }
}

fn escaped(value: &[u8]) -> String {
    value.escape_ascii().to_string()
}
