//! Quantities of time as types: spans of GPU time, spans of wall time, instants of the monotonic clock.
//!
//! Example: a slice with half a GPU launches a kernel that takes 3 ms of GPU time. The slice pays with 6 ms of wall time.
//! So its time is paid up to an instant that is 6 ms later.
//!
//! Each type is an integer of nanoseconds. Sums and differences stop at the ends of the range; nothing wraps around. The
//! types do not mix:
//!
//! ```compile_fail,E0308
//! use gpuslice_policy::time::{GpuTime, WallTime};
//! let sum = GpuTime::from_millis(3) + WallTime::from_millis(6);
//! ```
//!
//! ```compile_fail,E0308
//! use gpuslice_policy::time::{GpuTime, WallTime};
//! let sum = GpuTime::from_millis(3).saturating_add(WallTime::from_millis(6));
//! ```
//!
//! ```compile_fail,E0308
//! use gpuslice_policy::time::{GpuTime, Monotonic};
//! let paid_until = Monotonic::BEGIN + GpuTime::from_millis(3);
//! ```
//!
//! A rate turns one kind of span into the other: [`RateLimit`](crate::compute::limiter::token_bucket::RateLimit). Without a
//! rate, [`GpuTime::wall_if_alone`] and [`WallTime::gpu_if_alone`] do so for work that has the GPU to itself:
//!
//! ```
//! use gpuslice_policy::time::{GpuTime, Monotonic, WallTime};
//! let end = Monotonic::BEGIN + GpuTime::from_millis(3).wall_if_alone();
//! assert_eq!(end.since(Monotonic::BEGIN), WallTime::from_millis(3));
//! ```

use core::fmt;
use core::ops::{Add, AddAssign, Mul, Sub};
use core::time::Duration;

use crate::units::Setting;

/// Largest GPU time that is saved up, owed or measured at once: one minute.
pub const MOST_GPU_TIME: GpuTime = GpuTime::from_millis(60_000);

