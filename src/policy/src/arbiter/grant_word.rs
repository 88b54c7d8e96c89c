//! Two shared words of the arbiter: the grant of a slice, and the holder of the arbiter lease.

use crate::compute::limiter::token_bucket::RateLimit;
use crate::units::{Nanos, Permille};

/// Nanoseconds without a new grant after which a slice uses its own terms: 1 s.
pub const STALE: u64 = 1_000_000_000;
/// Nanoseconds of silence after which an arbiter loses its lease: 100 ms.
pub const PATIENCE: u64 = 100_000_000;

/// The grant of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// Rate and burst.
    pub terms: RateLimit,
    /// Wall nanoseconds by which the slice's word moves back. Otherwise the GPU would be idle.
    pub gift: u64,
    /// The most work that a process of the slice may have queued, in nanoseconds of GPU time.
    pub queue_bound: u64,
}

/// Bits of a rate.
const RATE: u32 = 10;
/// Bits of a span: a saved or queued time in units of 2^20 ns.
const SPAN: u32 = 8;
/// The unit of spans and instants as a power of two in nanoseconds: 2^20 ns, about 1 ms.
const UNIT: u32 = 20;
/// A span with all bits set: the slice's own value.
const OWN: u64 = (1 << SPAN) - 1;
/// Bits of the holder's number. The instant is above them.
const WHO: u32 = 24;

/// Returns the word of a grant at the instant `now`: rate, burst, queue bound and instant in one word, so that they change
/// together.
///
/// Spans are rounded up to multiples of 1.05 ms. A span of 255 multiples or more stands for the slice's own value. A
/// word of 0 grants nothing.
#[must_use]
pub fn encode(given: &Grant, now: u64) -> u64 {
    let span = |time: u64| time.div_ceil(1 << UNIT).min(OWN);
    let rate = u64::from(given.terms.rate().get()).max(1);
    let at = (now >> UNIT).max(1) << (RATE.saturating_add(2 * SPAN));
    at | span(given.queue_bound) << (RATE.saturating_add(SPAN)) | span(given.terms.burst()) << RATE | rate
}

/// Returns the terms of a grant, whatever its age, and the queue bound of a process in nanoseconds. The terms are at most `own`.
/// Without a grant they are `own`, and there is no bound.
#[must_use]
pub fn decode(word: u64, own: RateLimit) -> (RateLimit, Option<u64>) {
    let thousandths = u16::try_from(word & ((1 << RATE) - 1)).ok().and_then(Permille::new);
    let Some(rate) = thousandths.filter(|rate| rate.get() > 0) else { return (own, None) };
    let span = |bits: u32| match (word >> bits) & OWN {
        OWN => u64::MAX,
        units => units << UNIT,
    };
    let burst = span(RATE).min(own.burst());
    (RateLimit::new(rate.min(own.rate()), Nanos::new(burst)), Some(span(RATE.saturating_add(SPAN))))
}

/// Returns true if the arbiter has been silent for so long that a word is invalid. A word of 0 is never stale.
#[must_use]
pub fn is_stale(word: u64, now: u64) -> bool {
    let at = written_at(word);
    word != 0 && (now.saturating_sub(at) >= STALE || at > now.saturating_add(STALE))
}

/// Returns the terms that apply now: the [decoded](decode) ones, or `own` if the arbiter has been silent.
#[must_use]
pub fn current(word: u64, own: RateLimit, now: u64) -> (RateLimit, Option<u64>) {
    decode(if is_stale(word, now) { 0 } else { word }, own)
}

/// Returns true if `new` must replace `word`: the content differs, or the old word will soon be stale.
#[must_use]
pub fn must_write(word: u64, new: u64, now: u64) -> bool {
    // The content, without the instant.
    let about = |word: u64| word << u64::BITS.saturating_sub(RATE.saturating_add(2 * SPAN));
    about(word) != about(new) || is_stale(word, now.saturating_add(STALE / 2))
}

/// Returns the instant of a grant, in nanoseconds.
const fn written_at(word: u64) -> u64 {
    (word >> (RATE.saturating_add(2 * SPAN))) << UNIT
}

/// Returns the word of the arbiter lease after `me` has asked for it. `None`: another process holds it.
///
/// The caller writes it by compare-and-swap. If that succeeds, it is the arbiter until it has been silent for
/// [`PATIENCE`]. `me` is any number that no other process has; the low 24 bits count. A free lease is 0.
#[must_use]
pub fn claim_lease(word: u64, me: u64, now: u64) -> Option<u64> {
    let (me, who, since) = (number(me), word & ((1 << WHO) - 1), (word >> WHO) << UNIT);
    let is_silent = now.saturating_sub(since) >= PATIENCE || since > now.saturating_add(PATIENCE);
    (who == 0 || who == me || is_silent).then_some((now >> UNIT) << WHO | me)
}

