//! Gate of a launch: the thread pays for the launch, adds it to a batch, and calls the driver.
//!
//! The usual launch is prepaid from its thread's credit and joins the open batch of its stream. For it the thread takes no lock,
//! makes no system call and no allocation, and reads only the cycle counter as a clock. If the credit does not suffice or the
//! cost is unknown, [`slow_path`](super::slow_path) admits the launch. `ThreadState` opens and closes batches.

use super::copies::unpaced;
use super::slow_path::admit;
use crate::compute::launch::{Launch, LaunchKind};
use crate::compute::state::Compute;
use crate::compute::threads::slot::OwnerGuard;
use crate::compute::threads::stream_lookup::stream_for;
use crate::compute::threads::thread_state::ThreadState;
use crate::compute::worker::thread::ensure;
use crate::memory::loaded_symbols::LookUpKey;
use crate::os::clock::CycleInstant;
use crate::os::reentrancy::enter_or;
use gpuslice_driver::types::{Status, status};
use gpuslice_policy::compute::cost::estimate::Estimate;
use gpuslice_policy::compute::measuring::batch::Batch;
use gpuslice_policy::compute::measuring::when_alone::Timing;
use gpuslice_policy::time::WallTime;

/// A launch that was paid for and is about to enter the driver. Functions write it in place instead of returning it: a copy would
/// make the processor wait for words that it has just written.
#[derive(Debug)]
struct LaunchTicket {
    /// Place of the launch's stream among the streams of the thread.
    stream: usize,
    /// Place of the launch's device among the limiters.
    device: usize,
    /// Estimate by which the launch was paid.
    estimate: Estimate,
    /// True if the estimate was measured, or is a guess for an unknown launch.
    is_known: bool,
}

impl LaunchTicket {
    const NONE: Self = Self { stream: 0, device: 0, estimate: Estimate::NONE, is_known: false };
}

/// Returns true if launches are paced now. If they are not, this function closes the calling thread's open batches.
///
/// An administrator may change the share at any time, so each launch calls this. Each thread closes its own batches at its next
/// launch. The worker closes the batches of threads that do not launch.
#[inline(always)]
pub(crate) fn is_to_pace(compute: &'static Compute) -> bool {
    if compute.is_pacing() {
        return true;
    }
    if compute.is_anything_under_way() {
        close_before_unpaced(compute);
    }
    false
}

/// Makes a call that submits work, in a process whose launches are paced. The thread waits until the work is admitted,
/// calls the driver, and records the work for the measurement.
///
/// The thread keeps its state across the driver's call. Otherwise the worker could close the batch between the payment and the
/// launch. The closing event would lie before the launch, and the launch would not be measured.
///
/// A launch inside this launch finds the state taken and goes to the driver unpaid. Example: the driver calls a function of the
/// program, and that function launches too. If it waited for the state, the thread would wait for itself.
#[inline]
pub(crate) fn gate(
    compute: &'static Compute,
    launch: impl FnOnce() -> Launch,
    call: impl FnOnce() -> Status,
) -> Status {
    let launch = launch();
    if launch.kind == LaunchKind::Copy && !compute.paces_copies {
        return unpaced(compute, &launch, call);
    }
    let Some(mut held) = compute.acquire_own() else { return call() };
    let mut ticket = LaunchTicket::NONE;
    if enter(&mut held, compute, &launch, &mut ticket).is_none() {
        drop(held);
        return call();
    }
    // The guard is also dropped if an exception unwinds out of the driver.
    let code = call();
    leave(&mut held, compute, &launch, &ticket, code);
    code
}

/// Makes a call that submits work to several streams at once, in a process whose launches are paced. The thread pays for the
/// launches one after the other.
///
/// A launch that gets no ticket goes to the driver unpaid with the others, because the call cannot be divided. If the call fails,
/// the thread gets the credit of all launches back.
pub(crate) fn gate_all(
    compute: &'static Compute,
    launches: impl FnOnce() -> Vec<Launch>,
    call: impl FnOnce() -> Status,
) -> Status {
    let launches = enter_or(launches, Vec::new());
    let Some(mut held) = compute.acquire_own() else { return call() };
    // The thread pays for all launches before any of them joins a batch, because a thread that waits closes its batches. A batch
    // that it opened for the first launch would be closed, without that launch, while it waits for the second.
    let prepaid = launches.iter().filter_map(|launch| {
        let mut ticket = LaunchTicket::NONE;
        prepay(&mut held, compute, launch, &mut ticket).map(|_| (launch, ticket))
    });
    let mut tickets: Vec<_> = prepaid.collect();
    for (launch, ticket) in &mut tickets {
        // If streams have ended meanwhile, the thread has forgotten them.
        if let Some(stream) = stream_for(&mut held, compute, launch.stream) {
            ticket.stream = stream;
            place(&mut held, compute, launch, ticket, CycleInstant::now());
        }
    }
    let code = call();
    tickets.iter().for_each(|(launch, ticket)| leave(&mut held, compute, launch, ticket, code));
    code
}

