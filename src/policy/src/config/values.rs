//! Reads values: sizes, shares, durations, and lists of them per device.

use core::str::FromStr;

use super::device::{DeviceIdentity, DeviceName};
use super::faults::{Fault, ValueError};
use crate::units::{Bytes, Nanos, Permille, Setting, TIME_UNITS};

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
    /// Whether the setting exceeds the device.
    pub(super) clamped: bool,
}

impl Quota {
    /// The quota on a device of `total` bytes. A percentage is rounded down to a MiB. The quota is at most the
    /// device, and at least 1 byte, because zero could later be taken for no quota.
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

/// One value for every device, or values for some of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PerDevice<T> {
    /// Devices with their own value.
    pub named: Vec<(DeviceName, T)>,
    /// The value of every other device, if there is one.
    pub others: Option<T>,
}

impl<T> Default for PerDevice<T> {
    fn default() -> Self {
        Self { named: Vec::new(), others: None }
    }
}

impl<T: Copy> PerDevice<T> {
    /// One value for every device.
    #[must_use]
    pub fn everywhere(value: T) -> Self {
        Self { named: Vec::new(), others: Some(value) }
    }

    /// The list as an operator's file means it: numbers are bus numbers.
    #[must_use]
    pub(super) fn of_operator(self) -> Self {
        let named = self.named.into_iter().map(|(name, value)| (name.of_operator(), value));
        Self { named: named.collect(), ..self }
    }

    /// Whether the list names a device by its bus number.
    pub(super) fn counts_on_bus(&self) -> bool {
        self.named.iter().any(|(name, _)| matches!(name, DeviceName::Bus(_)))
    }

    /// All values of the list.
    pub fn values(&self) -> impl Iterator<Item = T> {
        self.named.iter().map(|(_, value)| *value).chain(self.others)
    }

    /// The names that match none of `devices`.
    #[must_use]
    pub fn absent(&self, devices: &[DeviceIdentity]) -> Vec<DeviceName> {
        let is_there = |name: &DeviceName| devices.iter().any(|device| name.matches(device));
        self.named.iter().map(|(name, _)| *name).filter(|name| !is_there(name)).collect()
    }

    /// The values for a device: those of the items that name it, otherwise the value of the others.
    pub(super) fn of(&self, device: &DeviceIdentity) -> Vec<T> {
        let named: Vec<T> =
            self.named.iter().filter(|(name, _)| name.matches(device)).map(|(_, value)| *value).collect();
        if named.is_empty() { self.others.into_iter().collect() } else { named }
    }
}

/// Reads a value, or a list such as `0=VALUE,GPU-<uuid>=VALUE`.
impl<T: FromStr<Err = Fault>> FromStr for PerDevice<T> {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        if !text.contains(['=', ',']) {
            return Ok(Self { named: Vec::new(), others: Some(text.parse()?) });
        }
        if let Some(point) = decimal_comma(text).filter(|point| point.parse::<T>().is_ok()) {
            return Err(Fault::DecimalComma(point).into());
        }
        let mut named = Vec::new();
        for item in text.split(',').map(str::trim_ascii) {
            let read = list_item(item, &named);
            named.push(read.map_err(|fault| ValueError { part: Some(item.to_owned()), fault })?);
        }
        Ok(Self { named, others: None })
    }
}

/// Writes `0=4GiB,1=50%`, or the value for all devices. Only HAMi's variables can set values for some devices and for
/// the others; then the value for the others is written with `others=`.
impl<T: Setting> Setting for PerDevice<T> {
    fn setting(&self) -> String {
        let named = self.named.iter().map(|(name, value)| format!("{name}={}", value.setting()));
        let others = self.others.iter().map(|value| {
            if self.named.is_empty() { value.setting() } else { format!("others={}", value.setting()) }
        });
        named.chain(others).collect::<Vec<_>>().join(",")
    }
}

/// A number with a decimal comma, in the form with a point.
fn decimal_comma(text: &str) -> Option<String> {
    let text = text.trim_ascii();
    let (whole, rest) = text.split_once(',')?;
    let is_number = number(whole, Fault::NotAnItem, Fault::NotAnItem).is_ok();
    (is_number && rest.starts_with(|first: char| first.is_ascii_digit())).then(|| format!("{whole}.{rest}"))
}

