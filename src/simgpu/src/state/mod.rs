//! The state that all processes share: memory, processes, faults, and the engines of the devices.
//!
//! The state is one file. Each process maps the file, and so does the program that prints the truth about the devices. The
//! file consists of plain integers, and is valid when all bytes are zero. A process changes them only while it holds the lock
//! of the file. The file also keeps totals. If a process dies while it holds the lock, the next holder computes the totals
//! again from the words that they sum up.

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
