//! What do all processes that use the simulated GPUs share?
//!
//! One file, mapped by each of them and by the reader of the ground truth. Plain integers, valid when zeroed,
//! touched only by whoever holds the file's lock. Totals are kept beside the words they sum and are made anew
//! from them when a process died while it held the lock.

pub mod course;
pub(crate) mod device_time;
pub mod file;
pub mod json;
pub mod layout;
pub mod ledger;
pub mod machine;
pub mod roster;
pub mod settings;
pub mod sharing;
pub mod sizes;

#[cfg(test)]
mod tests;
