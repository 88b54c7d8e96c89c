//! Memory pools that this process allocates from, and the charge of each.
//!
//! The arithmetic is in `gpuslice_policy::pool`. This file connects it with the driver and the ledger.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use super::addresses::{Addresses, Charge, Owner};
use super::memory_call::Waiting;
use crate::driver_calls::pools;
use crate::os::reentrancy;
use crate::slice::handle::Slice;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use gpuslice_policy::pool::holes::FreeFor;
use gpuslice_policy::pool::{self, PendingEnd, PendingFree, PoolDriver, PoolLedger};
use gpuslice_region::{Backoff, Device, RESERVING};
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
    /// Number of calls in flight that ask the driver to destroy the pool.
    endings: AtomicU64,
    /// True if the driver has destroyed the pool. After that, the handle may name another pool.
    ended: AtomicBool,
    ledger: Mutex<PoolLedger>,
}

/// Pools of this process.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    any: AtomicBool,
    next: AtomicU64,
    /// Pools in the order in which the library saw them. A destroyed pool stays in the list while it has a charge, because its
    /// memory ends with its allocations.
    known: Mutex<Vec<Arc<Pool>>>,
    /// Pools whose memory is the host's.
    host: Mutex<Vec<usize>>,
}

/// Pool that the driver may destroy in a call under way.
#[derive(Debug)]
pub(crate) enum EndingPool {
    /// A pool whose memory is a device's. It stays in the list, because other threads may allocate from it until its end.
    OfDevice(Arc<Pool>, PendingEnd),
    /// A pool whose memory is the host's. It is taken out of its list.
    OfHost(usize),
    /// A pool that the library does not know.
    Unknown,
}

/// Allocation from a pool that the driver is about to free. `None`: the pool is destroyed and has no charge.
#[derive(Debug)]
pub(crate) struct Block(Option<(Arc<Pool>, PendingFree)>);

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
        pools::pool_reserved(self.pool.living_handle()?)
    }

    fn used(&self) -> Option<u64> {
        pools::pool_used(self.pool.living_handle()?)
    }

    fn trim(&self, keep: u64) {
        if let Some(handle) = self.pool.living_handle() {
            pools::trim_pool(handle, keep);
        }
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

    fn waits(&self) -> impl FnMut() -> bool {
        let mut backoff = None;
        move || {
            let backoff = backoff.get_or_insert_with(|| Backoff::new(RESERVING));
            let _waiting = Waiting::within_call(self.slice.member());
            reentrancy::leave_during(|| backoff.wait())
        }
    }
}

impl Pools {
    /// Returns true if the process has used any pool. One relaxed load.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Returns all pools that the driver has not destroyed.
    pub(crate) fn all(&self) -> Vec<Arc<Pool>> {
        if !self.any() {
            return Vec::new();
        }
        self.known.lock().iter().filter(|pool| !pool.has_ended()).cloned().collect()
    }

    /// Sets the charge of every pool to the bytes that the pool holds by the driver's counter.
    pub(crate) fn reconcile_all(&self, slice: &'static Slice) {
        self.all().iter().for_each(|pool| pool.reconcile(slice));
    }

    /// Notes that a context ended, so that allocations from pools may have ended with it.
    pub(crate) fn distrust(&self) {
        self.known.lock().iter().for_each(|pool| pool.ledger.lock().distrust());
    }

    /// Begins to free an allocation of the pool that the library knows by `number`.
    pub(crate) fn begin_free(&self, slice: &'static Slice, number: u64, address: u64, bytes: u64) -> Block {
        let pool = self.known.lock().iter().find(|pool| pool.number == number).cloned();
        Block(pool.map(|pool| {
            let leaving = pool::begin_free(&pool.access(slice), address, bytes);
            (pool, leaving)
        }))
    }

    /// Settles a block that the driver has freed. `free` names the streams that may use the block again.
    pub(crate) fn finish_free(&self, slice: &'static Slice, block: Block, free: FreeFor) {
        let Some((pool, leaving)) = block.0 else { return };
        pool::finish_free(&pool.access(slice), &leaving, free);
        if pool.has_ended() {
            self.forget_over();
        }
    }

    /// Puts back a block that the driver has not freed.
    pub(crate) fn cancel_free(slice: &'static Slice, block: Block) {
        if let Some((pool, leaving)) = block.0 {
            pool::cancel_free(&pool.access(slice), &leaving);
        }
    }

