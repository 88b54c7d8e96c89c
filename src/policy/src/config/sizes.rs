//! Reads memory quotas: sizes with a unit, and percentages of a device.

use core::str::FromStr;

use super::faults::{Fault, ValueError};
use super::values::{hami_number, number, split_number};
use crate::units::{Bytes, Setting};

/// Device memory that a slice may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quota {
    /// A number of bytes.
    Size(Bytes),
    /// Hundredths of the device.
    Percent(u32),
}

/// A quota applied to a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Applied {
    pub(super) bytes: Bytes,
    /// True if the setting exceeds the device.
    pub(super) clamped: bool,
}

impl Quota {
    /// Returns the quota on a device of `total` bytes. A percentage is rounded down to a MiB. The quota is at most the device,
    /// and at least 1 byte, because zero could later be taken for no quota.
    pub(super) fn on(self, total: Bytes) -> Applied {
        let asked = match self {
            Self::Size(size) => size,
            Self::Percent(percent) => total.percent(percent).round_down(Bytes::MIB).max(Bytes::MIB),
        };
        let clamped = match self {
            Self::Size(size) => size > total,
            Self::Percent(percent) => percent > 100,
        };
        let bytes = if clamped { total } else { asked.min(total) };
        Applied { bytes: bytes.max(Bytes::new(1)), clamped }
    }
}

impl FromStr for Quota {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        let text = text.trim_ascii();
        let Some(percent) = text.strip_suffix('%') else { return parse_size(text).map(Self::Size) };
        let fault = if percent.ends_with(' ') { Fault::SpacedUnit } else { Fault::NotASize };
        match u32::try_from(number(percent, fault, Fault::HugeSize)?) {
            Ok(0) => Err(Fault::ZeroSize),
            Ok(percent) => Ok(Self::Percent(percent)),
            Err(_) => Err(Fault::HugeSize),
        }
    }
}

impl Setting for Quota {
    fn setting(&self) -> String {
        match self {
            Self::Size(size) => size.setting(),
            Self::Percent(percent) => format!("{percent}%"),
        }
    }
}

/// The units of a size in lower case, and their bytes.
const SIZE_UNITS: [(&str, u64); 17] = [
    ("", 1),
    ("k", 1 << 10),
    ("ki", 1 << 10),
    ("kib", 1 << 10),
    ("m", 1 << 20),
    ("mi", 1 << 20),
    ("mib", 1 << 20),
    ("g", 1 << 30),
    ("gi", 1 << 30),
    ("gib", 1 << 30),
    ("t", 1 << 40),
    ("ti", 1 << 40),
    ("tib", 1 << 40),
    ("kb", 1_000),
    ("mb", 1_000_000),
    ("gb", 1_000_000_000),
    ("tb", 1_000_000_000_000),
];
/// Largest number of digits after the point of a size. The bytes of a TiB have 13 digits, so more digits have no meaning.
const FRACTION_DIGITS: usize = 18;

/// Reads a size above zero: a number, directly followed by a unit or nothing. A fraction is exact, rounded down to a
/// byte.
fn parse_size(text: &str) -> Result<Bytes, Fault> {
    let (digits, rest) = split_number(text);
    let (fraction, unit) = match rest.strip_prefix('.') {
        Some(rest) => {
            let (fraction, unit) = split_number(rest);
            (Some(fraction), unit)
        }
        None => (None, rest),
    };
    let scale = |unit: &str| {
        SIZE_UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).map(|(_, scale)| *scale)
    };
    let unspaced = unit.trim_ascii_start();
    if unspaced != unit && !digits.is_empty() && scale(unspaced).is_some() {
        return Err(Fault::SpacedUnit);
    }
    let scale = scale(unit).ok_or(Fault::NotASize)?;
    let count = number(digits, Fault::NotASize, Fault::HugeSize)?;
    let size = Bytes::new(scale).checked_mul(count).ok_or(Fault::HugeSize)?;
    let part = match fraction {
        None => Bytes::ZERO,
        Some(fraction) => {
            let part = part(fraction, scale).ok_or(Fault::NotASize)?;
            if unit.is_empty() {
                return Err(Fault::PartOfAByte);
            }
            part
        }
    };
    let size = size.checked_add(part).ok_or(Fault::HugeSize)?;
    if size == Bytes::ZERO { Err(Fault::ZeroSize) } else { Ok(size) }
}

