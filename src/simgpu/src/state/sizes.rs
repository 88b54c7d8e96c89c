//! How many of each thing the state file can hold.

/// Largest number of devices.
pub const DEVICES: usize = 16;
/// Largest number of processes. Dead processes count, too.
pub const PROCESSES: usize = 256;
/// Largest number of groups. The first group has all processes for which no group is set.
pub const GROUPS: usize = 64;
/// Bytes of the name of a group or program, in its stored form.
pub const NAME: usize = 32;
