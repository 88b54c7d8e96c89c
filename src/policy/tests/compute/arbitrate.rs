//! An arbiter over the slices of a world.

use gpuslice_policy::arbiter::demand::SliceFigures;
use gpuslice_policy::arbiter::{ARBITER_STEP, Arbiter, STEP_BESIDE_HIGH, SharingSlice, SliceSettings};
use gpuslice_policy::compute::limiter::fair_queue::STOPPED_AFTER;
use gpuslice_policy::config::{CorePolicy, Priority};
use gpuslice_policy::time::{GpuTime, Monotonic, WallTime};
use gpuslice_policy::units::Permille;

use crate::program::Program;
use crate::scenario::rate_limit;
use crate::shim::Wait;
use crate::world::{Machine, Phase, World};
use gpuslice_policy::time::literals::ns;

const MS: u64 = 1_000_000;

/// Returns a slice with this policy that may use the whole GPU.
pub fn settings(policy: CorePolicy, weight: u32) -> SliceSettings {
    let burst = GpuTime::from_millis(20);
    SliceSettings { policy, limit: Permille::FULL, weight, priority: Priority::Normal, burst }
}

pub struct Shared {
    pub world: World,
    pub settings: Vec<SliceSettings>,
    pub arbiter: Option<Arbiter>,
    /// Interval between the arbiter's looks.
    pub every: WallTime,
    next: Monotonic,
    /// The arbiter's clock minus the world's.
    clock_offset: i64,
}

impl Shared {
    pub fn new(machine: Machine, settings: Vec<SliceSettings>, programs: Vec<(usize, Program)>) -> Self {
        let limits: Vec<_> = settings
            .iter()
            .map(|slice| rate_limit(slice.limit.get().into(), slice.burst.nanos() / MS))
            .collect();
        let world = World::new(machine, &limits, programs, 11);
        let next = world.now;
        let has_high = settings.iter().any(|settings| settings.priority == Priority::High);
        let every = if has_high { STEP_BESIDE_HIGH } else { ARBITER_STEP };
        Self { world, settings, arbiter: Some(Arbiter::default()), every, next, clock_offset: 0 }
    }

    /// Runs until an instant. The arbiter looks in between.
    pub fn run(&mut self, until: Monotonic) {
        while self.world.now < until {
            self.world.run(until.min(self.next)).unwrap();
            if self.world.now >= self.next {
                self.look();
                self.next = self.world.now + self.every;
            }
        }
    }

    /// Moves the arbiter's clock.
    pub fn set_clock(&mut self, by: i64) {
        self.clock_offset += by;
    }

    fn look(&mut self) {
        let slices: Vec<SharingSlice> = (0..self.settings.len()).map(|at| self.slice(at)).collect();
        let Some(arbiter) = &mut self.arbiter else {
            return;
        };
        let given =
            arbiter.look(ns(self.world.now.nanos().saturating_add_signed(self.clock_offset)), &slices);
        for (at, given) in given.into_iter().enumerate() {
            let slice = &mut self.world.slices[at];
            if slice.rate_limit != given.rate_limit {
                slice.change(given.rate_limit, self.world.now);
            }
            if !given.wall_credit.is_zero() {
                slice.give(given.wall_credit, self.world.now);
            }
            slice.queue_bound = given.queue_bound;
            self.world.wake_sleepers(at);
        }
    }

    /// Returns the figures that an arbiter reads in the region of a slice.
    fn slice(&self, at: usize) -> SharingSlice {
        let (world, slice) = (&self.world, &self.world.slices[at]);
        let own = || world.processes.iter().filter(|process| process.slice == at && process.is_alive());
        let waits = |phase: &Phase| match phase {
            Phase::Asks { wait: Some(Wait::Word(until)), .. } => *until + STOPPED_AFTER > world.now,
            _ => false,
        };
        let figures = SliceFigures {
            used: slice.used,
            throttled: slice.throttled,
            queued: own()
                .map(|process| process.shim.queued_work.queued())
                .fold(GpuTime::ZERO, GpuTime::saturating_add),
            owed: slice.paid_until.since(world.now),
            waits: own().any(|process| waits(&process.phase)),
        };
        SharingSlice { id: at as u64 + 100, settings: self.settings[at], figures }
    }
}