/// Returns the bytes of the digits after a point, rounded down.
fn part(digits: &str, scale: u64) -> Option<Bytes> {
    if digits.is_empty() || digits.len() > FRACTION_DIGITS {
        return None;
    }
    let parts: u64 = digits.parse().ok()?;
    let of = 10_u128.checked_pow(u32::try_from(digits.len()).ok()?)?;
    let bytes = u128::from(parts).checked_mul(u128::from(scale))?.checked_div(of)?;
    u64::try_from(bytes).ok().map(Bytes::new)
}

/// Explains a quota in powers of 1000. The text has its bytes and compares it with the power of 1024: `4gb is 4000000000
/// bytes, 7 % less than 4GiB`.
///
/// `text` is a value of `GPU_MEM_LIMIT`. `None`: no size in it has such a unit.
#[must_use]
pub fn in_powers_of_1000(text: &str) -> Option<String> {
    text.split(',').find_map(|item| {
        let size = item.rsplit('=').next().unwrap_or(item).trim_ascii();
        let letters = size.find(|letter: char| letter.is_ascii_alphabetic())?;
        let (number, unit) = size.split_at_checked(letters).filter(|(number, _)| number.len() <= 20)?;
        let (percent, binary) = match unit.to_ascii_lowercase().as_str() {
            "kb" => (2, "KiB"),
            "mb" => (5, "MiB"),
            "gb" => (7, "GiB"),
            "tb" => (9, "TiB"),
            _ => return None,
        };
        let bytes = parse_size(size).ok()?.get();
        Some(format!("{size} is {bytes} bytes, {percent} % less than {number}{binary}"))
    })
}

/// Refuses a quota that is a number of bytes too small for any program, because the user means MiB or more.
///
/// `text` is a value of `GPU_MEM_LIMIT` as the user types it.
///
/// # Errors
/// A size without a unit is below 1 MiB.
pub fn refuse_few_bytes(text: &str) -> Result<(), ValueError> {
    for item in text.split(',') {
        let size = item.rsplit('=').next().unwrap_or(item).trim_ascii();
        let bytes = number(size, Fault::NotASize, Fault::HugeSize).map(Bytes::new);
        if let Ok(bytes) = bytes
            && bytes < Bytes::MIB
        {
            let part = (item != text).then(|| item.trim_ascii().to_owned());
            return Err(ValueError { part, fault: Fault::FewBytes(bytes.get()) });
        }
    }
    Ok(())
}

