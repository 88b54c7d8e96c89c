//! Stream-ordered memory: what is charged is what a pool holds of its device, not what a program has allocated
//! from it.
//!
//! A pool keeps what is freed and gives it back at moments of its own. The driver counts what it holds; that
//! counter is read after every call that may move it, without waiting for the device. Before an allocation the
//! most that the pool may grow by is reserved; afterwards the charge is brought to the counter.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use super::memory::freed;
use super::{Decision, around, charge, refuse, vmm};
use crate::driver;
use crate::ledger::{Charge, Owner, Reservation};
use crate::slice::{Place, Slice};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use gpuslice_driver::arguments::read_in;
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{
    CUdeviceptr, CUmemPoolProps, CUmemoryPool, CUstream, PoolProperties, Status, status,
};
use gpuslice_region::Device;
use parking_lot::Mutex;
use std::sync::Arc;

/// By what a pool grows at least: drivers of the 12 and 13 series take 32 MiB at a time from the device.
const GROWTH: u64 = 32 << 20;

/// What a pool aligns its allocations to, at least.
const ALIGNMENT: u64 = 512;

/// How often a reading of the driver's counter is repeated because another thread came between.
const READINGS: u32 = 64;

/// A pool that this process allocates from.
#[derive(Debug)]
struct Pool {
    /// Our number for it: the driver may use a handle's value again.
    number: u64,
    handle: usize,
    device: Device,
    charged: Mutex<Charged>,
    /// Allocations that have not been freed.
    live: AtomicU64,
}

/// What a pool was charged.
#[derive(Debug, Default)]
struct Charged {
    bytes: u64,
    /// Counts changes, so that a reading of the driver's counter that began before another change is not
    /// applied after it.
    version: u64,
}

/// The pools of this process.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    any: AtomicBool,
    next: AtomicU64,
    known: Mutex<Vec<Arc<Pool>>>,
    /// Pools that were destroyed while allocations from them live: the memory ends with each of those.
    orphaned: Mutex<Vec<Arc<Pool>>>,
    /// Pools whose memory is the host's.
    host: Mutex<Vec<usize>>,
}

impl Pools {
    /// Whether any pool has been used. Cheap.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Brings the charge of every pool to what the driver says it holds.
    pub(crate) fn reconcile_all(&self, slice: &Slice) {
        if !self.any() {
            return;
        }
        let known = self.known.lock().clone();
        known.iter().for_each(|pool| pool.reconcile(slice, 0));
    }

    /// An allocation of a pool was freed.
    pub(crate) fn freed(&self, slice: &Slice, number: u64, charge: Charge) {
        let known = self.known.lock().iter().find(|pool| pool.number == number).cloned();
        if let Some(pool) = known {
            pool.live.fetch_sub(1, Ordering::Relaxed);
            pool.reconcile(slice, 0);
            return;
        }
        let orphan = self.orphaned.lock().iter().find(|pool| pool.number == number).cloned();
        if let Some(pool) = orphan {
            pool.shrink(slice, charge.bytes);
        }
    }

    fn find(&self, handle: usize) -> Option<Arc<Pool>> {
        self.known.lock().iter().find(|pool| pool.handle == handle).cloned()
    }

    fn find_or_add(&self, handle: usize, device: Device) -> Arc<Pool> {
        let mut known = self.known.lock();
        if let Some(pool) = known.iter().find(|pool| pool.handle == handle) {
            return Arc::clone(pool);
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let pool = Arc::new(Pool { number, handle, device, charged: Mutex::default(), live: AtomicU64::new(0) });
        known.push(Arc::clone(&pool));
        self.any.store(true, Ordering::Relaxed);
        pool
    }

    fn remove(&self, handle: usize) -> Option<Arc<Pool>> {
        let mut known = self.known.lock();
        let place = known.iter().position(|pool| pool.handle == handle)?;
        Some(known.swap_remove(place))
    }
}

impl Pool {
    /// Brings the charge to what the driver says the pool holds. `reserved` bytes were taken of the quota for
    /// this change; what it does not need goes back.
    fn reconcile(&self, slice: &Slice, reserved: u64) {
        let mut change = None;
        for _ in 0..READINGS {
            let version = self.charged.lock().version;
            let Some(held) = driver::pool_reserved(self.handle) else { break };
            let mut charged = self.charged.lock();
            if charged.version == version {
                charged.version = version.wrapping_add(1);
                change = Some((charged.bytes, held));
                charged.bytes = held;
                break;
            }
        }
        let (before, now) = change.unwrap_or((0, 0));
        let (owed, paid) = (now, before.saturating_add(reserved));
        if owed > paid {
            slice.charge(self.device, owed.saturating_sub(paid));
        } else {
            slice.refund(self.device, paid.saturating_sub(owed));
        }
    }

