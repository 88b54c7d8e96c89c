//! The decisions of gpuslice as pure functions: limits, memory sizes, GPU time, and the division of a GPU.
//!
//! No function reads the environment, a file, a clock or a device. The caller passes the facts as arguments. No function
//! panics, whatever the arguments are.
//!
//! Folders, lowest first. A module imports from its own folder and from folders earlier in this list. No files import each other
//! in a circle. `tests/repository/dependencies` checks both.
//!
//! 1. `units`, `time`: bytes and shares; GPU time, wall time and instants.
//! 2. `config`: settings from the environment and the operator's files.
//! 3. `address_table`, `host_memory`, `visible_devices`, `memory_question`: a hash table, texts of the kernel and the user, and
//!    messages between a process and the agent.
//! 4. `sizes`: device memory of arrays, blocks, code, contexts and graphs.
//! 5. `pool`: the charge of a memory pool.
//! 6. `compute`: the GPU time of one slice.
//! 7. `arbiter`: the division of a GPU among slices.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

pub mod address_table;
pub mod arbiter;
pub mod compute;
pub mod config;
pub mod host_memory;
pub mod memory_question;
pub mod pool;
pub mod sizes;
pub mod time;
pub mod units;
pub mod visible_devices;
