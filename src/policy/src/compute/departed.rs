//! Who belonged to the slice so lately that NVML still tells of it?
//!
//! A window that NVML tells of lies in the past. Who died meanwhile is no member any more, and its part of the window would
//! be taken for a neighbour's: the others would be trimmed although they are alone.

/// For how long it is remembered, in nanoseconds: the longest window, and as much again to be late.
const KEPT: u64 = 3_000_000_000;

/// The members of the last seconds, each by a number of some kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Departed<Number> {
    /// Their numbers, and when they were members last.
    seen: Vec<(Number, u64)>,
}

impl<Number> Default for Departed<Number> {
    fn default() -> Self {
        Self { seen: Vec::new() }
    }
}

impl<Number: PartialEq> Departed<Number> {
    /// These are members now.
    pub fn note(&mut self, members: impl IntoIterator<Item = Number>, now: u64) {
        for number in members {
            match self.seen.iter_mut().find(|(seen, _)| *seen == number) {
                Some((_, last)) => *last = now,
                None => self.seen.push((number, now)),
            }
        }
        self.seen.retain(|(_, last)| now.saturating_sub(*last) < KEPT);
    }

    /// How many they are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.seen.len()
    }

    /// Whether the process of this number is one, or was.
    #[must_use]
    pub fn was_member(&self, number: &Number) -> bool {
        self.seen.iter().any(|(seen, _)| seen == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_died_is_remembered_for_as_long_as_samples_tell_of_it() {
        let mut departed = Departed::default();
        departed.note([1, 2], 1);
        departed.note([2], KEPT);
        assert!(departed.was_member(&1) && departed.was_member(&2));
        departed.note([2], KEPT + 1);
        assert!(!departed.was_member(&1) && departed.was_member(&2));
        assert!(!departed.was_member(&3));
    }
}
