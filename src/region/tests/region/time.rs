//! Tests that processes keep to a share of GPU time while they sleep, are killed, and get another rate limit.
//!
//! The clock is an argument, so most tests run in virtual time. Only sleeps use the real clock.

use std::{fs::OpenOptions, os::unix::fs::FileExt as _, path::Path};

use gpuslice_policy::compute::attribution::correction;
use gpuslice_policy::compute::attribution::source::{Measured, Source, Why};
use gpuslice_policy::compute::limiter::fair_queue::TURN_GRACE;
use gpuslice_policy::compute::limiter::lease;
use gpuslice_policy::compute::limiter::token_bucket::MOST_DEBT;
use gpuslice_policy::compute::measuring::peer_intervals::Interval;
use gpuslice_policy::time::{GpuTime, GpuTimeChange, Monotonic, WallTime};
use gpuslice_region::{Device, Limits, Member, Monitor, Origin, Reaped, Trust, layout::FIGURES};

use crate::puppet::{Puppet, UUID, directory, join, lease_size};
use gpuslice_policy::time::literals::{ms, ns};

const LIMIT: u64 = 1000;
/// Any instant. The share is a half, so 1 ms of GPU time moves `paid_until` by 2 ms.
const NOW: Monotonic = Monotonic::from_nanos(1 << 50);

/// An interval to publish.
const INTERVAL: Interval =
    Interval { start: Monotonic::from_nanos(1), end: Monotonic::from_nanos(2), context: 0, goes_on: false };

/// A sleep shorter than this was ended by a wake-up. Without a wake-up a sleep lasts a second.
const AWOKEN: WallTime = WallTime::from_millis(900);

pub(crate) use gpuslice_region::now;

pub(crate) fn figure(name: &str) -> u64 {
    FIGURES.iter().find(|(known, _)| *known == name).unwrap().1 as u64
}

/// Writes a word of the first device's compute ledger, as any process of the slice can.
pub(crate) fn write(path: &Path, offset: u64, value: u64) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&value.to_ne_bytes(), figure("time.offset") + offset).unwrap();
}

/// Returns the offset of a process's word.
pub(crate) fn word_of(slot: u64, name: &str) -> u64 {
    figure("time.processes") + slot * figure("process.size") + figure(name)
}

/// Runs a puppet's command: tries once to acquire `amount`, and settles it.
pub(crate) fn use_all(member: &Member, device: Device, amount: u64) -> String {
    let taken = member.acquire(device, ns(amount), now());
    member.settled(device, ns(amount), now());
    format!("{:?}", taken.map_err(|_| "later"))
}

/// Runs a puppet's command: acquires `milliseconds` and keeps them.
pub(crate) fn take_and_keep(member: &Member, device: Device, milliseconds: u64) -> String {
    let now = now();
    member.idle_until_now(device, now);
    member.count_used(device, ns(milliseconds));
    format!(
        "{:?}",
        member.acquire(device, ms(milliseconds), now).map_err(|until| until.since(now).count(ms(1)))
    )
}

/// Runs a puppet's command: waits for `milliseconds` of GPU time, and answers before its first sleep.
pub(crate) fn sleep(member: &Member, device: Device, milliseconds: u64, answer: impl Fn(&str)) {
    let mut slept = 0;
    loop {
        let wake_sequence = member.wake_sequence(device);
        match member.acquire(device, ms(milliseconds), now()) {
            Ok(()) => return answer(&format!("taken {slept}")),
            Err(until) => {
                if slept == 0 {
                    answer("sleeps");
                }
                slept += 1;
                member.sleep(device, wake_sequence, until);
            }
        }
    }
}

/// Runs a puppet's command: acquires and refunds time until a file exists, and sleeps in between. Answers with the time that it
/// has kept.
pub(crate) fn crowd(member: &Member, device: Device, stop: &Path, seed: u64) -> String {
    let (mut random, mut kept) = (seed | 1, 0);
    while !stop.exists() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let amount = 1 + random % 50_000;
        let wake_sequence = member.wake_sequence(device);
        match member.acquire(device, ns(amount), now()) {
            Ok(()) => {
                let back = amount.min(random >> 40 & 0xffff);
                member.give_back(device, ns(back), now());
                kept += amount - back;
                member.settled(device, ns(amount - back), now());
            }
            Err(until) => member.sleep(device, wake_sequence, until.min(now() + ms(1))),
        }
    }
    member.withdraw_request(device);
    kept.to_string()
}

