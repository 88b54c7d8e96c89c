//! The charge of a stream-ordered memory pool: the bytes that the pool holds of its device.
//!
//! A pool keeps freed memory, and releases it later. The driver counts the bytes that the pool holds. The library reads
//! that counter after every call that may change it, without waiting for the device. An allocation has three steps:
//!
//! 1. Reserve the largest possible growth of the pool ([`begin`]). If the quota has no room, the allocation needs no
//!    reservation if the pool surely has a hole for it ([`holes`]). Before it is refused, it waits for
//!    allocations in flight. Their reservations end, and the free parts of the pool's new pieces become known.
//! 2. Call the driver.
//! 3. Update the charge to the driver's counter ([`finish`]).
//!
//! At every instant the charged and reserved bytes are at least the bytes that the pool holds. The steps of several
//! threads interleave in any order; `tests/policy/pool.rs` tries them.

mod calls;
pub mod holes;
mod ledger;
mod overlap;

pub use calls::{
    PendingAllocation, PendingEnd, PoolDriver, begin, begin_end, begin_free, begin_release, cancel_free, end,
    end_release, finish, finish_free, reconcile, releasing,
};
pub use holes::ALIGNMENT;
pub use holes::{POOL_GROWTH, largest_growth};
pub use ledger::{PendingFree, PoolLedger};
