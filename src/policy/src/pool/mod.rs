//! What does stream-ordered memory cost? What a pool holds of its device, not what is allocated from it.
//!
//! A pool keeps what is freed and gives it back at moments of its own. The driver counts what it holds; that
//! counter is read after every call that may move it, without waiting for the device. Before an allocation the
//! most that the pool may grow by is reserved; afterwards the charge is brought to the counter. Where there is no
//! room for that, an allocation goes without if the pool surely has a hole for it ([`holes`]).
//!
//! At every instant what is charged and reserved is at least what the pool holds. The steps of several threads
//! interleave as they like; `tests/pool.rs` tries them.

mod calls;
pub mod holes;
mod ledger;

pub use calls::{
    Flight, Outside, begin, begin_release, end_release, land, leave, left, reconcile, releasing, stay,
};
pub use holes::ALIGNMENT;
pub use ledger::{Books, GROWTH, Leaving};