/// Pays for a launch and puts it into a batch. `None`: the launch goes to the driver unpaid and in no batch.
#[inline(always)]
fn enter(
    held: &mut OwnerGuard,
    compute: &'static Compute,
    launch: &Launch,
    ticket: &mut LaunchTicket,
) -> Option<()> {
    let now = prepay(held, compute, launch, ticket)?;
    place(held, compute, launch, ticket, now);
    Some(())
}

/// Pays for a launch, and waits for credit if necessary. Returns the instant of the payment. `None`: the launch goes to the
/// driver unpaid.
///
/// The usual launch writes no word that other threads write too, and no word that they often read. So threads do not slow each
/// other down. Shared words that it reads, such as the version of the estimate, seldom change.
///
/// The order of the conditions matters: the lease is spent last. If the check of the queue came after the payment, a launch that
/// has to wait would have paid already. The slow path would pay a second time.
#[inline(always)]
fn prepay(
    held: &mut OwnerGuard,
    compute: &'static Compute,
    launch: &Launch,
    ticket: &mut LaunchTicket,
) -> Option<CycleInstant> {
    let stream = stream_for(held, compute, launch.stream)?;
    let now = CycleInstant::now();
    let state: &mut ThreadState = held;
    state.enter_driver(now);
    let device = state.streams.get(stream)?.device?;
    let limiter = compute.limiters.get(device)?;
    // If there is only one device, the gate has checked it already.
    let is_paced = compute.limiters.len() == 1 || limiter.is_pacing(compute);
    if !is_paced && state.streams.get(stream).is_some_and(|stream| stream.open.is_none()) {
        return None;
    }
    if is_paced
        && let Some(estimate) = state.cache.find(&launch.key, compute.estimates.version(&launch.key))
        && limiter.admits(estimate.charged)
        && state.leases.get_mut(device)?.spend(estimate.charged)
    {
        *ticket = LaunchTicket { stream, device, estimate: *estimate, is_known: true };
        return Some(now);
    }
    *ticket = LaunchTicket { stream, device, ..LaunchTicket::NONE };
    prepay_slowly(held, compute, launch, ticket, is_paced)
}

/// Pays for a launch if the thread's credit does not suffice, or if the cost of the launch is unknown.
///
/// If the device is not paced any more, this function closes the stream's batch instead. The launch then goes to the driver
/// without a ticket, and must not lie between the events of the batch.
#[cold]
#[inline(never)]
fn prepay_slowly(
    held: &mut OwnerGuard,
    compute: &'static Compute,
    launch: &Launch,
    ticket: &mut LaunchTicket,
    is_paced: bool,
) -> Option<CycleInstant> {
    if !is_paced {
        enter_or(|| held.close(compute, ticket.stream, CycleInstant::now()), ());
        return None;
    }
    let pay = || {
        // All notes are of earlier launches that never returned: this launch has made no note yet.
        held.forget_code_loads();
        admit(held, compute, ticket.stream, ticket.device, launch)
    };
    (ticket.estimate, ticket.is_known) = enter_or(pay, None)?;
    // The wait counts as time inside the driver's call.
    held.left = CycleInstant::now();
    Some(held.left)
}

/// Notes that the launch may load code, if it is the first launch of its function in this context.
///
/// A driver that loads code holds the lock of the context until the GPU's queue is empty. While the note exists, the worker does
/// not read events of that context. Otherwise a kernel of one second would block the worker for that second, also for other
/// contexts.
///
/// The thread marks the function before the call. So a second thread that launches it meanwhile makes no note. The note of the
/// first thread suffices.
fn note_code_load(held: &mut OwnerGuard, compute: &'static Compute, launch: &Launch, ticket: &LaunchTicket) {
    let Some(pool) = held.streams.get(ticket.stream).map(|stream| stream.pool) else { return };
    let code = LookUpKey::of_numbers(launch.key.code(), pool);
    if !compute.launched.contain(code) {
        compute.launched.add(code);
        held.code_loads.push(compute.meter.begin_code_load(pool));
    }
}

