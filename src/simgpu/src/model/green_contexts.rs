//! Green contexts, and how the multiprocessors of a device are split among them.

use gpuslice_driver::types::{Status, status};

use super::objects::{Objects, Tag};

/// Smallest number of multiprocessors of a partition. Every size is a multiple of it.
pub(crate) const PARTITION: u32 = 8;
/// The same number for partitions whose multiprocessors need not be co-scheduled.
const LOOSE_PARTITION: u32 = 2;
/// `CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING`.
const IGNORE_COSCHEDULING: u32 = 1;

/// A green context.
#[derive(Debug)]
pub(crate) struct Green {
    /// The primary context that the green context belongs to.
    pub(crate) context: u64,
    /// Number of multiprocessors that the green context may use.
    pub(crate) processors: u32,
    /// The green context's number, never reused.
    pub(crate) number: u64,
    /// The number that the process gives to the device.
    pub(crate) ordinal: i32,
    /// The handle by which the program uses the green context as a context; 0 until the program asks for one.
    pub(crate) view: u64,
    /// Bytes of device memory charged for the green context.
    pub(crate) charged: u64,
}

/// All green contexts of this process.
#[derive(Debug)]
pub(crate) struct Greens {
    pub(crate) greens: Objects<Green>,
    /// Green contexts by the handles with which the program uses them as contexts.
    pub(crate) views: Objects<u64>,
    /// Descriptors. Each is the number of multiprocessors of a green context that is made from it.
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

/// Splits `all` multiprocessors into groups of at least `least` multiprocessors. Returns the number of groups, which is at most
/// `wanted`, and the number of multiprocessors of each group.
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
