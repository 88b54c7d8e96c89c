//! Property tests of the compute ledger: it answers as a simple model does, after calls, deaths and changes of the rate
//! limit.

use gpuslice_policy::compute::limiter::fair_queue::{self, Ask};
use gpuslice_policy::compute::limiter::overdraft;
use gpuslice_policy::compute::limiter::refund;
use gpuslice_policy::compute::limiter::token_bucket::{self, MOST_DEBT, RateLimit};
use gpuslice_policy::time::{GpuTime, GpuTimeChange, Monotonic};
use gpuslice_policy::units::Permille;
use proptest::prelude::*;

use super::{CASES, NOW, SLOTS, World};
use crate::{
    compute::reclaim::TimeUsed,
    layout::compute_words::{UNPREDICTED, WORK_UNDER_WAY},
    slots::identity::Identity,
};
use gpuslice_policy::time::literals::ns;

const DEVICE: usize = 1;
const MS: u64 = 1_000_000;

#[derive(Clone, Debug)]
enum Step {
    Pass(u64),
    Join(usize),
    Die(usize),
    Reap,
    Take(usize, u64),
    Owe(usize, u64),
    StopAsking(usize),
    Settle(i64),
    Settled(usize, u64),
    RateLimit(u32, u64),
    Count(usize, u64),
}

fn step() -> impl Strategy<Value = Step> {
    let span = || prop_oneof![0..20 * MS, 0..2000 * MS, any::<u64>()];
    prop_oneof![
        6 => (0..30 * MS).prop_map(Step::Pass),
        1 => (0..SLOTS).prop_map(Step::Join),
        1 => (0..SLOTS).prop_map(Step::Die),
        1 => Just(Step::Reap),
        8 => (0..SLOTS, 1..30 * MS).prop_map(|(slot, amount)| Step::Take(slot, amount)),
        2 => (0..SLOTS, 1..30 * MS).prop_map(|(slot, amount)| Step::Owe(slot, amount)),
        1 => (0..SLOTS).prop_map(Step::StopAsking),
        3 => prop_oneof![-20_000_000..20_000_000_i64, any::<i64>()].prop_map(Step::Settle),
        3 => (0..SLOTS, span()).prop_map(|(slot, prepaid)| Step::Settled(slot, prepaid)),
        1 => (0..1200_u32, span()).prop_map(|(permille, burst)| Step::RateLimit(permille, burst)),
        2 => (0..SLOTS, 0..30 * MS).prop_map(|(slot, time)| Step::Count(slot, time)),
    ]
}

/// The expected words: the slice of `policy/tests/compute`, and deaths.
struct Model {
    rate_limit: RateLimit,
    paid_until: Monotonic,
    free_from: Monotonic,
    overdrawn_until: Monotonic,
    virtual_time: GpuTime,
    now: Monotonic,
    asks: [Ask; SLOTS],
    looks: [Monotonic; SLOTS],
    outstanding: [GpuTime; SLOTS],
    settled_at: [Monotonic; SLOTS],
    taken: [bool; SLOTS],
    used: GpuTime,
}

impl Model {
    fn take(&mut self, me: usize, amount: GpuTime) -> Result<(), Monotonic> {
        if self.asks[me].requested.is_zero() {
            let served = self.asks[me].virtual_service;
            self.asks[me].virtual_service =
                fair_queue::start(served, self.virtual_time, self.rate_limit, self.seen());
        }
        self.asks[me].requested = amount;
        let served = self.asks[me].virtual_service;
        let before = fair_queue::before(me, served, self.seen());
        let free_since = token_bucket::free_since(self.paid_until, self.free_from, self.now);
        if let Some(until) = fair_queue::wait(free_since, before, self.now, self.rate_limit) {
            self.looks[me] = until;
            return Err(until);
        }
        self.looks[me] = ns(0);
        self.set_paid_until(token_bucket::prepay(self.paid_until, self.now, amount, self.rate_limit));
        self.virtual_time = self.virtual_time.max(served);
        self.asks[me] = Ask { virtual_service: served + amount, requested: GpuTime::ZERO };
        self.outstanding[me] += amount;
        Ok(())
    }

