//! Membership in a slice: settings, limits and the handle by which the library charges memory and GPU time.

pub(crate) mod ceiling;
pub(crate) mod device;
pub(crate) mod devices;
pub(crate) mod enforcement;
pub(crate) mod green_contexts;
pub(crate) mod handle;
pub(crate) mod other_slices;
pub(crate) mod primary_contexts;
pub(crate) mod settings;
