//! Admission of a launch if its thread's credit does not suffice, or if its cost is unknown.
//!
//! The thread may wait for three things: for the measurement of an unknown launch, for queued work to end, and for credit
//! ([`credit_request`](super::credit_request)). Before each wait the thread closes its batches. Otherwise the slice would
//! be charged for the wait as for GPU time.

use super::credit_request::CreditRequest;
use crate::compute::attribution::nvml_only::NvmlOnly;
use crate::compute::launch::Launch;
use crate::compute::state::Compute;
use crate::compute::threads::slot::OwnerGuard;
use crate::compute::threads::stream_state::StreamState;
use crate::compute::worker::waiting::{poll_for_completion, wait_for_completion};
use crate::os::clock;
use crate::slice::settings;
use core::time::Duration;
use gpuslice_policy::compute::cost::estimate::Estimate;
use gpuslice_policy::compute::limiter::queue_bound::{self, QueuedWork, UNKNOWN_WAIT};
use gpuslice_policy::time::{GpuTime, Monotonic};

/// Time for which a thread waits for queued work before it looks again, even if the worker announces nothing.
const RECHECK_QUEUE: Duration = Duration::from_millis(20);

/// Waits until a launch is admitted, and pays for it. Returns the estimate by which it was paid, and true if the estimate
/// is known. `None`: the launch goes to the driver unpaid.
///
/// The function ends the request before each return. If a request stayed published, this process would seem to wait for its turn,
/// and other processes would wait for it.
#[cold]
pub(super) fn admit(
    held: &mut OwnerGuard,
    compute: &'static Compute,
    stream: usize,
    device: usize,
    launch: &Launch,
) -> Option<(Estimate, bool)> {
    let request = CreditRequest::new(compute, device, stream)?;
    let began = clock::now();
    // The sample of this second must come before the launch's time counts. After a pause the worker has not written it.
    compute.member().note_second(request.limiter().gpu.device, began);
    let mut admission = Admission { compute, device, stream, began, request };
    let paid = admission.admit(held, launch);
    admission.request.end();
    paid
}

struct Admission {
    compute: &'static Compute,
    /// Place of the device among the limiters.
    device: usize,
    /// Place of the stream among the thread's streams.
    stream: usize,
    /// Start of the admission.
    began: Monotonic,
    request: CreditRequest,
}

impl Admission {
    /// Tries until the launch is paid for. Each pass of the loop ends in a wait. Because anything may change during a wait, each
    /// pass reads everything again.
    ///
    /// Each pass makes three checks in this order: is the cost known, has the queue room, is there credit. Credit comes last,
    /// because a thread that has paid must not wait any more. Other processes could not use the paid time meanwhile.
    ///
    /// The thread reads `completions` before the checks. A batch that ends after a check changes the number, so the wait returns
    /// at once. With a later reading the thread would miss that end, and sleep for too long while the GPU is idle.
    fn admit(&mut self, held: &mut OwnerGuard, launch: &Launch) -> Option<(Estimate, bool)> {
        let compute = self.compute;
        loop {
            // Without its region the slice has no share.
            if settings::is_refused() {
                return None;
            }
            // While the process ends, no thread polls events, so no thread would see a batch end. Then a launch waits for no
            // measurement, and is paid for by its known cost or by a guess.
            let is_measured = !compute.worker.is_ending();
            let completions = compute.worker.completions();
            let nvml_only = || compute.nvml_only(self.device).map(NvmlOnly::estimate);
            let known = compute.estimates.look_up(&mut held.cache, &launch.key).or_else(nvml_only);
            if is_measured && known.is_none() && !self.may_go_unknown(launch) {
                // This thread polls itself, because the time between two ticks of the worker is longer than eight small kernels.
                let waited = clock::now().since(self.began);
                let most = UNKNOWN_WAIT.saturating_sub(waited).duration();
                self.wait(held, || poll_for_completion(compute, completions, most));
                continue;
            }
            let estimate = known.unwrap_or_else(|| compute.estimates.prior(&launch.key));
            let is_full = held.streams.get(self.stream).is_some_and(|stream| self.is_full(stream));
            let wait = if is_full { Some(RECHECK_QUEUE) } else { self.queue_wait(estimate.charged) };
            if let Some(most) = wait.filter(|_| is_measured) {
                self.wait(held, || wait_for_completion(compute, completions, most));
                continue;
            }
            let is_known = known.is_some();
            if is_known && held.leases.get_mut(self.device)?.spend(estimate.charged) {
                return Some((estimate, true));
            }
            if self.request.acquire_credit(held, &estimate, is_known)
                && held.leases.get_mut(self.device)?.spend(estimate.charged)
            {
                return Some((estimate, is_known));
            }
        }
    }

    /// Closes the thread's batches and waits for `until`. Other threads of the process and other slices may request meanwhile.
    ///
    /// The thread does not wait for credit here, so it gives up the lock of the credit and the published request. Otherwise no
    /// other thread of the process could pay. And other processes would wait for a process that cannot use its turn.
    fn wait(&mut self, held: &mut OwnerGuard, until: impl FnOnce()) {
        self.request.release();
        held.close_all(self.compute);
        held.unlocked(until);
    }

    /// Returns true if this launch of unknown cost may run beside the unknown launches that are under way.
    ///
    /// A launch of unknown cost is prepaid by a guess, so the bound limits the debt that a bad guess leaves. The bound does not
    /// apply in two cases. After 50 ms a launch goes to the driver, because the unknown launches under way may take long or wait
    /// for it. Without events no measurement comes.
    ///
    /// The launch is counted only after its call, so several threads that check at the same time may exceed the bound.
    fn may_go_unknown(&self, launch: &Launch) -> bool {
        let is_late = clock::now().since(self.began) >= UNKNOWN_WAIT;
        let limiter = self.request.limiter();
        is_late || !self.compute.timing.are_used() || limiter.unknown.lock().admits(&launch.key)
    }

    /// Returns true if the driver's queue of the stream is about to be full.
    fn is_full(&self, stream: &StreamState) -> bool {
        let left = stream.predicted_end().since(clock::now());
        let open = stream.open.as_ref().map_or(0, |open| open.batch.launches());
        self.request.limiter().is_full(open, left, stream.launch_duration)
    }

    /// Returns the longest wait for queued work before a launch of this cost. `None`: the launch need not wait, because the queue
    /// has room or is about to be empty.
    ///
    /// With the usual bound 20 ms of work are queued, so the thread may sleep until the worker announces an end. With a reduced
    /// bound only a few milliseconds or one launch are queued. If the thread woke up at the end of that work, the GPU would be
    /// idle while the thread launches. So the thread wakes 0.3 ms before the predicted end, and launches then.
    ///
    /// If the queue is still longer than about one launch at that instant, the thread waits until the worker announces an end.
    fn queue_wait(&self, cost: GpuTime) -> Option<Duration> {
        let limiter = self.request.limiter();
        if limiter.admits(cost) {
            return None;
        }
        if !limiter.has_reduced_bound() {
            return Some(RECHECK_QUEUE);
        }
        let left = limiter.time_to_end(clock::now());
        if QueuedWork::of(limiter.queued.get()).admits_at_end(cost, left) {
            return None;
        }
        let most = left.saturating_sub(queue_bound::AT_END).duration();
        Some(if most.is_zero() { RECHECK_QUEUE } else { most.min(RECHECK_QUEUE) })
    }
}
