//! Tests of grants: the rates that an arbiter writes into a slice's region.

use std::cell::Cell;

use gpuslice_policy::arbiter::grant_word::{GRANT_LASTS, encode};
use gpuslice_policy::arbiter::{ARBITER_STEP, Arbiter, Grant};
use gpuslice_policy::compute::limiter::token_bucket::RateLimit;
use gpuslice_policy::config::{CorePolicy, Priority};
use gpuslice_policy::time::Monotonic;
use gpuslice_policy::time::literals::{ms, ns};
use gpuslice_policy::units::Permille;
use gpuslice_region::{
    Cotenant, Device, Limits, Member, Monitor, ProcessActivity, Sharing, Trust, allocate_gpu,
};

use crate::{
    puppet::{Puppet, UUID, directory, join},
    time::{now, word_of, write},
};

const LIMIT: u64 = 1000;
/// Any instant; the slice's own share is a half.
const NOW: Monotonic = Monotonic::from_nanos(1 << 50);

/// Makes a grant of `thousandths`, a burst of 20 ms, and at most `ahead` nanoseconds of queued work.
fn word(thousandths: u16, ahead: u64, now: Monotonic) -> u64 {
    let rate_limit = RateLimit::new(Permille::new(thousandths).unwrap(), ms(20));
    encode(&Grant { rate_limit, wall_credit: ns(0), queue_bound: ns(ahead) }, now)
}

/// Makes a member of a slice that owes 50 ms of GPU time: 100 ms of wall time.
fn in_debt(path: &std::path::Path, now: Monotonic) -> (Member, Device) {
    let (member, device) = join(path, LIMIT);
    assert_eq!(member.acquire(device, ms(70), now), Ok(()));
    assert_eq!(member.acquire(device, ms(1), now), Err(now + ms(100)));
    (member, device)
}

#[test]
fn a_grant_holds_until_it_is_stale_and_the_debt_stays_the_same() {
    let directory = directory();
    let (member, device) = in_debt(&directory.path().join("region"), ns(NOW.nanos()));
    member.set_grant(device, word(20, 4 << 20, ns(NOW.nanos())), || NOW);
    assert_eq!(member.rate_limit(device).rate().get(), 20);
    assert_eq!(member.own_rate_limit(device).rate().get(), 500);
    assert_eq!(member.acquire(device, ms(1), NOW), Err(NOW + ms(2500)));
    member.set_grant(device, word(250, 0, ns(NOW.nanos())), || NOW);
    assert_eq!(member.acquire(device, ms(1), NOW), Err(NOW + ms(200)));
    member.set_grant(device, word(20, 4 << 20, ns(NOW.nanos())), || NOW);
    assert_eq!(member.acquire(device, ms(1), NOW), Err(NOW + ms(2500)));
    assert_eq!(member.expire_grant(device, || NOW + GRANT_LASTS - ns(1)), Some(ns(4 << 20)));
    assert_eq!(member.rate_limit(device).rate().get(), 20);
    // The slice still owes 30 ms of GPU time then, and pays them at a half.
    assert_eq!(member.acquire(device, ms(1), NOW + GRANT_LASTS), Err(NOW + GRANT_LASTS + ms(60)));
    assert_eq!((member.grant(device), member.rate_limit(device).rate().get()), (0, 500));
    assert_eq!(member.expire_grant(device, || NOW + GRANT_LASTS), None);
}

/// The end of the time for which a process is stopped.
const LATER: Monotonic = Monotonic::from_nanos(NOW.nanos() + 10_000_000_000);

/// Calls `change` with a clock that stops a process until [`LATER`], right after the reading with the number `reading`.
/// Meanwhile another process of the slice takes 70 ms of GPU time, of which 20 ms were saved up.
fn change_while_stopped(
    (member, device): &(Member, Device),
    reading: u32,
    change: impl FnOnce(&Member, Device, &dyn Fn() -> Monotonic),
) {
    let readings = Cell::new(0);
    let clock = || {
        let read = readings.replace(readings.get() + 1);
        if read == reading {
            assert_eq!(member.acquire(*device, ms(70), LATER), Ok(()));
        }
        if read <= reading { NOW } else { LATER }
    };
    change(member, *device, &clock);
    assert!(readings.get() > reading, "the process was not stopped");
}

