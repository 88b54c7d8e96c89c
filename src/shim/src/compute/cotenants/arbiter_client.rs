//! Does this process look at all slices on its GPUs, and what does it tell them?
//!
//! A slice whose policy or priority concerns others asks for its GPU's chair at each round of the helper's, while it has
//! work under way or waits for the share, and gives it back when it has had nothing for some rounds. Who holds it looks at
//! all slices whose regions lie in the same directory ([`neighbours`](crate::compute::cotenants::slices)), has them divide the GPU
//! ([`gpuslice_policy::arbiter`]), and writes what each may use into its region. `fixed` slices of normal priority never
//! ask: alone they need nobody, and beside others these look.
//!
//! Without chairs (a directory that cannot be written, a file of somebody else's) every slice keeps its own limit, which
//! is said once.

use crate::compute::cotenants::slices::Cotenants;
use crate::compute::limiter::device::DeviceLimiter;
use crate::compute::state::Compute;
use crate::os::{clock, messages};
use crate::slice::handle::Slice;
use core::time::Duration;
use gpuslice_policy::arbiter::grant_word;
use gpuslice_policy::arbiter::{self, Arbiter};
use gpuslice_policy::compute::limiter::queue_bound;
use gpuslice_policy::config::{LogLevel, Priority};
use gpuslice_region::{ArbiterLeases, Uuid};
use parking_lot::Mutex;

/// How often it is tried to open the chairs, and looked whether others find the same, in nanoseconds.
const AGAIN: u64 = 1_000_000_000;

/// What this process knows as an arbiter, or as one that would be.
#[derive(Debug, Default)]
pub(crate) struct ArbiterClient {
    chairs: Option<ArbiterLeases>,
    /// When they were opened, or looked for, last.
    tried: u64,
    said: bool,
    /// By the places of the pacers; of those whose chair this process does not hold, nothing.
    arbiters: Vec<Option<Arbiter>>,
}

impl DeviceLimiter {
    /// Whether other slices have a part in what this one may use.
    fn divides(&self, slice: &Slice) -> bool {
        slice.region().limits(self.place.device).sharing.divides()
    }

    /// Whether others give way to the slice.
    fn goes_before(&self, slice: &Slice) -> bool {
        let sharing = slice.region().limits(self.place.device).sharing;
        sharing.divides() && sharing.priority == Priority::High
    }

    /// What was told is heard, or forgotten where it is too old.
    fn hear(&self, slice: &Slice, now: u64) {
        let room = slice.region().expire_grant(self.place.device, now).unwrap_or(u64::MAX);
        self.leave_room(room);
    }
}

impl Compute {
    /// Whether a thread of this process waits for a share that others have a part in: nobody else may be left to look.
    pub(crate) fn is_asking(&self) -> bool {
        self.pacers.iter().any(|pacer| self.member().is_waiting(pacer.place.device) && pacer.divides(self))
    }

    /// Sees to it that somebody looks while such a thread waits.
    pub(crate) fn look_while_asking(&'static self, pacer: &DeviceLimiter) {
        if pacer.divides(self) {
            self.helper.ensure(self);
        }
    }

    /// How long the helper rests between two rounds.
    pub(crate) fn round(&self) -> Duration {
        let is_beside_high = self.pacers.iter().any(|pacer| pacer.gives_way() || pacer.goes_before(self));
        Duration::from_nanos(if is_beside_high { arbiter::STEP_BESIDE_HIGH } else { arbiter::STEP })
    }

    /// A round: what was told is heard, and where this process holds a chair, all slices of the GPU are looked at.
    pub(crate) fn arbitrate(&'static self) {
        let now = clock::now();
        self.pacers.iter().for_each(|pacer| pacer.hear(self, now));
        let Some(mut steward) = self.steward.try_lock() else { return };
        if self.pacers.iter().any(|pacer| pacer.divides(self)) {
            steward.round(self, &self.pacers, &self.neighbours, now);
        } else if steward.holds_any() {
            steward.leave(&self.pacers);
        }
    }

