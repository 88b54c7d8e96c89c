//! What happens around each call that has a hook? One module per family of the table.
//!
//! A hook has three steps: decide (in a phase, before anything is done), call the driver (holding nothing), settle
//! (in a phase again). The arguments are the caller's; what is behind a pointer is read and written through
//! `gpuslice_driver::arguments` only.

pub(crate) mod array;
pub(crate) mod capture;
pub(crate) mod context;
pub(crate) mod copies;
pub(crate) mod entries;
pub(crate) mod graph;
pub(crate) mod graph_cost;
pub(crate) mod green;
pub(crate) mod host_copies;
mod image;
pub(crate) mod launch;
pub(crate) mod limits;
pub(crate) mod lookup;
mod measured;
mod members;
pub(crate) mod memory;
pub(crate) mod module;
pub(crate) mod multicast;
pub(crate) mod nvml;
pub(crate) mod pool;
pub(crate) mod process_use;
pub(crate) mod processes;
pub(crate) mod report;
pub(crate) mod sharing;
pub(crate) mod start;
pub(crate) mod stream;
pub(crate) mod sync;
pub(crate) mod use_rates;
mod versioned;
pub(crate) mod vmm;

use crate::guard::{Phase, phase, quietly};
use crate::ledger::Reservation;
use crate::lifecycle::{self, Standing};
use crate::measure;
use crate::slice::Slice;
use core::mem::ManuallyDrop;
use gpuslice_driver::types::{Status, status};
use gpuslice_region::Device;

/// What to do with a call that would take memory.
enum Decision<T> {
    /// Nothing of it concerns us: the driver answers.
    Forward,
    /// The driver is not called.
    Refuse(Status),
    /// The quota has room; `T` settles the call afterwards.
    Go(T),
}

impl<T> Decision<T> {
    fn map<U>(self, change: impl FnOnce(T) -> U) -> Decision<U> {
        match self {
            Self::Forward => Decision::Forward,
            Self::Refuse(code) => Decision::Refuse(code),
            Self::Go(reserved) => Decision::Go(change(reserved)),
        }
    }
}

/// A call that takes memory: `decide` reserves, `call` is the driver, `settle` gets what was reserved and the
/// driver's status, and has the last word on the status.
fn charge<T>(
    decide: impl FnOnce(&'static Slice) -> Decision<T>,
    call: impl FnOnce() -> Status,
    settle: impl FnOnce(T, Status) -> Status,
) -> Status {
    let slice = match lifecycle::standing() {
        Standing::Free => return call(),
        Standing::Refused => return status::NOT_PERMITTED,
        Standing::Member(slice) => slice,
    };
    let _flight = slice.flights.begin();
    let reserved = match phase(|| decide(slice)) {
        Phase::Nested | Phase::Done(Decision::Forward) => return call(),
        // A limit that cannot be enforced refuses, whatever the reason.
        Phase::Broken => return status::OUT_OF_MEMORY,
        Phase::Done(Decision::Refuse(code)) => return code,
        // What unwinds out of the driver leaves nobody to say what it took: then it stays charged.
        Phase::Done(Decision::Go(reserved)) => ManuallyDrop::new(reserved),
    };
    let code = call();
    quietly(|| settle(ManuallyDrop::into_inner(reserved), code), code)
}

/// Reserves for a call, or refuses it with the status that an allocator's retry logic waits for.
///
/// Before a refusal room is made.
fn reserve(slice: &'static Slice, device: Device, bytes: u64) -> Decision<Reservation> {
    let again = || if make_room(slice, device) { slice.reserve(device, bytes) } else { None };
    slice.reserve(device, bytes).or_else(again).map_or_else(|| refuse(slice, device), Decision::Go)
}

/// Before something is refused: the pools of this process are brought up to date (the driver may have taken memory
/// out of one at a call that nobody watches), and what was charged for want of a still moment to measure it; and what
/// ended graphs have left in theirs is given back. False: nothing can have changed.
pub(crate) fn make_room(slice: &'static Slice, device: Device) -> bool {
    let settled = measure::settle(slice, device, 1);
    let graphs = slice.graphs.reclaim(slice, device);
    let pools = slice.pools.any();
    slice.pools.reconcile_all(slice);
    settled || graphs || pools
}

/// The answer to a request that does not fit.
fn refuse<T>(slice: &Slice, device: Device) -> Decision<T> {
    // Looking for room may have shown that the limit cannot be enforced any more.
    if matches!(lifecycle::standing(), Standing::Refused) {
        return Decision::Refuse(status::NOT_PERMITTED);
    }
    slice.count_refusal(device);
    Decision::Refuse(status::OUT_OF_MEMORY)
}

/// A call that gives something back or changes what is known: `before` takes out what the driver is about to end
/// (so that a new owner of the same address cannot meet it), `after` gets it with the driver's status.
fn around<T>(
    before: impl FnOnce(&'static Slice) -> T,
    call: impl FnOnce() -> Status,
    after: impl FnOnce(&'static Slice, T, Status),
) -> Status {
    let Standing::Member(slice) = lifecycle::standing() else { return call() };
    let _flight = slice.flights.begin();
    let Phase::Done(taken) = phase(|| before(slice)) else { return call() };
    let code = call();
    quietly(|| after(slice, taken, code), ());
    code
}
