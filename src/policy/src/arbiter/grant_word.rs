//! Two shared words of the arbiter: the grant of a slice, and the holder of the arbiter lease.

use crate::compute::limiter::token_bucket::RateLimit;
use crate::time::{GpuTime, Monotonic, WallTime};
use crate::units::Permille;

/// Time without a new grant after which a slice uses its own rate limit: 1 s.
pub const GRANT_LASTS: WallTime = WallTime::from_millis(1_000);
/// Silence after which an arbiter loses its lease: 100 ms.
pub const ARBITER_SILENCE: WallTime = WallTime::from_millis(100);

/// The grant of a slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// Rate and burst.
    pub rate_limit: RateLimit,
    /// Wall time by which the arbiter moves `paid_until` of the slice back. Otherwise the GPU would be idle.
    pub wall_credit: WallTime,
    /// The most work that a process of the slice may have queued.
    pub queue_bound: GpuTime,
}

/// Bits of a rate.
const RATE_BITS: u32 = 10;
/// Bits of a span: a saved or queued time in units of 2^20 ns.
const SPAN_BITS: u32 = 8;
/// The unit of spans and instants as a power of two in nanoseconds: 2^20 ns, about 1 ms.
const UNIT_BITS: u32 = 20;
/// A span with all bits set: the slice's own value.
const OWN_SPAN: u64 = (1 << SPAN_BITS) - 1;
/// Bits of the holder's number. The instant is above them.
const HOLDER_BITS: u32 = 24;

/// Returns the word of a grant at the instant `now`. Rate, burst, queue bound and instant are in one word, so that they
/// change together.
///
/// Spans are rounded up to multiples of 1.05 ms. A span of 255 multiples or more stands for the slice's own value. A
/// word of 0 grants nothing.
#[must_use]
pub fn encode(given: &Grant, now: Monotonic) -> u64 {
    let span = |time: GpuTime| time.nanos().div_ceil(1 << UNIT_BITS).min(OWN_SPAN);
    let rate = u64::from(given.rate_limit.rate().get()).max(1);
    let at = (now.nanos() >> UNIT_BITS).max(1) << (RATE_BITS.saturating_add(2 * SPAN_BITS));
    at | span(given.queue_bound) << (RATE_BITS.saturating_add(SPAN_BITS))
        | span(given.rate_limit.burst()) << RATE_BITS
        | rate
}

/// Returns the rate limit of a grant, whatever its age, and the queue bound of a process. The rate limit is at most `own`.
/// A word without a grant gives `own` and no bound.
#[must_use]
pub fn decode(word: u64, own: RateLimit) -> (RateLimit, Option<GpuTime>) {
    let thousandths = u16::try_from(word & ((1 << RATE_BITS) - 1)).ok().and_then(Permille::new);
    let Some(rate) = thousandths.filter(|rate| rate.get() > 0) else { return (own, None) };
    let span = |bits: u32| match (word >> bits) & OWN_SPAN {
        OWN_SPAN => GpuTime::MAX,
        units => GpuTime::from_nanos(units << UNIT_BITS),
    };
    let burst = span(RATE_BITS).min(own.burst());
    (RateLimit::new(rate.min(own.rate()), burst), Some(span(RATE_BITS.saturating_add(SPAN_BITS))))
}

/// Returns true if the word is invalid because the arbiter has been silent for [`GRANT_LASTS`]. A word of 0 is never stale.
#[must_use]
pub fn is_stale(word: u64, now: Monotonic) -> bool {
    let at = written_at(word);
    word != 0 && (now.since(at) >= GRANT_LASTS || at > now.saturating_add(GRANT_LASTS))
}

/// Returns the rate limit that applies now: the [decoded](decode) one, or `own` if the arbiter is silent.
#[must_use]
pub fn current(word: u64, own: RateLimit, now: Monotonic) -> (RateLimit, Option<GpuTime>) {
    decode(if is_stale(word, now) { 0 } else { word }, own)
}

/// Returns true if `new` must replace `word`: the content differs, or the old word will soon be stale.
#[must_use]
pub fn must_write(word: u64, new: u64, now: Monotonic) -> bool {
    // The content of a word, without its instant.
    let about = |word: u64| word << u64::BITS.saturating_sub(RATE_BITS.saturating_add(2 * SPAN_BITS));
    about(word) != about(new) || is_stale(word, now.saturating_add(GRANT_LASTS.part(2)))
}

/// Returns the instant of a grant.
const fn written_at(word: u64) -> Monotonic {
    Monotonic::from_nanos((word >> (RATE_BITS.saturating_add(2 * SPAN_BITS))) << UNIT_BITS)
}

/// Returns the word of the arbiter lease after `me` has asked for it. `None`: another process holds it.
///
/// The caller writes this word by compare-and-swap. If that succeeds, the caller is the arbiter until it has been silent
/// for [`ARBITER_SILENCE`]. `me` is any number that no other process has; its low 24 bits count. A free lease is 0.
#[must_use]
pub fn claim_lease(word: u64, me: u64, now: Monotonic) -> Option<u64> {
    (is_held_by(word, me) || free_since(word, now).is_some())
        .then_some((now.nanos() >> UNIT_BITS) << HOLDER_BITS | number(me))
}

/// Returns the instant of the last renewal of an arbiter lease that any process may take. For a lease that was given up,
/// returns the earliest instant. `None`: a process holds the lease.
#[must_use]
pub fn free_since(word: u64, now: Monotonic) -> Option<Monotonic> {
    if word & ((1 << HOLDER_BITS) - 1) == 0 {
        return Some(Monotonic::BEGIN);
    }
    let since = Monotonic::from_nanos((word >> HOLDER_BITS) << UNIT_BITS);
    let is_silent = now.since(since) >= ARBITER_SILENCE || since > now.saturating_add(ARBITER_SILENCE);
    is_silent.then_some(since)
}

