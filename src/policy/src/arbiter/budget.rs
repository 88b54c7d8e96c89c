//! How much is there to divide?
//!
//! Not always the whole: the GPU's way from process to process costs time, which is nobody's. And what slices are charged
//! can be more than they use: where NVML does not tell them apart, each is charged for the neighbours' turns too. Rates
//! that sum to one would then leave the GPU idle while somebody waits. So the sum is found by trying: work that waits for
//! its share while nothing is queued says that it is too small, queues that do not empty say that it is too large, and that
//! not the rates divide the GPU but the driver, evenly over processes. One is worse than the other, and corrected at once;
//! the other slowly, so that the GPU is found idle at one look in a hundred at most.
//!
//! What comes of it is a factor for the parts of `equal` and `best-effort` slices. Those of `fixed` ones are of the whole
//! GPU.

use super::allocate::WHOLE;
use super::schedule::STEP;

/// Less than this under way, in nanoseconds, and the GPU may be idle before the next look: 2 ms.
const LOW: u64 = 2_000_000;
/// More than this, and it certainly is not: 6 ms.
const HIGH: u64 = 6_000_000;
/// By how much it grows in [`STEP`], in millionths.
const UP: u64 = 50_000;
/// By how much it shrinks, in millionths, and the part of what it is above all that is used.
const DOWN: u64 = 100;
const DOWN_PART: u64 = 256;
/// The least it is, in millionths.
const LEAST: u64 = 500_000;

/// By how much parts are multiplied, in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget(u64);

impl Default for Budget {
    fn default() -> Self {
        Self(WHOLE)
    }
}

/// What a look found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Slices that need anything.
    pub busy: u64,
    /// Predicted GPU time under way, in nanoseconds.
    pub queued: u64,
    /// The part of it whose slices have less than they may because of the budget.
    pub steered: u64,
    /// What all of them have used of late, in millionths.
    pub used: u64,
    /// Whether one waits for its share that a larger sum would give more.
    pub starved: bool,
    /// Whether work of high priority is under way.
    pub eager: bool,
    /// Since the last look, in nanoseconds.
    pub passed: u64,
}

impl Found {
    /// Whether the GPU may be idle before the next look although somebody waits for the share.
    #[must_use]
    pub const fn idle(&self) -> bool {
        self.queued < LOW
    }
}

impl Budget {
    /// The factor after a look, in millionths.
    pub fn look(&mut self, found: &Found) -> u64 {
        if found.busy < 2 {
            return self.0.max(WHOLE);
        }
        let looks = |step: u64| step.saturating_mul(found.passed).checked_div(STEP).unwrap_or(0);
        let level = if found.starved && found.idle() {
            self.0.saturating_add(looks(UP))
        } else if found.steered > HIGH || (found.queued > HIGH && self.0 > WHOLE) {
            let above = self.0.saturating_sub(found.used).checked_div(DOWN_PART).unwrap_or(0);
            self.0.saturating_sub(looks(above.max(DOWN)))
        } else {
            self.0
        };
        // With so much nobody waits: no slice gets more than the whole.
        self.0 = level.clamp(LEAST, WHOLE.saturating_mul(found.busy.min(64)));
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUND: Found =
        Found { busy: 2, queued: 0, steered: 0, used: WHOLE, starved: true, eager: false, passed: STEP };

    #[test]
    fn work_that_waits_while_nothing_is_queued_raises_it_at_once() {
        let mut budget = Budget::default();
        assert_eq!(budget.look(&FOUND), WHOLE + UP);
        assert_eq!(budget.look(&Found { passed: 4 * STEP, ..FOUND }), WHOLE + 5 * UP);
        assert_eq!(budget.look(&Found { queued: LOW, ..FOUND }), WHOLE + 5 * UP);
        assert_eq!(budget.look(&Found { starved: false, ..FOUND }), WHOLE + 5 * UP);
        (0..100).for_each(|_| {
            budget.look(&FOUND);
        });
        assert_eq!(budget.look(&FOUND), 2 * WHOLE);
    }

    #[test]
    fn queues_that_do_not_empty_lower_it_slowly_or_by_what_nobody_uses() {
        let found = Found { queued: HIGH + 1, steered: HIGH + 1, starved: false, ..FOUND };
        let mut budget = Budget::default();
        assert_eq!(budget.look(&found), WHOLE - DOWN);
        assert_eq!(budget.look(&Found { steered: HIGH, ..found }), WHOLE - DOWN, "the others' are no sign");
        (0..3000).for_each(|_| {
            budget.look(&Found { used: 0, ..found });
        });
        assert_eq!(budget.look(&Found { used: 0, ..found }), LEAST);
        let mut above = Budget(2 * WHOLE);
        assert_eq!(above.look(&Found { steered: 0, ..found }), 2 * WHOLE - WHOLE / DOWN_PART);
    }

    #[test]
    fn a_slice_that_is_alone_has_the_whole() {
        let mut budget = Budget(LEAST);
        assert_eq!(budget.look(&Found { busy: 1, ..FOUND }), WHOLE);
        assert_eq!(budget, Budget(LEAST), "and what was found before is kept");
    }
}