/// Makes two members in one process, of which the first owes 100 ms of wall time.
fn in_debt(path: &Path, now: Monotonic) -> (Member, Member, Device) {
    having_taken(path, ms(70), now)
}

/// Makes two members in one process. The first one has taken `time`.
fn having_taken(path: &Path, time: GpuTime, now: Monotonic) -> (Member, Member, Device) {
    let (first, device) = join(path, LIMIT);
    let (second, _) = join(path, LIMIT);
    assert_eq!(first.acquire(device, time, now), Ok(()));
    (first, second, device)
}

/// Asserts that the first member gets time at an instant at which only one of the two can.
fn assert_first_goes_first(first: &Member, second: &Member, device: Device, due: Monotonic) {
    assert_eq!(first.acquire(device, ms(1), NOW), Err(due));
    assert_eq!(second.acquire(device, ms(1), due), Err(due + TURN_GRACE), "the first has had less");
    assert_eq!(first.acquire(device, ms(1), due), Ok(()));
}

#[test]
fn saved_time_is_spent_at_once_and_the_rest_is_owed_by_all() {
    let directory = directory();
    let (first, second, device) = in_debt(&directory.path().join("region"), ns(NOW.nanos()));
    // 20 ms of GPU time were saved up, so the slice owes 50 ms.
    assert_eq!(first.acquire(device, ms(1), NOW), Err(NOW + ms(100)));
    assert_eq!(second.acquire(device, ms(1), NOW), Err(NOW + ms(100)));
    assert_eq!(second.acquire(device, ms(1), NOW + ms(100)), Ok(()));
}

#[test]
fn an_overdraft_is_owed_by_all() {
    let directory = directory();
    let (first, second, device) = in_debt(&directory.path().join("region"), ns(NOW.nanos()));
    assert!(first.overdraw(device, ms(5), NOW));
    assert_eq!(second.acquire(device, ms(1), NOW), Err(NOW + ms(110)));
}

#[test]
fn all_processes_of_a_slice_overdraw_one_budget() {
    let directory = directory();
    let (first, second, device) = in_debt(&directory.path().join("region"), ns(NOW.nanos()));
    assert!(first.overdraw(device, ms(15), NOW) && second.overdraw(device, ms(15), NOW));
    assert_eq!(second.acquire(device, ms(1), NOW), Err(NOW + ms(160)));
    assert!(!first.overdraw(device, ns(1), NOW), "20 ms were saved up");
    assert_eq!(second.acquire(device, ms(1), NOW), Err(NOW + ms(160)), "nothing was charged");
    assert!(first.overdraw(device, ns(1), NOW + ms(40)), "a quarter of the clock pays for it");
}

#[test]
fn a_process_that_had_less_goes_first_and_is_not_waited_for_long() {
    let directory = directory();
    let (first, second, device) = in_debt(&directory.path().join("region"), ns(NOW.nanos()));
    let due = NOW + ms(100);
    assert_eq!(second.acquire(device, ms(10), NOW), Err(due));
    assert_eq!(first.acquire(device, ms(1), due), Err(due + TURN_GRACE), "after the second");
    assert_eq!(lease_size(&first, device, NOW), lease::turn(first.rate_limit(device)));
    assert_eq!(first.acquire(device, ms(1), due + TURN_GRACE), Ok(()), "it is late");
    assert_eq!(lease_size(&first, device, NOW), lease::turn(first.rate_limit(device)));
    second.withdraw_request(device);
    assert_eq!(lease_size(&first, device, NOW), lease::MOST_ALONE);
    assert_eq!(second.acquire(device, ms(1), due + ms(100)), Ok(()));
    assert_eq!(lease_size(&first, device, NOW), lease::MOST_LEASE);
    second.leave();
    assert_eq!(lease_size(&first, device, NOW), lease::MOST_ALONE);
}

