//! Finds limits of the slices on one GPU that sum to more than the GPU has.
//!
//! Only limits that an operator or user has set count. A slice without a quota, or with the whole share, reserves nothing.
//! `equal` and `best-effort` slices divide the time that other slices leave. Their percentage is only a cap, so it reserves
//! nothing either.

use crate::figures;
use gpuslice_policy::config::CorePolicy;
use gpuslice_region::Limits;

/// The whole of a GPU's time, in thousandths.
const WHOLE: u32 = 1000;

/// Sums of the limits on one GPU.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Committed {
    /// Bytes of memory that the GPU has.
    pub total: u64,
    /// Sum of the quotas in bytes. `quotas` is the number of slices with a quota.
    pub memory: u64,
    quotas: usize,
    /// Sum of the `fixed` shares below 100 %, in thousandths. `shares` is the number of slices with such a share.
    pub share_permille: u32,
    shares: usize,
}

impl Committed {
    /// Adds the limits of a slice on a GPU of `total` bytes.
    pub fn add(&mut self, total: u64, limits: &Limits) {
        self.total = self.total.max(total);
        if let Some(quota) = limits.memory {
            self.memory = self.memory.saturating_add(quota);
            self.quotas += 1;
        }
        if limits.sharing.policy == CorePolicy::Fixed && limits.cores_permille < WHOLE {
            self.share_permille = self.share_permille.saturating_add(limits.cores_permille);
            self.shares += 1;
        }
    }

    /// Returns `memory limits of 3 slices sum to 36GiB of 16GiB`, if the sum is more than the GPU has.
    #[must_use]
    pub fn memory_excess(&self) -> Option<String> {
        // The sum is shown exactly. If it were rounded down, a sum above the total could look equal to the total.
        let (sum, total) = (figures::exact_limit(Some(self.memory)), figures::limit(Some(self.total)));
        let slices = self.quotas;
        (self.memory > self.total)
            .then(|| format!("memory limits of {slices} slices sum to {sum} of {total}"))
    }

    /// Returns `shares of 3 slices sum to 180%`, if the sum is more than the whole.
    #[must_use]
    pub fn share_excess(&self) -> Option<String> {
        let (sum, slices) = (figures::percent(self.share_permille.into()), self.shares);
        (self.share_permille > WHOLE).then(|| format!("shares of {slices} slices sum to {sum}"))
    }

    /// Returns a warning for each resource that is overcommitted, with the consequence.
    #[must_use]
    pub fn warnings(&self, gpu: &str) -> Vec<String> {
        let memory = self
            .memory_excess()
            .map(|what| format!("{gpu}: {what}; once the GPU is full, allocations within a limit fail"));
        let share = self
            .share_excess()
            .map(|what| format!("{gpu}: {what}; while all are busy, each gets less than its share"));
        [memory, share].into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuslice_region::Sharing;

    const GIB: u64 = 1 << 30;

    fn committed(slices: &[(Option<u64>, u32, CorePolicy)]) -> Committed {
        let mut committed = Committed::default();
        for &(memory, cores_permille, policy) in slices {
            let sharing = Sharing { policy, ..Sharing::FIXED };
            committed.add(16 * GIB, &Limits { memory, cores_permille, sharing, ..Limits::NONE });
        }
        committed
    }

    #[test]
    fn limits_that_sum_to_more_than_the_gpu_has_give_warnings() {
        let three = committed(&[(Some(12 * GIB), 600, CorePolicy::Fixed); 3]);
        let warnings = three.warnings("GPU 0");
        assert_eq!(warnings.len(), 2);
        assert!(warnings[0].starts_with("GPU 0: memory limits of 3 slices sum to 36GiB of 16GiB;"));
        assert!(warnings[1].starts_with("GPU 0: shares of 3 slices sum to 180%;"));
        // A sum equal to the whole gives no warning. One byte or one thousandth more gives one.
        for (memory, share, count) in
            [(8 * GIB, 500, 0), (8 * GIB + 1, 500, 1), (8 * GIB, 501, 1), (u64::MAX, 999, 2)]
        {
            let two = committed(&[(Some(memory), share, CorePolicy::Fixed); 2]);
            assert_eq!(two.warnings("GPU 0").len(), count, "{memory} {share}");
        }
    }

    #[test]
    fn slices_that_reserve_nothing_are_not_overcommitted() {
        let one = (Some(16 * GIB), 600, CorePolicy::Fixed);
        // `free` has no quota and the whole share. The policies of `equal` and `rest` make their percentages caps.
        let free = (None, 1000, CorePolicy::Fixed);
        let equal = (None, 900, CorePolicy::Equal);
        let rest = (None, 900, CorePolicy::BestEffort);
        assert_eq!(committed(&[one, free, free, equal, rest, equal]).warnings("GPU 0"), Vec::<String>::new());
        assert_eq!(committed(&[]), Committed::default());
    }
}