    /// There is nothing to do here: others look.
    pub(crate) fn leave_chairs(&self) {
        if let Some(mut steward) = self.steward.try_lock() {
            steward.leave(&self.pacers);
        }
    }
}

impl ArbiterClient {
    fn holds_any(&self) -> bool {
        self.arbiters.iter().any(Option::is_some)
    }

    fn leave(&mut self, pacers: &[DeviceLimiter]) {
        if let Some(chairs) = &self.chairs {
            pacers.iter().for_each(|pacer| chairs.release(&Uuid(pacer.place.uuid)));
        }
        self.arbiters.clear();
    }

    fn round(
        &mut self,
        compute: &'static Compute,
        pacers: &[DeviceLimiter],
        neighbours: &Mutex<Cotenants>,
        now: u64,
    ) {
        self.open(compute, pacers, now);
        let Some(chairs) = &self.chairs else { return };
        self.arbiters.resize_with(pacers.len(), || None);
        for (pacer, arbiter) in pacers.iter().zip(&mut self.arbiters) {
            let holds = pacer.divides(compute) && chairs.renew(&Uuid(pacer.place.uuid), now);
            // A new one begins with what it sees.
            *arbiter = arbiter.take().filter(|_| holds).or_else(|| holds.then(Arbiter::default));
        }
        if !self.holds_any() {
            return;
        }
        let mut neighbours = neighbours.lock();
        neighbours.look(compute, now);
        for (pacer, arbiter) in pacers.iter().zip(&mut self.arbiters) {
            if let Some(arbiter) = arbiter {
                divide(arbiter, &mut neighbours, &Uuid(pacer.place.uuid));
            }
        }
    }

    /// Opens the chairs, unless that was tried a moment ago; anew where others find a different file.
    fn open(&mut self, slice: &Slice, pacers: &[DeviceLimiter], now: u64) {
        if now.saturating_sub(self.tried) < AGAIN && self.tried != 0 {
            return;
        }
        self.tried = now;
        if self.chairs.as_ref().is_some_and(ArbiterLeases::is_current) {
            return;
        }
        self.leave(pacers);
        let Some(folder) = slice.region().path().parent() else { return };
        self.chairs = ArbiterLeases::open(folder)
            .inspect_err(|error| {
                if !core::mem::replace(&mut self.said, true) {
                    let text = format_args!(
                        "gpuslice: {error}. Nothing is divided with other slices: this one keeps its own limit."
                    );
                    messages::say(LogLevel::Warn, &text);
                }
            })
            .ok();
    }
}

/// Looks at all slices on a GPU, and tells each what it may use.
fn divide(arbiter: &mut Arbiter, neighbours: &mut Cotenants, gpu: &Uuid) {
    // Read here: what a slice owes is told by where its word stands to the clock, and looking around may have taken long.
    let now = clock::now();
    let seen = |(at, neighbour): (usize, &mut crate::compute::cotenants::slices::Cotenant)| {
        neighbour.seen(gpu, now).map(|(device, slice)| (at, device, slice))
    };
    let seen: Vec<_> = neighbours.all().iter_mut().enumerate().filter_map(seen).collect();
    let slices: Vec<arbiter::Slice> = seen.iter().map(|(_, _, slice)| *slice).collect();
    for ((at, device, _), given) in seen.iter().zip(arbiter.look(now, &slices)) {
        let Some(neighbour) = neighbours.all().get(*at) else { continue };
        let (region, told) = (neighbour.region(), grant_word::encode(&given, now));
        let before = region.grant(*device);
        // Who has what is its own anyway need not be told.
        let is_own = given.terms == region.own_terms(*device) && given.queue_bound >= queue_bound::MOST;
        if (before != 0 || !is_own) && grant_word::must_write(before, told, now) {
            region.set_grant(*device, told, now);
        }
        if given.gift > 0 {
            region.credit_wall_time(*device, given.gift, now);
        }
    }
}
