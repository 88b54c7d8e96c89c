//! Stream-ordered memory: calls that use or change memory pools.

use super::linear::{ATTACH_GLOBAL, FreeEffects, freed, recorded, reserve_or_spill_here, spilled};
use crate::driver_calls::{capture_mode, contexts, locations, memory, pools, streams};
use crate::hooks::hooked_call::HookedCall;
use crate::hooks::protocol::{Decision, Granted, around, charge_or_spill, noted, refuse, spill_or_refuse};
use crate::memory::linear::GrantedAllocation;
use crate::memory::pools::{Pool, PoolAllocation, Releasing};
use crate::memory::refusals::RefusedKind;
use crate::os::reentrancy::enter_or;
use crate::process::{self, Process};
use crate::slice::device::SliceDevice;
use core::ffi::{c_uint, c_void};
use gpuslice_driver::arguments::read_in;
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{
    CUdeviceptr, CUmemLocation, CUmemoryPool, CUstream, PoolProperties, Status, status,
};
use gpuslice_policy::pool::holes::FreeFor;
use gpuslice_policy::pool::largest_growth;
use gpuslice_policy::sizes::blocks::Kind;
use gpuslice_region::Device;
use std::sync::Arc;

/// `CU_MEM_ALLOCATION_TYPE_MANAGED`.
const MANAGED: c_uint = 2;

/// Stream that the null handle means in a call.
#[derive(Clone, Copy)]
enum DefaultStream {
    /// The legacy stream, of which each context has one.
    Legacy,
    /// The thread's own stream, which the `_ptsz` forms mean.
    PerThread,
}

/// `cuMemAllocAsync`.
pub(crate) fn alloc(call: &HookedCall<real::cuMemAllocAsync>) -> Status {
    alloc_in(call, DefaultStream::Legacy)
}

/// `cuMemAllocAsync_ptsz`.
pub(crate) fn alloc_ptsz(call: &HookedCall<real::cuMemAllocAsync_ptsz>) -> Status {
    alloc_in(call, DefaultStream::PerThread)
}

fn alloc_in(call: &HookedCall<real::cuMemAllocAsync>, default: DefaultStream) -> Status {
    let (output, bytes, stream) = call.arguments();
    let pool = |process| pool_of_stream(process, stream);
    // SAFETY: `allocate` requires that `output` is null or valid, and so does the driver.
    unsafe { allocate(output, bytes as u64, (stream, default), pool, || call.forward()) }
}

/// `cuMemAllocFromPoolAsync`.
pub(crate) fn alloc_from(call: &HookedCall<real::cuMemAllocFromPoolAsync>) -> Status {
    alloc_from_in(call, DefaultStream::Legacy)
}

/// `cuMemAllocFromPoolAsync_ptsz`.
pub(crate) fn alloc_from_ptsz(call: &HookedCall<real::cuMemAllocFromPoolAsync_ptsz>) -> Status {
    alloc_from_in(call, DefaultStream::PerThread)
}

fn alloc_from_in(call: &HookedCall<real::cuMemAllocFromPoolAsync>, default: DefaultStream) -> Status {
    let (output, bytes, pool, stream) = call.arguments();
    let pool = |process| pool_of_handle(process, pool);
    // SAFETY: `allocate` requires that `output` is null or valid, and so does the driver.
    unsafe { allocate(output, bytes as u64, (stream, default), pool, || call.forward()) }
}

/// Returns a number for the stream that orders a call. Streams of one number are one stream.
fn order_of((stream, default): (CUstream, DefaultStream)) -> usize {
    std::thread_local! {
        /// A byte for each thread. The byte's address is the thread's number.
        static THREAD: u8 = const { 0 };
    }
    let own = || THREAD.with(|place| core::ptr::from_ref(place).addr());
    match (stream.addr(), default) {
        (0, DefaultStream::PerThread) | (2, _) => own(),
        (0 | 1, _) => contexts::current_context().unwrap_or(0),
        (handle, _) => handle,
    }
}

/// Returns the stream of a call as a handle that means the same stream in every form.
fn shown((stream, default): (CUstream, DefaultStream)) -> CUstream {
    /// `CU_STREAM_PER_THREAD`.
    const PER_THREAD: usize = 2;
    match (stream.addr(), default) {
        (0, DefaultStream::PerThread) => core::ptr::without_provenance_mut(PER_THREAD),
        _ => stream,
    }
}

/// Source of the memory of an allocation.
enum AllocationSource {
    /// A pool whose memory is a device's.
    Pool(Arc<Pool>),
    /// A pool whose memory is the host's.
    Host,
    /// An unknown pool, because the driver does not tell.
    Unknown,
}

/// Way in which an allocation is charged.
enum PendingCharge {
    /// By the bytes by which its pool grows.
    Pool(PoolAllocation),
    /// By its size, because nothing is known of its pool.
    Size(GrantedAllocation),
}

impl Granted for PendingCharge {
    fn granted(&self) -> Option<(Device, u64)> {
        match self {
            Self::Pool(allocation) => allocation.granted(),
            Self::Size(grant) => Some(grant.granted()),
        }
    }
}