    /// Returns the pool that is known by a handle.
    pub(crate) fn find(&self, handle: usize) -> Option<Arc<Pool>> {
        self.known.lock().iter().find(|pool| pool.is(handle)).cloned()
    }

    /// Returns the pool of a handle. Adds the pool if the library does not know it. The pool's memory is on `device`.
    pub(crate) fn find_or_add(&self, handle: usize, device: Device) -> Arc<Pool> {
        let mut known = self.known.lock();
        match known.iter().find(|pool| pool.is(handle)) {
            Some(pool) => Arc::clone(pool),
            None => self.push(&mut known, handle, device),
        }
    }

    /// Adds a pool that the driver has made. If another pool with the same handle was being destroyed, it has ended.
    pub(crate) fn add(&self, handle: usize, device: Device) {
        let mut known = self.known.lock();
        match known.iter().find(|pool| pool.is(handle)) {
            Some(pool) if !pool.is_ending() => return,
            Some(pool) => pool.ended.store(true, Ordering::Relaxed),
            None => {}
        }
        self.push(&mut known, handle, device);
    }

    fn push(&self, known: &mut Vec<Arc<Pool>>, handle: usize, device: Device) -> Arc<Pool> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (endings, ended, ledger) = Default::default();
        let pool = Arc::new(Pool { number, handle, device, endings, ended, ledger });
        known.push(Arc::clone(&pool));
        self.any.store(true, Ordering::Relaxed);
        pool
    }

    /// Notes that the program asks the driver to destroy the pool of a handle. The caller must pass the result to
    /// [`end`](Self::end) or [`keep`](Self::keep).
    pub(crate) fn begin_end(&self, slice: &'static Slice, handle: usize) -> EndingPool {
        if let Some(pool) = self.find(handle) {
            let pending = pool::begin_end(&pool.access(slice));
            pool.endings.fetch_add(1, Ordering::Relaxed);
            return EndingPool::OfDevice(pool, pending);
        }
        let mut host = self.host.lock();
        let place = host.iter().position(|known| *known == handle);
        place.map_or(EndingPool::Unknown, |place| EndingPool::OfHost(host.swap_remove(place)))
    }

    /// Notes that the driver has not destroyed a pool.
    pub(crate) fn keep(&self, slice: &'static Slice, ending: EndingPool) {
        match ending {
            EndingPool::OfDevice(pool, _) => {
                pool.endings.fetch_sub(1, Ordering::Relaxed);
                pool.reconcile(slice);
            }
            EndingPool::OfHost(handle) => self.host.lock().push(handle),
            EndingPool::Unknown => {}
        }
    }

    /// Ends a pool that the driver has destroyed. The charge for allocations that are still live ends with their frees.
    pub(crate) fn end(&self, slice: &'static Slice, ending: EndingPool) {
        let EndingPool::OfDevice(pool, pending) = ending else { return };
        pool.ended.store(true, Ordering::Relaxed);
        pool::end(&pool.access(slice), pending);
        self.forget_over();
    }

    /// Removes destroyed pools that have no charge left.
    fn forget_over(&self) {
        self.known.lock().retain(|pool| !pool.ledger.lock().is_over());
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

impl Pool {
    /// Returns true if a handle names this pool. After the pool's end the handle may name another pool.
    fn is(&self, handle: usize) -> bool {
        self.handle == handle && !self.has_ended()
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    fn is_ending(&self) -> bool {
        self.endings.load(Ordering::Relaxed) > 0
    }

    /// Returns the handle, unless the driver may have destroyed the pool.
    fn living_handle(&self) -> Option<usize> {
        (!self.is_ending() && !self.has_ended()).then_some(self.handle)
    }

    fn access(&self, slice: &'static Slice) -> PoolAccess<'_> {
        PoolAccess { slice, pool: self }
    }

    /// Sets the charge to the bytes that the pool holds by the driver's counter.
    pub(crate) fn reconcile(&self, slice: &'static Slice) {
        pool::reconcile(&self.access(slice));
    }
}

/// Pools from which the driver may release memory in a call under way. The caller must call [`end`](Self::end) after the call.
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

/// Call under way that allocates from a pool.
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

    /// Returns the device, and the bytes that were reserved on it. `None`: nothing was reserved, because the pool has a hole for
    /// the allocation.
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
