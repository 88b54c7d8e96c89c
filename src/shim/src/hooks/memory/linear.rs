//! Linear device memory: `cuMemAlloc` and its relatives, and frees.

use crate::driver_calls::memory;
use crate::hooks::hooked_call::HookedCall;
use crate::hooks::protocol::{Decision, around, charge, charge_or_spill, fit, refuse, spill_or_refuse};
use crate::memory::addresses::{Charge, Owner};
use crate::memory::linear::{GrantedAllocation, WantedAllocation};
use crate::memory::pools::Pools;
use crate::memory::refusals::RefusedKind;
use crate::memory::spill_request::HostReservation;
use crate::process::Process;
use crate::slice::device::SliceDevice;
use core::ffi::c_uint;
use gpuslice_driver::arguments::{read_in, write_out};
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{CUdeviceptr, Status, status};
use gpuslice_policy::pool::holes::FreeFor;
use gpuslice_policy::sizes::blocks::Kind;

/// Largest multiple to which the driver rounds up a row of pitched memory: `CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT` of every GPU
/// so far. It serves only for a first guess; the pitch that the driver returns is the one that counts.
const PITCH_GUESS: u64 = 512;
/// Length that rows of pitched memory do not reach: `CU_DEVICE_ATTRIBUTE_MAX_PITCH` of every GPU so far.
const LONGEST_ROW: u64 = 1 << 31;
/// `CU_MEM_ATTACH_GLOBAL`: any stream of any device can use the memory.
pub(crate) const ATTACH_GLOBAL: c_uint = 1;

/// `cuMemAlloc_v2`.
pub(crate) fn alloc(call: &HookedCall<real::cuMemAlloc_v2>) -> Status {
    let (output, bytes) = call.arguments();
    // SAFETY: `linear_or_spilled` requires that `output` is null or valid, and so does the driver.
    unsafe { linear_or_spilled(bytes as u64, Kind::Linear, || call.forward(), output, ATTACH_GLOBAL) }
}

/// `cuMemAlloc`, with 32 bits of size and address.
pub(crate) fn alloc_v1(call: &HookedCall<real::cuMemAlloc>) -> Status {
    let (output, bytes) = call.arguments();
    charge(
        // Host memory cannot stand in, because managed memory has addresses of 64 bits.
        // SAFETY: `with_output` requires that `output` is null or readable, and so does the driver.
        |process| unsafe { with_output(reserve_here(process, bytes.into(), Kind::Low), output) },
        || call.forward(),
        // SAFETY: `recorded` requires that `output` is null or valid, and so does the driver.
        |grant, code| unsafe { recorded(grant, code, output) },
    )
}

/// `cuMemAllocManaged`: all of it can live on the device at once.
pub(crate) fn managed(call: &HookedCall<real::cuMemAllocManaged>) -> Status {
    let (output, bytes, flags) = call.arguments();
    // SAFETY: `linear_or_spilled` requires that `output` is null or valid, and so does the driver.
    unsafe { linear_or_spilled(bytes as u64, Kind::Managed, || call.forward(), output, flags) }
}

/// Allocates memory of a known size at an address that the driver chooses, or host memory in its place.
///
/// # Safety
/// `output` is null or valid for reads and writes.
unsafe fn linear_or_spilled(
    bytes: u64,
    kind: Kind,
    call: impl FnMut() -> Status,
    output: *mut CUdeviceptr,
    flags: c_uint,
) -> Status {
    charge_or_spill(
        // SAFETY: by this function's contract `output` is null or valid.
        |process| unsafe { with_output(reserve_or_spill_here(process, bytes, kind), output) },
        call,
        // SAFETY: by this function's contract `output` is null or valid.
        |grant, code| unsafe { recorded(grant, code, output) },
        // SAFETY: by this function's contract `output` is null or valid.
        |claim| unsafe { spilled(claim, output, flags) },
    )
}

