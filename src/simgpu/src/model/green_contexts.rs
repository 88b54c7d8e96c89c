//! Green contexts, and how multiprocessors are split among them.

use gpuslice_driver::types::{Status, status};

use super::objects::{Objects, Tag};

/// Smallest number of multiprocessors of a partition, and its unit.
pub(crate) const PARTITION: u32 = 8;
/// Smallest number of multiprocessors of a partition without co-scheduling, and its unit.
const LOOSE_PARTITION: u32 = 2;
/// `CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING`.
const IGNORE_COSCHEDULING: u32 = 1;

/// A green context.
#[derive(Debug)]
pub(crate) struct Green {
    /// The green context's primary context.
    pub(crate) context: u64,
    /// Number of its multiprocessors.
    pub(crate) processors: u32,
    /// The green context's number, never reused.
    pub(crate) number: u64,
    /// The process's number of its device.
    pub(crate) ordinal: i32,
    /// The handle that stands for it as a context; 0 until the program asks for it.
    pub(crate) view: u64,
    /// Bytes charged for it.
    pub(crate) charged: u64,
}

/// All green contexts.
#[derive(Debug)]
pub(crate) struct Greens {
    pub(crate) greens: Objects<Green>,
    /// Green contexts by the handles that stand for them as contexts.
    pub(crate) views: Objects<u64>,
    /// Descriptors: numbers of multiprocessors that green contexts are made from.
    pub(crate) descriptors: Objects<u32>,
}

impl Greens {
    pub(crate) fn new() -> Self {
        Self {
            greens: Objects::new(Tag::Green),
            views: Objects::new(Tag::View),
            descriptors: Objects::new(Tag::Descriptor),
        }
    }
}

/// Splits `all` multiprocessors into groups of at least `least`. Returns the number of groups, at most `wanted`, and
/// the size of each.
pub(crate) fn split(all: u32, wanted: u32, least: u32, flags: u32) -> Result<(u32, u32), Status> {
    let unit = if flags & IGNORE_COSCHEDULING == 0 { PARTITION } else { LOOSE_PARTITION };
    let each = least.max(1).checked_next_multiple_of(unit).filter(|each| *each <= all);
    let each = each.ok_or(status::INVALID_VALUE)?;
    Ok((wanted.min(all / each), each))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_as_large_as_the_hardware_wants_them() {
        assert_eq!(split(132, 4, 10, 0), Ok((4, 16)));
        assert_eq!(split(132, 100, 1, 0), Ok((16, 8)));
        assert_eq!(split(132, 100, 1, IGNORE_COSCHEDULING), Ok((66, 2)));
        assert_eq!(split(132, 1, 133, 0), Err(status::INVALID_VALUE));
    }
}