/// Reads a size in HAMi's form: digits, and `k`, `m` or `g` in either case. Zero is no quota.
///
/// HAMi reads the digits that it knows and drops the rest. It reads a number with a leading zero as octal, and takes an
/// overflow for no quota. This function refuses values that HAMi misreads.
pub(super) fn parse_hami_size(text: &str) -> Result<Option<Quota>, Fault> {
    let (digits, unit) = split_number(text.trim_ascii());
    let scale = match unit.to_ascii_lowercase().as_str() {
        "" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        _ => return Err(Fault::NotAHamiSize),
    };
    let count = hami_number(digits, Fault::NotAHamiSize, Fault::HugeSize)?;
    let size = Bytes::new(scale).checked_mul(count).ok_or(Fault::HugeSize)?;
    Ok((size != Bytes::ZERO).then_some(Quota::Size(size)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_the_contract() {
        for (text, bytes) in [
            ("4g", 4 << 30),
            ("4G", 4 << 30),
            ("4Gi", 4 << 30),
            ("4gIb", 4 << 30),
            ("4GiB", 4 << 30),
            ("4096MiB", 4 << 30),
            ("4gb", 4_000_000_000),
            ("4GB", 4_000_000_000),
            ("1500000000", 1_500_000_000),
            ("1", 1),
            ("3k", 3 << 10),
            ("3ki", 3 << 10),
            ("3KiB", 3 << 10),
            ("3kB", 3_000),
            ("5m", 5 << 20),
            ("5mi", 5 << 20),
            ("5MB", 5_000_000),
            ("2t", 2 << 40),
            ("2ti", 2 << 40),
            ("2TIB", 2 << 40),
            ("2tb", 2_000_000_000_000),
            (" \t 4g\n", 4 << 30),
            ("0004g", 4 << 30),
            ("4.5GiB", (9 << 30) / 2),
            ("1.5g", (3 << 30) / 2),
            ("0.5Ki", 512),
            ("1.5kb", 1500),
            ("0.1k", 102),
            ("1.999999999999999999t", (2 << 40) - 1),
            ("3.70gb", 3_700_000_000),
            ("17179869183.9999999999999g", u64::MAX),
        ] {
            assert_eq!(text.parse(), Ok(Quota::Size(Bytes::new(bytes))), "{text:?}");
        }
        assert_eq!("50%".parse(), Ok(Quota::Percent(50)));
        assert_eq!(" 100% ".parse(), Ok(Quota::Percent(100)));
    }

    #[test]
    fn everything_else_is_not_a_size() {
        for text in [
            "",
            "g",
            "GiB",
            "%",
            "4Gigs",
            "1.GiB",
            ".5GiB",
            "1.5.5g",
            "1.-5g",
            "1.0000000000000000000g",
            "4 apples",
            " g",
            "-4g",
            "+4g",
            "4g4",
            "0x10",
            "1e9",
            "4b",
            "4B",
            "4p",
            "12.5%",
            "-1%",
            "４g",
            "4\u{212a}",
            "inf",
            "\"4g\"",
        ] {
            assert_eq!(text.parse::<Quota>(), Err(Fault::NotASize), "{text:?}");
        }
        for text in ["4 g", "50 %", "4.5\tGiB", "1  kb"] {
            assert_eq!(text.parse::<Quota>(), Err(Fault::SpacedUnit), "{text:?}");
        }
        assert_eq!("1.5".parse::<Quota>(), Err(Fault::PartOfAByte));
        for text in ["0", "0g", "00MiB", "0%", "0.0g", "0.0001k"] {
            assert_eq!(text.parse::<Quota>(), Err(Fault::ZeroSize), "{text:?}");
        }
        for text in
            ["18446744073709551616", "17179869184g", "16777216t", "4294967296%", "99999999999999999999%"]
        {
            assert_eq!(text.parse::<Quota>(), Err(Fault::HugeSize), "{text:?}");
        }
    }

    #[test]
    fn powers_of_1000_are_told_in_bytes() {
        for (text, told) in [
            ("4gb", "4gb is 4000000000 bytes, 7 % less than 4GiB"),
            ("0=1GiB, 1 = 1.5MB ", "1.5MB is 1500000 bytes, 5 % less than 1.5MiB"),
            ("1TB", "1TB is 1000000000000 bytes, 9 % less than 1TiB"),
            ("3kB", "3kB is 3000 bytes, 2 % less than 3KiB"),
        ] {
            assert_eq!(in_powers_of_1000(text).as_deref(), Some(told));
        }
        for text in ["4GiB", "4g", "4000000000", "50%", "gb", "", "4xb", "GPU-8=4g", "99999999999999tb"] {
            assert_eq!(in_powers_of_1000(text), None, "{text}");
        }
    }

    #[test]
    fn few_bytes_are_refused_where_they_are_typed() {
        for text in ["4", "4096", "1048575", "0=4GiB,1=4", " 8 "] {
            assert!(
                matches!(refuse_few_bytes(text), Err(ValueError { fault: Fault::FewBytes(_), .. })),
                "{text}"
            );
        }
        for text in ["1048576", "4KiB", "1%", "0=4GiB,1=1500000000", "", "x"] {
            assert_eq!(refuse_few_bytes(text), Ok(()), "{text}");
        }
    }
}
