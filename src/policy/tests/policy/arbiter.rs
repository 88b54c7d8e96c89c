//! Properties of every division of a GPU, with random claims and figures.

use gpuslice_policy::arbiter::allocate::{AllocatedPart, Claim, WHOLE_GPU, allocate};
use gpuslice_policy::arbiter::demand::SliceFigures as Figures;
use gpuslice_policy::arbiter::{Arbiter, Grant, SharingSlice, SliceSettings};
use gpuslice_policy::config::{CorePolicy, Priority};
use gpuslice_policy::time::literals::{ms, ns, us};
use gpuslice_policy::time::{GpuTime, WallTime};
use gpuslice_policy::units::Permille;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// Nanoseconds between two looks of the arbiter.
const STEP: u64 = gpuslice_policy::arbiter::ARBITER_STEP.nanos();

fn policies() -> impl Strategy<Value = CorePolicy> {
    select(vec![CorePolicy::Fixed, CorePolicy::Equal, CorePolicy::BestEffort])
}

fn priorities() -> impl Strategy<Value = Priority> {
    select(vec![Priority::High, Priority::Normal, Priority::Low])
}

fn claims() -> impl Strategy<Value = Claim> {
    let demand = prop_oneof![Just(0), Just(WHOLE_GPU), 0..WHOLE_GPU];
    let limit = prop_oneof![Just(WHOLE_GPU), 1_000..=WHOLE_GPU];
    (policies(), priorities(), 1_u32..=1000, limit, demand, any::<bool>()).prop_map(
        |(policy, priority, weight, limit, demand, has_enough)| Claim {
            policy,
            priority,
            weight,
            limit,
            demand,
            has_enough,
        },
    )
}

fn equal(weight: u32, demand: u64) -> Claim {
    let (policy, priority) = (CorePolicy::Equal, Priority::Normal);
    Claim { policy, priority, weight, limit: WHOLE_GPU, demand, has_enough: false }
}

fn allotted(claims: &[Claim]) -> Vec<u64> {
    allocate(claims).iter().map(|part| part.allotted).collect()
}

fn demand(claim: &Claim) -> u64 {
    claim.demand.min(claim.limit)
}

fn wanted(policy: CorePolicy, limit: u16, priority: Priority) -> SliceSettings {
    let limit = Permille::new(limit).unwrap();
    SliceSettings { policy, limit, weight: 100, priority, burst: GpuTime::from_millis(20) }
}

#[test]
fn equal_slices_divide_by_weight_and_unneeded_time_goes_to_the_others() {
    assert_eq!(allotted(&[equal(100, WHOLE_GPU), equal(300, WHOLE_GPU)]), [WHOLE_GPU / 4, WHOLE_GPU * 3 / 4]);
    assert_eq!(
        allotted(&[equal(100, WHOLE_GPU), equal(300, WHOLE_GPU / 10)]),
        [WHOLE_GPU * 9 / 10, WHOLE_GPU / 10]
    );
    let three = [equal(1, WHOLE_GPU), equal(1, WHOLE_GPU), equal(2, WHOLE_GPU / 5)];
    assert_eq!(allotted(&three), [WHOLE_GPU * 2 / 5, WHOLE_GPU * 2 / 5, WHOLE_GPU / 5]);
}

#[test]
fn an_idle_slice_could_have_its_part_at_once() {
    let parts = allocate(&[equal(100, 0), equal(300, WHOLE_GPU)]);
    assert_eq!(parts[0], AllocatedPart { allotted: 0, could: WHOLE_GPU / 4 });
    assert_eq!(parts[1], AllocatedPart { allotted: WHOLE_GPU, could: WHOLE_GPU });
}

#[test]
fn fixed_comes_before_equal_and_best_effort_after_all() {
    let fixed = Claim { policy: CorePolicy::Fixed, limit: WHOLE_GPU * 3 / 10, ..equal(1, WHOLE_GPU) };
    let rest = Claim { policy: CorePolicy::BestEffort, priority: Priority::High, ..equal(1000, WHOLE_GPU) };
    assert_eq!(
        allotted(&[rest, equal(1, WHOLE_GPU), fixed]),
        [WHOLE_GPU / 30, WHOLE_GPU * 7 / 10 - WHOLE_GPU / 30, WHOLE_GPU * 3 / 10]
    );
    assert_eq!(allotted(&[rest, equal(1, 0), fixed])[0], WHOLE_GPU * 7 / 10);
}

