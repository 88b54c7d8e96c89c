//! The three steps of a hook.
//!
//! A hook decides (in a phase, before anything is done), calls the driver (holding nothing), and settles (in a phase again). The
//! arguments are the caller's. Memory behind a pointer is read and written through `gpuslice_driver::arguments` only.

use crate::memory::linear::Grant;
use crate::memory::memory_call::MemoryCall;
use crate::memory::refusals::What;
use crate::memory::spill_request::{Claim, Failure};
use crate::memory::{device_full, leaving, measurement};
use crate::os::reentrancy::{Phase, phase, quietly};
use crate::process::{self, Process, Standing};
use crate::slice::device::SliceDevice;
use crate::slice::handle::Reservation;
use core::ffi::c_uint;
use core::mem::ManuallyDrop;
use gpuslice_driver::types::{Status, status};
use gpuslice_region::Device;

/// What to do with a call that would take memory.
pub(crate) enum Decision<T> {
    /// Nothing of it concerns us: the driver answers.
    Forward,
    /// The driver is not called.
    Refuse(Status),
    /// The quota has no room, and host memory can stand in for the device's.
    Spill(Box<Claim>),
    /// The quota has room; `T` settles the call afterwards.
    Go(T),
}

impl<T> Decision<T> {
    pub(crate) fn map<U>(self, change: impl FnOnce(T) -> U) -> Decision<U> {
        match self {
            Self::Forward => Decision::Forward,
            Self::Refuse(code) => Decision::Refuse(code),
            Self::Spill(claim) => Decision::Spill(claim),
            Self::Go(reserved) => Decision::Go(change(reserved)),
        }
    }
}

/// What was reserved for a call.
pub(crate) trait Granted {
    /// How much of which device; none where nothing was.
    fn granted(&self) -> Option<(Device, u64)>;
}

impl Granted for Reservation {
    fn granted(&self) -> Option<(Device, u64)> {
        Some((self.device(), self.bytes()))
    }
}

impl Granted for Grant {
    fn granted(&self) -> Option<(Device, u64)> {
        Some(self.granted())
    }
}

impl<T> Granted for (Grant, T) {
    fn granted(&self) -> Option<(Device, u64)> {
        Some(self.0.granted())
    }
}