/// Adds to a grant the value of the output before the driver writes an address there.
///
/// # Safety
/// `output` is null or valid for reads.
unsafe fn with_output<A: Word>(
    decision: Decision<GrantedAllocation>,
    output: *const A,
) -> Decision<(GrantedAllocation, Option<A>)> {
    // SAFETY: by this function's contract `output` is null or valid.
    decision.map(|grant| (grant, unsafe { read_in(output) }))
}

/// Keeps the charge for memory that the driver has made. If the driver took more than there is room for, the memory is freed
/// again, and the program finds its output as it was `before`.
///
/// # Safety
/// `output` is null or valid for reads and writes.
pub(crate) unsafe fn recorded<A: Word>(
    (grant, before): (GrantedAllocation, Option<A>),
    code: Status,
    output: *mut A,
) -> Status {
    // SAFETY: by this function's contract `output` is null or valid.
    let made = unsafe { read_in(output) }.filter(|_| code == status::SUCCESS);
    let Some(address) = made.and_then(|address| address.try_into().ok()) else { return code };
    if grant.record(address) {
        return code;
    }
    memory::free(address);
    if let Some(before) = before {
        // SAFETY: by this function's contract `output` is null or valid.
        unsafe { write_out(output, before) };
    }
    status::OUT_OF_MEMORY
}

/// Serves an allocation from host memory. Without a place for the address, nothing is allocated.
///
/// # Safety
/// `output` is null or valid for writes.
pub(crate) unsafe fn spilled(claim: HostReservation, output: *mut CUdeviceptr, flags: c_uint) -> Status {
    if output.is_null() {
        return claim.refuse();
    }
    // SAFETY: by this function's contract `output` is null or valid.
    claim.serve(flags, |address| unsafe { write_out(output, address) })
}

/// Reserves on the device of the current context. Without a context, or for 0 bytes, the driver answers alone.
pub(crate) fn reserve_here(process: &'static Process, bytes: u64, kind: Kind) -> Decision<GrantedAllocation> {
    reserve_or(process, bytes, kind, |place, _| refuse(process, place.device, RefusedKind::Linear, bytes))
}

/// Reserves as [`reserve_here`] does, for an allocation that host memory can stand in for.
pub(crate) fn reserve_or_spill_here(
    process: &'static Process,
    bytes: u64,
    kind: Kind,
) -> Decision<GrantedAllocation> {
    reserve_or(process, bytes, kind, |place, context| {
        spill_or_refuse(process, place, Some(context), RefusedKind::Linear, bytes)
    })
}

/// Reserves on the device of the current context, or decides by `otherwise` if `bytes` do not fit.
#[inline]
fn reserve_or(
    process: &'static Process,
    bytes: u64,
    kind: Kind,
    otherwise: impl FnOnce(&SliceDevice, usize) -> Decision<GrantedAllocation>,
) -> Decision<GrantedAllocation> {
    let place = process.place_of_current();
    let (Some(context), Some(place)) = (process.owner_of_current(), place) else { return Decision::Forward };
    if bytes == 0 {
        return Decision::Forward;
    }
    let device = place.device;
    match GrantedAllocation::new(process, device, WantedAllocation { context, kind, bytes }, |bytes| {
        fit(process, device, bytes)
    }) {
        Some(grant) => Decision::Go(grant),
        None => otherwise(&place, context),
    }
}

/// `cuMemAllocPitch_v2`.
pub(crate) fn pitch(call: &HookedCall<real::cuMemAllocPitch_v2>) -> Status {
    let (output, pitch, width, height, element) = call.arguments();
    // SAFETY: `Outputs::new` requires that both are null or valid while `outputs` lives. The driver requires the same until the
    // call returns.
    let outputs = unsafe { Outputs::new(output, pitch) };
    pitched(
        (width as u64, height as u64),
        || call.forward(),
        &outputs,
        // Host memory stands in only for element sizes that the driver accepts.
        (Kind::Linear, matches!(element, 4 | 8 | 16)),
    )
}

