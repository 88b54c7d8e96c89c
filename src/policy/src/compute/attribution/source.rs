//! The source of measured GPU time, and the reason why no better source works. A word of the region publishes both.

use core::fmt::{self, Display};

/// The source of measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Unknown: nothing was launched.
    Unknown,
    /// Events.
    Events,
    /// Events beside programs that publish nothing. The time slices of these programs count as the slice's time.
    Whole,
    /// NVML alone.
    Nvml,
    /// Events, which fail.
    Failing,
    /// Events, corrected by the intervals that the slices publish.
    Replayed,
    /// Events, corrected by those intervals, beside programs that publish nothing. Time slices of these programs count as
    /// the slices' time.
    ReplayedWhole,
}

impl Source {
    /// Returns true if intervals that slices publish correct the measurements.
    #[must_use]
    pub const fn is_replayed(self) -> bool {
        matches!(self, Self::Replayed | Self::ReplayedWhole)
    }

    /// Returns true if programs that publish nothing use the GPU.
    #[must_use]
    pub const fn is_beside_programs(self) -> bool {
        matches!(self, Self::Whole | Self::ReplayedWhole)
    }
}

/// The reason why NVML gives no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// NVML is absent, or cannot be opened.
    NoNvml,
    /// NVML does not know the device.
    NoDevice,
    /// The device is a MIG instance.
    Mig,
    /// NVML does not distinguish processes.
    NotSupported,
    /// NVML's process numbers are not those of the slice's processes.
    Numbers,
    /// No known clock explains the dates of NVML's samples.
    Undated,
    /// NVML returns an error.
    Failed,
}

const SOURCES: [Source; 7] = [
    Source::Unknown,
    Source::Events,
    Source::Whole,
    Source::Nvml,
    Source::Failing,
    Source::Replayed,
    Source::ReplayedWhole,
];
const WHYS: [Why; 7] =
    [Why::NoNvml, Why::NoDevice, Why::Mig, Why::NotSupported, Why::Numbers, Why::Undated, Why::Failed];
/// Bits of the source in a word. The bits above them have the reason, counted from 1.
const BITS: u32 = 8;

/// The source, and the reason why NVML does not help, if one is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Measured {
    /// The source of measurements.
    pub source: Source,
    /// The reason why NVML does not help.
    pub why: Option<Why>,
}

impl Measured {
    /// Makes a source without a reason.
    #[must_use]
    pub const fn by(source: Source) -> Self {
        Self { source, why: None }
    }

    /// Reads a word. Unknown values mean an unknown source and no reason.
    #[must_use]
    pub fn of_word(word: u32) -> Self {
        let at = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        let source = SOURCES.get(at(word & ((1 << BITS) - 1))).copied().unwrap_or(Source::Unknown);
        Self { source, why: at(word >> BITS).checked_sub(1).and_then(|at| WHYS.get(at).copied()) }
    }

    /// Returns the word for this source and reason.
    #[must_use]
    pub fn word(self) -> u32 {
        let number = |place: Option<usize>| place.and_then(|place| u32::try_from(place).ok());
        let source = number(SOURCES.iter().position(|source| *source == self.source)).unwrap_or(0);
        let why = self.why.and_then(|why| number(WHYS.iter().position(|known| *known == why)));
        source | why.map_or(0, |why| why.saturating_add(1) << BITS)
    }
}

impl Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "not known",
            Self::Events => "events",
            Self::Whole => "events, other programs' turns included",
            Self::Nvml => "NVML",
            Self::Failing => "estimates: events fail",
            Self::Replayed => "events, corrected by the slices' intervals",
            Self::ReplayedWhole => {
                "events, corrected by the slices' intervals, other programs' turns included"
            }
        })
    }
}

impl Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoNvml => "NVML cannot be used",
            Self::NoDevice => "NVML does not know this device",
            Self::Mig => "the device is a MIG instance",
            Self::NotSupported => "NVML does not tell processes apart on this device",
            Self::Numbers => "NVML calls the slice's processes by numbers that are not theirs",
            Self::Undated => "NVML's samples are of no clock that is known",
            Self::Failed => "NVML fails",
        })
    }
}

impl Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.why {
            Some(why) => write!(f, "{} ({why})", self.source),
            None => self.source.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_returns_the_source_that_was_put_into_it() {
        for source in SOURCES {
            for why in WHYS.map(Some).into_iter().chain([None]) {
                let measured = Measured { source, why };
                assert_eq!(Measured::of_word(measured.word()), measured);
            }
        }
        assert_eq!([Source::Events, Source::Whole].map(|source| Measured::by(source).word()), [1, 2]);
    }

    #[test]
    fn a_word_of_somebody_elses_says_nothing() {
        assert_eq!(Measured::of_word(u32::MAX), Measured::by(Source::Unknown));
        assert_eq!(Measured::of_word(9), Measured::by(Source::Unknown));
    }

    #[test]
    fn the_displayed_source_is_a_phrase() {
        let measured = Measured { source: Source::Events, why: Some(Why::Mig) };
        assert_eq!(measured.to_string(), "events (the device is a MIG instance)");
    }
}