/// Reads `device=value`. No earlier item of the list may name the device.
fn list_item<T: FromStr<Err = Fault>>(
    item: &str,
    earlier: &[(DeviceName, T)],
) -> Result<(DeviceName, T), Fault> {
    let (name, value) = item.split_once('=').ok_or(Fault::NotAnItem)?;
    let name: DeviceName = name.trim_ascii().parse()?;
    if earlier.iter().any(|(other, _)| other.overlaps(&name)) {
        return Err(Fault::DeviceTwice);
    }
    Ok((name, value.parse()?))
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
/// Largest number of digits after the point of a size. A TiB has 13 digits, so more mean nothing.
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

/// The bytes of the digits after a point, rounded down.
fn part(digits: &str, scale: u64) -> Option<Bytes> {
    if digits.is_empty() || digits.len() > FRACTION_DIGITS {
        return None;
    }
    let parts: u64 = digits.parse().ok()?;
    let of = 10_u128.checked_pow(u32::try_from(digits.len()).ok()?)?;
    let bytes = u128::from(parts).checked_mul(u128::from(scale))?.checked_div(of)?;
    u64::try_from(bytes).ok().map(Bytes::new)
}

/// Explains a quota in powers of 1000, in bytes and beside the power of 1024: `4gb is 4000000000 bytes, 7 % less than
/// 4GiB`.
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

/// Refuses a quota that is a number of bytes too small for any program: the user meant a MiB or more.
///
/// `text` is a value of `GPU_MEM_LIMIT` as a person types it.
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
/// HAMi reads the digits that it knows and drops the rest. It takes a leading zero for octal, and an overflow for no
/// quota. Values that HAMi misreads are refused here.
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

/// Reads a share in HAMi's form: whole percent. Zero sets nothing; 100 and more are no limit.
pub(super) fn parse_hami_share(text: &str) -> Result<Option<Permille>, Fault> {
    let percent = hami_number(text.trim_ascii(), Fault::NotAHamiShare, Fault::NotAHamiShare)?;
    let thousandths = u16::try_from(percent.min(100).saturating_mul(10)).unwrap_or(u16::MAX);
    Ok(Permille::new(thousandths).filter(|share| *share >= Permille::LEAST))
}

/// Reads a number that HAMi reads alike. A leading zero means octal to HAMi, so it is refused.
fn hami_number(digits: &str, malformed: Fault, overflow: Fault) -> Result<u64, Fault> {
    let octal = digits.len() > 1 && digits.starts_with('0');
    if octal { Err(malformed) } else { number(digits, malformed, overflow) }
}

/// Reads a duration above zero: digits, directly followed by a unit.
pub(super) fn parse_duration(text: &str) -> Option<Nanos> {
    let (digits, unit) = split_number(text);
    let (scale, _) = TIME_UNITS.into_iter().find(|(_, name)| name.eq_ignore_ascii_case(unit))?;
    let span = digits.parse::<u64>().ok()?.checked_mul(scale)?;
    (span > 0).then_some(Nanos::new(span))
}

/// Splits a text after its leading digits.
fn split_number(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    text.split_at_checked(end).unwrap_or((text, ""))
}

/// Reads digits only.
fn number(digits: &str, malformed: Fault, overflow: Fault) -> Result<u64, Fault> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(malformed);
    }
    digits.parse().map_err(|_| overflow)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_mean_what_the_contract_says() {
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
            assert_eq!(parse_duration(text), Some(Nanos::new(nanos)), "{text:?}");
        }
        for text in ["", "20", "ms", "0ms", "-1ms", "1.5s", "20 ms", "1m", "18446744073709551615s"] {
            assert_eq!(parse_duration(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_comma_between_digits_is_answered_with_a_point_where_that_is_right() {
        let fault = |text: &str| text.parse::<PerDevice<Permille>>().unwrap_err().fault;
        assert_eq!(fault(" 12,5 "), Fault::DecimalComma("12.5".to_owned()));
        for text in ["12,55", "30,50", "12,", ",5", "12,5,5", "0=12,5"] {
            assert_eq!(fault(text), Fault::NotAnItem, "{text}");
        }
        let size = "4,5GiB".parse::<PerDevice<Quota>>().unwrap_err();
        assert_eq!(size, Fault::DecimalComma("4.5GiB".to_owned()).into());
        assert_eq!("4,8".parse::<PerDevice<Quota>>().unwrap_err().fault, Fault::NotAnItem);
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

    #[test]
    fn a_list_cannot_say_two_things_about_one_device() {
        for text in ["0=1g,0=2g", "0=1g,00=1g", "GPU-89=1g,GPU-8932=2g", "MIG-89=1g,GPU-89=1g"] {
            let error = text.parse::<PerDevice<Quota>>().unwrap_err();
            assert_eq!(error.fault, Fault::DeviceTwice, "{text}");
        }
        for text in ["4g,1=2g", "0=1g,4g", ",", "=", "0=", "=4g", "0=1g;1=2g", "0=1g=2g", "0=0", "0=1g,,1=2g"]
        {
            assert!(text.parse::<PerDevice<Quota>>().is_err(), "{text}");
        }
    }
}
