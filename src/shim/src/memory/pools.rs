//! Memory pools that this process allocates from, and the charge of each.
//!
//! The arithmetic is in `gpuslice_policy::pool`. This file connects it with the driver and the ledger.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use super::addresses::{Addresses, Charge, Owner};
use crate::driver_calls::pools;
use crate::slice::handle::Slice;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use gpuslice_policy::pool::holes::FreeFor;
use gpuslice_policy::pool::{self, PendingFree, PoolDriver, PoolLedger};
use gpuslice_region::Device;
use parking_lot::Mutex;
use std::sync::Arc;

/// Pool that this process allocates from.
#[derive(Debug)]
pub(crate) struct Pool {
    /// The library's number for the pool: the driver may use a handle's value again.
    number: u64,
    handle: usize,
    /// Device of the pool's memory.
    pub(crate) device: Device,
    ledger: Mutex<PoolLedger>,
}

/// Pools of this process.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    any: AtomicBool,
    next: AtomicU64,
    known: Mutex<Vec<Arc<Pool>>>,
    /// Pools that were destroyed while allocations from them live. Their memory ends with these allocations.
    orphaned: Mutex<Vec<Arc<Pool>>>,
    /// Pools whose memory is the host's.
    host: Mutex<Vec<usize>>,
}

/// Pool that was taken out of the list.
#[derive(Debug)]
pub(crate) enum TakenPool {
    /// A pool whose memory is a device's.
    OfDevice(Arc<Pool>),
    /// A pool whose memory is the host's.
    OfHost(usize),
    /// A pool that the library does not know.
    Unknown,
}

/// Block of a pool that the driver is about to free.
#[derive(Debug)]
pub(crate) struct Block {
    /// The block's pool; `None` if the pool was destroyed before.
    of: Option<(Arc<Pool>, PendingFree)>,
    number: u64,
    bytes: u64,
}

/// Pool with the slice that pays for it.
struct PoolAccess<'a> {
    slice: &'static Slice,
    pool: &'a Pool,
}

impl PoolDriver for PoolAccess<'_> {
    fn step<R>(&self, step: impl FnOnce(&mut PoolLedger) -> R) -> R {
        step(&mut self.pool.ledger.lock())
    }

    fn held(&self) -> Option<u64> {
        pools::pool_reserved(self.pool.handle)
    }

    fn used(&self) -> Option<u64> {
        pools::pool_used(self.pool.handle)
    }

    fn trim(&self, keep: u64) {
        pools::trim_pool(self.pool.handle, keep);
    }

    fn reserve(&self, bytes: u64) -> bool {
        let reserved = self.slice.reserve(self.pool.device, bytes);
        reserved.map(crate::slice::handle::Reservation::keep).is_some()
    }

    fn charge(&self, bytes: u64) {
        self.slice.charge(self.pool.device, bytes);
    }

    fn refund(&self, bytes: u64) {
        self.slice.refund(self.pool.device, bytes);
    }
}

impl Pools {
    /// Returns true if any pool has been used. Cheap.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Returns all pools that are known now.
    pub(crate) fn all(&self) -> Vec<Arc<Pool>> {
        if self.any() { self.known.lock().clone() } else { Vec::new() }
    }

    /// Brings the charge of every pool to the bytes that the driver says the pool holds.
    pub(crate) fn reconcile_all(&self, slice: &'static Slice) {
        self.all().iter().for_each(|pool| pool.reconcile(slice));
    }

    /// Notes that a context ended, and perhaps allocations of pools with it.
    pub(crate) fn distrust(&self) {
        self.known.lock().iter().for_each(|pool| pool.ledger.lock().distrust());
    }

    /// Begins to free an allocation of the pool that the library knows by `number`.
    pub(crate) fn begin_free(&self, slice: &'static Slice, number: u64, address: u64, bytes: u64) -> Block {
        let pool = of_number(&self.known, number);
        let of = pool.map(|pool| {
            let leaving = pool::begin_free(&pool.access(slice), address, bytes);
            (pool, leaving)
        });
        Block { of, number, bytes }
    }

    /// Settles a block that the driver has freed. `free` tells for whom the block is free.
    pub(crate) fn finish_free(&self, slice: &'static Slice, block: Block, free: FreeFor) {
        if let Some((pool, leaving)) = block.of {
            pool::finish_free(&pool.access(slice), &leaving, free);
        } else if let Some(orphan) = of_number(&self.orphaned, block.number) {
            orphan.shrink(slice, block.bytes);
        }
    }

    /// Puts back a block that the driver has not freed.
    pub(crate) fn cancel_free(slice: &'static Slice, block: Block) {
        if let Some((pool, leaving)) = block.of {
            pool::cancel_free(&pool.access(slice), &leaving);
        }
    }

    /// Returns the pool that is known by a handle.
    pub(crate) fn find(&self, handle: usize) -> Option<Arc<Pool>> {
        self.known.lock().iter().find(|pool| pool.handle == handle).cloned()
    }

