//! Quantities as types: bytes of device memory, shares of a device. [`time`](crate::time) has the quantities of time.
//!
//! Each quantity is an integer in a newtype. Sums are checked or saturate, so no quantity wraps around.

use core::fmt;

/// The written form of a value in a configuration. The reader of the setting returns the same value.
pub trait Setting {
    /// Returns the text of the value after the `=`.
    fn setting(&self) -> String;
}

/// Bytes of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(u64);

/// The powers of 1024 by their names, largest first.
const BINARY_UNITS: [(u64, &str); 4] =
    [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];

impl Bytes {
    /// No bytes.
    pub const ZERO: Self = Self(0);
    /// 1024 bytes.
    pub const KIB: Self = Self(1 << 10);
    /// 1024 KiB.
    pub const MIB: Self = Self(1 << 20);
    /// 1024 MiB.
    pub const GIB: Self = Self(1 << 30);

    /// Makes a quantity of `bytes` bytes.
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Returns the number of bytes.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the sum. `None`: it does not fit in 64 bits.
    #[must_use]
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }

    /// Returns the difference. `None`: `other` is larger.
    #[must_use]
    pub const fn checked_sub(self, other: Self) -> Option<Self> {
        match self.0.checked_sub(other.0) {
            Some(rest) => Some(Self(rest)),
            None => None,
        }
    }

    /// Returns the product. `None`: it does not fit in 64 bits.
    #[must_use]
    pub const fn checked_mul(self, times: u64) -> Option<Self> {
        match self.0.checked_mul(times) {
            Some(product) => Some(Self(product)),
            None => None,
        }
    }

    /// Returns the sum, at most the largest quantity.
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// Returns the difference, at least 0.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// Returns `percent` hundredths, rounded down to a byte.
    #[must_use]
    pub fn percent(self, percent: u32) -> Self {
        let hundredths = u128::from(self.0).saturating_mul(u128::from(percent));
        Self(u64::try_from(hundredths / 100).unwrap_or(u64::MAX))
    }

    /// Returns the largest multiple of `step` that is not larger than this quantity. Returns the quantity itself if `step`
    /// is zero.
    #[must_use]
    pub const fn round_down(self, step: Self) -> Self {
        match self.0.checked_rem(step.0) {
            Some(rest) => Self(self.0.saturating_sub(rest)),
            None => self,
        }
    }

    /// Returns the largest binary unit of which this is a whole number, and that number.
    fn in_whole_units(self) -> Option<(u64, &'static str)> {
        BINARY_UNITS
            .iter()
            .find(|(unit, _)| self.0 != 0 && self.0.is_multiple_of(*unit))
            .and_then(|(unit, name)| Some((self.0.checked_div(*unit)?, *name)))
    }
}

/// Writes `4GiB`, `512MiB`, `1500000000 B`: exact, in the largest possible unit.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.in_whole_units() {
            Some((count, unit)) => write!(f, "{count}{unit}"),
            None => write!(f, "{} B", self.0),
        }
    }
}

impl Setting for Bytes {
    fn setting(&self) -> String {
        self.in_whole_units().map_or_else(|| self.0.to_string(), |(count, unit)| format!("{count}{unit}"))
    }
}

/// A part of a device in thousandths, at most the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Permille(u16);

impl Permille {
    /// The whole device.
    pub const FULL: Self = Self(1000);
    /// Smallest share of a configuration: one percent.
    pub const LEAST: Self = Self(10);

    /// Makes a permille of `thousandths`. `None`: more than the whole.
    #[must_use]
    pub const fn new(thousandths: u16) -> Option<Self> {
        if thousandths <= Self::FULL.0 { Some(Self(thousandths)) } else { None }
    }

    /// Returns the number of thousandths.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }

    /// Returns true if the share is less than the whole device.
    #[must_use]
    pub const fn is_partial(self) -> bool {
        self.0 < Self::FULL.0
    }
}

/// Writes `30%`, `12.5%`.
impl fmt::Display for Permille {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.setting())
    }
}

impl Setting for Permille {
    fn setting(&self) -> String {
        match (self.0 / 10, self.0 % 10) {
            (whole, 0) => whole.to_string(),
            (whole, tenth) => format!("{whole}.{tenth}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shown_in_the_largest_unit_that_is_exact() {
        for (bytes, shown, written) in [
            (4 << 30, "4GiB", "4GiB"),
            (512 << 20, "512MiB", "512MiB"),
            (1_500_000_000, "1500000000 B", "1500000000"),
            (0, "0 B", "0"),
            (1 << 40, "1TiB", "1TiB"),
            (3 << 10, "3KiB", "3KiB"),
            (u64::MAX, "18446744073709551615 B", "18446744073709551615"),
        ] {
            assert_eq!(Bytes::new(bytes).to_string(), shown);
            assert_eq!(Bytes::new(bytes).setting(), written);
        }
    }

    #[test]
    fn sums_of_bytes_are_refused_or_stop_at_the_end_and_never_wrap() {
        let (most, one) = (Bytes::new(u64::MAX), Bytes::new(1));
        assert_eq!(most.checked_add(one), None);
        assert_eq!(most.saturating_add(one), most);
        assert_eq!(Bytes::ZERO.checked_sub(one), None);
        assert_eq!(Bytes::ZERO.saturating_sub(one), Bytes::ZERO);
        assert_eq!(most.checked_mul(2), None);
        assert_eq!(most.percent(u32::MAX), most);
    }

    #[test]
    fn rounding_down_keeps_whole_steps_and_ignores_a_step_of_nothing() {
        assert_eq!(Bytes::new((5 << 20) + 7).round_down(Bytes::MIB), Bytes::new(5 << 20));
        assert_eq!(Bytes::new(7).round_down(Bytes::MIB), Bytes::ZERO);
        assert_eq!(Bytes::new(7).round_down(Bytes::ZERO), Bytes::new(7));
    }

    #[test]
    fn a_share_is_never_more_than_the_whole_device() {
        assert_eq!(Permille::new(1001), None);
        assert_eq!(Permille::new(1000), Some(Permille::FULL));
        assert_eq!(Permille::new(125).map(|share| share.to_string()), Some("12.5%".into()));
        assert_eq!(Permille::new(300).map(|share| share.setting()), Some("30".into()));
    }
}
