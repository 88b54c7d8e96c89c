//! Addresses of this process, and the charge of each.
//!
//! The map is divided into shards. A thread holds the lock of a shard for one look-up, and never across a call of the driver.
//!
//! Small allocations lie side by side in blocks, so an entry of the map has the addresses of 32 KiB: one bit for each multiple of
//! 512 bytes. A million allocations of 4 KiB take 8 MiB, where an entry for each of them would take 64 MiB. Other charges have an
//! entry for each address.

use crate::os::spin_lock::SpinLocked;
use crate::slice::enforcement;
use crate::slice::handle::Reservation;
use core::num::NonZeroU64;
use gpuslice_policy::address_table::{AddressTable, spread};
use gpuslice_policy::sizes::blocks::{BLOCK, LEAST_SLOT};
use gpuslice_region::Device;

/// Charge of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

/// Shard in two cache lines. The first one has the lock, and all that the thread reads for the newest small allocation.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Shard(SpinLocked<Charges>);

const _: () = assert!(size_of::<Shard>() == 128);

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
    #[inline(always)]
    pub(crate) fn insert(&self, address: u64, charge: Charge) {
        if let Some(Shard(charges)) = self.shard(address) {
            charges.lock().insert(address, charge);
        }
    }

    /// Returns the charge of an address and leaves it in the table. `None`: the address was not charged.
    pub(crate) fn get(&self, address: u64) -> Option<Charge> {
        self.shard(address)?.0.lock().get(address)
    }

    /// Takes the charge of an address out of the table. `None`: the address was not charged.
    #[inline(never)]
    pub(crate) fn take(&self, address: u64) -> Option<Charge> {
        self.shard(address)?.0.lock().take(address)
    }

    /// Takes out all charges that the end of a context gives back.
    pub(crate) fn take_of(&self, context: usize) -> Vec<(u64, Charge)> {
        let mut taken = Vec::new();
        for Shard(charges) in &self.shards {
            let mut charges = charges.lock();
            let from = taken.len();
            let count = charges.iter().filter(|(_, charge)| charge.ends_with(context)).count();
            if taken.try_reserve(count).is_err() {
                // The charges that stay in the table count as held until the process ends.
                enforcement::run_out();
                return taken;
            }
            taken.extend(charges.iter().filter(|(_, charge)| charge.ends_with(context)));
            for (address, charge) in taken.iter().skip(from) {
                charges.take_equal(*address, charge);
            }
        }
        taken
    }

    fn shard(&self, address: u64) -> Option<&Shard> {
        let place = usize::try_from(spread(start_of_chunk(address)) >> (u64::BITS - SHARD_BITS)).ok()?;
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

/// Charges of a shard. All addresses of a chunk are in the same shard.
#[derive(Debug, Default)]
#[repr(C)]
struct Charges {
    chunks: AddressTable<Chunk>,
    /// Charges that are in no chunk.
    others: AddressTable<Record>,
}

impl Charges {
    #[inline]
    fn insert(&mut self, address: u64, charge: Charge) {
        if !Chunk::new(address, &charge).is_some_and(|chunk| self.insert_in_chunk(address, chunk)) {
            self.insert_other(address, charge);
        }
    }

    /// Returns false if a charge of another context is in the chunk.
    #[inline]
    fn insert_in_chunk(&mut self, address: u64, chunk: Chunk) -> bool {
        let start = start_of_chunk(address);
        if let Some(there) = self.chunks.get_mut(start) {
            let is_same = there.is_of_same(&chunk);
            if is_same {
                there.slots |= chunk.slots;
            }
            return is_same;
        }
        self.chunks.insert(start, chunk);
        // The next insertion into this table moves this chunk from its own place to the fetched line.
        fetch(self.chunks.near(start));
        true
    }

    #[inline(never)]
    fn insert_other(&mut self, address: u64, charge: Charge) {
        // If a chunk had an older charge of the address, a look-up would find that one.
        self.take_from_chunk(address);
        self.others.insert(address, charge.into());
        fetch(self.others.near(address));
    }

    fn get(&self, address: u64) -> Option<Charge> {
        let chunk = self.chunks.get(start_of_chunk(address)).filter(|chunk| chunk.has(address));
        chunk.map(Chunk::charge).or_else(|| self.others.get(address).map(Charge::from))
    }

    #[inline(always)]
    fn take(&mut self, address: u64) -> Option<Charge> {
        self.take_from_chunk(address).or_else(|| self.take_other(address))
    }

    #[inline(never)]
    fn take_other(&mut self, address: u64) -> Option<Charge> {
        self.others.take(address).map(Charge::from)
    }

    /// Each call of its own would copy the charge through the stack, with loads that wait for narrower stores.
    #[inline(always)]
    fn take_from_chunk(&mut self, address: u64) -> Option<Charge> {
        let start = start_of_chunk(address);
        let chunk = self.chunks.get_mut(start).filter(|chunk| chunk.has(address))?;
        let charge = chunk.charge();
        match chunk.without(address) {
            Some(slots) => chunk.slots = slots,
            None => drop(self.chunks.take(start)),
        }
        Some(charge)
    }

    /// Takes a charge that [`iter`](Self::iter) has returned. If both tables have a charge of the address, the other one stays.
    fn take_equal(&mut self, address: u64, charge: &Charge) {
        let is_in_chunk = |chunk: Chunk| chunk.has(address) && chunk.charge() == *charge;
        if self.chunks.get(start_of_chunk(address)).is_some_and(is_in_chunk) {
            self.take_from_chunk(address);
        } else {
            self.take_other(address);
        }
    }

    fn iter(&self) -> impl Iterator<Item = (u64, Charge)> {
        let small = self.chunks.iter().flat_map(|(start, chunk)| {
            addresses_of_chunk(start)
                .filter(move |address| chunk.has(*address))
                .map(move |address| (address, chunk.charge()))
        });
        small.chain(self.others.iter().map(|(address, record)| (address, record.into())))
    }
}

/// Bytes of the addresses of a chunk.
const CHUNK: u64 = LEAST_SLOT * u64::BITS as u64;

/// Charges of small allocations in 32 KiB of a block: all of one context. It has at least one address.
#[derive(Debug, Clone, Copy)]
struct Chunk {
    device: Device,
    context: usize,
    /// A bit for each address that is charged.
    slots: NonZeroU64,
}

impl Chunk {
    /// Returns a chunk with one address. `None`: the charge is of another kind.
    fn new(address: u64, charge: &Charge) -> Option<Self> {
        let Owner::Block(context) = charge.owner else { return None };
        let is_slot = address.is_multiple_of(LEAST_SLOT) && charge.bytes == BLOCK;
        let slots = NonZeroU64::new(slot_of(address)).filter(|_| is_slot)?;
        Some(Self { device: charge.device, context, slots })
    }

    fn is_of_same(&self, other: &Self) -> bool {
        self.device == other.device && self.context == other.context
    }

    fn has(&self, address: u64) -> bool {
        self.slots.get() & slot_of(address) != 0 && address.is_multiple_of(LEAST_SLOT)
    }

    /// Returns the slots but the one of `address`. `None`: there are no others.
    fn without(&self, address: u64) -> Option<NonZeroU64> {
        NonZeroU64::new(self.slots.get() & !slot_of(address))
    }

    fn charge(self) -> Charge {
        Charge { device: self.device, bytes: BLOCK, owner: Owner::Block(self.context) }
    }
}

/// Returns the addresses at which slots of a chunk may begin.
fn addresses_of_chunk(start: u64) -> impl Iterator<Item = u64> {
    (0..u64::from(u64::BITS)).map(move |slot| start.saturating_add(slot.saturating_mul(LEAST_SLOT)))
}

const fn start_of_chunk(address: u64) -> u64 {
    address & !(CHUNK - 1)
}

/// Returns the bit of an address in its chunk.
const fn slot_of(address: u64) -> u64 {
    1 << (address % CHUNK / LEAST_SLOT)
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