/// The units of time by their names, largest first.
pub(crate) const TIME_UNITS: [(u64, &str); 4] =
    [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")];

/// A number of nanoseconds, as every span and every instant is. Code that is the same for all of these types uses this
/// trait.
pub trait Nanos: Copy + Ord {
    /// Makes the span or the instant of `nanoseconds`.
    fn from_nanos(nanoseconds: u64) -> Self;
    /// Returns the number of nanoseconds.
    fn nanos(self) -> u64;
}

/// Defines a span or an instant: a number of nanoseconds.
macro_rules! nanoseconds {
    ($(#[$meaning:meta])* $name:ident) => {
        $(#[$meaning])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(transparent)]
        pub struct $name(u64);

        impl $name {
            /// Makes the span or the instant of `nanoseconds`.
            #[inline]
            #[must_use]
            pub const fn from_nanos(nanoseconds: u64) -> Self {
                Self(nanoseconds)
            }

            /// Returns the number of nanoseconds.
            #[inline]
            #[must_use]
            pub const fn nanos(self) -> u64 {
                self.0
            }
        }

        impl Nanos for $name {
            #[inline]
            fn from_nanos(nanoseconds: u64) -> Self {
                Self(nanoseconds)
            }

            #[inline]
            fn nanos(self) -> u64 {
                self.0
            }
        }
    };
}

/// Defines a span of time in nanoseconds.
macro_rules! span {
    ($(#[$meaning:meta])* $name:ident) => {
        nanoseconds! {
            $(#[$meaning])*
            $name
        }

        impl $name {
            /// No time.
            pub const ZERO: Self = Self(0);
            /// The shortest span that is not zero.
            pub const NANOSECOND: Self = Self(1);
            /// The longest span.
            pub const MAX: Self = Self(u64::MAX);

            /// Makes a span of `microseconds`, at most the longest span.
            #[inline]
            #[must_use]
            pub const fn from_micros(microseconds: u64) -> Self {
                Self(microseconds.saturating_mul(1_000))
            }

            /// Makes a span of `milliseconds`, at most the longest span.
            #[inline]
            #[must_use]
            pub const fn from_millis(milliseconds: u64) -> Self {
                Self(milliseconds.saturating_mul(1_000_000))
            }

            /// Returns true if the span is zero.
            #[inline]
            #[must_use]
            pub const fn is_zero(self) -> bool {
                self.0 == 0
            }

            /// Returns the sum, at most the longest span.
            #[inline]
            #[must_use]
            pub const fn saturating_add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }

            /// Returns the difference, at least zero.
            #[inline]
            #[must_use]
            pub const fn saturating_sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }

            /// Returns the difference. `None`: `other` is longer.
            #[inline]
            #[must_use]
            pub const fn checked_sub(self, other: Self) -> Option<Self> {
                match self.0.checked_sub(other.0) {
                    Some(rest) => Some(Self(rest)),
                    None => None,
                }
            }

            /// Returns `times` such spans, at most the longest span.
            #[inline]
            #[must_use]
            pub const fn saturating_mul(self, times: u64) -> Self {
                Self(self.0.saturating_mul(times))
            }

            /// Returns one of `parts` equal parts, rounded down to a nanosecond; all of it for 0 parts.
            #[inline]
            #[must_use]
            pub const fn part(self, parts: u64) -> Self {
                match self.0.checked_div(parts) {
                    Some(part) => Self(part),
                    None => self,
                }
            }

            /// Returns how many spans of `length` fit into this one; 0 if `length` is zero.
            #[inline]
            #[must_use]
            pub const fn count(self, length: Self) -> u64 {
                match self.0.checked_div(length.0) {
                    Some(count) => count,
                    None => 0,
                }
            }

            /// Returns the span times `numerator` over `denominator`, rounded down to a nanosecond. `None`: the denominator
            /// is 0, or the result would be too long.
            #[must_use]
            pub fn scaled(self, numerator: u64, denominator: u64) -> Option<Self> {
                let product = u128::from(self.0).saturating_mul(u128::from(numerator));
                u64::try_from(product.checked_div(u128::from(denominator))?).ok().map(Self)
            }
        }

        /// The sum, at most the longest span.
        impl Add for $name {
            type Output = Self;

            #[inline]
            fn add(self, other: Self) -> Self {
                self.saturating_add(other)
            }
        }

        impl AddAssign for $name {
            #[inline]
            fn add_assign(&mut self, other: Self) {
                *self = self.saturating_add(other);
            }
        }

        /// The difference, at least zero.
        impl Sub for $name {
            type Output = Self;

            #[inline]
            fn sub(self, other: Self) -> Self {
                self.saturating_sub(other)
            }
        }

        /// The product, at most the longest span.
        impl Mul<$name> for u64 {
            type Output = $name;

            #[inline]
            fn mul(self, span: $name) -> $name {
                span.saturating_mul(self)
            }
        }

        /// Writes `20ms`, `1500us`, `1s`: exact, in the largest possible unit.
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let (unit, name) = TIME_UNITS
                    .into_iter()
                    .find(|(unit, _)| self.0 != 0 && self.0.is_multiple_of(*unit))
                    .unwrap_or((1, "ns"));
                write!(f, "{}{name}", self.0.checked_div(unit).unwrap_or(self.0))
            }
        }
    };
}

span! {
    /// A span of GPU time in nanoseconds: the time of one whole GPU that work uses, and that a slice is charged. Credits, debts,
    /// leases, bursts and the costs of launches are such spans.
    GpuTime
}

span! {
    /// A span of wall time in nanoseconds: the distance of two instants, on the monotonic clock or between timing events.
    WallTime
}

impl GpuTime {
    /// Returns the wall time that work takes if it has the GPU to itself: the same number. With neighbours it takes longer.
    #[inline]
    #[must_use]
    pub const fn wall_if_alone(self) -> WallTime {
        WallTime(self.0)
    }

    /// Returns the time after a charge or a refund, at least zero and at most the longest span.
    #[inline]
    #[must_use]
    pub const fn changed_by(self, change: GpuTimeChange) -> Self {
        Self(self.0.saturating_add_signed(change.0))
    }

    /// Returns the difference as a charge or a refund, at most the largest one.
    #[inline]
    #[must_use]
    pub const fn less(self, other: Self) -> GpuTimeChange {
        if self.0 >= other.0 {
            GpuTimeChange::charge(self.saturating_sub(other))
        } else {
            GpuTimeChange::refund(other.saturating_sub(self))
        }
    }
}

impl Setting for GpuTime {
    fn setting(&self) -> String {
        self.to_string()
    }
}

impl WallTime {
    /// Returns a duration of the standard library as a span, at most the longest span.
    #[must_use]
    pub fn of(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Returns the span as a duration of the standard library.
    #[inline]
    #[must_use]
    pub const fn duration(self) -> Duration {
        Duration::from_nanos(self.0)
    }

    /// Returns the GPU time of work that takes this wall time and has the GPU to itself: the same number. Work beside
    /// others gets less.
    #[inline]
    #[must_use]
    pub const fn gpu_if_alone(self) -> GpuTime {
        GpuTime(self.0)
    }
}

/// A change of the GPU time that a slice is charged, in nanoseconds: a charge above 0, a refund below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(transparent)]
pub struct GpuTimeChange(i64);

impl GpuTimeChange {
    /// No change.
    pub const NONE: Self = Self(0);

    /// Makes a change of `nanoseconds`.
    #[inline]
    #[must_use]
    pub const fn from_nanos(nanoseconds: i64) -> Self {
        Self(nanoseconds)
    }

    /// Returns the number of nanoseconds, below 0 for a refund.
    #[inline]
    #[must_use]
    pub const fn nanos(self) -> i64 {
        self.0
    }

    /// Makes a charge of `time`, at most the largest one.
    #[inline]
    #[must_use]
    pub const fn charge(time: GpuTime) -> Self {
        Self(0_i64.saturating_add_unsigned(time.0))
    }

    /// Makes a refund of `time`, at most the largest one.
    #[inline]
    #[must_use]
    pub const fn refund(time: GpuTime) -> Self {
        Self(Self::charge(time).0.saturating_neg())
    }

    /// Returns true if the change is a refund.
    #[inline]
    #[must_use]
    pub const fn is_refund(self) -> bool {
        self.0 < 0
    }

    /// Returns true if nothing changes.
    #[inline]
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Returns the GPU time that is charged or refunded.
    #[inline]
    #[must_use]
    pub const fn amount(self) -> GpuTime {
        GpuTime(self.0.unsigned_abs())
    }

    /// Returns both changes as one, at most the largest one.
    #[inline]
    #[must_use]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

nanoseconds! {
    /// An instant of the monotonic clock, in nanoseconds since its beginning.
    Monotonic
}

impl Monotonic {
    /// The beginning of the clock. In a word of a region it stands for no instant: the event that the word dates never
    /// happened.
    pub const BEGIN: Self = Self(0);
    /// The last instant, which never comes.
    pub const NEVER: Self = Self(u64::MAX);

    /// Returns the time since an earlier instant; zero if `earlier` is later.
    #[inline]
    #[must_use]
    pub const fn since(self, earlier: Self) -> WallTime {
        WallTime(self.0.saturating_sub(earlier.0))
    }

    /// Returns the instant that is `span` later, at most the last one.
    #[inline]
    #[must_use]
    pub const fn saturating_add(self, span: WallTime) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// Returns the instant that is `span` earlier, at least the beginning of the clock.
    #[inline]
    #[must_use]
    pub const fn saturating_sub(self, span: WallTime) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

/// The instant that is `span` later, at most the last one.
impl Add<WallTime> for Monotonic {
    type Output = Self;

    #[inline]
    fn add(self, span: WallTime) -> Self {
        self.saturating_add(span)
    }
}

impl AddAssign<WallTime> for Monotonic {
    #[inline]
    fn add_assign(&mut self, span: WallTime) {
        *self = self.saturating_add(span);
    }
}

/// The instant that is `span` earlier, at least the beginning of the clock.
impl Sub<WallTime> for Monotonic {
    type Output = Self;

    #[inline]
    fn sub(self, span: WallTime) -> Self {
        self.saturating_sub(span)
    }
}

/// Functions that make a time from a number. The place where the call stands decides about its type. They are for tables
/// and tests, which would otherwise consist mostly of types.
pub mod literals {
    use super::Nanos;

    /// Returns a time of `nanoseconds`.
    #[must_use]
    pub fn ns<T: Nanos>(nanoseconds: u64) -> T {
        T::from_nanos(nanoseconds)
    }

    /// Returns a time of `microseconds`, at most the largest one.
    #[must_use]
    pub fn us<T: Nanos>(microseconds: u64) -> T {
        ns(microseconds.saturating_mul(1_000))
    }

    /// Returns a time of `milliseconds`, at most the largest one.
    #[must_use]
    pub fn ms<T: Nanos>(milliseconds: u64) -> T {
        ns(milliseconds.saturating_mul(1_000_000))
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use super::GpuTimeChange;

    /// Returns a charge of `nanoseconds`, or a refund if they are below 0.
    pub(crate) fn charge(nanoseconds: i64) -> GpuTimeChange {
        GpuTimeChange::from_nanos(nanoseconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_of_time_are_shown_in_the_largest_unit_that_is_exact() {
        for (nanos, shown) in
            [(20_000_000, "20ms"), (1_500_000, "1500us"), (0, "0ns"), (60_000_000_000, "60s")]
        {
            assert_eq!(GpuTime::from_nanos(nanos).to_string(), shown);
        }
        assert_eq!(GpuTime::from_millis(u64::MAX), GpuTime::MAX);
    }

    #[test]
    fn spans_and_instants_stop_at_the_ends_of_their_range() {
        let (one, most) = (WallTime::from_nanos(1), WallTime::MAX);
        assert_eq!([most + one, one - most, 2 * most], [most, WallTime::ZERO, most]);
        assert_eq!([Monotonic::NEVER + one, Monotonic::BEGIN - one], [Monotonic::NEVER, Monotonic::BEGIN]);
        assert_eq!(Monotonic::BEGIN.since(Monotonic::NEVER), WallTime::ZERO);
        assert_eq!(most.scaled(3, 2), None);
        assert_eq!(
            [WallTime::from_nanos(7).scaled(2, 3), one.scaled(1, 0)],
            [Some(WallTime::from_nanos(4)), None]
        );
        assert_eq!([7, 0].map(|parts| WallTime::from_nanos(20).part(parts).nanos()), [2, 20]);
        assert_eq!([6, 0].map(|length| WallTime::from_nanos(20).count(WallTime::from_nanos(length))), [3, 0]);
    }

    #[test]
    fn a_change_is_a_charge_or_a_refund() {
        let time = GpuTime::from_nanos;
        assert_eq!(time(3).less(time(5)), GpuTimeChange::refund(time(2)));
        assert_eq!(time(5).less(time(3)), GpuTimeChange::charge(time(2)));
        assert!(time(3).less(time(5)).is_refund() && time(3).less(time(3)).is_none());
        assert_eq!(GpuTime::MAX.less(time(0)).nanos(), i64::MAX);
        assert_eq!(time(0).less(GpuTime::MAX).amount(), time(i64::MAX.unsigned_abs()));
    }
}