#[test]
fn returned_time_counts_as_service_of_no_process() {
    let directory = directory();
    let (first, second, device) = in_debt(&directory.path().join("region"), ns(NOW.nanos()));
    first.give_back(device, ms(60), NOW);
    assert_eq!(second.acquire(device, ms(40), NOW), Ok(()));
    let due = NOW + ms(60);
    assert_first_goes_first(&first, &second, device, ns(due.nanos()));
}

#[test]
fn the_charge_counts_as_service_and_not_the_payment() {
    let directory = directory();
    let (first, second, device) = in_debt(&directory.path().join("region"), ns(NOW.nanos()));
    // By their service, the first has now had 10 ms, and the second 15 ms.
    first.adjust_service(device, ns(0), ms(60));
    second.adjust_service(device, ms(20), ms(5));
    let due = NOW + ms(100);
    assert_first_goes_first(&first, &second, device, ns(due.nanos()));
}

#[test]
fn only_the_unsettled_part_of_prepaid_time_is_given_back_when_a_process_ends() {
    let directory = directory();
    let path = directory.path().join("region");
    let ((first, device), (second, _)) = (join(&path, LIMIT), join(&path, LIMIT));
    let began = now();
    // The amount is so large that the slice saves up no time in this test, however long the test takes.
    assert_eq!(first.acquire(device, ms(30_000), began), Ok(()));
    let owed = second.paid_until(device);
    // No launch can have run since.
    first.settled(device, ms(20_000), began + ms(1_000_000));
    first.leave();
    assert_eq!(second.paid_until(device), owed - ms(20_000));
}

#[test]
fn the_excess_of_a_measurement_is_owed_and_its_shortfall_given_back() {
    let directory = directory();
    let (first, _second, device) = in_debt(&directory.path().join("region"), ns(NOW.nanos()));
    first.settle(device, GpuTimeChange::from_nanos(5_000_000), NOW);
    assert_eq!(first.acquire(device, ms(1), NOW), Err(NOW + ms(110)));
    first.settle(device, GpuTimeChange::from_nanos(-15_000_000), NOW);
    first.give_back(device, ms(10), NOW);
    assert_eq!(first.acquire(device, ms(1), NOW), Err(NOW + ms(60)));
}

#[test]
fn prepaid_time_of_a_killed_process_is_given_back_and_wakes_a_waiting_one() {
    let directory = directory();
    let path = directory.path().join("region");
    let mut holder = Puppet::joined(&path, LIMIT);
    let mut sleeper = Puppet::joined(&path, LIMIT);
    // 30 s of GPU time are a minute of wall time.
    assert_eq!(holder.ask("lease 30000"), "Ok(())");
    let slept_at = now();
    assert_eq!(sleeper.ask("sleep 1"), "sleeps");
    holder.kill();
    let monitor = Monitor::open(&path, Trust::OwnerOnly).unwrap().unwrap();
    let device = monitor.device(&UUID).unwrap();
    let began = now();
    assert!(monitor.paid_until(device) > began + ms(50_000));
    assert_eq!(monitor.reap().unwrap(), Reaped::Dead(1));
    assert!(sleeper.hear().starts_with("taken "));
    assert!(now() < slept_at + AWOKEN, "it waited for the dead");
    // Time for which the process may have run since it last settled is not refunded. It is less than the time since its
    // death.
    assert!(monitor.paid_until(device) <= now() + ms(10_000));
    assert_eq!(monitor.time_used(device).used, ns(30_000), "figures of the dead stay");
}

#[test]
fn a_change_of_the_rate_limit_by_another_process_wakes_a_sleeper_and_keeps_the_debt() {
    let directory = directory();
    let path = directory.path().join("region");
    let (member, device) = join(&path, LIMIT);
    let limits = |permille| Limits { cores_permille: permille, ..member.limits(device) };
    let mut setter = Puppet::joined(&path, LIMIT);
    member.set_limits(device, limits(10));
    // The slice owes 0.1 s of GPU time, at a hundredth: 10 s of wall time.
    let began = now();
    assert_eq!(setter.ask("lease 120"), "Ok(())");
    let mut sleeper = Puppet::joined(&path, LIMIT);
    let slept_at = now();
    assert_eq!(sleeper.ask("sleep 1"), "sleeps");
    let owed = member.paid_until(device).since(began);
    assert!((ms(9_000)..=ms(11_000)).contains(&owed), "{owed}");
    member.set_limits(device, limits(1000));
    let owed = member.paid_until(device).since(began);
    assert!((ms(50)..=ms(1_000)).contains(&owed), "{owed}");
    assert!(sleeper.hear().starts_with("taken "));
    assert!(now() < slept_at + AWOKEN, "it was not told");
}