#[test]
fn low_has_its_least_beside_high() {
    let high = Claim { priority: Priority::High, ..equal(1000, WHOLE_GPU) };
    let low = Claim { priority: Priority::Low, ..equal(1, WHOLE_GPU) };
    assert_eq!(allotted(&[high, low]), [WHOLE_GPU * 19 / 20, WHOLE_GPU / 20]);
    assert_eq!(
        allotted(&[high, Claim { demand: WHOLE_GPU / 100, ..low }]),
        [WHOLE_GPU * 99 / 100, WHOLE_GPU / 100]
    );
    assert_eq!(allotted(&[high, Claim { demand: 0, ..low }]), [WHOLE_GPU, 0]);
    assert_eq!(allotted(&[high, Claim { has_enough: true, ..low }]), [WHOLE_GPU, 0]);
    let half = Claim { demand: WHOLE_GPU / 2, ..high };
    assert_eq!(allotted(&[half, Claim { has_enough: true, ..low }]), [WHOLE_GPU / 2, WHOLE_GPU / 2]);
}

proptest! {
    #[test]
    fn all_of_the_gpu_is_given_while_somebody_needs_it_and_no_more(claims in vec(claims(), 0..20)) {
        let got = allotted(&claims);
        let needed: u64 = claims.iter().map(demand).sum();
        let sum: u64 = got.iter().sum();
        // Rounding loses a millionth for each slice.
        prop_assert!(sum <= WHOLE_GPU && sum + claims.len() as u64 >= needed.min(WHOLE_GPU), "{sum} of {needed}");
    }

    #[test]
    fn no_slice_gets_more_than_it_needs_or_may_have(claims in vec(claims(), 1..20)) {
        for (claim, part) in claims.iter().zip(allocate(&claims)) {
            prop_assert!(part.allotted <= demand(claim));
            prop_assert!(part.could <= claim.limit && part.could >= part.allotted);
        }
    }

    #[test]
    fn no_slice_starves(claims in vec(claims(), 1..20)) {
        let least = WHOLE_GPU / 10 / claims.len() as u64;
        for (claim, part) in claims.iter().zip(allocate(&claims)) {
            let kept = demand(claim).min(least);
            let is_fed = part.allotted >= kept && part.could > 0;
            prop_assert!(is_fed || claim.has_enough, "{claim:?} {part:?}");
        }
    }

    #[test]
    fn the_order_of_slices_does_not_matter(claims in vec(claims(), 1..12), by in 0_usize..12) {
        let mut turned = claims.clone();
        turned.rotate_left(by % claims.len());
        let mut parts = allocate(&claims);
        parts.rotate_left(by % claims.len());
        for (one, other) in parts.iter().zip(allocate(&turned)) {
            // Rounding loses a millionth for each slice.
            prop_assert!(one.allotted.abs_diff(other.allotted) <= 12 && one.could.abs_diff(other.could) <= 12);
        }
    }

    #[test]
    fn more_weight_or_need_or_priority_is_never_less_time(
        claims in vec(claims(), 1..12), weight in 1_u32..=1000, more in 0..WHOLE_GPU,
    ) {
        let before = allocate(&claims)[0];
        let mut heavier = claims.clone();
        heavier[0].weight = heavier[0].weight.max(weight);
        prop_assert!(allocate(&heavier)[0].allotted + 12 >= before.allotted);
        let mut hungrier = claims.clone();
        hungrier[0].demand = (hungrier[0].demand + more).min(WHOLE_GPU);
        prop_assert!(allocate(&hungrier)[0].allotted + 12 >= before.allotted);
        let mut higher = claims.clone();
        higher[0].priority = Priority::High;
        prop_assert!(allocate(&higher)[0].allotted + 12 >= before.allotted);
    }

    #[test]
    fn a_slice_that_needs_more_takes_from_others_and_gives_to_none(claims in vec(claims(), 2..12), more in 0..WHOLE_GPU) {
        let before = allotted(&claims);
        let mut hungrier = claims.clone();
        hungrier[0].demand = (hungrier[0].demand + more).min(WHOLE_GPU);
        for (at, got) in allotted(&hungrier).iter().enumerate().skip(1) {
            prop_assert!(*got <= before[at] + 12, "{at}: {got} of {}", before[at]);
        }
    }

    #[test]
    fn equal_needs_are_met_in_the_ratio_of_weights(weights in vec(100_u32..=900, 1..17)) {
        let claims: Vec<Claim> = weights.iter().map(|weight| equal(*weight, WHOLE_GPU)).collect();
        let sum: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
        for (got, weight) in allotted(&claims).iter().zip(weights) {
            prop_assert!(got.abs_diff(WHOLE_GPU * u64::from(weight) / sum) <= 17);
        }
    }

    #[test]
    fn whatever_regions_tell_a_cap_holds_and_everybody_has_a_rate(
        looks in vec(
            (any::<u64>(), vec((0_u64..4, policies(), priorities(), any::<u32>(), 0_u16..=1000, any::<[u64; 5]>(), any::<bool>()), 0..8)),
            1..20,
        ),
    ) {
        let (mut arbiter, mut twin) = (Arbiter::default(), Arbiter::default());
        for (now, slices) in looks {
            let slices: Vec<SharingSlice> = slices.into_iter().map(|(id, policy, priority, weight, limit, words, waits)| {
                let [used, throttled, queued, owed, burst] = words;
                let limit = Permille::new(limit).unwrap();
                let settings = SliceSettings { policy, limit, weight, priority, burst: GpuTime::from_nanos(burst) };
                SharingSlice { id, settings, figures: Figures { used: ns(used), throttled: ns(throttled), queued: ns(queued), owed: ns(owed), waits } }
            }).collect();
            let given = arbiter.look(ns(now), &slices);
            prop_assert_eq!(&given, &twin.look(ns(now), &slices), "the same looks give the same answers");
            prop_assert_eq!(given.len(), slices.len());
            for (slice, given) in slices.iter().zip(given) {
                let rate = given.rate_limit.rate().get();
                prop_assert!(rate >= 1 && rate <= slice.settings.limit.get().max(1));
                prop_assert!(given.rate_limit.burst() <= slice.settings.burst && given.wall_credit <= slice.figures.owed);
                prop_assert!(slice.settings.policy != CorePolicy::Fixed || given.wall_credit == ns(0));
            }
        }
    }

    #[test]
    fn wall_credits_never_lift_a_slice_over_its_limit(limit in 10_u16..1000, owed in 0..1_000_000_000_u64, passed in 0..20_000_000_u64) {
        let mut arbiter = Arbiter::default();
        let slices = [0, 1].map(|id| {
            let limit = if id == 0 { limit } else { 1000 };
            let figures = Figures { owed: ns(owed), waits: true, ..Figures::default() };
            SharingSlice { id, settings: wanted(CorePolicy::Equal, limit, Priority::Normal), figures }
        });
        let first = arbiter.look(ns(1 << 40), &slices)[0];
        prop_assert!(first.rate_limit.gpu(first.wall_credit) <= ns(4 * STEP * u64::from(limit) / 1000));
        let given = arbiter.look(ns((1 << 40) + passed), &slices)[0];
        // GPU time of the rate and of the wall credit together.
        let gpu = given.rate_limit.gpu(ns::<WallTime>(passed) + given.wall_credit);
        prop_assert!(gpu <= ns(passed * u64::from(limit) / 1000 + 1), "{given:?}");
    }
}

