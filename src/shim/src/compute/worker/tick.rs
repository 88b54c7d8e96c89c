//! One tick of the worker: it closes idle batches, polls timing events, and does the due work about co-tenants.

use super::nvml_thread::want_answers;
use crate::compute::attribution::nvml_only::NvmlOnly;
use crate::compute::cotenants::state::needs_arbiter;
use crate::compute::state::Compute;
use crate::compute::threads::slot::{RemoteAccess, RemoteGuard, ThreadSlot};
use crate::os::clock::{self, CycleInstant};
use gpuslice_policy::compute::measuring::batch::OLDEST_BATCH;
use gpuslice_policy::time::WallTime;

/// Time for which a thread keeps credit that it does not spend.
const CREDIT_KEPT: WallTime = WallTime::from_millis(50);

/// Does one tick. Returns true if anything is left to do.
///
/// Each step uses the results of the steps before it. The tick closes batches of idle threads, and then the poll measures them.
/// The report and the arbiter use the new figures. If the worker does not run, several threads may tick at once.
pub(crate) fn tick(compute: &'static Compute) -> bool {
    let now = clock::now();
    compute.hold_limits(now);
    // The sample of this second comes before anything of this second is counted.
    compute.note_second(now);
    let is_credit_left = compute.return_unspent(CREDIT_KEPT);
    let is_thread_left = flush_idle_threads(compute);
    if compute.meter.poll_events(compute) > 0 {
        compute.worker.announce_completion();
    }
    // The poll may have published intervals in the region. Slices of other directories get them at once.
    compute.cotenants.publish(compute);
    compute.note_others();
    let is_busy = is_credit_left
        || is_thread_left
        || compute.is_anything_under_way()
        || compute.nvml_only.iter().any(NvmlOnly::is_waiting);
    if is_busy && compute.cotenants.replay(compute) {
        want_answers(compute);
    }
    compute.report();
    compute.cotenants.arbitrate(compute);
    is_busy || needs_arbiter(compute)
}

/// Closes batches that their threads have left open, and takes credit back from threads that do not spend it. Returns true if
/// anything is left to do.
///
/// Example: a thread launches ten small kernels and then computes on the host for a minute. The thread makes no call that could
/// close its batch. So the work would stay unmeasured, and other threads could not use its lease. A thread in a launch counts as
/// active. The tick does not wait for it, because that would delay the poll.
fn flush_idle_threads(compute: &'static Compute) -> bool {
    let (mut is_left, mut active) = (false, 0_usize);
    for slot in compute.threads.all().into_iter().filter(|slot| !slot.occupancy.is_free()) {
        match slot.scan() {
            RemoteAccess::Acquired(state) => {
                let flushed = flush(compute, slot, state);
                is_left |= flushed.has_credit;
                active = active.saturating_add(usize::from(flushed.is_active));
            }
            RemoteAccess::Clean => {}
            RemoteAccess::Busy => (is_left, active) = (true, active.saturating_add(1)),
        }
    }
    compute.threads.set_active(active);
    is_left
}

struct Flushed {
    has_credit: bool,
    /// True if the thread has launched lately.
    is_active: bool,
}

/// Flushes one thread that is not in a launch. Clears the state of a thread that has ended, for another thread.
///
/// A thread without credit and without a batch gets the mark *clean*: later ticks skip it until it launches again. Each access
/// makes all threads of the process pass a fence. Without the mark, ticks would slow a program with many idle threads.
fn flush(compute: &'static Compute, slot: &'static ThreadSlot, mut state: RemoteGuard) -> Flushed {
    // `has_ended` is read once. If the thread ended between two readings, its batches would not be closed but dropped below.
    let (now, mut has_ended) = (CycleInstant::now(), slot.occupancy.has_ended());
    state.give_up_pending();
    state.forget_code_loads();
    state.close_where(compute, |stream| {
        let age = stream.open.as_ref().map_or(WallTime::ZERO, |open| now.since(open.since).wall_time());
        let is_due = stream.is_shared() && (age >= OLDEST_BATCH || has_ended);
        is_due && stream.can_close_at_once(compute)
    });
    let has_open = state.streams.iter().any(|stream| stream.open.is_some() && stream.is_shared());
    // A batch that waits for a code load to end keeps the state of its thread.
    has_ended &= !has_open;
    if has_ended {
        // Only the ended thread could have closed the remaining batches.
        state.abandon(compute);
    }
    let is_quiet = now.since(state.left).wall_time() >= CREDIT_KEPT;
    if has_ended || is_quiet {
        state.return_credit(compute);
    }
    let has_credit = state.has_credit();
    if has_credit || has_open || !is_quiet {
        drop(state);
    } else {
        state.leave_clean();
    }
    // The slot is cleared after the guard is dropped, because a new owner may take the slot at once.
    if has_ended {
        compute.threads.clear(slot);
    }
    Flushed { has_credit, is_active: !has_ended && !is_quiet }
}
