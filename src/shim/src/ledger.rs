//! What did each address cost, and who gives it back?
//!
//! The map is cut into shards, each behind a lock that is held for a look-up and never across a call of the
//! driver, so that a charge costs the same among one live allocation and a million.

use crate::slice::Slice;
use core::hash::{BuildHasherDefault, Hasher};
use gpuslice_region::Device;
use parking_lot::Mutex;
use std::collections::HashMap;

/// Bytes of the quota that nothing is recorded for yet. Given back when dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    slice: &'static Slice,
    device: Device,
    bytes: u64,
}

impl Reservation {
    pub(crate) fn new(slice: &'static Slice, device: Device, bytes: u64) -> Self {
        Self { slice, device, bytes }
    }

    /// The device it is of.
    pub(crate) fn device(&self) -> Device {
        self.device
    }

    /// How many bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Brings it to what the driver really took; false if that does not fit.
    #[must_use]
    pub(crate) fn settle(&mut self, bytes: u64) -> bool {
        if let Some(more) = bytes.checked_sub(self.bytes) {
            let Some(extra) = self.slice.reserve(self.device, more) else { return false };
            extra.keep();
        } else {
            self.slice.refund(self.device, self.bytes.saturating_sub(bytes));
        }
        self.bytes = bytes;
        true
    }

    /// Keeps the bytes: something else gives them back.
    pub(crate) fn keep(self) {
        core::mem::forget(self);
    }

    /// Keeps the bytes for an address.
    pub(crate) fn record(self, address: u64, context: usize) {
        let charge = Charge { device: self.device, bytes: self.bytes, owner: Owner::Context(context) };
        self.slice.addresses.insert(address, charge);
        self.keep();
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.slice.refund(self.device, self.bytes);
    }
}

/// What an address was charged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Charge {
    /// The device whose memory it is.
    pub(crate) device: Device,
    /// How much.
    pub(crate) bytes: u64,
    /// With what it ends.
    pub(crate) owner: Owner,
}

/// What an allocation lives in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A context, by its handle: the bytes were charged for the address.
    Context(usize),
    /// A pool, by our number for it: the pool was charged, not the address.
    Pool(u64),
}

/// How many shards. Many more than threads that allocate at once.
const SHARDS: usize = 64;

type Shard = Mutex<HashMap<u64, Charge, BuildHasherDefault<AddressHasher>>>;

/// Every address that this process was charged for.
#[derive(Debug)]
pub(crate) struct Addresses {
    shards: [Shard; SHARDS],
}

impl Default for Addresses {
    fn default() -> Self {
        Self { shards: core::array::from_fn(|_| Mutex::default()) }
    }
}

impl Addresses {
    /// Records a charge.
    pub(crate) fn insert(&self, address: u64, charge: Charge) {
        if let Some(shard) = self.shard(address) {
            shard.lock().insert(address, charge);
        }
    }

    /// Takes a charge out; none for an address that nobody charged.
    pub(crate) fn take(&self, address: u64) -> Option<Charge> {
        self.shard(address)?.lock().remove(&address)
    }

    /// Takes out all charges that a context's end gives back.
    pub(crate) fn take_owned(&self, owner: Owner) -> Vec<(u64, Charge)> {
        let mut taken = Vec::new();
        for shard in &self.shards {
            taken.extend(shard.lock().extract_if(|_, charge| charge.owner == owner));
        }
        taken
    }

    /// Bytes that live under an owner.
    pub(crate) fn owned(&self, owner: Owner) -> u64 {
        let of_shard = |shard: &Shard| -> u64 {
            shard.lock().values().filter(|charge| charge.owner == owner).map(|charge| charge.bytes).sum()
        };
        self.shards.iter().map(of_shard).sum()
    }

    fn shard(&self, address: u64) -> Option<&Shard> {
        // The top bits of the mixed address: the map uses the lower ones.
        let place = usize::try_from(mix(address) >> 58).ok()?;
        self.shards.get(place)
    }
}

/// Spreads addresses, whose low bits are zero, over all bits: multiplication by 2^64 divided by the golden
/// ratio, as Knuth gives it.
fn mix(address: u64) -> u64 {
    let product = (address >> 8 ^ address << 56).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ product >> 32
}

/// Hashes one address. The default hasher guards against chosen keys; the driver chooses these.
#[derive(Debug, Default)]
pub(crate) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, address: u64) {
        self.0 = mix(self.0 ^ address).rotate_left(29);
    }
}
