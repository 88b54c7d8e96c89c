//! Reads numbers, shares and durations.

use core::str::FromStr;

use super::faults::Fault;
use crate::time::{GpuTime, TIME_UNITS};
use crate::units::Permille;

impl FromStr for Permille {
    type Err = Fault;

    /// Reads `30` or `12.5`: percent, from 1 to 100.
    fn from_str(text: &str) -> Result<Self, Fault> {
        let text = text.trim_ascii();
        let (whole, tenth) = text.split_once('.').unwrap_or((text, "0"));
        let whole = number(whole, Fault::NotAShare, Fault::NotAShare)?;
        let tenth = match tenth.as_bytes() {
            [digit @ b'0'..=b'9'] => u64::from(digit.saturating_sub(b'0')),
            _ => return Err(Fault::NotAShare),
        };
        let thousandths = whole.saturating_mul(10).saturating_add(tenth);
        let share = u16::try_from(thousandths).ok().and_then(Self::new);
        share.filter(|share| *share >= Self::LEAST).ok_or(Fault::NotAShare)
    }
}

/// Reads a share in HAMi's form: whole percent. Zero sets no share, and 100 and more are no limit.
pub(super) fn parse_hami_share(text: &str) -> Result<Option<Permille>, Fault> {
    let percent = hami_number(text.trim_ascii(), Fault::NotAHamiShare, Fault::NotAHamiShare)?;
    let thousandths = u16::try_from(percent.min(100).saturating_mul(10)).unwrap_or(u16::MAX);
    Ok(Permille::new(thousandths).filter(|share| *share >= Permille::LEAST))
}

/// Reads a number that HAMi reads as the same number. HAMi reads a leading zero as octal, so this function refuses it.
pub(super) fn hami_number(digits: &str, malformed: Fault, overflow: Fault) -> Result<u64, Fault> {
    let octal = digits.len() > 1 && digits.starts_with('0');
    if octal { Err(malformed) } else { number(digits, malformed, overflow) }
}

/// Reads a duration above zero: digits, directly followed by a unit.
pub(super) fn parse_duration(text: &str) -> Option<GpuTime> {
    let (digits, unit) = split_number(text);
    let (scale, _) = TIME_UNITS.into_iter().find(|(_, name)| name.eq_ignore_ascii_case(unit))?;
    let span = digits.parse::<u64>().ok()?.checked_mul(scale)?;
    (span > 0).then_some(GpuTime::from_nanos(span))
}

/// Splits a text after its leading digits.
pub(super) fn split_number(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}

/// Reads digits only.
pub(super) fn number(digits: &str, malformed: Fault, overflow: Fault) -> Result<u64, Fault> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(malformed);
    }
    digits.parse().map_err(|_| overflow)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_percent_with_at_most_one_decimal() {
        for (text, share) in
            [("1", 10), ("100", 1000), ("12.5", 125), ("1.0", 10), ("99.9", 999), (" 30 ", 300)]
        {
            assert_eq!(text.parse::<Permille>().map(Permille::get), Ok(share), "{text:?}");
        }
        for text in [
            "",
            "0",
            "0.9",
            "100.1",
            "101",
            "12.55",
            "12.",
            ".5",
            "30%",
            "-1",
            "+1",
            "1,5",
            "1e1",
            "18446744073709551616",
            "18446744073709551615",
            "1.5.5",
        ] {
            assert_eq!(text.parse::<Permille>(), Err(Fault::NotAShare), "{text:?}");
        }
    }

    #[test]
    fn durations_have_a_unit_and_a_length() {
        for (text, nanos) in [("20ms", 20_000_000), ("500us", 500_000), ("1s", 1_000_000_000), ("7NS", 7)] {
            assert_eq!(parse_duration(text), Some(GpuTime::from_nanos(nanos)), "{text:?}");
        }
        for text in ["", "20", "ms", "0ms", "-1ms", "1.5s", "20 ms", "1m", "18446744073709551615s"] {
            assert_eq!(parse_duration(text), None, "{text:?}");
        }
    }
}
