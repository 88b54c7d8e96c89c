//! The memory ledger: bytes that the processes of a slice hold on each device.

pub(crate) mod leaving;
pub(crate) mod ledger;
pub(crate) mod shared_memory;