    /// Returns the pool of a handle, whose memory is a device's. Adds the pool if it is not known.
    pub(crate) fn find_or_add(&self, handle: usize, device: Device) -> Arc<Pool> {
        let mut known = self.known.lock();
        if let Some(pool) = known.iter().find(|pool| pool.handle == handle) {
            return Arc::clone(pool);
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let pool = Arc::new(Pool { number, handle, device, ledger: Mutex::default() });
        known.push(Arc::clone(&pool));
        self.any.store(true, Ordering::Relaxed);
        pool
    }

    /// Takes out the pool of a handle while the driver ends the pool.
    pub(crate) fn take(&self, handle: usize) -> TakenPool {
        let mut known = self.known.lock();
        if let Some(place) = known.iter().position(|pool| pool.handle == handle) {
            return TakenPool::OfDevice(known.swap_remove(place));
        }
        let mut host = self.host.lock();
        let place = host.iter().position(|known| *known == handle);
        place.map_or(TakenPool::Unknown, |place| TakenPool::OfHost(host.swap_remove(place)))
    }

    /// Puts back a pool that lives on.
    pub(crate) fn put_back(&self, taken: TakenPool) {
        match taken {
            TakenPool::OfDevice(pool) => self.known.lock().push(pool),
            TakenPool::OfHost(handle) => self.host.lock().push(handle),
            TakenPool::Unknown => {}
        }
    }

    /// Ends a pool. Memory that allocations still hold of it goes back with them.
    pub(crate) fn end(&self, slice: &'static Slice, addresses: &Addresses, taken: TakenPool) {
        let TakenPool::OfDevice(pool) = taken else { return };
        let live = addresses.owned(Owner::Pool(pool.number));
        let charged = pool.ledger.lock().charged();
        pool.shrink(slice, charged.saturating_sub(live));
        if live > 0 {
            self.orphaned.lock().push(pool);
        }
    }

    /// Records a pool whose memory is the host's.
    pub(crate) fn add_host(&self, handle: usize) {
        self.host.lock().push(handle);
    }

    /// Returns true if a pool's memory is the host's.
    pub(crate) fn is_host(&self, handle: usize) -> bool {
        self.host.lock().contains(&handle)
    }
}

fn of_number(pools: &Mutex<Vec<Arc<Pool>>>, number: u64) -> Option<Arc<Pool>> {
    pools.lock().iter().find(|pool| pool.number == number).cloned()
}

impl Pool {
    fn access(&self, slice: &'static Slice) -> PoolAccess<'_> {
        PoolAccess { slice, pool: self }
    }

    /// Brings the charge to the bytes that the driver says the pool holds.
    pub(crate) fn reconcile(&self, slice: &'static Slice) {
        pool::reconcile(&self.access(slice));
    }

    /// Lowers the charge of a pool whose counter cannot be read any more.
    fn shrink(&self, slice: &Slice, bytes: u64) {
        let mut ledger = self.ledger.lock();
        slice.refund(self.device, ledger.shrink(bytes));
    }
}

/// Pools from which the driver may release memory in a call under way. The caller must [`end`](Self::end) the value.
#[derive(Debug, Default)]
pub(crate) struct Releasing(Vec<Arc<Pool>>);

impl Releasing {
    /// Notes that the call is about to begin.
    pub(crate) fn begin(slice: &'static Slice, pools: Vec<Arc<Pool>>) -> Self {
        pools.iter().for_each(|pool| pool::begin_release(&pool.access(slice)));
        Self(pools)
    }

    /// Notes that the call is over, and brings the charges up to date.
    pub(crate) fn end(self, slice: &'static Slice) {
        self.0.iter().for_each(|pool| pool::end_release(&pool.access(slice)));
    }
}

/// Allocation from a pool that is under way.
#[derive(Debug)]
pub(crate) struct PoolAllocation {
    slice: &'static Slice,
    addresses: &'static Addresses,
    pool: Arc<Pool>,
    way: pool::PendingAllocation,
}

impl PoolAllocation {
    /// Makes sure that an allocation stays within the quota.
    ///
    /// # Errors
    /// The allocation does not fit. The pool is given back to the caller.
    pub(crate) fn begin(
        slice: &'static Slice,
        addresses: &'static Addresses,
        pool: Arc<Pool>,
        bytes: u64,
        stream: usize,
    ) -> Result<Self, Arc<Pool>> {
        match pool::begin(&pool.access(slice), bytes, stream) {
            Some(way) => Ok(Self { slice, addresses, pool, way }),
            None => Err(pool),
        }
    }

    /// Returns the device, and the bytes of it that were reserved; `None` if the pool has a hole for the allocation.
    pub(crate) fn granted(&self) -> Option<(Device, u64)> {
        Some((self.pool.device, self.way.reserved()?))
    }

    /// Brings the charge up to date after the driver's answer: the address, or `None` if the driver failed.
    pub(crate) fn finish(self, address: Option<u64>) {
        let Self { slice, addresses, pool, way } = self;
        let bytes = way.bytes();
        pool::finish(&pool.access(slice), way, address);
        if let Some(address) = address {
            let charge = Charge { device: pool.device, bytes, owner: Owner::Pool(pool.number) };
            addresses.insert(address, charge);
        }
    }
}