#[test]
fn fixed_alone_is_left_as_it_is() {
    let mut arbiter = Arbiter::default();
    for look in 0..500_u64 {
        let slices = [(0, 300), (1, 600), (2, 100)].map(|(id, limit)| SharingSlice {
            id,
            settings: wanted(CorePolicy::Fixed, limit, Priority::Normal),
            figures: Figures {
                used: ns(look * 300_000),
                queued: ms(30),
                waits: look % 3 != id,
                ..Figures::default()
            },
        });
        for (slice, given) in slices.iter().zip(arbiter.look(ns((1 << 40) + look * STEP), &slices)) {
            assert_eq!((given.rate_limit.rate(), given.wall_credit), (slice.settings.limit, ns(0)));
            assert_eq!(given.rate_limit.burst(), ms(20));
        }
    }
}

#[test]
fn fixed_keeps_its_limit_where_less_than_the_gpu_is_divided() {
    let mut arbiter = Arbiter::default();
    let mut given = Vec::new();
    for look in 0..1000 {
        let slices =
            [(0, CorePolicy::Fixed, 300), (1, CorePolicy::Equal, 1000), (2, CorePolicy::Equal, 1000)].map(
                |(id, policy, limit)| {
                    // The queues do not become empty: the GPU gives less than the rates.
                    let figures = Figures {
                        used: ns(look * STEP / 5),
                        queued: ms(10),
                        waits: true,
                        ..Figures::default()
                    };
                    SharingSlice { id, settings: wanted(policy, limit, Priority::Normal), figures }
                },
            );
        given = arbiter.look(ns((1 << 40) + look * STEP), &slices);
    }
    assert_eq!(given[0].rate_limit.rate().get(), 300);
    assert!(given[1].rate_limit.rate().get() < 300, "{given:?}");
}

