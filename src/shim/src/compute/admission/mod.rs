//! The gate of a launch, and notices of hooks about other calls: captures, copies, waits, ends of streams and contexts.

pub(super) mod copies;
pub(super) mod credit_request;
pub(super) mod gate;
pub(super) mod lifecycle;
pub(super) mod slow_path;
pub(super) mod synchronisation;