#[test]
fn the_time_for_which_a_process_is_stopped_in_a_change_of_the_rate_is_no_debt() {
    let directory = directory();
    let slice = |name: &str, grant: u64| {
        let (member, device) = join(&directory.path().join(name), LIMIT);
        member.set_grant(device, grant, || NOW);
        (member, device)
    };
    let next = |(member, device): &(Member, Device)| member.acquire(*device, ms(1), LATER);
    let new = word(50, 0, LATER);

    let lowered = slice("lowered", 0);
    change_while_stopped(&lowered, 0, |member, device, clock| member.set_grant(device, new, clock));
    // The debt of 50 ms is scaled from a half to a twentieth.
    assert_eq!(next(&lowered), Err(LATER + ms(1000)));

    let raised = slice("raised", word(20, 0, LATER));
    change_while_stopped(&raised, 0, |member, device, clock| member.set_grant(device, new, clock));
    // The other process pays at a twentieth. Its debt is then scaled from a fiftieth to a twentieth.
    assert_eq!(next(&raised), Err(LATER + ms(400)));

    let stale = slice("stale", word(20, 0, NOW - GRANT_LASTS));
    // The first reading shows that the grant is too old.
    change_while_stopped(&stale, 1, |member, device, clock| {
        assert_eq!(member.expire_grant(device, clock), None);
    });
    // The other process pays at a half. Its debt is then scaled from a fiftieth to a half.
    assert_eq!(next(&stale), Err(LATER + ms(4)));
}

#[test]
fn a_process_that_is_stopped_in_a_gift_gives_no_more_than_is_owed() {
    let directory = directory();
    let slice = join(&directory.path().join("region"), LIMIT);
    change_while_stopped(&slice, 0, |member, device, clock| {
        member.credit_wall_time(device, ms(5000), clock);
    });
    let (member, device) = slice;
    assert_eq!(member.acquire(device, ms(30), LATER), Ok(()));
    assert_eq!(member.acquire(device, ms(1), LATER), Err(LATER + ms(60)), "nothing was saved up");
}

#[test]
fn an_arbiter_that_is_stopped_reads_the_clock_again_before_it_writes_a_grant() {
    let directory = directory();
    let sharing = Sharing { policy: CorePolicy::Equal, ..Sharing::FIXED };
    let limits = Limits { sharing, ..Limits::NONE };
    let [(a, device, monitor_a), (b, _, monitor_b)] = ["a", "b"].map(|name| {
        let path = directory.path().join(name);
        let (member, device) = join(&path, LIMIT);
        member.set_limits(device, limits);
        (member, device, Monitor::open(&path, Trust::OwnerOnly).unwrap().unwrap())
    });
    let (mut arbiter, mut cotenants) =
        (Arbiter::default(), [Cotenant::new(1, monitor_a), Cotenant::new(2, monitor_b)]);
    let [first, second] = &mut cotenants;
    let mut look = |clock: &dyn Fn() -> Monotonic| {
        for member in [&a, &b] {
            member.set_queued(device, ms(20));
            member.count_used(device, ns(500_000));
        }
        assert!(allocate_gpu(&mut arbiter, &mut [first, second], &UUID, clock));
    };
    let began = now();
    (0..200).for_each(|step| look(&|| began + step * ARBITER_STEP));
    // Ends the grant, so that the arbiter writes one at the next look.
    a.set_limits(device, limits);
    let (stopped_at, later) = (began + 200 * ARBITER_STEP, began + ms(10_000));
    let is_stopped = Cell::new(false);
    look(&|| {
        if is_stopped.replace(true) {
            return later;
        }
        assert_eq!(a.acquire(device, ms(70), later), Ok(()));
        stopped_at
    });
    assert!(a.rate_limit(device).rate() < a.own_rate_limit(device).rate(), "nothing was granted");
    // The grant is too old by then, so the slice pays the debt of 50 ms at the whole rate again.
    let owed = a.acquire(device, ms(1), later).unwrap_err().since(later);
    assert!((ms(49)..=ms(51)).contains(&owed), "{owed}");
}

#[test]
fn nothing_that_is_told_gives_more_than_the_slices_own() {
    let directory = directory();
    let (member, device) = in_debt(&directory.path().join("region"), ns(NOW.nanos()));
    member.set_grant(device, word(1000, u64::MAX, ns(NOW.nanos())), || NOW);
    assert_eq!(member.rate_limit(device), member.own_rate_limit(device));
    assert_eq!(member.expire_grant(device, || NOW), Some(ns(u64::MAX)));
    assert_eq!(member.acquire(device, ms(1), NOW), Err(NOW + ms(100)));
}

#[test]
fn a_member_that_only_listens_notices_that_the_arbiter_is_silent() {
    let directory = directory();
    let (member, device) = in_debt(&directory.path().join("region"), ns(NOW.nanos()));
    member.set_grant(device, word(20, 0, ns(NOW.nanos())), || NOW);
    assert_eq!(member.expire_grant(device, || NOW + GRANT_LASTS), None);
    assert_eq!((member.grant(device), member.rate_limit(device).rate().get()), (0, 500));
}

