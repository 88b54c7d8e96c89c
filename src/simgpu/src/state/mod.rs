//! The state that all processes share: memory, processes, faults, and the engines of the devices.
//!
//! It is one file. Each process maps it, and so does the reader of the ground truth. It consists of plain integers
//! that are valid when zeroed. A process changes them only while it holds the lock of the file. Totals are kept
//! beside the words that they sum. If a process dies while it holds the lock, the next holder rebuilds them.

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