#[test]
fn a_rate_limit_that_is_set_again_changes_nothing() {
    let directory = directory();
    let (first, _second, device) = in_debt(&directory.path().join("region"), now());
    let (wake_sequence, owed) = (first.wake_sequence(device), first.paid_until(device));
    first.set_limits(device, first.limits(device));
    assert_eq!((first.wake_sequence(device), first.paid_until(device)), (wake_sequence, owed));
    first.set_limits(device, Limits { burst: ns(5), ..first.limits(device) });
    assert_ne!(first.wake_sequence(device), wake_sequence);
    assert_eq!(first.rate_limit(device).burst(), ns(5));
}

#[test]
fn a_sleep_ends_when_it_is_due_and_at_once_where_the_bell_has_rung() {
    let directory = directory();
    let (member, _other, device) = in_debt(&directory.path().join("region"), now());
    let began = now();
    member.sleep(device, member.wake_sequence(device), began + ms(5));
    assert!(now() >= began + ms(5), "too early");
    let heard = member.wake_sequence(device);
    member.set_limits(device, Limits { burst: ns(1), ..member.limits(device) });
    let began = now();
    member.sleep(device, heard, began + 10 * AWOKEN);
    assert!(now() < began + AWOKEN, "a ring was lost");
}

#[test]
fn wild_words_make_no_member_wait_for_ever() {
    let directory = directory();
    let path = directory.path().join("region");
    let (member, device) = join(&path, LIMIT);
    let most = 2 * MOST_DEBT.wall_if_alone();
    write(&path, figure("time.paid_until"), u64::MAX);
    let until = member.acquire(device, ms(1), NOW).unwrap_err();
    assert_eq!(until, NOW + most);
    assert_eq!(member.acquire(device, ms(1), until), Ok(()), "the bound does not move on");
    for name in
        ["process.virtual_service", "process.requested_ns", "process.sleep_deadline", "process.unsettled_ns"]
    {
        write(&path, word_of(1, name), u64::MAX);
    }
    for word in ["time.virtual_time", "time.interval_head", "time.overlap", "time.sampler_lease"] {
        write(&path, figure(word), u64::MAX);
    }
    let (other, _) = join(&path, LIMIT);
    let at = until + ms(1000);
    assert!(
        member.acquire(device, ms(1), at).is_ok_and(|()| other.acquire(device, ms(1), at + ms(5)).is_ok())
    );
    assert_eq!(member.overlap_part(device, ns(1000)), ns(1000));
    member.publish(device, INTERVAL);
    other.leave();
    write(&path, word_of(0, "process.unsettled_ns"), u64::MAX);
    write(&path, word_of(0, "process.settled_at"), u64::MAX);
    member.leave();
}

#[test]
fn a_lost_region_keeps_no_member_waiting() {
    let directory = directory();
    let path = directory.path().join("region");
    // Ten seconds of debt remain even if the host is late.
    let (member, _other, device) = having_taken(&path, ms(5000), now());
    assert!(member.acquire(device, ms(1), now()).is_err());
    OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
    let began = now();
    member.sleep(device, member.wake_sequence(device), began + 10 * AWOKEN);
    assert_eq!(member.acquire(device, ms(1), now()), Ok(()));
    assert!(now() < began + AWOKEN);
    member.settle(device, GpuTimeChange::from_nanos(-5), began);
    assert_eq!(
        (
            member.publish(device, INTERVAL),
            member.interval_head(device, Origin::Slice),
            member.measure_source(device)
        ),
        (0, 0, 0)
    );
}

