//! The three steps of a hook.
//!
//! A hook decides in a phase, before it changes anything. Then it calls the driver, and holds nothing meanwhile. It settles in a
//! further phase. Hooks read and write memory behind a pointer through `gpuslice_driver::arguments` only.

use crate::memory::linear::GrantedAllocation;
use crate::memory::memory_call::MemoryCall;
use crate::memory::refusals::RefusedKind;
use crate::memory::spill_request::{Failure, HostReservation};
use crate::memory::{device_full, leaving, measurement};
use crate::os::reentrancy::{PhaseOutcome, enter, enter_or};
use crate::process::{self, Enforcement, Process};
use crate::slice::device::SliceDevice;
use crate::slice::handle::Reservation;
use core::ffi::c_uint;
use core::mem::ManuallyDrop;
use gpuslice_driver::types::{Status, status};
use gpuslice_policy::time::Monotonic;
use gpuslice_region::Device;

/// Decision about a call that would take memory.
pub(crate) enum Decision<T> {
    /// The call does not concern the library: the driver answers.
    Forward,
    /// The hook returns this status and does not call the driver.
    Refuse(Status),
    /// The quota has no room, and host memory can stand in for the device's.
    Spill(Box<HostReservation>),
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

/// Memory that was reserved for a call.
pub(crate) trait Granted {
    /// Returns the device and the bytes that were reserved on it; `None` if nothing was reserved.
    fn granted(&self) -> Option<(Device, u64)>;
}

impl Granted for Reservation {
    fn granted(&self) -> Option<(Device, u64)> {
        Some((self.device(), self.bytes()))
    }
}

impl Granted for GrantedAllocation {
    fn granted(&self) -> Option<(Device, u64)> {
        Some(self.granted())
    }
}

impl<T> Granted for (GrantedAllocation, T) {
    fn granted(&self) -> Option<(Device, u64)> {
        Some(self.0.granted())
    }
}

/// Makes a call that takes memory: `decide` reserves, and `call` is the driver. `settle` gets the reservation and the driver's
/// status, and returns the status for the program. While memory of a dead process may come back, the driver is asked again.
pub(crate) fn charge<T: Granted>(
    decide: impl FnOnce(&'static Process) -> Decision<T>,
    call: impl FnMut() -> Status,
    settle: impl FnOnce(T, Status) -> Status,
) -> Status {
    charge_or_spill(decide, call, settle, |claim| claim.refuse())
}

/// Makes a call that takes memory, as [`charge`] does. `spill` takes the place of `call` where the quota has no room and host
/// memory can stand in.
pub(crate) fn charge_or_spill<T: Granted>(
    decide: impl FnOnce(&'static Process) -> Decision<T>,
    mut call: impl FnMut() -> Status,
    settle: impl FnOnce(T, Status) -> Status,
    spill: impl FnOnce(HostReservation) -> Status,
) -> Status {
    let process = match process::enforcement() {
        Enforcement::Off => return call(),
        Enforcement::Failed => return status::NOT_PERMITTED,
        Enforcement::Active(process) => process,
    };
    let _call = MemoryCall::begin(process.member());
    if process.baselines.is_incomplete() {
        complete_figures(process);
    }
    let reserved = match enter(|| decide(process)) {
        PhaseOutcome::Nested | PhaseOutcome::Done(Decision::Forward) => return call(),
        // A panic is a defect of the library, so the limit cannot be enforced: the call is refused.
        PhaseOutcome::Broken => return status::OUT_OF_MEMORY,
        PhaseOutcome::Done(Decision::Refuse(code)) => return code,
        PhaseOutcome::Done(Decision::Spill(claim)) => return spill(*claim),
        // If an exception unwinds out of the driver, nothing tells how much the driver took. Then the reservation stays charged.
        PhaseOutcome::Done(Decision::Go(reserved)) => ManuallyDrop::new(reserved),
    };
    let (mut code, mut until) = (call(), None);
    while code == status::OUT_OF_MEMORY {
        until = retry(process, reserved.granted(), until);
        if until.is_none() {
            break;
        }
        code = call();
    }
    enter_or(|| settle(ManuallyDrop::into_inner(reserved), code), code)
}

/// Completes the figures that a quota decides by: replaces estimates by measurements, and measures the available memory.
#[cold]
#[inline(never)]
pub(crate) fn complete_figures(process: &'static Process) {
    enter_or(|| measurement::complete_figures(process, 1), ());
}

/// Returns until when the hook asks the driver again, which had no memory for `granted`. `None`: the hook asks no more, and the
/// slice counts a device denial.
#[cold]
#[inline(never)]
pub(crate) fn retry(
    process: &Process,
    granted: Option<(Device, u64)>,
    until: Option<Monotonic>,
) -> Option<Monotonic> {
    let (device, bytes) = granted?;
    let until = leaving::retry(process, device, until);
    if until.is_none() {
        enter_or(|| device_full::note(&process.device_full_messages, process, device, bytes), ());
    }
    until
}

impl HostReservation {
    /// Counts a denied allocation, and returns its status.
    pub(crate) fn refuse(self) -> Status {
        enter_or(|| self.memory.count_refusal(self.device, RefusedKind::Allocation, self.bytes()), ());
        status::OUT_OF_MEMORY
    }

    /// Serves an allocation from host memory: `put` hands the address to the program.
    pub(crate) fn serve(self, flags: c_uint, put: impl FnOnce(u64)) -> Status {
        match self.get(flags) {
            Ok(address) => {
                put(address);
                enter_or(|| self.record(address), ());
                status::SUCCESS
            }
            Err(Failure::Full) => self.refuse(),
            Err(Failure::Status(code)) => code,
        }
    }
}

/// Decides about a request that does not fit: host memory serves it if it can, otherwise it is refused.
#[cold]
pub(crate) fn spill_or_refuse<T>(
    process: &'static Process,
    place: &SliceDevice,
    context: Option<usize>,
    what: RefusedKind,
    bytes: u64,
) -> Decision<T> {
    let claim = HostReservation::new(process, *place, context, bytes);
    match claim {
        Some(claim) if !is_lost() => Decision::Spill(Box::new(claim)),
        _ => refuse(process, place.device, what, bytes),
    }
}

/// Reserves `bytes` for an allocation, or refuses it with the status that the retry logic of allocators waits for.
pub(crate) fn reserve(process: &'static Process, device: Device, bytes: u64) -> Decision<Reservation> {
    reserve_for(process, device, RefusedKind::Allocation, bytes)
}

/// Reserves `bytes` for `what`, or refuses the call with the status that the retry logic of allocators waits for.
pub(crate) fn reserve_for(
    process: &'static Process,
    device: Device,
    what: RefusedKind,
    bytes: u64,
) -> Decision<Reservation> {
    fit(process, device, bytes).map_or_else(|| refuse(process, device, what, bytes), Decision::Go)
}

/// Reserves `bytes`. If they do not fit, makes room for them.
pub(crate) fn fit(process: &'static Process, device: Device, bytes: u64) -> Option<Reservation> {
    let reserve = || process.reserve(device, bytes);
    reserve().or_else(|| process.repeat_with_room(device, bytes, reserve))
}

/// Refuses a request of `bytes` bytes that does not fit, and counts the denial.
pub(crate) fn refuse<T>(process: &Process, device: Device, what: RefusedKind, bytes: u64) -> Decision<T> {
    if is_lost() {
        return Decision::Refuse(status::NOT_PERMITTED);
    }
    process.count_refusal(device, what, bytes);
    Decision::Refuse(status::OUT_OF_MEMORY)
}

/// Returns true if the library cannot enforce the limit. The search for room can show that.
pub(crate) fn is_lost() -> bool {
    matches!(process::enforcement(), Enforcement::Failed)
}

/// Runs `note` if the driver's call succeeded. Returns the driver's status.
pub(crate) fn noted(code: Status, note: impl FnOnce(&'static Process)) -> Status {
    if code == status::SUCCESS
        && let Enforcement::Active(process) = process::enforcement()
    {
        enter_or(|| note(process), ());
    }
    code
}

/// Makes a call that gives something back or changes known state. `before` takes out the records of objects that the driver is
/// about to end. So a new owner of the same address cannot meet them. `after` gets these records and the driver's status.
pub(crate) fn around<T>(
    before: impl FnOnce(&'static Process) -> T,
    call: impl FnOnce() -> Status,
    after: impl FnOnce(&'static Process, T, Status),
) -> Status {
    let Enforcement::Active(process) = process::enforcement() else { return call() };
    let _call = MemoryCall::begin(process.member());
    let PhaseOutcome::Done(taken) = enter(|| before(process)) else { return call() };
    let code = call();
    enter_or(|| after(process, taken, code), ());
    code
}
