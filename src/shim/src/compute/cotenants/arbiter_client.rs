//! Arbiter client: this process divides its GPUs among all slices while it holds the arbiter leases of the GPUs.
//!
//! If a slice's policy or priority concerns other slices, its worker asks for the GPU's lease at each tick. It asks while
//! the process has work under way or waits for its share. It gives the lease back after some ticks without work. The
//! holder reads all slices whose regions lie in the same directory ([`slices`](super::slices)). It divides the GPU among
//! them ([`gpuslice_policy::arbiter`]), and writes each slice's grant into its region. `fixed` slices of normal priority
//! never ask: among themselves they need no arbiter, and beside other slices one of the others is the arbiter.
//!
//! If slices of several directories use a GPU, the node agent divides the GPU while it runs, and no slice does.
//!
//! If the leases cannot be opened, every slice keeps its own limit, and each process prints one line about it. Examples: a
//! directory that cannot be written, or a file of another user.

use super::slices::Cotenants;
use crate::compute::limiter::device::DeviceLimiter;
use crate::os::{clock, messages};
use crate::slice::handle::Slice;
use gpuslice_policy::arbiter::Arbiter;
use gpuslice_policy::config::LogLevel;
use gpuslice_policy::time::{Monotonic, WallTime};
use gpuslice_region::{ArbiterLeases, Cotenant, Uuid, allocate_gpu};
use parking_lot::Mutex;

/// Interval at which the process tries to open the leases, and checks that other slices use the same file.
const REOPEN_EVERY: WallTime = WallTime::from_millis(1_000);

/// Arbiter leases of this process, and the arbiter of each GPU whose lease it holds.
#[derive(Debug, Default)]
pub(crate) struct ArbiterClient {
    leases: Option<ArbiterLeases>,
    /// Instant at which the leases were last opened or checked.
    tried_at: Monotonic,
    has_warned: bool,
    /// One entry for each limiter, in the same order; `None` if this process does not hold the lease of the device.
    arbiters: Vec<Option<Arbiter>>,
}

impl ArbiterClient {
    /// Returns true if this process holds any lease.
    pub(crate) fn holds_any(&self) -> bool {
        self.arbiters.iter().any(Option::is_some)
    }

    /// Gives all leases back.
    pub(crate) fn release(&mut self, limiters: &[DeviceLimiter]) {
        if let Some(leases) = &self.leases {
            limiters.iter().for_each(|limiter| leases.release(&Uuid(limiter.gpu.uuid)));
        }
        self.arbiters.clear();
    }

    /// Renews the leases, and divides the GPUs whose leases this process holds.
    ///
    /// A lease is a word that expires, not a lock. A holder that is killed or suspended loses it after 0.1 s, and another process
    /// divides the GPU. A holder that continues later finds at its next renewal that it has lost the lease. Until then both
    /// processes may write grants. Such grants hold until the next round.
    pub(crate) fn tick(
        &mut self,
        slice: &Slice,
        limiters: &[DeviceLimiter],
        cotenants: &Mutex<Cotenants>,
        now: Monotonic,
    ) {
        self.open(slice, limiters, now);
        let Some(leases) = &self.leases else { return };
        self.arbiters.resize_with(limiters.len(), || None);
        for (limiter, arbiter) in limiters.iter().zip(&mut self.arbiters) {
            let is_ours =
                limiter.is_divided(slice) && !slice.region().is_divided_by_agent(limiter.gpu.device, now);
            let holds = is_ours && leases.renew(&Uuid(limiter.gpu.uuid), now);
            // An arbiter without its lease is dropped: another process has divided the GPU since, so this arbiter's state is out
            // of date.
            *arbiter = arbiter.take().filter(|_| holds).or_else(|| holds.then(Arbiter::default));
        }
        if !self.holds_any() {
            return;
        }
        let mut cotenants = cotenants.lock();
        cotenants.refresh(slice, now);
        for (limiter, arbiter) in limiters.iter().zip(&mut self.arbiters) {
            if let Some(arbiter) = arbiter {
                let mut all: Vec<&mut Cotenant> = cotenants.all().collect();
                allocate_gpu(arbiter, &mut all, &Uuid(limiter.gpu.uuid), clock::now);
            }
        }
    }

    /// Opens the leases, unless that was tried within [`REOPEN_EVERY`]. Opens them again if other slices find a different file.
    /// Example: an administrator removes the file, and a new slice makes another file. Each file would have a holder of its own,
    /// and both holders would divide the GPU.
    fn open(&mut self, slice: &Slice, limiters: &[DeviceLimiter], now: Monotonic) {
        if now.since(self.tried_at) < REOPEN_EVERY && self.tried_at != Monotonic::BEGIN {
            return;
        }
        self.tried_at = now;
        if self.leases.as_ref().is_some_and(ArbiterLeases::is_current) {
            return;
        }
        self.release(limiters);
        let Some(folder) = slice.region().path().parent() else { return };
        self.leases = ArbiterLeases::open(folder)
            .inspect_err(|error| {
                if !core::mem::replace(&mut self.has_warned, true) {
                    let text = format_args!(
                        "gpuslice: {error}. Nothing is divided with other slices: this one keeps its own limit."
                    );
                    messages::say(LogLevel::Warn, &text);
                }
            })
            .ok();
    }
}