#[test]
fn a_gift_is_time_on_the_clock_and_never_more_than_is_owed() {
    let directory = directory();
    let (member, device) = in_debt(&directory.path().join("region"), ns(NOW.nanos()));
    member.credit_wall_time(device, ms(40), || NOW);
    assert_eq!(member.acquire(device, ms(1), NOW), Err(NOW + ms(60)));
    member.credit_wall_time(device, ns(u64::MAX), || NOW);
    assert_eq!(member.acquire(device, ms(30), NOW), Ok(()));
    assert_eq!(member.acquire(device, ms(1), NOW), Err(NOW + ms(60)), "nothing was saved up");
}

#[test]
fn wall_credit_and_a_higher_rate_wake_a_waiting_member() {
    let directory = directory();
    let path = directory.path().join("region");
    let (member, device) = join(&path, LIMIT);
    for is_gift in [true, false] {
        // The slice owes 20 ms of GPU time: 20 s at a thousandth.
        let began = now();
        member.set_grant(device, word(1000, 0, began), || began);
        assert_eq!(member.acquire(device, ms(40), began), Ok(()));
        member.set_grant(device, word(1, 0, began), || began);
        let mut sleeper = Puppet::joined(&path, LIMIT);
        let slept_at = now();
        assert_eq!(sleeper.ask("sleep 1"), "sleeps");
        if is_gift {
            member.credit_wall_time(device, ns(u64::MAX), now);
        } else {
            member.set_grant(device, word(500, u64::MAX, now()), now);
        }
        assert!(sleeper.hear().starts_with("taken "), "{is_gift}");
        assert!(now() < slept_at + ms(900), "it slept on: {is_gift}");
        sleeper.kill();
        member.credit_wall_time(device, ns(u64::MAX), now);
    }
}

#[test]
fn other_limits_end_an_earlier_grant() {
    let directory = directory();
    let (member, device) = in_debt(&directory.path().join("region"), now());
    member.set_grant(device, word(50, 0, now()), now);
    let sharing = Sharing { policy: CorePolicy::BestEffort, priority: Priority::Low, weight: 7 };
    member.set_limits(device, Limits { cores_permille: 800, sharing, ..member.limits(device) });
    assert_eq!((member.grant(device), member.rate_limit(device).rate().get()), (0, 800));
    assert_eq!(member.limits(device).sharing, sharing);
    // The slice owes 50 ms of GPU time, less the time that has passed.
    let owed = member.paid_until(device).since(now());
    assert!(owed <= ms(63), "{owed:?}");
}

#[test]
fn launches_are_paid_for_where_others_have_a_part_or_there_is_a_limit() {
    let directory = directory();
    let (member, device) = join(&directory.path().join("region"), LIMIT);
    let is_paced = |cores_permille, policy, priority| {
        let sharing = Sharing { policy, priority, weight: 100 };
        member.set_limits(device, Limits { cores_permille, sharing, ..member.limits(device) });
        member.is_paced(device)
    };
    assert!(!is_paced(1000, CorePolicy::Fixed, Priority::Normal));
    assert!(is_paced(999, CorePolicy::Fixed, Priority::Normal));
    assert!(is_paced(1000, CorePolicy::Equal, Priority::Normal));
    assert!(is_paced(1000, CorePolicy::BestEffort, Priority::Normal));
    assert!(is_paced(1000, CorePolicy::Fixed, Priority::Low));
    assert!(is_paced(1000, CorePolicy::Fixed, Priority::High));
}

#[test]
fn a_waiting_process_is_seen_until_it_should_have_looked_again() {
    let directory = directory();
    let path = directory.path().join("region");
    let (member, device) = in_debt(&path, ns(NOW.nanos()));
    member.set_queued(device, ns(3));
    member.count_used(device, ns(5));
    member.count_throttled(device, ns(7));
    let at = |now| member.process_activity(device, now).next().unwrap();
    let waits = ProcessActivity { used: ns(5), throttled: ns(7), queued: ns(3), waits: true };
    assert_eq!(at(NOW + ms(109)), waits);
    assert_eq!(at(NOW + ms(111)), ProcessActivity { waits: false, ..waits }, "it is stopped");
    assert!(member.is_waiting(device));
    member.withdraw_request(device);
    // The state at an instant in between: the process requests nothing any more, and its deadline still says that it is
    // about to sleep.
    write(&path, word_of(0, "process.sleep_deadline"), u64::MAX);
    assert_eq!(at(NOW), ProcessActivity { waits: false, ..waits });
    assert!(!member.is_waiting(device) && member.is_inhabited());
}