#[test]
fn processes_that_take_and_give_back_at_once_lose_nothing() {
    const CROWD: u64 = 8;
    let directory = directory();
    let path = directory.path().join("region");
    let stop = directory.path().join("stop");
    let (member, device) = join(&path, LIMIT);
    member.set_limits(device, Limits { cores_permille: 1000, burst: ns(0), ..member.limits(device) });
    // The slice starts 5 ms in debt that no process has paid. So no saved time is lost while the puppets join.
    let start = now() + ms(5);
    let mut puppets: Vec<_> = (0..CROWD).map(|_| Puppet::joined(&path, LIMIT)).collect();
    write(&path, figure("time.paid_until"), start.nanos());
    for (index, puppet) in puppets.iter_mut().enumerate() {
        puppet.tell(&format!("crowd {} {}", stop.display(), index * 77 + 5));
    }
    while now() < start + ms(500) {
        let _ = member.time_used(device);
    }
    std::fs::write(&stop, "").unwrap();
    let kept: u64 = puppets.iter_mut().map(|puppet| puppet.hear().parse::<u64>().unwrap()).sum();
    let kept: WallTime = ns(kept);
    let (paid, end) = (member.paid_until(device), now());
    // No process is ahead of the clock by more than one payment, and idle time does not count.
    assert!(paid <= end + ms(CROWD), "{paid:?} {end:?}");
    assert!(start + kept <= paid, "more was kept than paid: {kept} in {}", paid.since(start));
    assert!(kept > ms(1), "nothing was tried: {kept}");
}

#[test]
fn leases_are_larger_for_a_process_alone_and_where_each_request_costs_a_turn() {
    let directory = directory();
    let path = directory.path().join("region");
    let (member, device) = join(&path, LIMIT);
    let (other, _) = join(&path, LIMIT);
    let rate_limit = member.rate_limit(device);
    let [alone, usual, turn] = [lease::MOST_ALONE, lease::MOST_LEASE, lease::turn(rate_limit)];
    let sizes = || [&member, &other].map(|member| lease_size(member, device, NOW));
    assert_eq!(sizes(), [alone, alone], "no process has had anything");
    member.acquire(device, ms(100), NOW).unwrap();
    assert_eq!(sizes(), [alone, usual]);
    assert!(other.acquire(device, ms(1), NOW).is_err());
    assert_eq!(sizes(), [turn, usual], "one waits");
    other.withdraw_request(device);
    assert_ne!(sizes()[0], turn);
    // Co-tenants may be visible to NVML or not observable.
    member.set_correction(device, correction::WHOLE_FACTOR - 1);
    assert_eq!(sizes(), [turn, turn]);
    member.set_correction(device, correction::WHOLE_FACTOR);
    assert_eq!(sizes()[1], usual);
    member.set_measure_source(device, Measured { source: Source::Events, why: Some(Why::Mig) }.word());
    assert_eq!(sizes(), [turn, turn]);
}

#[test]
fn one_process_asks_nvml_until_it_is_silent() {
    let directory = directory();
    let path = directory.path().join("region");
    let ((first, device), (second, _)) = (join(&path, LIMIT), join(&path, LIMIT));
    let silence = ms(500);
    assert!(first.renew_sampler_lease(device, NOW, silence).is_held());
    assert!(!second.renew_sampler_lease(device, NOW + silence - ns(1), silence).is_held());
    assert!(first.renew_sampler_lease(device, NOW + silence.part(2), silence).is_held(), "and goes on");
    assert!(!second.renew_sampler_lease(device, NOW + silence, silence).is_held());
    assert!(second.renew_sampler_lease(device, NOW + silence + silence.part(2), silence).is_held());
    assert!(!first.renew_sampler_lease(device, NOW + silence + silence.part(2), silence).is_held());
    assert!(first.renew_sampler_lease(device, NOW, silence).is_held(), "by a clock that was ahead");
    // The word keeps the time in units of 65.5 us.
    assert!(!second.renew_sampler_lease(device, NOW + ns(0xfffe), ns(0)).is_held());
    assert!(second.renew_sampler_lease(device, NOW + ns(0xffff), ns(0)).is_held());
}
