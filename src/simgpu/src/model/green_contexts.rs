//! Green contexts, and how multiprocessors are split among them.

use gpuslice_driver::types::{Status, status};

use super::objects::{Objects, Tag};

/// Multiprocessors of a partition at the least, and what its number is a multiple of.
pub(crate) const PARTITION: u32 = 8;
/// The same where multiprocessors need not be scheduled together.
const LOOSE_PARTITION: u32 = 2;
/// `CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING`.
const IGNORE_COSCHEDULING: u32 = 1;

/// A green context.
#[derive(Debug)]
pub(crate) struct Green {
    /// The primary context that it is of.
    pub(crate) context: u64,
    /// Its multiprocessors.
    pub(crate) processors: u32,
    /// Its number, never used twice.
    pub(crate) number: u64,
    /// This process's number of its device.
    pub(crate) ordinal: i32,
    /// The handle by which it is used as a context; 0 while nobody has asked for it.
    pub(crate) view: u64,
    /// Device memory that it takes.
    pub(crate) charged: u64,
}

/// All green contexts.
#[derive(Debug)]
pub(crate) struct Greens {
    pub(crate) greens: Objects<Green>,
    /// Green contexts by the handles by which they are used as contexts.
    pub(crate) views: Objects<u64>,
    /// What green contexts are made from: multiprocessors.
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

/// How many groups of at least `least` multiprocessors, at most `wanted`, can be made of `all`; and how many each has.
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