/// Returns true if `me` holds the arbiter lease with this word.
#[must_use]
pub fn is_held_by(word: u64, me: u64) -> bool {
    word & ((1 << WHO) - 1) == number(me)
}

/// Returns the low bits of `me`; never the 0 of a free lease.
fn number(me: u64) -> u64 {
    (me & ((1 << WHO) - 1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1 << UNIT;
    const NOW: u64 = 1 << 50;

    fn terms(thousandths: u16, burst: u64) -> RateLimit {
        RateLimit::new(Permille::new(thousandths).unwrap(), Nanos::new(burst))
    }

    fn given(thousandths: u16, burst: u64, ahead: u64) -> Grant {
        Grant { terms: terms(thousandths, burst), gift: 0, queue_bound: ahead }
    }

    #[test]
    fn a_slice_hears_what_it_was_told_for_a_second() {
        let word = encode(&given(250, 4 * MS, 50 * MS), NOW);
        let own = terms(1000, 20 * MS);
        for now in [NOW, NOW + STALE - MS, NOW - MS] {
            assert_eq!(current(word, own, now), (terms(250, 4 * MS), Some(50 * MS)));
        }
        assert_eq!(current(word, own, NOW + STALE), (own, None));
        assert_eq!(current(0, own, NOW), (own, None));
        assert_eq!(
            current(encode(&given(250, 0, 0), NOW + 2 * STALE), own, NOW),
            (own, None),
            "of a time to come"
        );
        assert_eq!(current(word, terms(100, MS), NOW), (terms(100, MS), Some(50 * MS)), "more than its own");
        assert_eq!(current(encode(&given(0, 0, 0), NOW), own, NOW), (terms(1, 0), Some(0)));
        assert_eq!(
            current(encode(&given(9, u64::MAX, u64::MAX), NOW), own, NOW),
            (terms(9, 20 * MS), Some(u64::MAX))
        );
    }

    #[test]
    fn a_word_is_written_where_it_says_something_else_or_becomes_stale() {
        let given = given(250, 4 * MS, 50 * MS);
        let word = encode(&given, NOW);
        let later = |passed: u64| must_write(word, encode(&given, NOW + passed), NOW + passed);
        assert_eq!([0, STALE / 4, STALE / 2].map(later), [false, false, true]);
        assert!(must_write(word, encode(&self::given(251, 4 * MS, 50 * MS), NOW), NOW));
        assert!(must_write(0, word, NOW));
    }

    #[test]
    fn a_word_that_stands_grants_the_same_however_old_it_is() {
        let (word, own) = (encode(&given(250, 4 * MS, 50 * MS), NOW), terms(1000, 20 * MS));
        assert_eq!(decode(word, own), current(word, own, NOW));
        assert!(!is_stale(word, NOW + STALE - MS) && is_stale(word, NOW + STALE) && !is_stale(0, NOW));
        assert_eq!(decode(0, own), (own, None));
    }

    #[test]
    fn one_process_holds_the_chair_until_it_is_silent() {
        let word = claim_lease(0, 7, NOW).unwrap();
        assert_eq!(claim_lease(word, 8, NOW + PATIENCE - 2 * MS), None);
        assert!(claim_lease(word, 7, NOW + 50 * MS).is_some());
        assert!(is_held_by(word, 7) && !is_held_by(word, 8) && !is_held_by(0, 0));
        let next = claim_lease(word, 8, NOW + PATIENCE).unwrap();
        assert_eq!(
            claim_lease(next, 7, NOW + PATIENCE),
            None,
            "the first has lost it, even if it was only stopped"
        );
        assert!(
            claim_lease(claim_lease(0, 7, NOW * 2).unwrap(), 8, NOW).is_some(),
            "a time to come is nobody's"
        );
    }

    proptest! {
        #[test]
        fn no_word_gives_more_than_the_slices_own(word in any::<u64>(), now in any::<u64>(), rate in 1_u16..=1000) {
            let own = terms(rate, 20 * MS);
            let (terms, _) = current(word, own, now);
            prop_assert!(terms.rate() <= own.rate() && terms.rate().get() > 0 && terms.burst() <= own.burst());
        }

        #[test]
        fn what_is_told_is_heard(
            rate in 1_u16..=1000, burst in 0..200 * MS, ahead in 0..200 * MS, now in STALE..1 << 57,
        ) {
            let own = terms(1000, u64::MAX);
            let (heard, queued) = current(encode(&given(rate, burst, ahead), now), own, now);
            prop_assert_eq!(heard.rate().get(), rate);
            prop_assert!(heard.burst() >= burst && heard.burst() - burst < MS);
            prop_assert!(queued.unwrap() >= ahead && queued.unwrap() - ahead < MS);
        }
    }
}