/// `cuMemAllocPitch`, with 32 bits of size and address.
pub(crate) fn pitch_v1(call: &HookedCall<real::cuMemAllocPitch>) -> Status {
    let (output, pitch, width, height, _) = call.arguments();
    // SAFETY: `Outputs::new` requires that both are null or valid while `outputs` lives. The driver requires the same until the
    // call returns.
    let outputs = unsafe { Outputs::new(output, pitch) };
    pitched((width.into(), height.into()), || call.forward(), &outputs, (Kind::Low, false))
}

/// Number of the driver's, of any width.
pub(crate) trait Word: Copy + TryInto<u64> + TryFrom<u64> {}

impl<T: Copy + TryInto<u64> + TryFrom<u64>> Word for T {}

/// Places where a call for pitched memory writes address and pitch, and their values before the call.
struct Outputs<A, P> {
    address: *mut A,
    pitch: *mut P,
    before: (Option<A>, Option<P>),
}

impl<A: Word, P: Word> Outputs<A, P> {
    /// # Safety
    /// `address` and `pitch` are null or valid for reads and writes for as long as the value lives.
    unsafe fn new(address: *mut A, pitch: *mut P) -> Self {
        // SAFETY: by this function's contract `address` is null or valid.
        let old_address = unsafe { read_in(address) };
        // SAFETY: by this function's contract `pitch` is null or valid.
        let old_pitch = unsafe { read_in(pitch) };
        Self { address, pitch, before: (old_address, old_pitch) }
    }

    /// Returns true if there are places for both.
    fn are_there(&self) -> bool {
        !self.address.is_null() && !self.pitch.is_null()
    }

    /// Returns the address and the pitch that the driver wrote.
    fn read(&self) -> Option<(u64, u64)> {
        // SAFETY: by the contract of `Outputs::new` the pointer is null or valid for as long as `self` lives.
        let address = unsafe { read_in(self.address) }?;
        // SAFETY: by the contract of `Outputs::new` the pointer is null or valid for as long as `self` lives.
        let pitch = unsafe { read_in(self.pitch) }?;
        Some((address.try_into().ok()?, pitch.try_into().ok()?))
    }

    /// Writes an address and a pitch in the driver's place. Only outputs of 64 bits have room for any address.
    fn write(&self, address: u64, pitch: u64) {
        if let (Ok(address), Ok(pitch)) = (address.try_into(), pitch.try_into()) {
            // SAFETY: by the contract of `Outputs::new` the pointer is null or valid for as long as `self` lives.
            unsafe { write_out(self.address, address) };
            // SAFETY: by the contract of `Outputs::new` the pointer is null or valid for as long as `self` lives.
            unsafe { write_out(self.pitch, pitch) };
        }
    }

    /// Restores the values that the outputs had before the call.
    fn restore(&self) {
        if let Some(address) = self.before.0 {
            // SAFETY: by the contract of `Outputs::new` the pointer is null or valid for as long as `self` lives.
            unsafe { write_out(self.address, address) };
        }
        if let Some(pitch) = self.before.1 {
            // SAFETY: by the contract of `Outputs::new` the pointer is null or valid for as long as `self` lives.
            unsafe { write_out(self.pitch, pitch) };
        }
    }
}

/// Allocates rows of memory, each as long as the driver wants it. If the rows turn out longer than there is room for, the memory
/// is freed again. If `may_spill`, host memory can stand in for the rows, with a pitch that suits every GPU.
fn pitched<A: Word, P: Word>(
    (width, height): (u64, u64),
    call: impl FnMut() -> Status,
    outputs: &Outputs<A, P>,
    (kind, may_spill): (Kind, bool),
) -> Status {
    let row = width.checked_next_multiple_of(PITCH_GUESS);
    // A size that overflows is more than any quota. Without a quota, the driver refuses it.
    let guess = row.and_then(|row| row.checked_mul(height));
    let may_spill = may_spill && row.is_some_and(|row| row < LONGEST_ROW) && outputs.are_there();
    charge_or_spill(
        |process| {
            let reserve = if may_spill { reserve_or_spill_here } else { reserve_here };
            reserve(process, guess.unwrap_or(u64::MAX), kind)
        },
        call,
        |mut grant, code| {
            let Some((address, pitch)) = outputs.read().filter(|_| code == status::SUCCESS) else {
                return code;
            };
            if grant.settle(pitch.saturating_mul(height)) && grant.record(address) {
                return code;
            }
            memory::free(address);
            outputs.restore();
            status::OUT_OF_MEMORY
        },
        |claim| claim.serve(ATTACH_GLOBAL, |address| outputs.write(address, row.unwrap_or(0))),
    )
}