/// Allocates in the order of a stream. Host memory that stands in is there before the stream comes to the call, which is soon
/// enough.
///
/// # Safety
/// `output` is null or valid for reads and writes.
unsafe fn allocate(
    output: *mut CUdeviceptr,
    bytes: u64,
    order: (CUstream, DefaultStream),
    source: impl FnOnce(&'static Process) -> AllocationSource,
    call: impl FnMut() -> Status,
) -> Status {
    let decide = |process: &'static Process| {
        // While a stream captures, the call adds a node to a graph: the memory is the graph's, and no pool's.
        if bytes == 0 || streams::is_capturing(shown(order)) {
            return Decision::Forward;
        }
        let pool = match source(process) {
            AllocationSource::Pool(pool) => pool,
            AllocationSource::Host => return Decision::Forward,
            AllocationSource::Unknown => {
                return reserve_or_spill_here(process, bytes, Kind::Linear).map(PendingCharge::Size);
            }
        };
        let device = pool.device;
        let begin = |pool| PoolAllocation::begin(process, &process.addresses, pool, bytes, order_of(order));
        let most = largest_growth(bytes).unwrap_or(bytes);
        let again = |pool| process.repeat_with_room(device, most, || begin(Arc::clone(&pool)).ok());
        match begin(pool).map_or_else(again, Some) {
            Some(allocation) => Decision::Go(PendingCharge::Pool(allocation)),
            None => match process.places().iter().find(|place| place.device == device) {
                Some(place) => {
                    let context = streams::stream_context(order.0).map(|context| process.owner_of(context));
                    spill_or_refuse(process, place, context, RefusedKind::Allocation, bytes)
                }
                None => refuse(process, device, RefusedKind::Allocation, bytes),
            },
        }
    };
    // SAFETY: by this function's contract `output` is null or valid.
    let before = unsafe { read_in(output) };
    // SAFETY: by this function's contract `output` is null or valid.
    let address = || unsafe { read_in(output) };
    let settle = |charge, code| match charge {
        PendingCharge::Pool(allocation) => {
            allocation.finish(address().filter(|_| code == status::SUCCESS));
            code
        }
        // SAFETY: by this function's contract `output` is null or valid.
        PendingCharge::Size(grant) => unsafe { recorded((grant, before), code, output) },
    };
    let spill = |claim| {
        // SAFETY: by this function's contract `output` is null or valid.
        let spilled = || unsafe { spilled(claim, output, ATTACH_GLOBAL) };
        // The program's call would spoil no capture of another thread's, so neither may the call in its place.
        capture_mode::with_relaxed_capture_mode(spilled)
    };
    charge_or_spill(decide, call, settle, spill)
}

/// Returns the pool from which a stream's allocations come.
fn pool_of_stream(process: &Process, stream: CUstream) -> AllocationSource {
    let device = streams::stream_context(stream).and_then(contexts::context_device);
    let Some(place) = device.and_then(|device| process.place(device)) else {
        return AllocationSource::Unknown;
    };
    // A program may have made a pool of another device or of the host the current one.
    match pools::current_pool(place.handle) {
        None => AllocationSource::Unknown,
        Some(handle) if process.pools.is_host(handle) => AllocationSource::Host,
        Some(handle) => AllocationSource::Pool(process.pools.find_or_add(handle, place.device)),
    }
}

/// Returns a pool by its handle: one that the program made through the library, or one that a device has.
fn pool_of_handle(process: &Process, pool: CUmemoryPool) -> AllocationSource {
    let handle = pool.addr();
    if let Some(pool) = process.pools.find(handle) {
        return AllocationSource::Pool(pool);
    }
    if process.pools.is_host(handle) {
        return AllocationSource::Host;
    }
    let owns = |place: &&SliceDevice| {
        pools::default_pool(place.handle) == Some(handle) || pools::current_pool(place.handle) == Some(handle)
    };
    let owner = process.places().iter().find(owns);
    owner.map_or(AllocationSource::Unknown, |place| {
        AllocationSource::Pool(process.pools.find_or_add(handle, place.device))
    })
}

/// `cuMemFreeAsync`.
pub(crate) fn free(call: &HookedCall<real::cuMemFreeAsync>) -> Status {
    let (address, stream) = call.arguments();
    freed_in(address, (stream, DefaultStream::Legacy), || call.forward())
}

/// `cuMemFreeAsync_ptsz`.
pub(crate) fn free_ptsz(call: &HookedCall<real::cuMemFreeAsync_ptsz>) -> Status {
    let (address, stream) = call.arguments();
    freed_in(address, (stream, DefaultStream::PerThread), || call.forward())
}

