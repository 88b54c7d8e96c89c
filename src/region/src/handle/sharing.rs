//! How does a slice share a GPU's time with other slices? Three settings in one word, because they change together.

use gpuslice_policy::config::{CorePolicy, Priority};

/// How a slice shares a GPU's time with other slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// How the slices divide the time.
    pub policy: CorePolicy,
    /// Who goes first.
    pub priority: Priority,
    /// What the slice counts for among those of its policy and priority: 1 to 1000.
    pub weight: u32,
}

impl Sharing {
    /// A cap that takes nothing from others and gets nothing from them, as most slices have it.
    pub const FIXED: Self = Self { policy: CorePolicy::Fixed, priority: Priority::Normal, weight: 100 };
    /// The most that a slice can count for.
    const MOST_WEIGHT: u32 = 1000;

    /// Whether anything but the limit says what the slice may use: others do, by policy or by priority.
    #[must_use]
    pub fn divides(self) -> bool {
        self.policy != CorePolicy::Fixed || self.priority != Priority::Normal
    }

    /// Brought into its range.
    pub(crate) fn bounded(self) -> Self {
        Self { weight: self.weight.clamp(1, Self::MOST_WEIGHT), ..self }
    }

    /// As a word: policy in bits 0 to 7, priority in 8 to 15, weight from 16 on.
    pub(crate) fn word(self) -> u64 {
        let policy = match self.policy {
            CorePolicy::Fixed => 0,
            CorePolicy::Equal => 1,
            CorePolicy::BestEffort => 2,
        };
        let priority = match self.priority {
            Priority::Normal => 0,
            Priority::High => 1,
            Priority::Low => 2,
        };
        policy | priority << 8 | u64::from(self.bounded().weight) << 16
    }

    /// What a word says; where it means nothing, what most slices have.
    pub(crate) fn of(word: u64) -> Self {
        let policy = match word & 0xff {
            1 => CorePolicy::Equal,
            2 => CorePolicy::BestEffort,
            _ => CorePolicy::Fixed,
        };
        let priority = match word >> 8 & 0xff {
            1 => Priority::High,
            2 => Priority::Low,
            _ => Priority::Normal,
        };
        let weight = match u32::try_from(word >> 16).unwrap_or(Self::MOST_WEIGHT) {
            0 => Self::FIXED.weight,
            weight => weight,
        };
        Self { policy, priority, weight }.bounded()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_means_nothing_is_what_most_have() {
        for policy in [CorePolicy::Fixed, CorePolicy::Equal, CorePolicy::BestEffort] {
            for priority in [Priority::Low, Priority::Normal, Priority::High] {
                for weight in [1, 100, 1000] {
                    let sharing = Sharing { policy, priority, weight };
                    assert_eq!(Sharing::of(sharing.word()), sharing);
                }
            }
        }
        assert_eq!(Sharing::of(0), Sharing::FIXED);
        assert_eq!(Sharing::of(u64::MAX), Sharing { weight: 1000, ..Sharing::FIXED });
        assert_eq!(Sharing { weight: 0, ..Sharing::FIXED }.bounded().weight, 1);
    }
}
