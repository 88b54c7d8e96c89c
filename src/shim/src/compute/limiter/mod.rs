//! The limiter of each device, the credit of the process, and estimates of what launches cost.

pub(super) mod credit;
pub(super) mod device;
pub(super) mod estimates;
