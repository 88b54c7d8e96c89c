//! What must hold at every step, whatever happens?

use gpuslice_policy::compute::{lease, turn};

use crate::slice::Slice;
use crate::world::World;

/// What was seen of a slice.
#[derive(Debug, Clone)]
struct Seen {
    paid: i128,
    measured: u128,
    /// What it was entitled to since the start, in thousandths of nanoseconds.
    entitled: u128,
    /// The least of what it used beyond that.
    least: i128,
    burst: u64,
    underpaid: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Waiter {
    /// Since when it waits although the slice's time is not owed.
    due: Option<u64>,
    since: Option<u64>,
    /// What others had been served when it began to wait.
    others: u64,
    stopped_until: u64,
}

#[derive(Debug, Default)]
pub struct Watch {
    now: u64,
    slices: Vec<Seen>,
    waiters: Vec<Waiter>,
    /// Time that was taken for work: running work is charged by a clock that jumped until it has ended, a launch that is
    /// stopped inside the driver keeps its run open.
    jumped: u64,
    /// Whether nobody looks: where estimates are wrong on purpose, and where nothing measures a launch.
    pub is_off: bool,
    /// The longest that anybody waited beyond what was owed.
    pub longest: u64,
}

/// Nobody waits longer than this beyond what is owed, his own lateness aside.
const PATIENCE: u64 = 1_000_000;
/// What may pass between two steps unseen.
const STEP: u64 = 100_000;

impl Watch {
    pub fn new(slices: &[Slice], now: u64, is_off: bool) -> Self {
        let seen = Seen { paid: 0, measured: 0, entitled: 0, least: 0, burst: 0, underpaid: 0 };
        let waiters = vec![Waiter::default(); slices.first().map_or(0, |slice| slice.asks.len())];
        Self { now, slices: vec![seen; slices.len()], waiters, jumped: 0, is_off, longest: 0 }
    }

    pub fn jumped(&mut self, by: u64) {
        self.jumped += by;
        self.waiters.iter_mut().for_each(|waiter| waiter.stopped_until += by);
    }

    pub fn stopped(&mut self, me: usize, until: u64) {
        self.jumped += until - self.now;
        let waiter = &mut self.waiters[me];
        waiter.stopped_until = waiter.stopped_until.max(until);
    }

    pub fn look(&mut self, world: &World) -> Result<(), String> {
        let passed = world.now - self.now;
        self.now = world.now;
        if !world.limited || self.is_off {
            return Ok(());
        }
        for at in 0..world.slices.len() {
            self.settled_is_measured(at, world)?;
            self.physics(at, passed, world)?;
            self.measured_is_true(at, world)?;
        }
        for me in 0..world.processes.len() {
            self.nobody_waits_for_nothing(me, world)?;
            self.nobody_starves(me, world)?;
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
        let accounted = (slice.measured + under_way) as i128 + slice.lost;
        if accounted == slice.paid {
            return Ok(());
        }
        Err(format!("slice {at} has paid {} and accounts for {accounted}", slice.paid))
    }

    /// What was measured is what ran, where the slice has the GPU to itself. 3 % and a millisecond are left to events; the
    /// GPU's way from process to process, and time inside the driver for kernels that are shorter than their launch,
    /// cannot be told from work.
    fn measured_is_true(&self, at: usize, world: &World) -> Result<(), String> {
        let own = || world.processes.iter().filter(|process| process.slice == at);
        if world.slices.len() > 1 || world.machine.lies > 0 || own().any(|process| !process.is_alive()) {
            return Ok(());
        }
        let (measured, used) = (world.slices[at].measured as u64, world.used(at));
        let under_way = own().map(|process| process.shim.under_way()).sum::<u64>();
        let inside = own().map(|process| process.shim.launches * world.machine.launch).sum::<u64>();
        let error = used / 33 + 1_000_000 * own().count() as u64 + world.gpu.switching + self.jumped + inside;
        if measured <= used + error && used <= measured + under_way + error {
            return Ok(());
        }
        Err(format!("slice {at} measured {measured} of {used}, with {under_way} under way"))
    }

    /// Of any time that passes no more is used than the share, the burst, one launch, leases, what estimates lack, and a
    /// hundredth for measurements.
    fn physics(&mut self, at: usize, passed: u64, world: &World) -> Result<(), String> {
        let (slice, seen) = (&world.slices[at], &mut self.slices[at]);
        let own = || world.processes.iter().filter(|process| process.slice == at);
        seen.entitled += u128::from(passed) * u128::from(slice.terms.rate().get());
        seen.burst = seen.burst.max(slice.terms.burst());
        seen.underpaid = seen.underpaid.max(own().map(|process| process.shim.underpaid()).sum());
        let beyond = i128::from(world.used(at)) - (seen.entitled / 1000) as i128;
        seen.least = seen.least.min(beyond);
        let longest = own().map(|process| process.program.longest()).max().unwrap_or(0);
        let leases = own().count() as u64 * lease::turn(slice.terms);
        let bound =
            longest + seen.burst + seen.underpaid + leases + STEP + world.used(at) / 100 + self.jumped;
        let is_trimmed = world.machine.nvml.is_some() && (world.slices.len() > 1 || world.machine.lies > 0);
        if is_trimmed || beyond - seen.least <= i128::from(bound) {
            return Ok(());
        }
        Err(format!("slice {at} used {} beyond its share, physics allows {bound}", beyond - seen.least))
    }

    fn nobody_waits_for_nothing(&mut self, me: usize, world: &World) -> Result<(), String> {
        let (process, waiter) = (&world.processes[me], &mut self.waiters[me]);
        let slice = &world.slices[process.slice];
        let is_due = process.waits_for_word().is_some()
            && slice.paid_until <= world.now
            && world.now > waiter.stopped_until + world.machine.late;
        if !is_due {
            waiter.due = None;
            return Ok(());
        }
        let waited = world.now - *waiter.due.get_or_insert(world.now);
        self.longest = self.longest.max(waited);
        if waited <= PATIENCE + world.machine.late {
            return Ok(());
        }
        Err(format!("process {me} waits {waited} ns although nothing is owed"))
    }

    fn nobody_starves(&mut self, me: usize, world: &World) -> Result<(), String> {
        let (process, waiter) = (&world.processes[me], &mut self.waiters[me]);
        let slice = &world.slices[process.slice];
        let others = slice.taken.iter().sum::<u64>() - slice.taken[me];
        let since =
            process.waits_for_word().filter(|_| world.now > waiter.stopped_until + world.machine.late);
        if since.is_none() || waiter.since != since {
            (waiter.since, waiter.others) = (since, others);
            return Ok(());
        }
        let siblings = world.processes.iter().filter(|other| other.slice == process.slice);
        let most: u64 = siblings.map(|other| turn::LAG + 3 * other.program.longest() + 2_000_000).sum();
        let passed_over = others - waiter.others;
        if passed_over <= most {
            return Ok(());
        }
        Err(format!("process {me} was passed over by {passed_over} ns of others"))
    }
}
