//! Clusters of thread blocks, and the number of clusters that run at once.
//!
//! All blocks of a cluster run at the same time in one group of multiprocessors. Multiprocessors of a group that are too few for
//! one more cluster stay empty. So the device holds fewer blocks in clusters of 16 than in clusters of 2.

use gpuslice_driver::types::{Status, status};

use crate::hardware::attributes::PROCESSORS;
use crate::status::statuses;

/// Number of multiprocessors of each group. Devices of this kind have eight groups of up to 18 multiprocessors, and
/// some of these are switched off.
const GROUP_PROCESSORS: [u32; 8] = [18, 18, 16, 16, 16, 16, 16, 16];
const _: () = {
    let [a, b, c, d, e, f, g, h] = GROUP_PROCESSORS;
    assert!(a + b + c + d + e + f + g + h == PROCESSORS);
};

/// Largest cluster, in blocks, that every model of device with clusters can run.
const PORTABLE: u32 = 8;
/// Largest cluster, in blocks, that this device runs for a function that allows more than the portable size.
const LARGEST_CLUSTER_BLOCKS: u32 = 16;

/// The cluster attributes of a function.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Clusters {
    /// Required blocks of a cluster along each axis; 0 if the launch chooses.
    pub(crate) required: [i32; 3],
    /// True if clusters of the function may be larger than the portable size.
    pub(crate) beyond_portable: bool,
    /// `CUclusterSchedulingPolicy`.
    pub(crate) scheduling: i32,
}

impl Clusters {
    /// Returns the largest cluster, in blocks, that a launch of the function can choose.
    pub(crate) fn largest(&self) -> u32 {
        if self.beyond_portable { LARGEST_CLUSTER_BLOCKS } else { PORTABLE }
    }

    /// Returns the required cluster, if there is one.
    fn fixed(&self) -> Option<[u32; 3]> {
        let sizes = self.required.map(|size| u32::try_from(size).unwrap_or(0));
        (sizes != [0; 3]).then_some(sizes)
    }

    /// Returns the number of blocks of the required cluster. Without a required cluster, returns that of the largest one.
    pub(crate) fn potential(&self) -> u32 {
        self.fixed().map_or_else(|| self.largest(), blocks)
    }

    /// Returns the number of blocks of one cluster of a launch. Returns `None` if the launch has no clusters. `chosen` is the
    /// cluster that the launch asks for, if it asks for one.
    ///
    /// # Errors
    /// The chosen cluster differs from the required one, is too large, or does not divide the grid.
    pub(crate) fn of_launch(&self, chosen: Option<[u32; 3]>, grid: [u32; 3]) -> Result<Option<u32>, Status> {
        let fixed = self.fixed();
        let Some(cluster) = chosen.or(fixed) else { return Ok(None) };
        let size = blocks(cluster);
        let divides = cluster.iter().zip(grid).all(|(part, all)| *part != 0 && all % part == 0);
        let fits = fixed.is_none_or(|fixed| fixed == cluster) && size <= self.largest();
        if divides && fits { Ok(Some(size)) } else { Err(statuses::INVALID_CLUSTER_SIZE) }
    }

    /// Sets a cluster attribute of a function.
    ///
    /// # Errors
    /// The value is out of range, or the attribute is none of the cluster attributes.
    pub(crate) fn set(&mut self, attribute: u32, value: i32) -> Result<(), Status> {
        let [width, height, depth] = &mut self.required;
        match attribute {
            11 if value >= 0 => *width = value,
            12 if value >= 0 => *height = value,
            13 if value >= 0 => *depth = value,
            14 if matches!(value, 0 | 1) => self.beyond_portable = value == 1,
            15 if matches!(value, 0..=2) => self.scheduling = value,
            _ => return Err(status::INVALID_VALUE),
        }
        Ok(())
    }
}

fn blocks(cluster: [u32; 3]) -> u32 {
    cluster.iter().fold(1, |all, size| all.saturating_mul(*size))
}

/// Returns how many clusters of `size` blocks run at once, if each multiprocessor holds `resident` blocks.
pub(crate) fn active(size: u32, resident: u32) -> u32 {
    GROUP_PROCESSORS.iter().map(|processors| (processors * resident).checked_div(size).unwrap_or(0)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_the_cluster_the_fewer_blocks_run() {
        let running = [1, 2, 4, 8, 16].map(|size| active(size, 1));
        assert_eq!(running, [132, 66, 32, 16, 8]);
        assert_eq!(active(16, 2), 16);
        assert_eq!((active(8, 0), active(0, 1)), (0, 0));
    }

    #[test]
    fn a_cluster_divides_the_grid_and_is_no_larger_than_the_function_allows() {
        let mut clusters = Clusters::default();
        assert_eq!(clusters.of_launch(None, [3, 1, 1]), Ok(None));
        assert_eq!(clusters.of_launch(Some([4, 2, 1]), [8, 2, 1]), Ok(Some(8)));
        let refused = Err(statuses::INVALID_CLUSTER_SIZE);
        for (cluster, grid) in [([4, 1, 1], [6, 1, 1]), ([0, 1, 1], [4, 1, 1]), ([16, 1, 1], [16, 1, 1])] {
            assert_eq!(clusters.of_launch(Some(cluster), grid), refused, "{cluster:?}");
        }
        clusters.set(14, 1).unwrap();
        assert_eq!(clusters.of_launch(Some([16, 1, 1]), [16, 1, 1]), Ok(Some(16)));
        assert_eq!(clusters.of_launch(Some([u32::MAX; 3]), [u32::MAX; 3]), refused);
    }

    #[test]
    fn a_function_made_for_a_cluster_takes_no_other() {
        let mut clusters = Clusters::default();
        for (attribute, value) in [(11, 2), (12, 1), (13, 1)] {
            clusters.set(attribute, value).unwrap();
        }
        assert_eq!(clusters.potential(), 2);
        assert_eq!(clusters.of_launch(None, [4, 1, 1]), Ok(Some(2)));
        let refused = Err(statuses::INVALID_CLUSTER_SIZE);
        assert_eq!(clusters.of_launch(Some([4, 1, 1]), [4, 1, 1]), refused);
        assert_eq!(clusters.of_launch(None, [3, 1, 1]), refused);
        assert_eq!(clusters.set(14, 2), Err(status::INVALID_VALUE));
    }
}