/// `cuMemFree_v2`.
pub(crate) fn free(call: &HookedCall<real::cuMemFree_v2>) -> Status {
    let (address,) = call.arguments();
    freed(address, at_once(), || call.forward())
}

/// `cuMemFree`, with 32 bits of address.
pub(crate) fn free_v1(call: &HookedCall<real::cuMemFree>) -> Status {
    let (address,) = call.arguments();
    freed(address.into(), at_once(), || call.forward())
}

/// Effects of a call that ends an address.
pub(crate) struct FreeEffects<P, L> {
    /// For an address of a pool: returns which streams may take its memory from now on.
    pub(crate) of_pool: P,
    /// For another address, after the call: keeps its charge if the device has the memory for longer, otherwise returns it.
    pub(crate) of_linear: L,
}

/// Returns the effects of a call that frees at once.
fn at_once() -> FreeEffects<impl FnOnce() -> FreeFor, impl FnOnce(&'static Process, Charge) -> Option<Charge>>
{
    FreeEffects { of_pool: || FreeFor::All, of_linear: |_, charge| Some(charge) }
}

/// Makes a call that ends an address. The hook ignores an address that is not charged.
pub(crate) fn freed(
    address: u64,
    effects: FreeEffects<impl FnOnce() -> FreeFor, impl FnOnce(&'static Process, Charge) -> Option<Charge>>,
    call: impl FnOnce() -> Status,
) -> Status {
    let take = |process: &'static Process| {
        // The end of a sharing is boxed, because it is large and rare, and every free would carry it around.
        let ending = process.shared.any().then(|| Box::new(process.take_shared(address)));
        let Some(charge) = process.take_charge(address) else {
            // A spilled block is rare too, so it is boxed as well.
            return (ending, None, process.take_spilled(address).map(Box::new));
        };
        let pool = match charge.owner {
            Owner::Pool(pool) => pool,
            Owner::Block(_) => {
                process.small.begin_free(address);
                return (ending, Some((charge, None)), None);
            }
            Owner::Context(_) | Owner::Managed(_) => return (ending, Some((charge, None)), None),
        };
        let block = process.pools.begin_free(process, pool, address, charge.bytes);
        (ending, Some((charge, Some((block, (effects.of_pool)())))), None)
    };
    around(take, call, |process, (ending, taken, spilled), code| {
        let is_freed = code == status::SUCCESS;
        match ending {
            Some(ending) if is_freed => ending.end(process),
            Some(ending) => process.shared.put_back(address, *ending),
            None => {}
        }
        let Some((charge, block)) = taken else {
            match spilled {
                Some(block) if is_freed => block.end(process),
                Some(block) => process.spilled.put_back(address, *block),
                None => {}
            }
            return;
        };
        match block {
            Some((block, free)) if is_freed => process.pools.finish_free(process, block, free),
            Some((block, _)) => Pools::cancel_free(process, block),
            None if is_freed => {
                if let Some(charge) = (effects.of_linear)(process, charge) {
                    charge.end_of_freed(process, address);
                }
            }
            None if matches!(charge.owner, Owner::Block(_)) => {
                process.small.end_free(process, charge.device, address, false);
            }
            None => {}
        }
        if !is_freed {
            process.addresses.insert(address, charge);
        }
    })
}
