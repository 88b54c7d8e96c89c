//! Settings with a choice of words: policies, meters, priorities, bursts and log levels.

use core::str::FromStr;
use std::path::PathBuf;

use super::faults::Fault;
use super::values::parse_duration;
use crate::time::{GpuTime, MOST_GPU_TIME};
use crate::units::Setting;

/// Declares an enum whose values are words, with a reader (either case) and a writer.
macro_rules! words {
    (
        $(#[$about:meta])*
        $name:ident, $choices:literal { $($(#[$meaning:meta])* $value:ident = $word:literal),+ $(,)? }
    ) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub enum $name { $($(#[$meaning])* $value),+ }

        impl FromStr for $name {
            type Err = Fault;

            fn from_str(text: &str) -> Result<Self, Fault> {
                $(if text.trim_ascii().eq_ignore_ascii_case($word) { return Ok(Self::$value); })+
                Err(Fault::NotOneOf($choices))
            }
        }

        impl Setting for $name {
            fn setting(&self) -> String {
                match self { $(Self::$value => $word),+ }.to_owned()
            }
        }
    };
}

words! {
    /// Policy by which slices on one GPU divide its time.
    CorePolicy, "fixed, equal or best-effort" {
        /// The share is a hard cap.
        #[default]
        Fixed = "fixed",
        /// Busy slices divide the GPU by weight.
        Equal = "equal",
        /// The slice uses the time that others leave.
        BestEffort = "best-effort",
    }
}

words! {
    /// The source of GPU time measurements.
    CoreMeter, "auto, events or nvml" {
        /// The best source that the device offers.
        #[default]
        Auto = "auto",
        /// Timing events only.
        Events = "events",
        /// NVML's samples only.
        Nvml = "nvml",
    }
}

words! {
    /// Memory size of a device that the library reports to programs.
    ReportTotal, "quota or device" {
        /// The quota, if the device has one.
        #[default]
        Quota = "quota",
        /// The device's own size, as the driver reports it.
        Device = "device",
    }
}

words! {
    /// Priority among the slices on one GPU; a higher priority is greater.
    Priority, "high, normal or low" {
        /// After all others.
        Low = "low",
        /// The default.
        #[default]
        Normal = "normal",
        /// Before all others.
        High = "high",
    }
}

words! {
    /// Level of logging. A message is written if its level is at most the configured one.
    LogLevel, "off, error, warn, info or debug" {
        /// Nothing.
        Off = "off",
        /// Messages about work that is stopped.
        Error = "error",
        /// Messages that the user should know.
        #[default]
        Warn = "warn",
        /// Messages about the set-up.
        Info = "info",
        /// Messages about each step.
        Debug = "debug",
    }
}

impl LogLevel {
    /// Returns true if a message of this level is written when the configured level is `self`.
    #[must_use]
    pub fn admits(self, message: Self) -> bool {
        message != Self::Off && message <= self
    }
}

/// Level and destination of the log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Log {
    /// The level.
    pub level: LogLevel,
    /// The file to append to. `None`: standard error.
    pub path: Option<PathBuf>,
}

impl FromStr for Log {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        let (level, path) = match text.trim_ascii().split_once(':') {
            Some((_, "")) => return Err(Fault::NotALog),
            Some((level, path)) => (level, Some(PathBuf::from(path))),
            None => (text, None),
        };
        Ok(Self { level: level.parse().map_err(|_| Fault::NotALog)?, path })
    }
}

/// Unused share that may be saved up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Burst {
    /// Little: 20 ms of GPU time.
    #[default]
    Strict,
    /// Enough for work that comes in bursts, after each of which the program waits: 200 ms of GPU time.
    Latency,
    /// This much GPU time.
    Span(GpuTime),
}

impl Burst {
    /// Longest burst: the largest debt of a slice.
    pub const MOST: GpuTime = MOST_GPU_TIME;

    /// Returns the GPU time that may be saved up.
    #[must_use]
    pub const fn span(self) -> GpuTime {
        match self {
            Self::Strict => GpuTime::from_millis(20),
            Self::Latency => GpuTime::from_millis(200),
            Self::Span(span) => span,
        }
    }
}

impl FromStr for Burst {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        match text.trim_ascii().to_ascii_lowercase().as_str() {
            "strict" => Ok(Self::Strict),
            "latency" => Ok(Self::Latency),
            duration => {
                let span = parse_duration(duration).ok_or(Fault::NotABurst)?;
                if span <= Self::MOST { Ok(Self::Span(span)) } else { Err(Fault::LongBurst) }
            }
        }
    }
}

impl Setting for Burst {
    fn setting(&self) -> String {
        match self {
            Self::Strict => "strict".to_owned(),
            Self::Latency => "latency".to_owned(),
            Self::Span(span) => span.setting(),
        }
    }
}

/// Weight of a slice where slices divide a GPU by weight: 1 to 1000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weight(u16);

impl Weight {
    /// Returns the number.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl Default for Weight {
    fn default() -> Self {
        Self(100)
    }
}

impl FromStr for Weight {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        let digits = text.trim_ascii();
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        let weight = digits.parse().ok().filter(|weight| is_number && (1..=1000).contains(weight));
        weight.map(Self).ok_or(Fault::NotAWeight)
    }
}

impl Setting for Weight {
    fn setting(&self) -> String {
        self.0.to_string()
    }
}

/// Reads `1` or `0`, or a word for one of them in either case.
pub(super) fn parse_switch(text: &str) -> Result<bool, Fault> {
    match text.trim_ascii().to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Ok(true),
        "0" | "false" | "no" | "off" => Ok(false),
        _ => Err(Fault::NotASwitch),
    }
}