/// Makes a call that frees an address in the order of a stream. Memory of no pool stays charged until the stream
/// reaches the free.
///
/// Some drivers do not free managed memory in this way. Then the hook waits until the stream has come to the call, and frees the
/// spilled memory at once.
fn freed_in(address: CUdeviceptr, order: (CUstream, DefaultStream), call: impl FnOnce() -> Status) -> Status {
    let begins_spilled = || process::joined().is_some_and(|process| process.spilled_begins_at(address));
    let is_spilled = enter_or(begins_spilled, false);
    let effects = FreeEffects {
        of_pool: || FreeFor::Stream(order_of(order)),
        of_linear: |process: &'static Process, charge| {
            process.begin_stream_free(address, charge, |number| {
                let stream = shown(order);
                !streams::is_capturing(stream) && streams::call_when_reached(stream, free_is_reached, number)
            })
        },
    };
    freed(address, effects, || {
        let code = call();
        let is_unable = matches!(code, status::INVALID_VALUE | status::NOT_SUPPORTED);
        if !is_spilled || !is_unable || streams::is_capturing(shown(order)) {
            return code;
        }
        // The program's call would spoil no capture of another thread's, so neither may the wait and the free in its place.
        let free_now = || match streams::wait_for(shown(order)) {
            status::SUCCESS => memory::free(address),
            failed => failed,
        };
        capture_mode::with_relaxed_capture_mode(free_now)
    })
}

/// Ends the charge of memory that the driver has freed because a stream has reached the free. A thread of the driver calls it.
unsafe extern "C" fn free_is_reached(number: *mut c_void) {
    let end = || {
        if let Some(process) = process::joined() {
            process.end_stream_free(number.addr());
        }
    };
    enter_or(end, ());
}

/// `cuMemPoolCreate`: a new pool holds nothing yet.
pub(crate) fn create(call: &HookedCall<real::cuMemPoolCreate>) -> Status {
    let (output, properties) = call.arguments();
    around(
        |_| (),
        || call.forward(),
        |process, (), code| {
            // SAFETY: `read_in` requires null or readable bytes, and so does the driver. `PoolProperties` has the same bytes,
            // with integers for enumerations.
            let wanted = unsafe { read_in(properties.cast::<PoolProperties>()) };
            // SAFETY: `read_in` requires that `output` is null or readable, and so does the driver.
            let made = unsafe { read_in(output) }.filter(|_| code == status::SUCCESS);
            let (Some(wanted), Some(pool)) = (wanted, made) else { return };
            match payer(process, wanted.kind, wanted.location) {
                Some(device) => process.pools.add(pool.addr(), device),
                None => process.pools.add_host(pool.addr()),
            }
        },
    )
}

/// `cuMemGetDefaultMemPool` and `cuMemGetMemPool`: the pool that a place has for a kind of memory.
pub(crate) fn of_place(call: &HookedCall<real::cuMemGetDefaultMemPool>) -> Status {
    let (output, location, kind) = call.arguments();
    let code = call.forward();
    noted(code, |process| {
        // SAFETY: `read_in` requires that `output` is null or readable, and so does the driver.
        let pool = unsafe { read_in(output) };
        // SAFETY: `read_in` requires that `location` is null or readable, and so does the driver.
        let place = unsafe { read_in(location) };
        let (Some(pool), Some(place)) = (pool, place) else { return };
        // An imported pool may be the current one of a place.
        if process.pools.is_host(pool.addr()) {
            return;
        }
        match payer(process, kind, place) {
            Some(device) => drop(process.pools.find_or_add(pool.addr(), device)),
            None => process.pools.add_host(pool.addr()),
        }
    })
}

/// Returns the device that pays for a pool of a kind of memory at a location. `None` for memory of the host and of other devices.
fn payer(process: &Process, kind: c_uint, location: CUmemLocation) -> Option<Device> {
    let place = locations::device_of(location).and_then(|device| process.place(device));
    // Managed memory can move to any device, wherever it is at first.
    let anywhere = || process.place_of_current().or_else(|| process.places().first().copied());
    if kind == MANAGED {
        process.managed.note_uncounted();
    }
    let place = if kind == MANAGED { place.or_else(anywhere) } else { place };
    place.map(|place| place.device)
}

/// `cuMemPoolDestroy`.
pub(crate) fn destroy(call: &HookedCall<real::cuMemPoolDestroy>) -> Status {
    let (pool,) = call.arguments();
    around(
        |process| process.pools.begin_end(process, pool.addr()),
        || call.forward(),
        |process, ending, code| {
            if code == status::SUCCESS {
                process.pools.end(process, ending);
            } else {
                process.pools.keep(process, ending);
            }
        },
    )
}

/// `cuMemPoolTrimTo`.
pub(crate) fn trim(call: &HookedCall<real::cuMemPoolTrimTo>) -> Status {
    let (pool, _) = call.arguments();
    releasing(|process| process.pools.find(pool.addr()).into_iter().collect(), || call.forward())
}

/// Makes a call in which the driver may release memory of pools.
pub(crate) fn releasing(
    pools: impl FnOnce(&'static Process) -> Vec<Arc<Pool>>,
    call: impl FnOnce() -> Status,
) -> Status {
    around(
        |process| Releasing::begin(process, pools(process)),
        call,
        |process, releasing, _| releasing.end(process),
    )
}