    /// Returns the requests of all processes, as each of them sees them.
    fn seen(&self) -> impl Iterator<Item = Ask> + Clone {
        let now = self.now;
        self.asks.into_iter().zip(self.looks).map(move |(ask, looks)| ask.of_one_that(looks, now))
    }

    fn reap(&mut self, lives: [bool; SLOTS]) {
        for slot in (0..SLOTS).filter(|slot| !lives[*slot]) {
            if !core::mem::replace(&mut self.taken[slot], false) {
                continue;
            }
            (self.asks[slot], self.looks[slot]) = (Ask::default(), Monotonic::BEGIN);
            let outstanding = core::mem::take(&mut self.outstanding[slot]).min(MOST_DEBT);
            let rest = refund::on_death(outstanding, refund::Work::None, self.settled_at[slot], self.now);
            if rest.is_refund() {
                self.settle(rest);
            }
        }
    }

    fn set_paid_until(&mut self, paid_until: Monotonic) {
        self.paid_until = paid_until;
        self.free_from = token_bucket::free_from(self.free_from, paid_until, self.now);
    }

    fn settle(&mut self, difference: GpuTimeChange) {
        self.set_paid_until(token_bucket::settle(self.paid_until, self.now, difference, self.rate_limit));
    }
}

fn rate_limit(permille: u32, burst: u64) -> RateLimit {
    let rate = Permille::new(u16::try_from(permille.clamp(1, 1000)).unwrap()).unwrap();
    RateLimit::new(rate, MOST_DEBT.min(ns(burst)))
}

fn start() -> (World, Model) {
    let world = World::new(0);
    let entry = &world.layout.devices[DEVICE];
    entry.cores_permille.set(500);
    entry.burst.set(ns(20 * MS));
    let model = Model {
        rate_limit: rate_limit(500, 20 * MS),
        paid_until: Monotonic::BEGIN,
        free_from: Monotonic::BEGIN,
        overdrawn_until: Monotonic::BEGIN,
        virtual_time: GpuTime::ZERO,
        now: NOW,
        asks: [Ask::default(); SLOTS],
        looks: [Monotonic::BEGIN; SLOTS],
        outstanding: [GpuTime::ZERO; SLOTS],
        settled_at: [Monotonic::BEGIN; SLOTS],
        taken: [false; SLOTS],
        used: GpuTime::ZERO,
    };
    (world, model)
}

