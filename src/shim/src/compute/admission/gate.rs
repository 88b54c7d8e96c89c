//! What does a launch go through?
//!
//! It is prepaid from its thread's credit, bracketed, given to the driver, and put into its run. That is all of the usual
//! launch: no lock, no system call, no allocation, no clock but the cycle counter. Where the credit does not suffice, an
//! estimate is not at hand or a run has to be opened or closed, `pay` and `ThreadState` do more.

use crate::compute::admission::copies::unpaced;
use crate::compute::admission::slow_path::pay;
use crate::compute::launch::{Kind, Launch};
use crate::compute::state::Compute;
use crate::compute::threads::registry::{self, OwnerGuard};
use crate::compute::threads::stream_lookup::lane_for;
use crate::compute::threads::thread_state::ThreadState;
use crate::os::clock;
use crate::os::reentrancy::quietly;
use gpuslice_driver::types::{Status, status};
use gpuslice_policy::compute::cost::estimate::Estimate;
use gpuslice_policy::compute::measuring::batch::Run;
use gpuslice_policy::compute::measuring::when_alone::Bracket;

/// A launch that was paid and is about to enter the driver. Written in its place: a copy of what has just been written in
/// parts keeps the processor waiting.
#[derive(Debug)]
struct LaunchTicket {
    lane: usize,
    device: usize,
    estimate: Estimate,
    is_known: bool,
}

impl LaunchTicket {
    const NONE: Self = Self { lane: 0, device: 0, estimate: Estimate::NONE, is_known: false };
}

/// Whether launches are paced now. Where they are not any more, open runs are closed.
#[inline(always)]
fn is_to_pace(compute: &'static Compute) -> bool {
    if compute.is_pacing() {
        return true;
    }
    if compute.is_anything_under_way() {
        close_before_unpaced(compute);
    }
    false
}

/// A call that submits work: waits until it may go, calls the driver, and sees to it that it is measured. What it submits
/// is asked for only where time is paced.
#[inline]
pub(crate) fn gate(
    compute: &'static Compute,
    launch: impl FnOnce() -> Launch,
    call: impl FnOnce() -> Status,
) -> Status {
    if !is_to_pace(compute) {
        return call();
    }
    let launch = launch();
    if launch.kind == Kind::Copy && !compute.paces_copies {
        return unpaced(compute, &launch, call);
    }
    let Some(mut held) = registry::hold(compute) else { return call() };
    let mut entry = LaunchTicket::NONE;
    if enter(&mut held, compute, &launch, &mut entry).is_none() {
        drop(held);
        return call();
    }
    // Dropped, and the seat given up, also when something unwinds out of the driver.
    let code = call();
    leave(&mut held, compute, &launch, &entry, code);
    code
}

/// A call that submits work to several streams at once: each is paid for, one after the other.
pub(crate) fn gate_all(
    compute: &'static Compute,
    launches: impl FnOnce() -> Vec<Launch>,
    call: impl FnOnce() -> Status,
) -> Status {
    if !is_to_pace(compute) {
        return call();
    }
    let launches = quietly(launches, Vec::new());
    let Some(mut held) = registry::hold(compute) else { return call() };
    // All are paid for before any is bracketed: who waits closes its runs.
    let prepaid = launches.iter().filter_map(|launch| {
        let mut entry = LaunchTicket::NONE;
        prepay(&mut held, compute, launch, &mut entry).map(|_| (launch, entry))
    });
    let mut entries: Vec<_> = prepaid.collect();
    for (launch, entry) in &mut entries {
        // Lanes are forgotten where streams have ended meanwhile.
        if let Some(lane) = lane_for(&mut held, compute, launch.stream) {
            entry.lane = lane;
            place(&mut held, compute, launch, entry, clock::cycles());
        }
    }
    let code = call();
    entries.iter().for_each(|(launch, entry)| leave(&mut held, compute, launch, entry, code));
    code
}

/// None: the launch goes to the driver as it is.
#[inline(always)]
fn enter(
    held: &mut OwnerGuard,
    compute: &'static Compute,
    launch: &Launch,
    entry: &mut LaunchTicket,
) -> Option<()> {
    let now = prepay(held, compute, launch, entry)?;
    place(held, compute, launch, entry, now);
    Some(())
}

