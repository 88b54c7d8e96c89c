//! Gives numbers to the contexts of all slices that get each other's intervals from the agent.

use gpuslice_policy::time::Monotonic;

/// Numbers for the contexts of one slice. A replay follows 64 contexts of a GPU, so a slice with many contexts must not take
/// all of them.
const CONTEXTS: u16 = 16;
/// Most slices that have numbers at a time.
pub(super) const SLICES: u16 = u16::MAX / CONTEXTS;

/// The contexts of a slice that published an interval last.
#[derive(Debug, Default)]
pub(super) struct Contexts {
    /// Each context with the time of its last interval.
    known: Vec<(u16, Monotonic)>,
}

impl Contexts {
    /// Returns the number of a context. `slice` is the number of its slice. If the slice's numbers are all taken, the context
    /// takes over a number: that of the context which has published nothing for the longest time.
    pub(super) fn number(&mut self, slice: u16, context: u16, now: Monotonic) -> u16 {
        let known = self.known.iter().position(|(known, _)| *known == context);
        let place = known.unwrap_or_else(|| self.place_for_another());
        if let Some(known) = self.known.get_mut(place) {
            *known = (context, now);
        }
        slice.saturating_mul(CONTEXTS).saturating_add(u16::try_from(place).unwrap_or(0))
    }

    fn place_for_another(&mut self) -> usize {
        if self.known.len() < usize::from(CONTEXTS) {
            self.known.push((0, Monotonic::BEGIN));
            return self.known.len().saturating_sub(1);
        }
        let oldest = self.known.iter().enumerate().min_by_key(|(_, (_, at))| *at);
        oldest.map_or(0, |(place, _)| place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuslice_policy::time::literals::ns;

    #[test]
    fn contexts_of_two_slices_have_different_numbers_and_keep_them() {
        let (mut first, mut second) = (Contexts::default(), Contexts::default());
        let numbers = [first.number(0, 7, ns(1)), first.number(0, 9, ns(2)), second.number(1, 7, ns(3))];
        assert_eq!(numbers, [0, 1, 16]);
        assert_eq!((first.number(0, 9, ns(4)), second.number(1, 7, ns(4))), (1, 16));
    }

    #[test]
    fn a_slice_has_no_more_numbers_than_its_own() {
        let mut contexts = Contexts::default();
        let numbers: Vec<u16> =
            (0..100).map(|context| contexts.number(2, context, ns(context.into()))).collect();
        assert!(numbers.iter().all(|number| (32..48).contains(number)), "{numbers:?}");
        // The contexts that published last all have different numbers.
        let last: std::collections::BTreeSet<u16> =
            (84..100).map(|context| contexts.number(2, context, ns(100))).collect();
        assert_eq!(last.len(), 16);
    }
}
