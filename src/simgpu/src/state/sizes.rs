//! Capacities of the state file.

/// Largest number of devices.
pub const DEVICES: usize = 16;
/// Largest number of processes, living and dead.
pub const PROCESSES: usize = 256;
/// Largest number of groups. The first one is that of processes without a group.
pub const GROUPS: usize = 64;
/// Bytes of the name of a group or program.
pub const NAME: usize = 32;
