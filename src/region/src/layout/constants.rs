//! Sizes, counts and values with a meaning of the region file.

/// The first eight bytes of a region, read as a little-endian number: "gpuslice".
pub const MAGIC: u64 = u64::from_le_bytes(*b"gpuslice");
/// The version of this layout.
pub const VERSION: u32 = 12;
/// Processes that can be in one slice.
pub const MAX_SLOTS: usize = 1024;
/// Devices that a slice can have.
pub const MAX_DEVICES: usize = 64;
/// Devices on which a slice without a process can owe time; the models have few.
pub const DEBTS: usize = if cfg!(loom) { 1 } else { MAX_DEVICES };
/// Uses of shared memory that a slice can have at a time.
pub const MAX_SHARES: usize = 4096;
/// Busy intervals that are remembered of a device; the models have few.
pub const PLACES: usize = if cfg!(loom) { 2 } else { 1024 };
/// Seconds that are remembered of a device's use; the models have none.
pub const SECONDS: usize = if cfg!(loom) { 0 } else { 64 };
/// The memory limit that says that there is none. Not zero: a word that was never written must refuse, not grant.
pub const NO_LIMIT: u64 = u64::MAX;
/// What the word for host memory beyond the quota says where that is wanted: "pill", as no word is by chance, since a
/// slice whose region was overwritten must refuse.
pub const OVERSUBSCRIBED: u32 = u32::from_le_bytes(*b"pill");
/// What the word of a device says whose memory is the host's: "host", for the same reason.
pub const HOST_MEMORY: u32 = u32::from_le_bytes(*b"host");
/// What the header's word says while launches are not paid for on any device: "free", for the same reason.
pub const UNPACED: u32 = u32::from_le_bytes(*b"free");
/// The whole of a device's time, in permille.
pub const WHOLE_SHARE: u32 = 1000;
/// The ready word of a region that may be used.
pub const READY: u32 = 1;
/// State of a slot that no process has.
pub const SLOT_FREE: u32 = 0;
/// State of a slot that a process has, alive or dead.
pub const SLOT_TAKEN: u32 = 1;
