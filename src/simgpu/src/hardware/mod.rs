//! The simulated GPU model: its attributes, names, and allocation sizes.

pub(crate) mod allocation_sizes;
pub(crate) mod attributes;
pub(crate) mod texts;