    /// Lowers the charge of a pool whose counter cannot be read any more.
    fn shrink(&self, slice: &Slice, bytes: u64) {
        let mut charged = self.charged.lock();
        let given = charged.bytes.min(bytes);
        charged.bytes = charged.bytes.saturating_sub(given);
        drop(charged);
        slice.refund(self.device, given);
    }

    /// Reserves the most that an allocation may make the pool grow by. Where that does not fit, the pool is made
    /// to give back what it holds unused, as the driver itself would when the device is full.
    fn reserve(&self, slice: &'static Slice, bytes: u64) -> Option<Reservation> {
        let most = bytes.checked_next_multiple_of(GROWTH)?;
        if let Some(reservation) = slice.reserve(self.device, most) {
            return Some(reservation);
        }
        let held = driver::pool_reserved(self.handle)?;
        driver::trim_pool(self.handle, held.saturating_sub(most));
        slice.pools.reconcile_all(slice);
        slice.reserve(self.device, most).or_else(|| self.reserve_hole(slice, bytes))
    }

    /// Reserves nothing, where the pool surely has a hole that is large enough: what it holds unused lies in at most
    /// one hole behind each allocation and one at the start of each piece that it took from the device, so the
    /// largest of them has at least the average size.
    fn reserve_hole(&self, slice: &'static Slice, bytes: u64) -> Option<Reservation> {
        let held = driver::pool_reserved(self.handle)?;
        let unused = held.checked_sub(driver::pool_used(self.handle)?)?;
        let holes = self.live.load(Ordering::Relaxed).checked_add(held.div_ceil(GROWTH))?;
        let room = bytes.checked_next_multiple_of(ALIGNMENT)?.checked_mul(holes)?;
        if unused >= room { slice.reserve(self.device, 0) } else { None }
    }
}

/// `cuMemAllocAsync` and its per-thread form.
pub(crate) unsafe fn alloc(
    real: real::cuMemAllocAsync,
    output: *mut CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Status {
    // SAFETY: the caller's own arguments.
    let call = || unsafe { real(output, bytes, stream) };
    // SAFETY: the caller's output, which the driver accepted.
    allocate(bytes as u64, stream, |slice| pool_of_stream(slice, stream), call, || unsafe { read_in(output) })
}

/// `cuMemAllocFromPoolAsync` and its per-thread form.
pub(crate) unsafe fn alloc_from(
    real: real::cuMemAllocFromPoolAsync,
    output: *mut CUdeviceptr,
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> Status {
    // SAFETY: the caller's own arguments.
    let call = || unsafe { real(output, bytes, pool, stream) };
    // SAFETY: the caller's output, which the driver accepted.
    allocate(bytes as u64, stream, |slice| pool_of_handle(slice, pool), call, || unsafe { read_in(output) })
}

fn allocate(
    bytes: u64,
    stream: CUstream,
    pool: impl FnOnce(&'static Slice) -> Option<Arc<Pool>>,
    call: impl FnOnce() -> Status,
    address: impl FnOnce() -> Option<u64>,
) -> Status {
    let decide = |slice: &'static Slice| {
        let Some(pool) = pool(slice).filter(|_| bytes > 0) else { return Decision::Forward };
        match pool.reserve(slice, bytes) {
            Some(reservation) => Decision::Go((slice, pool, reservation)),
            // While a stream captures, the call only adds a node to a graph.
            None if driver::is_capturing(stream) => Decision::Forward,
            None => refuse(slice, pool.device),
        }
    };
    charge(decide, call, |(slice, pool, reservation): (&Slice, Arc<Pool>, Reservation), code| {
        let reserved = reservation.bytes();
        reservation.keep();
        pool.reconcile(slice, reserved);
        if let Some(address) = address().filter(|_| code == status::SUCCESS) {
            let charge = Charge { device: pool.device, bytes, owner: Owner::Pool(pool.number) };
            pool.live.fetch_add(1, Ordering::Relaxed);
            slice.addresses.insert(address, charge);
        }
        code
    })
}

/// The pool that a stream's allocations come from.
fn pool_of_stream(slice: &Slice, stream: CUstream) -> Option<Arc<Pool>> {
    let device = driver::context_device(driver::stream_context(stream)?)?;
    let place = slice.place(device)?;
    let handle = driver::current_pool(device)?;
    // A program may have made a pool of another device or of the host the current one.
    if slice.pools.host.lock().contains(&handle) {
        return None;
    }
    slice.pools.find(handle).or_else(|| Some(slice.pools.find_or_add(handle, place.device)))
}

/// A pool by its handle: one that was made through us, or one that a device has.
fn pool_of_handle(slice: &Slice, pool: CUmemoryPool) -> Option<Arc<Pool>> {
    let handle = pool.addr();
    if let Some(pool) = slice.pools.find(handle) {
        return Some(pool);
    }
    if slice.pools.host.lock().contains(&handle) {
        return None;
    }
    let owns = |place: &&Place| {
        driver::default_pool(place.handle) == Some(handle)
            || driver::current_pool(place.handle) == Some(handle)
    };
    let device = slice.places().iter().find(owns)?.device;
    Some(slice.pools.find_or_add(handle, device))
}

/// `cuMemFreeAsync` and its per-thread form.
pub(crate) unsafe fn free(real: real::cuMemFreeAsync, address: CUdeviceptr, stream: CUstream) -> Status {
    // SAFETY: the caller's own arguments.
    freed(address, || unsafe { real(address, stream) })
}

/// `cuMemPoolCreate`: a new pool holds nothing yet.
pub(crate) unsafe fn create(
    real: real::cuMemPoolCreate,
    output: *mut CUmemoryPool,
    properties: *const CUmemPoolProps,
) -> Status {
    // SAFETY: the caller's own arguments.
    let call = || unsafe { real(output, properties) };
    around(
        |_| (),
        call,
        |slice, (), code| {
            // SAFETY: the caller's own arguments, which the driver accepted; integers stand for enumerations.
            let wanted = unsafe { read_in(properties.cast::<PoolProperties>()) };
            // SAFETY: as above.
            let made = unsafe { read_in(output) }.filter(|_| code == status::SUCCESS);
            let (Some(wanted), Some(pool)) = (wanted, made) else { return };
            let place = vmm::device_of(wanted.location).and_then(|device| slice.place(device));
            match place {
                Some(place) => drop(slice.pools.find_or_add(pool.addr(), place.device)),
                None => slice.pools.host.lock().push(pool.addr()),
            }
        },
    )
}

/// `cuMemPoolDestroy`: what allocations still hold goes back with them.
pub(crate) unsafe fn destroy(real: real::cuMemPoolDestroy, pool: CUmemoryPool) -> Status {
    let take = |slice: &'static Slice| (slice.pools.remove(pool.addr()), forget_host(slice, pool.addr()));
    // SAFETY: the caller's own argument.
    around(
        take,
        || unsafe { real(pool) },
        |slice, (taken, was_host), code| {
            if code != status::SUCCESS {
                slice.pools.known.lock().extend(taken);
                slice.pools.host.lock().extend(was_host);
                return;
            }
            let Some(pool) = taken else { return };
            let live = slice.addresses.owned(Owner::Pool(pool.number));
            let charged = pool.charged.lock().bytes;
            pool.shrink(slice, charged.saturating_sub(live));
            if live > 0 {
                slice.pools.orphaned.lock().push(pool);
            }
        },
    )
}

fn forget_host(slice: &Slice, handle: usize) -> Option<usize> {
    let mut host = slice.pools.host.lock();
    let place = host.iter().position(|known| *known == handle)?;
    Some(host.swap_remove(place))
}

/// `cuMemPoolTrimTo`.
pub(crate) unsafe fn trim(real: real::cuMemPoolTrimTo, pool: CUmemoryPool, keep: usize) -> Status {
    // SAFETY: the caller's own arguments.
    let call = || unsafe { real(pool, keep) };
    around(
        |slice| slice.pools.find(pool.addr()),
        call,
        |slice, pool, _| {
            if let Some(pool) = pool {
                pool.reconcile(slice, 0);
            }
        },
    )
}