/// Returns true if `me` holds the arbiter lease with this word.
#[must_use]
pub fn is_held_by(word: u64, me: u64) -> bool {
    word & ((1 << HOLDER_BITS) - 1) == number(me)
}

/// Returns the low bits of `me`, and never 0, which marks a free lease.
fn number(me: u64) -> u64 {
    (me & ((1 << HOLDER_BITS) - 1)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::literals::ns;
    use proptest::prelude::*;

    /// One unit of spans.
    const MS: u64 = 1 << UNIT_BITS;
    const NOW: Monotonic = Monotonic::from_nanos(1 << 50);

    fn rate_limit(thousandths: u16, burst: u64) -> RateLimit {
        RateLimit::new(Permille::new(thousandths).unwrap(), ns(burst))
    }

    fn given(thousandths: u16, burst: u64, ahead: u64) -> Grant {
        Grant {
            rate_limit: rate_limit(thousandths, burst),
            wall_credit: WallTime::ZERO,
            queue_bound: ns(ahead),
        }
    }

    #[test]
    fn a_grant_is_in_force_for_a_second() {
        let word = encode(&given(250, 4 * MS, 50 * MS), NOW);
        let own = rate_limit(1000, 20 * MS);
        for now in [NOW, NOW + GRANT_LASTS - ns(MS), NOW - ns(MS)] {
            assert_eq!(current(word, own, now), (rate_limit(250, 4 * MS), Some(ns(50 * MS))));
        }
        assert_eq!(current(word, own, NOW + GRANT_LASTS), (own, None));
        assert_eq!(current(0, own, NOW), (own, None));
        assert_eq!(
            current(encode(&given(250, 0, 0), NOW + GRANT_LASTS + GRANT_LASTS), own, NOW),
            (own, None),
            "of a time to come"
        );
        assert_eq!(
            current(word, rate_limit(100, MS), NOW),
            (rate_limit(100, MS), Some(ns(50 * MS))),
            "more than its own"
        );
        assert_eq!(current(encode(&given(0, 0, 0), NOW), own, NOW), (rate_limit(1, 0), Some(ns(0))));
        assert_eq!(
            current(encode(&given(9, u64::MAX, u64::MAX), NOW), own, NOW),
            (rate_limit(9, 20 * MS), Some(GpuTime::MAX))
        );
    }

    #[test]
    fn a_word_is_written_where_it_says_something_else_or_becomes_stale() {
        let given = given(250, 4 * MS, 50 * MS);
        let word = encode(&given, NOW);
        let later = |passed: WallTime| must_write(word, encode(&given, NOW + passed), NOW + passed);
        assert_eq!([ns(0), GRANT_LASTS.part(4), GRANT_LASTS.part(2)].map(later), [false, false, true]);
        assert!(must_write(word, encode(&self::given(251, 4 * MS, 50 * MS), NOW), NOW));
        assert!(must_write(0, word, NOW));
    }

    #[test]
    fn a_word_that_stands_grants_the_same_however_old_it_is() {
        let (word, own) = (encode(&given(250, 4 * MS, 50 * MS), NOW), rate_limit(1000, 20 * MS));
        assert_eq!(decode(word, own), current(word, own, NOW));
        assert!(
            !is_stale(word, NOW + GRANT_LASTS - ns(MS))
                && is_stale(word, NOW + GRANT_LASTS)
                && !is_stale(0, NOW)
        );
        assert_eq!(decode(0, own), (own, None));
    }

    #[test]
    fn one_process_holds_the_lease_until_it_is_silent() {
        let word = claim_lease(0, 7, NOW).unwrap();
        assert_eq!(claim_lease(word, 8, NOW + ARBITER_SILENCE - ns(2 * MS)), None);
        assert!(claim_lease(word, 7, NOW + ns(50 * MS)).is_some());
        assert!(is_held_by(word, 7) && !is_held_by(word, 8) && !is_held_by(0, 0));
        let next = claim_lease(word, 8, NOW + ARBITER_SILENCE).unwrap();
        assert_eq!(
            claim_lease(next, 7, NOW + ARBITER_SILENCE),
            None,
            "the first has lost it, even if it was only stopped"
        );
        assert!(
            claim_lease(claim_lease(0, 7, ns(NOW.nanos() * 2)).unwrap(), 8, NOW).is_some(),
            "no arbiter writes a time to come"
        );
    }

    proptest! {
        #[test]
        fn no_word_gives_more_than_the_slices_own(word in any::<u64>(), now in any::<u64>(), rate in 1_u16..=1000) {
            let own = rate_limit(rate, 20 * MS);
            let (rate_limit, _) = current(word, own, ns(now));
            prop_assert!(rate_limit.rate() <= own.rate() && rate_limit.rate().get() > 0 && rate_limit.burst() <= own.burst());
        }

        #[test]
        fn a_decoded_grant_is_the_encoded_one_within_a_millisecond(
            rate in 1_u16..=1000, burst in 0..200 * MS, ahead in 0..200 * MS, now in GRANT_LASTS.nanos()..1 << 57,
        ) {
            let own = rate_limit(1000, u64::MAX);
            let (heard, queued) = current(encode(&given(rate, burst, ahead), ns(now)), own, ns(now));
            prop_assert_eq!(heard.rate().get(), rate);
            prop_assert!(heard.burst() >= ns(burst) && heard.burst() - ns(burst) < ns(MS));
            prop_assert!(queued.unwrap() >= ns(ahead) && queued.unwrap() - ns(ahead) < ns(MS));
        }
    }
}
