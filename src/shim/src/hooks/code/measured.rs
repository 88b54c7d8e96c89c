//! Calls whose memory is known only afterwards: contexts, modules, libraries, limits, green contexts.
//!
//! The memory that they surely take is reserved, and the rest is measured after the call. Where the rest does not fit, the call
//! is undone, as if the driver had refused it. So such a call may exceed the quota until it is measured.

use crate::driver_calls::capture_mode::with_relaxed_capture_mode;
use crate::hooks::protocol::{Decision, Granted, charge, reserve_for};
use crate::memory::context_measurement::ContextMeasurement;
use crate::memory::leaving;
use crate::memory::measurement::{CallMeasurement, ChangeBounds};
use crate::memory::overheads::OverheadOwner;
use crate::memory::refusals::{Advice, RefusedKind};
use crate::os::messages;
use crate::process::Process;
use crate::slice::handle::Reservation;
use core::cell::Cell;
use gpuslice_driver::types::{Status, status};
use gpuslice_policy::config::LogLevel;
use gpuslice_policy::units::Bytes;
use gpuslice_region::Device;
use once_cell::race::OnceBool;

/// Method by which the hook measures the memory that a call took.
pub(crate) enum How<'call> {
    /// A context. Its second field is the estimate, which counts where nothing can measure it.
    Making(ContextMeasurement, u64),
    /// Anything in the current context. The cell gets the number of bytes that the call is proven to have taken, if it proves
    /// any.
    InContext(CallMeasurement, ChangeBounds, Option<&'call Cell<u64>>),
    /// A load on this device and in this context that is not measured. The reserved bytes count until NVML tells.
    LeftToNvml(Device, usize),
}

/// Plan of a call that is to be measured.
pub(crate) struct Plan<'call> {
    pub(crate) what: RefusedKind,
    pub(crate) how: How<'call>,
    /// Bytes that the call surely takes.
    pub(crate) least: u64,
}

impl How<'_> {
    fn device(&self) -> Device {
        match self {
            Self::Making(making, _) => making.place.device,
            Self::InContext(before, ..) => before.place.device,
            Self::LeftToNvml(device, _) => *device,
        }
    }

    /// Returns the context in which the call happens; 0 for none.
    fn context(&self) -> usize {
        match self {
            Self::Making(..) => 0,
            Self::InContext(before, ..) => before.context,
            Self::LeftToNvml(_, context) => *context,
        }
    }

    fn change(&self, reserved: u64) -> i64 {
        match self {
            Self::Making(making, estimate) => {
                i64::try_from(making.took(reserved, *estimate)).unwrap_or(i64::MAX)
            }
            Self::InContext(before, likely, proof) => {
                before.change(reserved, likely.with_proof(proof.map_or(0, Cell::get)))
            }
            Self::LeftToNvml(..) => i64::try_from(reserved).unwrap_or(i64::MAX),
        }
    }
}

impl Granted for (&'static Process, Plan<'_>, Reservation) {
    fn granted(&self) -> Option<(Device, u64)> {
        self.2.granted()
    }
}

/// Makes a call by the plan that `plan` returns; without a plan it is the driver's alone. `made` gets the context in which the
/// call happens. After a success of the driver it returns the holder of the memory from now on, and the context with which the
/// memory ends. `undo` takes back the driver's call and the program's outputs.
pub(crate) fn measured<'call>(
    plan: impl FnOnce(&'static Process) -> Option<Plan<'call>>,
    call: impl FnMut() -> Status,
    made: impl FnOnce(usize) -> Option<(OverheadOwner, usize)>,
    undo: impl FnOnce(),
) -> Status {
    let decide = |process: &'static Process| {
        let Some(plan) = plan(process) else { return Decision::Forward };
        let reserved = likely(process, plan.how.device(), plan.what, plan.least);
        reserved.map(|reservation| (process, plan, reservation))
    };
    charge(decide, call, |(process, plan, reservation), code| {
        let made = made(plan.how.context()).filter(|_| code == status::SUCCESS);
        let Some((holder, context)) = made else { return code };
        let device = plan.how.device();
        let change = plan.how.change(reservation.bytes());
        if change < 0 {
            process.overheads.shrink(process, holder, context, change.unsigned_abs());
            return code;
        }
        let Err(took) = keep(process, reservation, change.unsigned_abs(), (holder, context)) else {
            return code;
        };
        // The driver has accepted the program's call, so its undo must not spoil a capture either.
        with_relaxed_capture_mode(undo);
        process.count_refusal(device, plan.what, took);
        status::OUT_OF_MEMORY
    })
}

/// Reserves the bytes that a call surely takes. A call that may cost nothing is not refused.
pub(crate) fn likely(
    process: &'static Process,
    device: Device,
    what: RefusedKind,
    bytes: u64,
) -> Decision<Reservation> {
    if bytes == 0 {
        Decision::Go(Reservation::new(process, device, 0))
    } else {
        reserve_for(process, device, what, bytes)
    }
}

/// Brings the charge to `took` bytes and keeps it for its holder. Returns `Err(took)` if these bytes do not fit.
fn keep(
    process: &'static Process,
    mut reservation: Reservation,
    took: u64,
    (holder, context): (OverheadOwner, usize),
) -> Result<(), u64> {
    let fits = reservation.settle(took) || {
        process.pools.reconcile_all(process);
        let more = took.saturating_sub(reservation.bytes());
        leaving::wait(process, reservation.device(), more, more);
        reservation.settle(took)
    };
    if !fits {
        return Err(took);
    }
    process.overheads.add(process, holder, context, reservation.device(), took);
    reservation.keep();
    Ok(())
}

/// Charges `took` bytes of a call that cannot be undone, even beyond the quota.
pub(crate) fn force(process: &Process, device: Device, took: u64, (holder, context): (OverheadOwner, usize)) {
    if took == 0 {
        return;
    }
    process.charge(device, took);
    process.overheads.add(process, holder, context, device, took);
    if process.is_beyond(device) {
        static SAID: OnceBool = OnceBool::new();
        if SAID.set(true).is_ok() {
            messages::say(
                LogLevel::Warn,
                &format_args!(
                    "gpuslice: code that was loaded when it was first used took {}, and the quota has no room for it; \
                     nothing else is granted until there is. {}",
                    Bytes::new(took),
                    Advice::new(process, device)
                ),
            );
        }
    }
}
