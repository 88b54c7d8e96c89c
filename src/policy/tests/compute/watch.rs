//! Invariants that hold at every step.

use gpuslice_policy::compute::limiter::lease;
use gpuslice_policy::time::{GpuTime, Monotonic, WallTime};

use crate::counts::Counts;
use crate::shim::Wait;
use crate::slice::Slice;
use crate::waits::Waiter;
use crate::world::{Phase, World};

/// The record of a slice.
#[derive(Debug, Clone)]
struct Seen {
    paid: i128,
    measured: i128,
    /// GPU time to which the slice was entitled since the start, in thousandths of nanoseconds.
    entitled: u128,
    /// The smallest use beyond that time.
    least: i128,
    burst: GpuTime,
    underpaid: GpuTime,
}

#[derive(Debug, Default)]
pub struct Watch {
    now: Monotonic,
    started: Monotonic,
    slices: Vec<Seen>,
    waiters: Vec<Waiter>,
    /// Jumps of the clock that were charged as work. Running work is charged by the clock until it ends. If a launch is
    /// stopped inside the driver, its batch stays open.
    jumped: WallTime,
    /// The instant of the last jump or stop, and its end.
    disturbed: Monotonic,
    jumps: Vec<Monotonic>,
    /// An update of the estimates that contradicts the GPU's ground truth.
    wrong: Option<String>,
    /// True if the checks are off. They are off if estimates are wrong on purpose, and if nothing measures a launch.
    pub is_off: bool,
    /// The longest wait for the word beyond the debt.
    pub longest: WallTime,
    pub counts: Counts,
}

/// Time that may pass between two steps without a check.
const STEP: WallTime = WallTime::from_micros(100);
/// Largest payment at once for overlapping launches.
const TOGETHER: GpuTime = GpuTime::from_millis(16);
/// Error of the comparison of clocks, for work that is charged while it runs.
const CLOCKS: WallTime = WallTime::from_millis(2);
/// Time after which the effects of a jump are over.
const SURVIVED: WallTime = WallTime::from_millis(100);

impl Watch {
    pub fn new(slices: &[Slice], now: Monotonic, is_off: bool) -> Self {
        let (burst, underpaid) = (GpuTime::ZERO, GpuTime::ZERO);
        let seen = Seen { paid: 0, measured: 0, entitled: 0, least: 0, burst, underpaid };
        let waiters = vec![Waiter::default(); slices.first().map_or(0, |slice| slice.asks.len())];
        Self { now, started: now, slices: vec![seen; slices.len()], waiters, is_off, ..Self::default() }
    }

    pub fn jumped(&mut self, by: WallTime, now: Monotonic) {
        self.jumped += by;
        self.disturbed = self.disturbed.max(now);
        self.jumps.push(now);
        self.waiters.iter_mut().for_each(|waiter| waiter.stopped_until += by);
    }

    pub fn stopped(&mut self, me: usize, until: Monotonic) {
        self.jumped += until.since(self.now);
        self.disturbed = self.disturbed.max(until);
        let waiter = &mut self.waiters[me];
        waiter.stopped_until = waiter.stopped_until.max(until);
    }

    /// Records that a launch begins a wait for this reason, or continues it.
    pub fn waits(&mut self, before: &Phase, wait: Wait) {
        let counts = &mut self.counts;
        let is_new = |same: fn(&Wait) -> bool| match before {
            Phase::Asks { wait: Some(before), .. } => u64::from(!same(before)),
            _ => 1,
        };
        match wait {
            Wait::Word(_) => counts.word_waits += is_new(|wait| matches!(wait, Wait::Word(_))),
            Wait::Queue(_) => counts.queue_waits += is_new(|wait| matches!(wait, Wait::Queue(_))),
            Wait::Unknown(_) => counts.unknown_waits += is_new(|wait| matches!(wait, Wait::Unknown(_))),
        }
    }

    /// Returns the counts of the cases until now.
    pub fn counts(&self, world: &World) -> Counts {
        let starvable =
            self.waiters.iter().enumerate().filter(|(me, waiter)| waiter.is_starvable(*me, world));
        Counts {
            jumps: self.jumps.iter().filter(|at| **at + SURVIVED <= world.now).count() as u64,
            long_kernels: world.processes.iter().map(|process| process.shim.long_kernels).sum(),
            starvable: starvable.count() as u64,
            ..self.counts
        }
    }

    pub fn look(&mut self, world: &World) -> Result<(), String> {
        let passed = world.now.since(self.now);
        self.now = world.now;
        if !world.limited || self.is_off {
            return Ok(());
        }
        if let Some(wrong) = self.wrong.take() {
            return Err(wrong);
        }
        for at in 0..world.slices.len() {
            self.settled_is_measured(at, world)?;
            self.the_word_equals_the_payments(at, world)?;
            self.physics(at, passed, world)?;
            self.measured_is_true(at, world)?;
        }
        for me in 0..world.processes.len() {
            let waited = self.waiters[me].waits_for_nothing(me, world)?;
            self.longest = self.longest.max(waited);
            self.waiters[me].starves(me, world)?;
        }
        Ok(())
    }

