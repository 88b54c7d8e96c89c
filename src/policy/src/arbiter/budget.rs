//! The budget: the sum of the rates that the arbiter gives out.
//!
//! The sum is not always the whole GPU. Example: a switch between processes costs time that belongs to no slice, so the
//! budget falls below one. Or the slices use estimates instead of measurements and are charged for more than they use. With
//! rates whose sum is one, the GPU would then be idle while launches wait, so the budget rises above one.
//!
//! The arbiter finds the budget by feedback. It changes the budget at each look at which at least two slices are busy:
//!
//! - A slice waits for its share, and the work in flight is below 2 ms: the budget is too small. It grows by 5 % for each
//!   [`ARBITER_STEP`].
//! - The work in flight of the slices that the budget holds below their limits exceeds 6 ms. Then the budget is too large, and
//!   the driver divides the GPU evenly over processes. It shrinks by 0.01 % for each [`ARBITER_STEP`], or by one part in 256 of
//!   its unused rest, whichever is more. Above the whole GPU the work of all slices decides.
//! - In all other cases the budget stays.
//!
//! A step up is 500 of the smallest steps down, so few looks find the GPU idle. The budget is between one half and the number
//! of busy slices. A slice that is alone has the whole GPU at least.
//!
//! The budget multiplies the parts of `equal` and `best-effort` slices. The parts of `fixed` slices are parts of the whole
//! GPU.

use super::allocate::WHOLE_GPU;
use super::schedule::ARBITER_STEP;
use crate::time::{GpuTime, WallTime};

/// Work in flight below which the GPU may be idle before the next look: 2 ms.
const LOW: GpuTime = GpuTime::from_millis(2);
/// Work in flight above which the GPU is not idle before the next look: 6 ms.
const HIGH: GpuTime = GpuTime::from_millis(6);
/// Millionths by which the budget grows in one [`ARBITER_STEP`].
const UP: u64 = 50_000;
/// Smallest step by which the budget shrinks, in millionths.
const DOWN: u64 = 100;
/// Divisor for the step by which the budget shrinks: one part in 256 of its unused rest.
const DOWN_PART: u64 = 256;
/// Smallest budget, in millionths.
const LEAST_BUDGET: u64 = 500_000;

/// The factor of the parts, in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget(u64);

impl Default for Budget {
    fn default() -> Self {
        Self(WHOLE_GPU)
    }
}

/// The findings of a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Findings {
    /// Number of slices with demand.
    pub busy: u64,
    /// Predicted GPU time in flight.
    pub queued: GpuTime,
    /// The part of `queued` that belongs to slices which have less than their limit because of the budget.
    pub steered: GpuTime,
    /// Recent use of all slices, in millionths.
    pub used: u64,
    /// True if a slice waits for its share, and a larger budget would help it.
    pub starved: bool,
    /// True if work of high priority is in flight.
    pub eager: bool,
    /// Time since the last look.
    pub passed: WallTime,
}

impl Findings {
    /// Returns true if the GPU may be idle before the next look.
    #[must_use]
    pub fn idle(&self) -> bool {
        self.queued < LOW
    }
}

impl Budget {
    /// Returns the factor after a look, in millionths.
    pub fn look(&mut self, found: &Findings) -> u64 {
        if found.busy < 2 {
            return self.0.max(WHOLE_GPU);
        }
        let looks = |step: u64| found.passed.saturating_mul(step).count(ARBITER_STEP);
        let level = if found.starved && found.idle() {
            self.0.saturating_add(looks(UP))
        } else if found.steered > HIGH || (found.queued > HIGH && self.0 > WHOLE_GPU) {
            let above = self.0.saturating_sub(found.used).checked_div(DOWN_PART).unwrap_or(0);
            self.0.saturating_sub(looks(above.max(DOWN)))
        } else {
            self.0
        };
        // At this budget no slice waits, because no slice gets more than the whole GPU.
        self.0 = level.clamp(LEAST_BUDGET, WHOLE_GPU.saturating_mul(found.busy.min(64)));
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::literals::ns;

    const FINDINGS: Findings = Findings {
        busy: 2,
        queued: GpuTime::ZERO,
        steered: GpuTime::ZERO,
        used: WHOLE_GPU,
        starved: true,
        eager: false,
        passed: ARBITER_STEP,
    };

    #[test]
    fn work_that_waits_while_nothing_is_queued_raises_it_at_once() {
        let mut budget = Budget::default();
        assert_eq!(budget.look(&FINDINGS), WHOLE_GPU + UP);
        assert_eq!(budget.look(&Findings { passed: 4 * ARBITER_STEP, ..FINDINGS }), WHOLE_GPU + 5 * UP);
        assert_eq!(budget.look(&Findings { queued: LOW, ..FINDINGS }), WHOLE_GPU + 5 * UP);
        assert_eq!(budget.look(&Findings { starved: false, ..FINDINGS }), WHOLE_GPU + 5 * UP);
        (0..100).for_each(|_| {
            budget.look(&FINDINGS);
        });
        assert_eq!(budget.look(&FINDINGS), 2 * WHOLE_GPU);
    }

    #[test]
    fn queues_that_do_not_empty_lower_the_budget_slowly_or_by_the_unused_part() {
        let found = Findings { queued: HIGH + ns(1), steered: HIGH + ns(1), starved: false, ..FINDINGS };
        let mut budget = Budget::default();
        assert_eq!(budget.look(&found), WHOLE_GPU - DOWN);
        assert_eq!(
            budget.look(&Findings { steered: HIGH, ..found }),
            WHOLE_GPU - DOWN,
            "the others' are no sign"
        );
        (0..3000).for_each(|_| {
            budget.look(&Findings { used: 0, ..found });
        });
        assert_eq!(budget.look(&Findings { used: 0, ..found }), LEAST_BUDGET);
        let mut above = Budget(2 * WHOLE_GPU);
        assert_eq!(above.look(&Findings { steered: ns(0), ..found }), 2 * WHOLE_GPU - WHOLE_GPU / DOWN_PART);
    }

    #[test]
    fn a_slice_that_is_alone_has_the_whole() {
        let mut budget = Budget(LEAST_BUDGET);
        assert_eq!(budget.look(&Findings { busy: 1, ..FINDINGS }), WHOLE_GPU);
        assert_eq!(budget, Budget(LEAST_BUDGET), "and what was found before is kept");
    }
}