/// A call that takes memory: `decide` reserves, `call` is the driver, `settle` gets what was reserved and the driver's status,
/// and has the last word on the status. The driver is asked again where memory of a dead process may come back.
pub(crate) fn charge<T: Granted>(
    decide: impl FnOnce(&'static Process) -> Decision<T>,
    call: impl FnMut() -> Status,
    settle: impl FnOnce(T, Status) -> Status,
) -> Status {
    charge_or_spill(decide, call, settle, |claim| claim.refuse())
}

/// As [`charge`]; `spill` is the call where the quota has no room and host memory can stand in.
pub(crate) fn charge_or_spill<T: Granted>(
    decide: impl FnOnce(&'static Process) -> Decision<T>,
    mut call: impl FnMut() -> Status,
    settle: impl FnOnce(T, Status) -> Status,
    spill: impl FnOnce(Claim) -> Status,
) -> Status {
    let process = match process::standing() {
        Standing::Free => return call(),
        Standing::Refused => return status::NOT_PERMITTED,
        Standing::Member(process) => process,
    };
    let _call = MemoryCall::begin(process.member());
    if process.witness.has_estimates() {
        make_up(process);
    }
    let reserved = match phase(|| decide(process)) {
        Phase::Nested | Phase::Done(Decision::Forward) => return call(),
        // A limit that cannot be enforced refuses, whatever the reason.
        Phase::Broken => return status::OUT_OF_MEMORY,
        Phase::Done(Decision::Refuse(code)) => return code,
        Phase::Done(Decision::Spill(claim)) => return spill(*claim),
        // What unwinds out of the driver leaves nobody to say what it took: then it stays charged.
        Phase::Done(Decision::Go(reserved)) => ManuallyDrop::new(reserved),
    };
    let (mut code, mut until) = (call(), None);
    while code == status::OUT_OF_MEMORY {
        until = retry(process, reserved.granted(), until);
        if until.is_none() {
            break;
        }
        code = call();
    }
    quietly(|| settle(ManuallyDrop::into_inner(reserved), code), code)
}

/// Before anything is decided by a quota that came late.
#[cold]
#[inline(never)]
pub(crate) fn make_up(process: &'static Process) {
    quietly(|| measurement::make_up(process, 1), ());
}

/// The driver had no memory for what was granted. Until when the call is made again; none: it is not, and the slice is told so.
#[cold]
#[inline(never)]
pub(crate) fn retry(process: &Process, granted: Option<(Device, u64)>, until: Option<u64>) -> Option<u64> {
    let (device, bytes) = granted?;
    let until = leaving::retry(process, device, until);
    if until.is_none() {
        quietly(|| device_full::note(&process.unmet, process, device, bytes), ());
    }
    until
}

impl Claim {
    /// Counts the refusal of what is not served.
    pub(crate) fn refuse(self) -> Status {
        quietly(|| self.memory.count_refusal(self.device, What::Allocation, self.bytes()), ());
        status::OUT_OF_MEMORY
    }

    /// Serves an allocation from host memory: `put` gives it to the program.
    pub(crate) fn serve(self, flags: c_uint, put: impl FnOnce(u64)) -> Status {
        match self.get(flags) {
            Ok(address) => {
                put(address);
                quietly(|| self.record(address), ());
                status::SUCCESS
            }
            Err(Failure::Full) => self.refuse(),
            Err(Failure::Status(code)) => code,
        }
    }
}

/// The answer to a request that does not fit, and that host memory could serve.
#[cold]
pub(crate) fn spill_or_refuse<T>(
    process: &'static Process,
    place: &SliceDevice,
    context: Option<usize>,
    what: What,
    bytes: u64,
) -> Decision<T> {
    let claim = Claim::new(process, *place, context, bytes);
    match claim {
        Some(claim) if !is_lost() => Decision::Spill(Box::new(claim)),
        _ => refuse(process, place.device, what, bytes),
    }
}

/// Reserves for a call, or refuses it with the status that an allocator's retry logic waits for.
pub(crate) fn reserve(process: &'static Process, device: Device, bytes: u64) -> Decision<Reservation> {
    reserve_for(process, device, What::Allocation, bytes)
}

/// As [`reserve`], for anything that takes memory.
pub(crate) fn reserve_for(
    process: &'static Process,
    device: Device,
    what: What,
    bytes: u64,
) -> Decision<Reservation> {
    fit(process, device, bytes).map_or_else(|| refuse(process, device, what, bytes), Decision::Go)
}

/// Reserves. Before it does not fit room is made.
pub(crate) fn fit(process: &'static Process, device: Device, bytes: u64) -> Option<Reservation> {
    let again = || if process.make_room(device, bytes) { process.reserve(device, bytes) } else { None };
    process.reserve(device, bytes).or_else(again)
}

/// The answer to a request of so many bytes that does not fit.
pub(crate) fn refuse<T>(process: &Process, device: Device, what: What, bytes: u64) -> Decision<T> {
    if is_lost() {
        return Decision::Refuse(status::NOT_PERMITTED);
    }
    process.count_refusal(device, what, bytes);
    Decision::Refuse(status::OUT_OF_MEMORY)
}

/// Returns true if looking for room has shown that the limit cannot be enforced any more.
pub(crate) fn is_lost() -> bool {
    matches!(process::standing(), Standing::Refused)
}

/// Notes what a call of the driver means that has succeeded. Returns its status.
pub(crate) fn noted(code: Status, note: impl FnOnce(&'static Process)) -> Status {
    if code == status::SUCCESS
        && let Standing::Member(process) = process::standing()
    {
        quietly(|| note(process), ());
    }
    code
}

/// A call that gives something back or changes what is known: `before` takes out what the driver is about to end
/// (so that a new owner of the same address cannot meet it), `after` gets it with the driver's status.
pub(crate) fn around<T>(
    before: impl FnOnce(&'static Process) -> T,
    call: impl FnOnce() -> Status,
    after: impl FnOnce(&'static Process, T, Status),
) -> Status {
    let Standing::Member(process) = process::standing() else { return call() };
    let _call = MemoryCall::begin(process.member());
    let Phase::Done(taken) = phase(|| before(process)) else { return call() };
    let code = call();
    quietly(|| after(process, taken, code), ());
    code
}
