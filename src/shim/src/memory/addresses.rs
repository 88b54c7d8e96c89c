//! Addresses of this process, and the charge of each.
//!
//! The map is divided into shards. A thread holds the lock of a shard for one look-up, and never across a call of the driver. A
//! charge costs the same time whether the process has one live allocation or a million.

use crate::os::spin_lock::SpinLocked;
use crate::slice::enforcement;
use crate::slice::handle::Reservation;
use core::num::NonZeroU64;
use gpuslice_policy::address_table::{AddressTable, spread};
use gpuslice_region::Device;

/// Charge of an address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Charge {
    /// Device of the memory.
    pub(crate) device: Device,
    /// Bytes that were charged.
    pub(crate) bytes: u64,
    /// Object that the charge ends with.
    pub(crate) owner: Owner,
}

impl Charge {
    /// Returns true if the memory still exists after this process frees it, as long as other processes use it. An allocation from
    /// a pool does not.
    pub(crate) fn outlives_free(&self) -> bool {
        matches!(self.owner, Owner::Context(_) | Owner::Block(_))
    }

    /// Returns true if the end of this context gives the charge back.
    pub(super) fn ends_with(&self, context: usize) -> bool {
        matches!(self.owner, Owner::Context(of) | Owner::Managed(of) | Owner::Block(of) if of == context)
    }
}

/// Object that an allocation lives in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A context, by its handle. The charge is for this address alone.
    Context(usize),
    /// A context, by its handle. The charge is for managed memory, which NVML does not report as this process's.
    Managed(usize),
    /// A context, by its handle. The charge is for a block that the address shares with others.
    Block(usize),
    /// A pool, by the library's number for it. The charge is for the pool, not for the address.
    Pool(u64),
}

/// Number of shards. With a million addresses, the table of one shard grows within a few microseconds.
const SHARDS: usize = 1 << SHARD_BITS;
const SHARD_BITS: u32 = 10;

/// Addresses that this process was charged for.
#[derive(Debug)]
pub(crate) struct Addresses {
    shards: Box<[Shard]>,
}

/// Shard in one cache line: the lock, the newest address, and the pointer to the table of the other addresses.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Shard(SpinLocked<AddressTable<Record>>);

const _: () = assert!(size_of::<Shard>() == 64);

impl Default for Addresses {
    fn default() -> Self {
        Self { shards: core::iter::repeat_with(Shard::default).take(SHARDS).collect() }
    }
}

impl Addresses {
    /// Keeps a reservation as the charge of `address`, until the memory at the address is freed.
    pub(crate) fn record(&self, reservation: Reservation, address: u64, owner: Owner) {
        let (device, bytes) = (reservation.device(), reservation.bytes());
        self.insert(address, Charge { device, bytes, owner });
        reservation.keep();
    }

    /// Records a charge.
    pub(crate) fn insert(&self, address: u64, charge: Charge) {
        if let Some(Shard(table)) = self.shard(address) {
            let mut table = table.lock();
            table.insert(address, charge.into());
            // The next insertion into this shard moves this charge from its own place into the table, at the fetched line.
            fetch(table.near(address));
        }
    }

    /// Returns the charge of an address and leaves it in the table. `None`: the address was not charged.
    pub(crate) fn get(&self, address: u64) -> Option<Charge> {
        self.shard(address)?.0.lock().get(address).map(Charge::from)
    }

    /// Takes the charge of an address out of the table. `None`: the address was not charged.
    pub(crate) fn take(&self, address: u64) -> Option<Charge> {
        self.shard(address)?.0.lock().take(address).map(Charge::from)
    }

    /// Takes out all charges that the end of a context gives back.
    pub(crate) fn take_of(&self, context: usize) -> Vec<(u64, Charge)> {
        let mut taken = Vec::new();
        for Shard(table) in &self.shards {
            let mut table = table.lock();
            let from = taken.len();
            let count = charges(&table).filter(|(_, charge)| charge.ends_with(context)).count();
            if taken.try_reserve(count).is_err() {
                // The charges that stay in the table count as held until the process ends.
                enforcement::run_out();
                return taken;
            }
            taken.extend(charges(&table).filter(|(_, charge)| charge.ends_with(context)));
            for (address, _) in taken.iter().skip(from) {
                table.take(*address);
            }
        }
        taken
    }

    fn shard(&self, address: u64) -> Option<&Shard> {
        let place = usize::try_from(spread(address) >> (u64::BITS - SHARD_BITS)).ok()?;
        self.shards.get(place)
    }
}

/// Asks the processor to load a cache line that the thread needs later. In a table of a million addresses, no cache has the line.
#[inline]
fn fetch(line: Option<*const u8>) {
    #[cfg(target_arch = "x86_64")]
    if let Some(line) = line {
        // SAFETY: `_mm_prefetch` accepts any address: it is a hint and reads nothing.
        unsafe { core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(line.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

fn charges(table: &AddressTable<Record>) -> impl Iterator<Item = (u64, Charge)> {
    table.iter().map(|(address, record)| (address, record.into()))
}

/// A [`Charge`] in 24 bytes. An `Option` of it has the same size, because `tagged` is never zero.
#[derive(Debug, Clone, Copy)]
struct Record {
    device: Device,
    /// Number of bytes, with the tag for the kind of owner in the lowest bits. The region counts up to 2^48 bytes, so the number
    /// fits above the tag. Never zero, because no charge is.
    tagged: NonZeroU64,
    owner: u64,
}

const OF_MANAGED: u64 = 0;
const OF_CONTEXT: u64 = 1;
const OF_POOL: u64 = 2;
const OF_BLOCK: u64 = 3;
const TAG_BITS: u32 = 2;

impl From<Charge> for Record {
    fn from(charge: Charge) -> Self {
        let (owner, tag) = match charge.owner {
            Owner::Context(context) => (context as u64, OF_CONTEXT),
            Owner::Managed(context) => (context as u64, OF_MANAGED),
            Owner::Block(context) => (context as u64, OF_BLOCK),
            Owner::Pool(number) => (number, OF_POOL),
        };
        let tagged = NonZeroU64::new(charge.bytes << TAG_BITS | tag).unwrap_or(NonZeroU64::MIN);
        Self { device: charge.device, tagged, owner }
    }
}

impl From<Record> for Charge {
    fn from(record: Record) -> Self {
        let (bytes, tag) = (record.tagged.get() >> TAG_BITS, record.tagged.get() & ((1 << TAG_BITS) - 1));
        let context = || usize::try_from(record.owner).unwrap_or(usize::MAX);
        let owner = match tag {
            OF_POOL => Owner::Pool(record.owner),
            OF_BLOCK => Owner::Block(context()),
            OF_MANAGED => Owner::Managed(context()),
            _ => Owner::Context(context()),
        };
        Self { device: record.device, bytes, owner }
    }
}