/// Reads a path that leads to the same file from every working directory.
pub(super) fn parse_path(text: &str) -> Result<PathBuf, Fault> {
    let path = text.trim_ascii();
    if path.starts_with('/') { Ok(PathBuf::from(path)) } else { Err(Fault::NotAPath) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_is_a_whole_number_from_1_to_1000() {
        for (text, weight) in [("1", 1), ("1000", 1000), (" 7 ", 7)] {
            assert_eq!(text.parse::<Weight>().map(Weight::get), Ok(weight), "{text:?}");
        }
        for text in ["", "0", "1001", "+5", "-5", "1.5", "65537"] {
            assert_eq!(text.parse::<Weight>(), Err(Fault::NotAWeight), "{text:?}");
        }
    }

    #[test]
    fn a_switch_is_on_or_off_in_any_usual_word() {
        for (text, on) in
            [("1", true), ("True", true), (" yes ", true), ("ON", true), ("0", false), ("no", false)]
        {
            assert_eq!(parse_switch(text), Ok(on), "{text:?}");
        }
        assert_eq!((parse_switch("false"), parse_switch("Off")), (Ok(false), Ok(false)));
        for text in ["", "2", "y", "enabled", "-1"] {
            assert_eq!(parse_switch(text), Err(Fault::NotASwitch), "{text:?}");
        }
    }

    #[test]
    fn a_log_is_a_level_or_a_level_and_a_path() {
        for (text, level, path) in [
            ("off", LogLevel::Off, None),
            ("ERROR", LogLevel::Error, None),
            ("debug:/var/log/slice", LogLevel::Debug, Some("/var/log/slice")),
            ("info:here", LogLevel::Info, Some("here")),
        ] {
            assert_eq!(text.parse(), Ok(Log { level, path: path.map(PathBuf::from) }), "{text:?}");
        }
        for text in ["", ":", "warn:", ":/var/log/slice", "warning", "warn /x"] {
            assert_eq!(text.parse::<Log>(), Err(Fault::NotALog), "{text:?}");
        }
    }

    #[test]
    fn words_are_read_in_either_case_and_as_they_are_written() {
        for policy in [CorePolicy::Fixed, CorePolicy::Equal, CorePolicy::BestEffort] {
            assert_eq!(policy.setting().to_uppercase().parse(), Ok(policy));
        }
        for priority in [Priority::Low, Priority::Normal, Priority::High] {
            assert_eq!(priority.setting().parse(), Ok(priority));
        }
        for burst in [Burst::Strict, Burst::Latency] {
            assert_eq!(burst.setting().parse(), Ok(burst));
        }
        assert_eq!("60s".parse(), Ok(Burst::Span(Burst::MOST)));
        assert_eq!("60001ms".parse::<Burst>(), Err(Fault::LongBurst));
        assert!("best effort".parse::<CorePolicy>().is_err());
    }

    #[test]
    fn a_level_admits_itself_and_graver_ones() {
        use LogLevel::{Debug, Error, Info, Off, Warn};
        assert!(Off < Error && Error < Warn && Warn < Info && Info < Debug);
        assert!(Warn.admits(Error) && Warn.admits(Warn) && !Warn.admits(Info));
        assert!(!Off.admits(Error) && !Off.admits(Off) && !Debug.admits(Off));
    }
}