/// Puts the launch into the open batch of its stream, or into a new one.
#[inline(always)]
fn place(
    held: &mut OwnerGuard,
    compute: &'static Compute,
    launch: &Launch,
    ticket: &LaunchTicket,
    now: CycleInstant,
) {
    let joins = ticket.is_known && held.joins_open_batch(ticket.stream, &ticket.estimate, launch.kind, now);
    if !joins {
        prepare(held, compute, launch, ticket);
    }
}

/// Opens or closes a batch before the launch.
#[cold]
#[inline(never)]
fn prepare(held: &mut OwnerGuard, compute: &'static Compute, launch: &Launch, ticket: &LaunchTicket) {
    let known = ticket.is_known.then_some(&ticket.estimate);
    let prepare = || {
        held.prepare_batch(compute, ticket.stream, known, launch.kind);
        // The note comes last: while it exists, no batch of the same context can be closed at once.
        if !ticket.is_known {
            note_code_load(held, compute, launch, ticket);
        }
        ensure(compute);
    };
    enter_or(prepare, ());
}

/// Counts a launch in its batch after the driver's call, or gives its credit back.
///
/// The launch counts after the call, because the driver may refuse it. No other thread has closed the batch since `place`,
/// because this thread has kept its state.
#[inline(always)]
fn leave(
    held: &mut OwnerGuard,
    compute: &'static Compute,
    launch: &Launch,
    ticket: &LaunchTicket,
    code: Status,
) {
    let is_usual = code == status::SUCCESS && ticket.is_known;
    if !(is_usual && held.note_launch(compute, ticket.stream, launch, &ticket.estimate).is_some()) {
        leave_slowly(held, compute, launch, ticket, code);
    }
}

/// Finishes a launch that failed, whose cost was unknown, or whose batch was closed meanwhile. If it failed, the thread gets its
/// credit back. If its cost was unknown, the limiter counts it, and it fills its batch. If its batch is gone, it stays
/// unmeasured.
#[cold]
#[inline(never)]
fn leave_slowly(
    held: &mut OwnerGuard,
    compute: &'static Compute,
    launch: &Launch,
    ticket: &LaunchTicket,
    code: Status,
) {
    let LaunchTicket { stream, device, estimate, is_known } = ticket;
    if !held.code_loads.is_empty() {
        enter_or(|| held.forget_code_loads(), ());
    }
    if code != status::SUCCESS {
        // No work runs, so the thread gets its credit back.
        if let Some(credit) = held.leases.get_mut(*device) {
            credit.fill(estimate.charged);
        }
        held.left = CycleInstant::now();
        return;
    }
    if !is_known {
        let begin = || {
            // The launch is counted before the batch is submitted. Otherwise the worker could subtract it first, and the count
            // would stay too high. Later launches of unknown cost could then wait for 50 ms in vain.
            let limiter = compute.limiters.get(*device);
            limiter.into_iter().for_each(|limiter| limiter.begin_unknown(compute, &launch.key));
        };
        enter_or(begin, ());
        held.mark_unknown(*stream);
        if held.note_launch(compute, *stream, launch, estimate).is_some() {
            return;
        }
    }
    not_measured(compute, launch, ticket);
}

/// Leaves a launch unmeasured, because its batch was closed before it. The prepaid time stays charged.
#[cold]
fn not_measured(compute: &'static Compute, launch: &Launch, ticket: &LaunchTicket) {
    let mut batch = Batch::open(Timing::Single, WallTime::ZERO);
    batch.add(&launch.key, &ticket.estimate);
    enter_or(|| compute.leave_unmeasured(ticket.device, &batch, !ticket.is_known), ());
}

/// Closes the open batches because the slice now has all of the GPU's time. Launches that are not paced are queued without a
/// bound, and must not lie between the events of a batch.
#[cold]
fn close_before_unpaced(compute: &'static Compute) {
    let close = || {
        if let Some(mut held) = compute.acquire_own() {
            // This comes first: streams of these batches may have ended, and `close_all` would record events in them.
            held.give_up_pending();
            held.close_all(compute);
            // A batch that could not be closed would contain launches that are not paced.
            held.give_up(compute);
        }
    };
    enter_or(close, ());
}