/// Performs one step in the region and in the model.
fn play(world: &World, model: &mut Model, step: Step) -> Result<(), TestCaseError> {
    let (layout, now) = (&world.layout, model.now);
    let lives = *world.lives.borrow();
    match step {
        Step::Pass(time) => model.now += ns(time),
        Step::Join(slot) if !lives[slot] => {
            layout.reap_locked(world, now).unwrap();
            model.reap(lives);
            world.lives.borrow_mut()[slot] = true;
            layout.claim_slot(slot, Identity::default());
            model.taken[slot] = true;
            (model.asks[slot], model.looks[slot], model.settled_at[slot]) =
                (Ask::default(), Monotonic::BEGIN, Monotonic::BEGIN);
        }
        Step::Die(slot) => world.lives.borrow_mut()[slot] = false,
        Step::Reap => {
            layout.reap_locked(world, now).unwrap();
            model.reap(lives);
        }
        Step::Take(slot, amount) if lives[slot] => {
            let amount = ns(amount);
            prop_assert_eq!(layout.take_time(DEVICE, slot, amount, (now, now)), model.take(slot, amount));
        }
        Step::Owe(slot, amount) if lives[slot] => {
            let amount = ns(amount);
            let paid = overdraft::admit(model.overdrawn_until, now, amount, model.rate_limit);
            prop_assert_eq!(layout.overdraw(DEVICE, slot, amount, now), paid.is_some());
            if let Some(until) = paid {
                model.overdrawn_until = until;
                model.settle(GpuTimeChange::charge(amount));
                model.asks[slot].virtual_service += amount;
                model.outstanding[slot] += amount;
            }
        }
        Step::StopAsking(slot) if lives[slot] => {
            layout.withdraw_request(DEVICE, slot);
            (model.asks[slot].requested, model.looks[slot]) = (GpuTime::ZERO, Monotonic::BEGIN);
        }
        Step::Settle(difference) => {
            let difference = GpuTimeChange::from_nanos(difference);
            layout.settle_time(DEVICE, difference, now);
            model.settle(difference);
        }
        Step::Settled(slot, prepaid) if lives[slot] => {
            let (process, prepaid) = (&layout.time[DEVICE].processes[slot], ns(prepaid));
            process.unsettled_ns.change(|outstanding| outstanding.saturating_sub(prepaid));
            process.settled_at.set(now);
            model.outstanding[slot] = model.outstanding[slot].saturating_sub(prepaid);
            model.settled_at[slot] = now;
        }
        Step::RateLimit(permille, burst) => {
            let new = rate_limit(permille, burst);
            layout.devices[DEVICE].cores_permille.set(permille);
            layout.devices[DEVICE].burst.set(ns(burst));
            layout.change_rate_limit(DEVICE, (model.rate_limit, new), || now);
            if new != model.rate_limit {
                model.set_paid_until(token_bucket::change(model.paid_until, now, model.rate_limit, new));
            }
            model.rate_limit = new;
        }
        Step::Count(slot, time) if lives[slot] => {
            let time = ns(time);
            layout.time[DEVICE].processes[slot].counts.charged_ns.add(time);
            model.used += time;
        }
        _ => {}
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(CASES) })]

    #[test]
    fn any_sequence_of_payments_deaths_and_changes_of_the_rate_limit_is_answered_as_the_model_answers(
        steps in proptest::collection::vec(step(), 1..80)
    ) {
        let (world, mut model) = start();
        for step in steps {
            play(&world, &mut model, step)?;
            let layout = &world.layout;
            prop_assert_eq!(layout.time[DEVICE].paid.0.until.get(), model.paid_until);
            prop_assert_eq!(layout.rate_limit(DEVICE), model.rate_limit);
            // Words of one device do not change those of another.
            prop_assert_eq!(layout.time_used(0), TimeUsed::default());
            prop_assert_eq!(layout.time_used(DEVICE).used, model.used);
            for slot in 0..SLOTS {
                let process = &layout.time[DEVICE].processes[slot];
                prop_assert_eq!(process.unsettled_ns.get(), model.outstanding[slot]);
                let ask = Ask { virtual_service: process.virtual_service.get(), requested: process.requested_ns.get() };
                prop_assert!(!model.taken[slot] || ask == model.asks[slot], "{:?} for {:?}", ask, model.asks[slot]);
            }
            prop_assert_eq!(layout.time[DEVICE].virtual_time.0.get(), model.virtual_time);
        }
    }
}

#[test]
fn the_death_of_a_process_with_an_old_launch_leaves_the_debt_of_the_slice() {
    let (world, _) = start();
    let (layout, process) = (&world.layout, &world.layout.time[DEVICE].processes[0]);
    layout.claim_slot(0, Identity::default());
    // The launch has run for longer than the slice takes to pay the largest debt.
    process.settled_at.set(NOW - ns(300_000 * MS));
    process.queued_ns.set(UNPREDICTED | WORK_UNDER_WAY);
    layout.time[DEVICE].paid.0.until.set(NOW + ns(1000 * MS));
    layout.reap_locked(&world, NOW).unwrap();
    // The launch is charged 50 ms: 100 ms of wall time.
    assert_eq!(layout.time[DEVICE].paid.0.until.get(), NOW + ns(1100 * MS));
    assert_eq!(layout.time_used(DEVICE).used, ns(50 * MS));
}