/// Looks `looks` times at two slices, and returns the result. The first slice has this policy and priority. `figures`
/// returns the figures of a slice at a look.
fn looked_at(looks: u64, first: (CorePolicy, Priority), figures: impl Fn(u64, u64) -> Figures) -> Vec<Grant> {
    let mut arbiter = Arbiter::default();
    let mut look = |at: u64| {
        let slices = [0, 1].map(|id| {
            let (policy, priority) = if id == 0 { first } else { (CorePolicy::Equal, Priority::Normal) };
            SharingSlice { id, settings: wanted(policy, 1000, priority), figures: figures(id, at) }
        });
        arbiter.look(ns((1 << 40) + at * STEP), &slices)
    };
    (0..looks).map(&mut look).last().unwrap()
}

const EQUAL: (CorePolicy, Priority) = (CorePolicy::Equal, Priority::Normal);
const HIGH: (CorePolicy, Priority) = (CorePolicy::Equal, Priority::High);

#[test]
fn a_borrower_saves_up_a_turn_and_other_slices_save_their_burst() {
    let borrows = |id, look| Figures { used: ns((1 - id) * look * STEP), ..Figures::default() };
    let given = looked_at(2000, EQUAL, borrows);
    assert_eq!([given[0].rate_limit.burst(), given[1].rate_limit.burst()], [ms(4), ms(20)]);
}

#[test]
fn others_queue_and_save_up_little_beside_high_priority_busy_or_not() {
    let used = |id: u64, look: u64| Figures { used: ns((1 - id) * look * STEP / 10), ..Figures::default() };
    let idle = |_: u64, _: u64| Figures::default();
    for high in [looked_at(200, HIGH, used), looked_at(200, HIGH, idle)] {
        assert_eq!([high[0].queue_bound, high[1].queue_bound], [ms(50), ms(3)]);
        assert_eq!([high[0].rate_limit.burst(), high[1].rate_limit.burst()], [ms(20), ms(1)]);
    }
    let last = looked_at(200, (CorePolicy::BestEffort, Priority::High), used);
    assert_eq!(last[1].queue_bound, ms(50), "best-effort is last, whatever its priority");
    let equal = looked_at(200, EQUAL, used);
    assert_eq!([equal[1].queue_bound, equal[1].rate_limit.burst()], [ms(50), ms(20)]);
}

#[test]
fn no_slice_goes_early_while_work_of_high_priority_is_queued() {
    // The last tenth of a millisecond of a request is left, and another slice waits.
    let ending = |queued: GpuTime| {
        move |id: u64, _: u64| match id {
            0 => Figures { queued, ..Figures::default() },
            _ => Figures { owed: ms(3), waits: true, ..Figures::default() },
        }
    };
    assert_eq!(looked_at(50, HIGH, ending(us(100)))[1].wall_credit, ns(0));
    assert_eq!(looked_at(50, HIGH, ending(ns(0)))[1].wall_credit, ms(3));
    assert_eq!(looked_at(50, EQUAL, ending(us(100)))[1].wall_credit, ms(3));
    // A slice does not yield to itself.
    let waits =
        |id: u64, _: u64| Figures { queued: us(100), owed: ms(3 + id), waits: true, ..Figures::default() };
    let given = looked_at(50, HIGH, waits);
    assert_eq!([given[0].wall_credit, given[1].wall_credit], [ms(3), ns(0)]);
}

