//! The limiter of each device, the credit of the process, and cost estimates of launches.

pub(super) mod credit;
pub(super) mod device;
pub(super) mod estimates;
