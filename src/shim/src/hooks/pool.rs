//! Stream-ordered memory: which pool does a call concern, and what happens around it?

use super::memory::freed;
use super::{Decision, around, charge, refuse, vmm};
use crate::driver;
use crate::pools::{Flight, Pool};
use crate::slice::{Place, Slice};
use gpuslice_driver::arguments::read_in;
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{
    CUdeviceptr, CUmemPoolProps, CUmemoryPool, CUstream, PoolProperties, Status, status,
};
use std::sync::Arc;

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
        let device = pool.device;
        match Flight::begin(slice, pool, bytes) {
            Some(flight) => Decision::Go(flight),
            // While a stream captures, the call only adds a node to a graph.
            None if driver::is_capturing(stream) => Decision::Forward,
            None => refuse(slice, device),
        }
    };
    charge(decide, call, |flight: Flight, code| {
        flight.land(address().filter(|_| code == status::SUCCESS));
        code
    })
}

/// The pool that a stream's allocations come from.
fn pool_of_stream(slice: &Slice, stream: CUstream) -> Option<Arc<Pool>> {
    let device = driver::context_device(driver::stream_context(stream)?)?;
    let place = slice.place(device)?;
    let handle = driver::current_pool(device)?;
    // A program may have made a pool of another device or of the host the current one.
    if slice.pools.is_host(handle) {
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
    if slice.pools.is_host(handle) {
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
                None => slice.pools.add_host(pool.addr()),
            }
        },
    )
}

/// `cuMemPoolDestroy`.
pub(crate) unsafe fn destroy(real: real::cuMemPoolDestroy, pool: CUmemoryPool) -> Status {
    // SAFETY: the caller's own argument.
    let call = || unsafe { real(pool) };
    around(
        |slice| slice.pools.take(pool.addr()),
        call,
        |slice, taken, code| {
            if code == status::SUCCESS {
                slice.pools.end(slice, taken);
            } else {
                slice.pools.put_back(taken);
            }
        },
    )
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
