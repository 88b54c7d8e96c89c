//! Values of options: their types and parsers.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use gpuslice_policy::config::{self, CorePolicy, Fault, PerDevice, Priority, Quota, ValueError};
use gpuslice_policy::units::Permille;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// Returns a parser of whole numbers in `range`.
pub(super) fn whole(range: RangeInclusive<u64>) -> impl Fn(&str) -> Result<u64, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| format!("a whole number from {} to {}", range.start(), range.end()))
    }
}

/// Returns a value with its meaning. Shells show both in their completions.
fn explained((value, meaning): (&'static str, &'static str)) -> PossibleValue {
    PossibleValue::new(value).help(meaning)
}

/// Returns a parser of policies. It lists them, so that shells can offer them.
pub(super) fn policies() -> impl TypedValueParser<Value = CorePolicy> {
    let policies = [
        ("fixed", "the share is a cap"),
        ("equal", "slices that are busy divide the time by weight"),
        ("best-effort", "the slice uses what others leave"),
    ];
    PossibleValuesParser::new(policies.map(explained)).try_map(|text| text.parse::<CorePolicy>())
}

/// Returns a parser of priorities. It lists them, so that shells can offer them.
pub(super) fn priorities() -> impl TypedValueParser<Value = Priority> {
    let priorities = [
        ("high", "before all others, which also queue less while it has work"),
        ("normal", "before low ones"),
        ("low", "after all others but best-effort ones"),
    ];
    PossibleValuesParser::new(priorities.map(explained)).try_map(|text| text.parse::<Priority>())
}

/// A quota in the form of `GPU_MEM_LIMIT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Memory {
    /// The text as the user typed it.
    pub(crate) text: String,
    /// The quota of each device.
    pub(crate) quotas: PerDevice<Quota>,
}

impl FromStr for Memory {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let quotas = text.parse()?;
        config::refuse_few_bytes(text)?;
        Ok(Self { text: text.to_owned(), quotas })
    }
}

/// Parses a quota for a running slice. `set` without `--mem` keeps the old quota, so its message for an empty quota differs from
/// that of `run`. `set` proposes 100%, and `run` proposes to leave out the option.
pub(super) fn quota_to_set(text: &str) -> Result<Memory, String> {
    text.parse().map_err(|error: ValueError| match (&error.part, &error.fault) {
        (part, Fault::ZeroSize) => {
            let part = part.as_ref().map_or_else(String::new, |part| format!("{part:?} "));
            format!(
                "{part}is a quota of nothing; write a size like 4GiB, or 100% for all that the device has"
            )
        }
        _ => error.to_string(),
    })
}

/// A share of GPU time in the form of `GPU_CORE_PERCENT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cores {
    /// The text as the user typed it.
    pub(crate) text: String,
    /// The share of each device.
    pub(crate) shares: PerDevice<Permille>,
}

impl FromStr for Cores {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        Ok(Self { text: text.to_owned(), shares: text.parse()? })
    }
}

/// A burst in the form of `GPU_CORE_BURST`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Burst {
    /// The text as the user typed it.
    pub(crate) text: String,
    /// The parsed burst.
    pub(crate) burst: config::Burst,
}

impl FromStr for Burst {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        Ok(Self { text: text.to_owned(), burst: text.parse()? })
    }
}

/// Time between two looks of `status --watch` or of `top`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interval(pub(crate) Duration);

impl FromStr for Interval {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        seconds(text)
            .filter(is_a_look)
            .map(Self)
            .ok_or_else(|| "a number of seconds from 0.1 to 60, like 0.5 or 2".to_owned())
    }
}

/// Parses the interval of `--watch`. The message for a bad value names the order of arguments, because people may
/// write the slice after `--watch`.
pub(super) fn watching(text: &str) -> Result<Interval, String> {
    text.parse().map_err(|error| format!("{error}; name the slice before --watch"))
}

/// Time for which `status` measures GPU time. Zero means that it does not measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Over(pub(crate) Duration);

impl FromStr for Over {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        seconds(text)
            .filter(|span| span.is_zero() || is_a_look(span))
            .map(Self)
            .ok_or_else(|| "a number of seconds from 0.1 to 60, like 0.5 or 2, or 0 for no look".to_owned())
    }
}

fn seconds(text: &str) -> Option<Duration> {
    text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
}

/// Tells whether `span` is long enough to measure the use, and short enough to wait for.
fn is_a_look(span: &Duration) -> bool {
    (Duration::from_millis(100)..=Duration::from_secs(60)).contains(span)
}

/// Longest name of a slice, in characters.
const NAME_LENGTH: usize = 64;

/// A name that is valid as a part of a file's name, and on a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SliceName(pub(crate) String);

impl FromStr for SliceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let usual = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let starts_well = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-') {
            return Err("a name of digits and - alone could be that of a slice without a name, which is called by its \
                        process number; add a letter"
                .to_owned());
        }
        if starts_well && text.len() <= NAME_LENGTH && text.bytes().all(usual) {
            return Ok(Self(text.to_owned()));
        }
        Err(format!(
            "a name begins with a letter or digit and has up to {NAME_LENGTH} letters, digits and any of - _ ."
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuslice_policy::time::GpuTime;

    #[test]
    fn shares_and_bursts_are_read_as_in_the_environment() {
        for good in ["1", "30", "12.5", "100", "0=30,1=100"] {
            assert_eq!(good.parse::<Cores>().map(|cores| cores.text).as_deref(), Ok(good));
        }
        for bad in ["0", "0.9", "100.1", "101", "30%", "all", "", "0=0", "0=30,0=40"] {
            assert!(bad.parse::<Cores>().is_err(), "{bad}");
        }
        for (good, millis) in [("strict", 20), ("latency", 200), ("50ms", 50)] {
            assert_eq!(
                good.parse::<Burst>().map(|burst| burst.burst.span()),
                Ok(GpuTime::from_millis(millis))
            );
        }
        assert!("20".parse::<Burst>().is_err());
    }

    #[test]
    fn an_interval_is_a_tenth_of_a_second_to_a_minute() {
        for (good, millis) in [("0.1", 100), ("1", 1000), ("2.5", 2500), ("60", 60_000)] {
            assert_eq!(good.parse(), Ok(Interval(Duration::from_millis(millis))));
        }
        for bad in ["0", "0.09", "60.1", "-1", "NaN", "inf", "1e99", "", "1s"] {
            assert!(bad.parse::<Interval>().is_err(), "{bad}");
            assert!(bad == "0" || bad.parse::<Over>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_look_is_a_tenth_of_a_second_to_a_minute_or_none() {
        for (good, millis) in [("0", 0), ("0.0", 0), ("0.1", 100), ("0.5", 500), ("60", 60_000)] {
            assert_eq!(good.parse(), Ok(Over(Duration::from_millis(millis))));
        }
    }

    #[test]
    fn a_name_cannot_leave_its_folder_or_look_like_an_option() {
        for good in ["a", "team-1", "2026.01_x", "7857a"] {
            assert!(good.parse::<SliceName>().is_ok(), "{good}");
        }
        for bad in ["", "a/b", "..", "-x", "7857", "7857-4026532000", "-", "a b", "ä", &"x".repeat(65)] {
            assert!(bad.parse::<SliceName>().is_err(), "{bad}");
        }
    }
}