#[test]
fn words_are_set_back_alike_where_the_gpu_would_be_idle_and_only_there() {
    let waiting = |queued: u64| {
        move |id: u64, _: u64| Figures {
            owed: ms(3 + id),
            waits: true,
            queued: ns(queued),
            ..Figures::default()
        }
    };
    assert!(looked_at(50, EQUAL, waiting(0)).iter().all(|given| given.wall_credit == ms(3)));
    assert!(looked_at(50, EQUAL, waiting(STEP)).iter().all(|given| given.wall_credit == ns(0)));
    let without_waits = looked_at(50, EQUAL, |id, _| Figures { owed: ms(3 + id), ..Figures::default() });
    assert!(without_waits.iter().all(|given| given.wall_credit == ns(0)), "no slice waits");
}

#[test]
fn high_priority_takes_the_gpu_at_the_look_that_finds_it_busy_and_leaves_it_at_the_one_that_does_not() {
    let figures = |last: u64| {
        move |id: u64, look: u64| Figures {
            used: if id == 0 { ns(look * STEP / 2) } else { ns(0) },
            waits: id == 1,
            queued: if id == 0 && look == last { us(500) } else { ms(6 * id) },
            ..Figures::default()
        }
    };
    assert_eq!(looked_at(100, HIGH, figures(99))[1].rate_limit.rate().get(), 50);
    assert!(looked_at(100, HIGH, figures(98))[1].rate_limit.rate().get() > 950);
}

#[test]
fn the_part_kept_beside_high_priority_is_for_slices_that_have_not_had_far_more() {
    // The other slice has the whole GPU for 200 ms, and nothing from then on.
    let rate = |looks: u64| {
        let figures = |id: u64, look: u64| match id {
            0 if look < 200 => Figures::default(),
            0 => Figures { used: ns((look - 200) * STEP), queued: ms(6), ..Figures::default() },
            _ => Figures { used: ns(look.min(200) * STEP), waits: true, ..Figures::default() },
        };
        looked_at(looks, HIGH, figures)[1].rate_limit.rate().get()
    };
    assert_eq!([rate(201), rate(400), rate(402), rate(1000)], [1, 1, 50, 50]);
    assert!(rate(200) > 950);
}

#[test]
fn a_slice_that_waits_because_of_others_needs_is_no_sign_of_an_idle_gpu() {
    let figures = |id: u64, look: u64| {
        let is_high = id == 0;
        // The other slice gets no more than its kept part.
        let (phase, used) = (look % 20, look * STEP / if is_high { 2 } else { 25 });
        match (is_high, phase) {
            (true, 0..10) => Figures { used: ns(used), queued: ms(6), ..Figures::default() },
            // At the first look that finds the other slice idle, this slice still waits.
            (false, 0..=10) => Figures { used: ns(used), waits: true, ..Figures::default() },
            (false, _) => Figures { used: ns(used), queued: ms(3), ..Figures::default() },
            (true, _) => Figures { used: ns(used), ..Figures::default() },
        }
    };
    let given = looked_at(2006, (CorePolicy::Equal, Priority::High), figures);
    assert_eq!(given[1].rate_limit.rate().get(), 50);
}

/// A slice with full demand beside a `fixed` slice whose use the test chooses.
struct Beside {
    arbiter: Arbiter,
    now: u64,
    used: u64,
}

impl Beside {
    fn rate(&mut self, limit: u16, thousandths: u64) -> u16 {
        let mut rate = 0;
        for _ in 0..100 {
            (self.now, self.used) = (self.now + STEP, self.used + STEP / 1000 * thousandths);
            let figures = Figures { used: ns(self.used), ..Figures::default() };
            let other =
                SharingSlice { id: 1, settings: wanted(CorePolicy::Fixed, 1000, Priority::Normal), figures };
            let figures = Figures { used: ns(self.used), waits: true, queued: ms(3), ..Figures::default() };
            let own =
                SharingSlice { id: 0, settings: wanted(CorePolicy::Equal, limit, Priority::Normal), figures };
            rate = self.arbiter.look(ns(self.now), &[own, other])[0].rate_limit.rate().get();
        }
        rate
    }
}

#[test]
fn a_rate_that_changes_a_little_stays_unless_it_is_over_the_limit() {
    let mut beside = Beside { arbiter: Arbiter::default(), now: 1 << 40, used: 0 };
    assert_eq!(beside.rate(1000, 300), 700);
    assert_eq!(beside.rate(1000, 303), 700);
    assert_eq!(beside.rate(1000, 350), 650);
    assert_eq!(beside.rate(1000, 356), 650);
    assert_eq!(beside.rate(647, 356), 644, "a lower limit holds at once");
}
