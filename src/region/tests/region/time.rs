//! Is a share of GPU time kept by processes that sleep, are killed, and are told other terms?
//!
//! The clock is the caller's, so most of this runs in a time of its own. Only sleeping has the real one.

use std::{fs::OpenOptions, os::unix::fs::FileExt as _, path::Path};

use gpuslice_policy::compute::{bucket::MOST_DEBT, ring::Entry, trim::Trim, turn::PATIENCE};
use gpuslice_region::{
    Device, DeviceRequest, Limits, Member, Monitor, RING_PLACES, Reaped, TimeUsed, Trust, Uuid, layout::FIGURES,
};

use crate::puppet::{Puppet, UUID, directory, join, request};

const MS: u64 = 1_000_000;
const LIMIT: u64 = 1000;
/// Any instant; the device's share is a half, so what costs 1 ms moves the word by 2 ms.
const NOW: u64 = 1 << 50;

/// The monotonic clock.
fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` may be written.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    u64::try_from(time.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap()
}

fn figure(name: &str) -> u64 {
    FIGURES.iter().find(|(known, _)| *known == name).unwrap().1 as u64
}

/// Writes a word of the first device's time, as any process of the slice can.
fn write(path: &Path, offset: u64, value: u64) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&value.to_ne_bytes(), figure("time.offset") + offset).unwrap();
}

/// Where a process has a word.
fn word_of(slot: u64, name: &str) -> u64 {
    figure("time.processes") + slot * figure("process.size") + figure(name)
}

/// What a puppet does: takes and settles this much. What the word says then is not looked at.
pub(crate) fn use_all(member: &Member, device: Device, amount: u64) -> String {
    let taken = member.take(device, amount, now());
    member.settled(device, amount, now());
    format!("{:?}", taken.map_err(|_| "later"))
}

/// What a puppet does: takes so many milliseconds and keeps them.
pub(crate) fn lease(member: &Member, device: Device, milliseconds: u64) -> String {
    let now = now();
    member.idle_until_now(device, now);
    member.count_used(device, milliseconds);
    format!("{:?}", member.take(device, milliseconds * MS, now).map_err(|until| until.saturating_sub(now) / MS))
}

/// What a puppet does: waits for so many milliseconds of GPU time, and says so before it sleeps first.
pub(crate) fn sleep(member: &Member, device: Device, milliseconds: u64, answer: impl Fn(&str)) {
    let mut slept = 0;
    loop {
        let bell = member.bell(device);
        match member.take(device, milliseconds * MS, now()) {
            Ok(()) => return answer(&format!("taken {slept}")),
            Err(until) => {
                if slept == 0 {
                    answer("sleeps");
                }
                slept += 1;
                member.sleep(device, bell, until);
            }
        }
    }
}

/// What a puppet does: takes and gives back all the time, sleeping in between, until a file is there. Answers with how
/// much it has kept.
pub(crate) fn crowd(member: &Member, device: Device, stop: &Path, seed: u64) -> String {
    let (mut random, mut kept) = (seed | 1, 0);
    while !stop.exists() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let amount = 1 + random % 50_000;
        let bell = member.bell(device);
        match member.take(device, amount, now()) {
            Ok(()) => {
                let back = amount.min(random >> 40 & 0xffff);
                member.give_back(device, back, now());
                kept += amount - back;
                member.settled(device, amount - back, now());
            }
            Err(until) => member.sleep(device, bell, until.min(now() + MS)),
        }
    }
    member.stop_asking(device);
    kept.to_string()
}

/// Two members in one process, the first of which owes 100 ms on the clock.
fn in_debt(path: &Path, now: u64) -> (Member, Member, Device) {
    let (first, device) = join(path, LIMIT);
    let (second, _) = join(path, LIMIT);
    assert_eq!(first.take(device, 70 * MS, now), Ok(()));
    (first, second, device)
}

#[test]
fn what_is_saved_up_goes_at_once_and_the_rest_is_owed_by_all() {
    let directory = directory();
    let (first, second, device) = in_debt(&directory.path().join("region"), NOW);
    // 20 ms of GPU time are saved up, 50 ms are owed.
    assert_eq!(first.take(device, MS, NOW), Err(NOW + 100 * MS));
    assert_eq!(second.take(device, MS, NOW), Err(NOW + 100 * MS));
    assert_eq!(second.take(device, MS, NOW + 100 * MS), Ok(()));
}

#[test]
fn who_had_less_goes_first_and_is_not_waited_for_long() {
    let directory = directory();
    let (first, second, device) = in_debt(&directory.path().join("region"), NOW);
    let due = NOW + 100 * MS;
    assert_eq!(second.take(device, 10 * MS, NOW), Err(due));
    assert_eq!(first.take(device, MS, due), Err(due + PATIENCE), "after the second");
    assert_eq!(first.lease_size(device), 4 * MS, "turns are longer");
    assert_eq!(first.take(device, MS, due + PATIENCE), Ok(()), "it is late");
    assert_eq!(first.lease_size(device), 4 * MS);
    second.stop_asking(device);
    assert_eq!(first.lease_size(device), MS / 5);
}

#[test]
fn what_was_measured_too_much_is_owed_and_too_little_given_back() {
    let directory = directory();
    let (first, _second, device) = in_debt(&directory.path().join("region"), NOW);
    first.settle(device, 5_000_000, NOW);
    assert_eq!(first.take(device, MS, NOW), Err(NOW + 110 * MS));
    first.settle(device, -15_000_000, NOW);
    first.give_back(device, 10 * MS, NOW);
    assert_eq!(first.take(device, MS, NOW), Err(NOW + 60 * MS));
}

#[test]
fn what_a_killed_process_had_prepaid_is_given_back_and_wakes_who_waits_for_it() {
    let directory = directory();
    let path = directory.path().join("region");
    let mut holder = Puppet::joined(&path, LIMIT);
    let mut sleeper = Puppet::joined(&path, LIMIT);
    // 30 s of GPU time: a minute on the clock.
    assert_eq!(holder.ask("lease 30000"), "Ok(())");
    assert_eq!(sleeper.ask("sleep 1"), "sleeps");
    holder.kill();
    let monitor = Monitor::open(&path, Trust::OwnerOnly).unwrap().unwrap();
    let device = monitor.device(&UUID).unwrap();
    let began = now();
    assert!(monitor.paid_until(device) > began + 50_000 * MS);
    assert_eq!(monitor.reap().unwrap(), Reaped::Dead(1));
    assert!(sleeper.hear().starts_with("taken "));
    assert!(now() < began + 10_000 * MS, "it waited for the dead");
    // What has run since the process settled last is not given back: less than it was dead for.
    assert!(monitor.paid_until(device) <= now() + 10_000 * MS);
    assert_eq!(monitor.time_used(device).used, 30_000, "figures of the dead stay");
}

#[test]
fn a_change_of_terms_by_another_process_wakes_a_sleeper_and_keeps_the_debt() {
    let directory = directory();
    let path = directory.path().join("region");
    let (member, device) = join(&path, LIMIT);
    let limits = |permille| Limits { cores_permille: permille, ..member.limits(device) };
    let mut setter = Puppet::joined(&path, LIMIT);
    member.set_limits(device, limits(10));
    // 1 s of GPU time is owed, at a hundredth: 100 s on the clock.
    let began = now();
    assert_eq!(setter.ask("lease 1020"), "Ok(())");
    let mut sleeper = Puppet::joined(&path, LIMIT);
    assert_eq!(sleeper.ask("sleep 1"), "sleeps");
    let owed = member.paid_until(device) - began;
    assert!((98_000 * MS..=101_000 * MS).contains(&owed), "{owed}");
    member.set_limits(device, limits(1000));
    let owed = member.paid_until(device) - began;
    assert!((900 * MS..=2_000 * MS).contains(&owed), "{owed}");
    assert!(sleeper.hear().starts_with("taken "));
    assert!(now() < began + 20_000 * MS);
}

#[test]
fn other_terms_that_are_set_again_change_nothing() {
    let directory = directory();
    let (first, _second, device) = in_debt(&directory.path().join("region"), now());
    let (bell, owed) = (first.bell(device), first.paid_until(device));
    first.set_limits(device, first.limits(device));
    assert_eq!((first.bell(device), first.paid_until(device)), (bell, owed));
    first.set_limits(device, Limits { burst_ns: 5, ..first.limits(device) });
    assert_ne!(first.bell(device), bell);
    assert_eq!(first.terms(device).burst(), 5);
}

#[test]
fn a_sleep_ends_when_it_is_due_and_at_once_where_the_bell_has_rung() {
    let directory = directory();
    let (member, _other, device) = in_debt(&directory.path().join("region"), now());
    let began = now();
    member.sleep(device, member.bell(device), began + 5 * MS);
    assert!(now() >= began + 5 * MS, "too early");
    let heard = member.bell(device);
    member.set_limits(device, Limits { burst_ns: 1, ..member.limits(device) });
    let began = now();
    member.sleep(device, heard, began + 900 * MS);
    assert!(now() < began + 800 * MS, "a ring was lost");
}

#[test]
fn a_region_that_is_made_anew_owes_nothing_and_remembers_nothing() {
    let directory = directory();
    let path = directory.path().join("region");
    let (member, device) = join(&path, LIMIT);
    for _ in 0..3 {
        member.publish(device, 10, 20);
    }
    assert_eq!(member.take(device, 1000 * MS, now()), Ok(()));
    member.count_used(device, 5);
    member.set_meter(device, 2);
    member.set_factor(device, 300_000);
    assert!(member.elect(device, NOW, MS));
    member.add_overlap(device, 100, 50);
    member.set_trim(device, &Trim::from_words([7, 7, 1, 7], NOW, false));
    member.leave();
    let (member, device) = join(&path, LIMIT);
    assert_eq!((member.paid_until(device), member.meter(device), member.factor(device)), (0, 0, 1_000_000));
    assert_eq!((member.time_used(device), member.places(device)), (TimeUsed::default(), 0));
    assert_eq!((member.entry(device, 0), member.overlap_part(device, 8)), (Entry::default(), 8));
    assert_eq!(member.trim(device, NOW, false), Trim::new(false));
    assert_eq!(member.take(device, MS, NOW), Ok(()));
}

#[test]
fn sums_of_figures_never_fall_and_each_process_has_its_own() {
    let directory = directory();
    let path = directory.path().join("region");
    let (watcher, device) = join(&path, LIMIT);
    for round in 1..=3_u64 {
        let (member, _) = join(&path, LIMIT);
        assert_eq!(member.slot(), 1);
        member.count_used(device, 100);
        member.count_throttled(device, 10);
        member.count_copied(device, 1);
        member.count_launches(device, 7);
        member.set_queued(device, 3);
        let own = TimeUsed { used: 100, throttled: 10, copied: 1, queued: 3, launches: 7 };
        assert_eq!(watcher.processes()[1].time, [own]);
        let sum = TimeUsed {
            used: 100 * round,
            throttled: 10 * round,
            copied: round,
            queued: 3,
            launches: 7 * round,
        };
        assert_eq!(watcher.time_used(device), sum);
        member.leave();
        assert_eq!(watcher.time_used(device), TimeUsed { queued: 0, ..sum });
    }
}

#[test]
fn a_device_that_is_added_later_owes_nothing_whatever_its_words_were() {
    let directory = directory();
    let path = directory.path().join("region");
    let (first, _) = join(&path, LIMIT);
    let size = figure("time.size");
    for offset in (0..size).step_by(8) {
        write(&path, size + offset, u64::MAX);
    }
    let other = DeviceRequest { uuid: Uuid([9; 16]), ..request(LIMIT) };
    let (second, _) = Member::join(&path, Trust::OwnerOnly, &[other]).unwrap();
    let device = second.device(&other.uuid).unwrap();
    assert_eq!((first.time_used(device), first.paid_until(device)), (TimeUsed::default(), 0));
    assert_eq!((second.take(device, MS, NOW), first.take(device, MS, NOW)), (Ok(()), Ok(())));
    assert_eq!(second.processes()[1].time[device.index()], TimeUsed::default());
}

#[test]
fn the_elected_stays_for_as_long_as_it_says_so_and_the_dead_are_replaced() {
    let directory = directory();
    let path = directory.path().join("region");
    let ((first, device), (second, _)) = (join(&path, LIMIT), join(&path, LIMIT));
    let elected = |at: u64| [first.elect(device, NOW + at * MS, 10 * MS), second.elect(device, NOW + at * MS, 10 * MS)];
    assert_eq!([elected(0), elected(9), elected(18)], [[true, false]; 3]);
    assert!(second.elect(device, NOW + 30 * MS, 10 * MS), "the first is silent");
    assert_eq!(elected(31), [false, true]);
    second.leave();
    assert!(first.elect(device, NOW + 32 * MS, 10 * MS), "the second is gone");
    write(&path, figure("time.elected"), u64::MAX - 5);
    assert!(first.elect(device, NOW + 33 * MS, 10 * MS), "nobody can be elected in the future");
}

#[test]
fn a_sampler_goes_on_with_what_the_last_one_had_learned() {
    let directory = directory();
    let path = directory.path().join("region");
    let ((first, device), (second, _)) = (join(&path, LIMIT), join(&path, LIMIT));
    let learned = Trim::from_words([40, 80, 1, 90], NOW, true);
    first.set_trim(device, &learned);
    first.set_factor(device, learned.factor());
    first.leave();
    assert_eq!(second.trim(device, NOW, true), learned);
    assert_eq!(second.factor(device), 500_000);
    assert_eq!(second.lease_size(device), 4 * MS, "beside neighbours");
}

#[test]
fn intervals_are_read_as_they_were_told_and_half_written_ones_are_not() {
    let directory = directory();
    let path = directory.path().join("region");
    let ((first, device), (second, _)) = (join(&path, LIMIT), join(&path, LIMIT));
    for number in 0..RING_PLACES + 2 {
        let writer = if number % 2 == 0 { &first } else { &second };
        assert_eq!(writer.publish(device, number * 10, number * 10 + 7), number);
    }
    assert_eq!(first.places(device), RING_PLACES + 2);
    for number in 2..RING_PLACES + 2 {
        assert_eq!(first.entry(device, number), Entry::new(number, number * 10, number * 10 + 7));
    }
    write(&path, figure("time.ring") + 5 * figure("place.size") + figure("place.end"), 58);
    assert_eq!(first.entry(device, 5), Entry::default());
}

#[test]
fn wild_words_let_nobody_wait_for_ever() {
    let directory = directory();
    let path = directory.path().join("region");
    let (member, device) = join(&path, LIMIT);
    let most = 2 * MOST_DEBT;
    write(&path, figure("time.paid_until"), u64::MAX);
    let until = member.take(device, MS, NOW).unwrap_err();
    assert_eq!(until, NOW + most);
    assert_eq!(member.take(device, MS, until), Ok(()), "the bound does not move on");
    for name in ["process.served", "process.wants", "process.sleeps_until", "process.outstanding"] {
        write(&path, word_of(1, name), u64::MAX);
    }
    for word in ["time.virtual_time", "time.places", "time.overlap", "time.elected"] {
        write(&path, figure(word), u64::MAX);
    }
    let (other, _) = join(&path, LIMIT);
    let at = until + 1000 * MS;
    assert!(member.take(device, MS, at).is_ok_and(|()| other.take(device, MS, at + 5 * MS).is_ok()));
    assert_eq!(member.overlap_part(device, 1000), 1000);
    member.publish(device, 1, 2);
    other.leave();
    write(&path, word_of(0, "process.outstanding"), u64::MAX);
    write(&path, word_of(0, "process.settled_at"), u64::MAX);
    member.leave();
}

#[test]
fn a_lost_region_keeps_nobody_waiting() {
    let directory = directory();
    let path = directory.path().join("region");
    let (member, _other, device) = in_debt(&path, now());
    assert!(member.take(device, MS, now()).is_err());
    OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
    let began = now();
    member.sleep(device, member.bell(device), began + 900 * MS);
    assert_eq!(member.take(device, MS, now()), Ok(()));
    assert!(now() < began + 800 * MS);
    member.settle(device, -5, began);
    assert_eq!((member.publish(device, 1, 2), member.places(device), member.meter(device)), (0, 0, 0));
}

#[test]
fn processes_that_take_and_give_back_at_once_lose_nothing() {
    const CROWD: u64 = 8;
    let directory = directory();
    let path = directory.path().join("region");
    let stop = directory.path().join("stop");
    let (member, device) = join(&path, LIMIT);
    member.set_limits(device, Limits { cores_permille: 1000, burst_ns: 0, ..member.limits(device) });
    // In debt all the time, so that nothing that is saved up is lost: a minute's, paid in advance by nobody.
    let start = now() + 5 * MS;
    let mut puppets: Vec<_> = (0..CROWD).map(|_| Puppet::joined(&path, LIMIT)).collect();
    write(&path, figure("time.paid_until"), start);
    for (index, puppet) in puppets.iter_mut().enumerate() {
        puppet.tell(&format!("crowd {} {}", stop.display(), index * 77 + 5));
    }
    while now() < start + 500 * MS {
        let _ = member.time_used(device);
    }
    std::fs::write(&stop, "").unwrap();
    let kept: u64 = puppets.iter_mut().map(|puppet| puppet.hear().parse::<u64>().unwrap()).sum();
    let (paid, end) = (member.paid_until(device), now());
    // Nobody is ahead of the clock by more than one taking each, and idle time counts for nobody.
    assert!(paid <= end + CROWD * MS, "{paid} {end}");
    assert!(start + kept <= paid + MS, "more was kept than paid: {kept} in {}", paid.abs_diff(start));
    assert!(kept > 50 * MS, "nothing was tried: {kept}");
}