/// Pays for a launch, and waits for that if need be. When that was done, in cycles; none: the launch goes to the driver as it
/// is.
#[inline(always)]
fn prepay(
    held: &mut OwnerGuard,
    compute: &'static Compute,
    launch: &Launch,
    entry: &mut LaunchTicket,
) -> Option<u64> {
    let lane = lane_for(held, compute, launch.stream)?;
    let now = clock::cycles();
    let seat: &mut ThreadState = held;
    seat.enters(now);
    let device = seat.lanes.get(lane)?.device?;
    let pacer = compute.pacers.get(device)?;
    // Of a single device it is known.
    let is_paced = compute.pacers.len() == 1 || pacer.is_pacing(compute);
    if !is_paced && seat.lanes.get(lane).is_some_and(|lane| lane.open.is_none()) {
        return None;
    }
    if is_paced
        && let Some(estimate) = seat.recent.find(&launch.key, compute.epoch(&launch.key))
        && pacer.admits(estimate.charged)
        && seat.leases.get_mut(device)?.spend(estimate.charged)
    {
        *entry = LaunchTicket { lane, device, estimate: *estimate, is_known: true };
        return Some(now);
    }
    *entry = LaunchTicket { lane, device, ..LaunchTicket::NONE };
    prepay_slowly(held, compute, launch, entry, is_paced)
}

/// The thread's credit does not suffice, or nothing is known of the launch.
#[cold]
#[inline(never)]
fn prepay_slowly(
    held: &mut OwnerGuard,
    compute: &'static Compute,
    launch: &Launch,
    entry: &mut LaunchTicket,
    is_paced: bool,
) -> Option<u64> {
    if !is_paced {
        quietly(|| held.close(compute, entry.lane, clock::cycles()), ());
        return None;
    }
    (entry.estimate, entry.is_known) =
        quietly(|| pay(held, compute, (entry.lane, entry.device), launch), None)?;
    // Our own waiting was inside the driver's call.
    held.left = clock::cycles();
    Some(held.left)
}

/// Sees to it that there is a run that the launch goes into.
#[inline(always)]
fn place(held: &mut OwnerGuard, compute: &'static Compute, launch: &Launch, entry: &LaunchTicket, now: u64) {
    let goes_on = entry.is_known && held.goes_on(entry.lane, &entry.estimate, launch.kind, now);
    if !goes_on {
        bracket(held, compute, launch, entry);
    }
}

/// A run has to be opened or closed before the launch.
#[cold]
#[inline(never)]
fn bracket(held: &mut OwnerGuard, compute: &'static Compute, launch: &Launch, entry: &LaunchTicket) {
    let known = entry.is_known.then_some(&entry.estimate);
    quietly(|| held.reopen(compute, entry.lane, known, launch.kind), ());
}

#[inline(always)]
fn leave(
    held: &mut OwnerGuard,
    compute: &'static Compute,
    launch: &Launch,
    entry: &LaunchTicket,
    code: Status,
) {
    let is_usual = code == status::SUCCESS && entry.is_known;
    if !(is_usual && held.launched(compute, entry.lane, launch, &entry.estimate).is_some()) {
        leave_slowly(held, compute, launch, entry, code);
    }
}

/// The launch failed, nothing was known of it, or its run was closed meanwhile.
#[cold]
#[inline(never)]
fn leave_slowly(
    held: &mut OwnerGuard,
    compute: &'static Compute,
    launch: &Launch,
    entry: &LaunchTicket,
    code: Status,
) {
    let LaunchTicket { lane, device, estimate, is_known } = entry;
    if code != status::SUCCESS {
        // Nothing runs: the thread has its credit back.
        if let Some(credit) = held.leases.get_mut(*device) {
            credit.fill(estimate.charged);
        }
        held.left = clock::cycles();
        return;
    }
    if !is_known {
        quietly(|| compute.unknown_left(*device, &launch.key), ());
        held.is_unknown(*lane);
        if held.launched(compute, *lane, launch, estimate).is_some() {
            return;
        }
    }
    not_measured(compute, launch, entry);
}

/// Its run was closed before it: what was prepaid stands.
#[cold]
fn not_measured(compute: &'static Compute, launch: &Launch, entry: &LaunchTicket) {
    let mut run = Run::open(Bracket::Alone, 0);
    run.add(&launch.key, &entry.estimate);
    quietly(|| compute.unmeasured(entry.device, &run, !entry.is_known), ());
}

/// The share has become all of the GPU's time while runs were open: what is not paced, and queued without a bound, must not
/// lie between their events.
#[cold]
fn close_before_unpaced(compute: &'static Compute) {
    let close = || {
        if let Some(mut held) = registry::hold(compute) {
            held.give_up_missed(compute);
            held.close_all(compute);
        }
    };
    quietly(close, ());
}
