//! Constants of the region file: sizes, counts and magic words.

/// The first eight bytes of a region, read as a little-endian number: "gpuslice".
pub const MAGIC: u64 = u64::from_le_bytes(*b"gpuslice");
/// The version of this layout.
pub const VERSION: u32 = 16;
/// The most processes that one slice can have.
pub const MAX_SLOTS: usize = 1024;
/// The most devices that one slice can have.
pub const MAX_DEVICES: usize = 64;
/// Entries in the table of debts: one for each device. The loom models have one.
pub const DEBTS: usize = if cfg!(loom) { 1 } else { MAX_DEVICES };
/// The most uses of shared memory that a slice can have at a time.
pub const MAX_SHARES: usize = 4096;
/// Busy intervals that a ring of the region keeps for a device. The loom models have two.
pub const INTERVALS: usize = if cfg!(loom) { 2 } else { 1024 };
/// Usage samples that the region keeps for a device, one a second. The loom models have none.
pub const SECONDS: usize = if cfg!(loom) { 0 } else { 64 };
/// The memory limit of a device without a quota. It is not zero: a word that was never written must deny, not grant.
pub const NO_LIMIT: u64 = u64::MAX;
/// The value that turns oversubscription on: the bytes "pill". It is not 1, because a word of an overwritten region
/// must not turn it on by chance.
pub const OVERSUBSCRIBED: u32 = u32::from_le_bytes(*b"pill");
/// The value that marks a device whose memory is the host's: the bytes "host". It is not 1, for the reason given at
/// [`OVERSUBSCRIBED`].
pub const HOST_MEMORY: u32 = u32::from_le_bytes(*b"host");
/// The value of the header's hint that no device has a share to pay for: the bytes "free". It is not 1, for the reason
/// given at [`OVERSUBSCRIBED`].
pub const UNLIMITED: u32 = u32::from_le_bytes(*b"free");
/// A share of the whole of a device's time, in permille.
pub const WHOLE_SHARE: u32 = 1000;
/// The ready word of a region that may be used.
pub const READY: u32 = 1;
/// The state of a slot without a process.
pub const SLOT_FREE: u32 = 0;
/// The state of a slot that belongs to a process, alive or dead.
pub const SLOT_TAKEN: u32 = 1;
