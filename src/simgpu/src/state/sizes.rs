//! Numbers of devices, processes and groups that the state file has room for.

/// Devices at the most.
pub const DEVICES: usize = 16;
/// Processes at a time; also how many dead ones are remembered at the most.
pub const PROCESSES: usize = 256;
/// Groups of processes at the most; the first is that of the processes without one.
pub const GROUPS: usize = 64;
/// Bytes of a name: of a group or a program.
pub const NAME: usize = 32;