    fn settled_is_measured(&mut self, at: usize, world: &World) -> Result<(), String> {
        let (slice, seen) = (&world.slices[at], &mut self.slices[at]);
        if (slice.paid, slice.measured) == (seen.paid, seen.measured) {
            return Ok(());
        }
        (seen.paid, seen.measured) = (slice.paid, slice.measured);
        let own = world.processes.iter().filter(|process| process.slice == at && !process.reaped);
        let under_way = own.map(|process| process.shim.unmeasured()).sum::<u128>();
        let accounted = slice.measured + under_way as i128 + slice.lost;
        if accounted == slice.paid {
            return Ok(());
        }
        Err(format!("slice {at} has paid {} and accounts for {accounted}", slice.paid))
    }

    /// Checks that each payment and each refund moved the word by its amount, and that no process took time while the
    /// slice was in debt.
    fn the_word_equals_the_payments(&self, at: usize, world: &World) -> Result<(), String> {
        let slice = &world.slices[at];
        if !slice.debt.is(slice.paid_until, world.now, slice.rate_limit) {
            let owed = slice.debt.owed(world.now, slice.rate_limit);
            return Err(format!("slice {at} owes {owed}, its word says {}", slice.paid_until.nanos()));
        }
        if slice.owed_at_take > i128::from(STEP.nanos()) {
            return Err(format!("slice {at} took more when it owed {}", slice.owed_at_take));
        }
        Ok(())
    }

    /// Checks measured time against true time.
    ///
    /// - A slice with the GPU to itself: the measured time equals the true time.
    /// - Beside others, without a replay: the measured time is at least the true time, and at most the passed time.
    /// - Beside others, with a replay: the measured time is at most the passed time.
    ///
    /// 3 % is for events, and each process may have the error of its clocks. Switches of the GPU cannot be distinguished
    /// from work. For kernels shorter than their launch, time inside the driver cannot be distinguished from work either.
    fn measured_is_true(&self, at: usize, world: &World) -> Result<(), String> {
        let own = || world.processes.iter().filter(|process| process.slice == at);
        let (measured, used) = (world.slices[at].measured.max(0) as u64, world.used(at));
        let under_way = own().map(|process| process.shim.under_way().nanos()).sum::<u64>();
        let inside = own().map(|process| process.shim.launches).sum::<u64>() * world.machine.launch;
        let clocks = own().count() as u64 * CLOCKS;
        let error = used / 33 + world.gpu.switching + (clocks + self.jumped + inside).nanos();
        let passed = world.now.since(self.started).nanos();
        let (least, most) = match world.slices.len() {
            1 => (used, used),
            _ if world.slices[at].is_replayed => (0, passed),
            _ => (used, passed),
        };
        if measured <= most + error && least <= measured + under_way + error {
            return Ok(());
        }
        Err(format!("slice {at} measured {measured} of {used} in {passed}, with {under_way} under way"))
    }

    /// Checks that use stays within the share. Over any time it is at most the share, the burst, one launch, leases, the
    /// errors of estimates, and a hundredth for measurements. If streams may overlap, a process takes more at once
    /// ([`lease::together`]), and launches beside others as debt.
    fn physics(&mut self, at: usize, passed: WallTime, world: &World) -> Result<(), String> {
        let (slice, seen) = (&world.slices[at], &mut self.slices[at]);
        let own = || world.processes.iter().filter(|process| process.slice == at);
        seen.entitled += u128::from(passed.nanos()) * u128::from(slice.rate_limit.rate().get());
        seen.burst = seen.burst.max(slice.rate_limit.burst());
        let underpaid = own().map(|process| process.shim.underpaid());
        seen.underpaid = seen.underpaid.max(underpaid.fold(GpuTime::ZERO, GpuTime::saturating_add));
        let entitled = (seen.entitled / 1000) as i128 + i128::from(slice.given.nanos());
        let beyond = i128::from(world.used(at)) - entitled;
        seen.least = seen.least.min(beyond);
        let longest = own().map(|process| process.program.longest()).max().unwrap_or_default();
        let several = own().filter(|process| process.program.streams > 1);
        let beside = several.map(|process| process.program.longest() + TOGETHER);
        let beside = beside.fold(GpuTime::ZERO, GpuTime::saturating_add);
        let leases = own().count() as u64 * lease::turn(slice.rate_limit);
        let debt = longest + beside + seen.burst + seen.underpaid + leases;
        let bound = debt.nanos() + (STEP + self.jumped).nanos() + world.used(at) / 100;
        if world.slices[at].is_replayed || beyond - self.slices[at].least <= i128::from(bound) {
            return Ok(());
        }
        let beyond = beyond - self.slices[at].least;
        Err(format!("slice {at} used {beyond} beyond its share, physics allows {bound}"))
    }
}
