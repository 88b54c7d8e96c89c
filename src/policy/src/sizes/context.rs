//! Device memory of a context, for a driver that does not report it for this process.
//!
//! There are two sources, each with its own error. The number of multiprocessors gives an [`estimate`]: it is right within
//! a third for the measured devices. The device's free memory before and after the creation gives the exact number, but any
//! process of the machine can change it meanwhile. So the second source is used unless the first contradicts it.

/// Bytes that a context takes for each multiprocessor.
///
/// Derived: about 534 MiB on an H100 with 132 multiprocessors (meta-pytorch/torchcomms#777) is 4 MiB each. The driver
/// reserves local memory and stacks for all threads that can run at once, so the size follows the number of
/// multiprocessors.
const PER_MULTIPROCESSOR: u64 = 4 << 20;

/// Assumed number of multiprocessors of a device that does not report it. It is the number of a GPU for data centres.
const USUAL_MULTIPROCESSORS: u64 = 132;

/// Largest factor between a context and its estimate. Guessed: it leaves room for larger stacks and heaps. It excludes the
/// allocations of most neighbours, which take gigabytes.
const MOST_TIMES: u64 = 2;

/// Divisor for the smallest part of the estimate that a context takes. Guessed: contexts of a fifth of the estimate are
/// known.
const LEAST_PART: u64 = 8;

/// Returns the bytes that a context takes on a device with this number of multiprocessors.
#[must_use]
pub fn estimate(multiprocessors: Option<u64>) -> u64 {
    let number = multiprocessors.filter(|number| *number > 0).unwrap_or(USUAL_MULTIPROCESSORS);
    number.saturating_mul(PER_MULTIPROCESSOR)
}

/// Returns the bytes that a context took. `lost` is the free memory that the device lost meanwhile. `None`: another process
/// must have changed the free memory.
#[must_use]
pub fn believed(lost: i64, estimate: u64) -> Option<u64> {
    let lost = u64::try_from(lost).ok()?;
    let least = estimate.checked_div(LEAST_PART).unwrap_or(0);
    (least..=estimate.saturating_mul(MOST_TIMES)).contains(&lost).then_some(lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_estimate_is_right_within_a_third_for_contexts_that_were_measured() {
        // H100 with 132 multiprocessors: the source above.
        let (estimate, measured) = (estimate(Some(132)), 534 * MIB);
        assert!(estimate.abs_diff(measured) * 3 < measured, "{estimate}");
    }

    #[test]
    fn a_device_that_does_not_tell_its_multiprocessors_is_taken_for_a_large_one() {
        assert_eq!((estimate(None), estimate(Some(0))), (528 * MIB, 528 * MIB));
        assert_eq!(estimate(Some(u64::MAX)), u64::MAX);
    }

    #[test]
    fn free_memory_is_believed_unless_somebody_else_must_have_moved_it() {
        let (estimate, mib) = (528 * MIB, 1_i64 << 20);
        for (lost, took) in [
            (500, Some(500 * MIB)),
            (66, Some(66 * MIB)),
            (65, None),
            (1056, Some(1056 * MIB)),
            (1057, None),
            (0, None),
            (-500, None),
        ] {
            assert_eq!(believed(lost * mib, estimate), took, "{lost}");
        }
        assert_eq!(believed(i64::MAX, estimate), None);
    }
}
