//! Tests that devices are coupled if their kernels wait for each other.

use gpuslice_policy::compute::coupling::{LASTS, MeasuredBatch, ThrottledLaunch};
use gpuslice_policy::compute::limiter::lease;
use gpuslice_region::{Device, DeviceRequest, Member, Trust, Uuid};

use crate::puppet::{UUID, directory, request};

const MS: u64 = 1_000_000;
const LIMIT: u64 = 1000;
/// Any instant. The share is a half, so 1 ms of GPU time moves the word by 2 ms.
const NOW: u64 = 1 << 50;
const OTHER: Uuid = Uuid([8; 16]);

/// Makes two members of a slice with two devices. One of them has paid 50 ms more than was saved up on the first device, and
/// requests more. It may go on in 100 ms.
fn held_back(folder: &tempfile::TempDir) -> ([Member; 2], [Device; 2]) {
    let path = folder.path().join("region");
    let requests = [request(LIMIT), DeviceRequest { uuid: OTHER, ..request(LIMIT) }];
    let members = [0, 1].map(|_| Member::join(&path, Trust::OwnerOnly, &requests).unwrap().0);
    let devices = [UUID, OTHER].map(|uuid| members[0].device(&uuid).unwrap());
    assert_eq!(members[0].acquire(devices[0], 70 * MS, NOW), Ok(()));
    assert_eq!(members[0].acquire(devices[0], MS, NOW + 1), Err(NOW + 100 * MS));
    (members, devices)
}

#[test]
fn who_could_go_waits_for_who_is_held_back_on_a_device_in_step() {
    let folder = directory();
    let ([first, second], devices) = held_back(&folder);
    assert!(!second.is_coupled(devices[1], NOW));
    second.couple(devices, NOW);
    assert!(second.is_coupled(devices[1], NOW));
    assert_eq!(second.acquire_since(devices[1], MS, NOW + MS, NOW + MS), Err(NOW + 100 * MS));
    let due = NOW + 100 * MS;
    assert_eq!(second.acquire_since(devices[1], MS, NOW + MS, due), Ok(()), "both can go");
    assert_eq!(
        second.least_lease(devices[1], due).time,
        lease::LEAST,
        "nothing is left that goes without the other"
    );
    assert_eq!(first.acquire(devices[0], MS, due), Ok(()));
}

#[test]
fn who_goes_in_step_waits_for_none_that_does_not() {
    let folder = directory();
    let ([_first, second], [held, other]) = held_back(&folder);
    second.couple([other, other], NOW);
    assert!(second.is_coupled(other, NOW) && !second.is_coupled(held, NOW));
    assert_eq!(second.acquire_since(other, MS, NOW + MS, NOW + MS), Ok(()));
}

#[test]
fn it_waits_for_each_once_and_for_none_that_works_or_has_long_been_silent() {
    let folder = directory();
    let ([first, second], devices) = held_back(&folder);
    second.couple(devices, NOW);
    let ask = |since, at| second.acquire_since(devices[1], MS, NOW + since * MS, NOW + at * MS);
    assert!(ask(1, 2).is_err());
    second.note_overrun(devices[1], NOW + 2 * MS);
    assert!(first.overdraw_for_peer(devices[0], MS, NOW, NOW + 2 * MS));
    assert_eq!(ask(1, 2), Ok(()), "the other has gone, and is a round ahead");
    assert!(first.acquire(devices[0], MS, NOW + 3 * MS).is_err());
    assert!(ask(3, 3).is_err(), "that was the launch of the same round");
    first.set_queued(devices[0], MS);
    assert_eq!(ask(10, 10), Ok(()), "its work may be what waits");
    first.set_queued(devices[0], 0);
    assert!(ask(20, 20).is_err());
    first.withdraw_request(devices[0]);
    assert_eq!(ask(20, 20), Ok(()), "it has nothing to launch");
    first.settled(devices[0], 70 * MS, NOW);
    assert_eq!(ask(30, 30), Err(NOW + 50 * MS), "it may be about to");
}

#[test]
fn a_launch_that_is_paid_late_is_no_step_ahead() {
    let folder = directory();
    let ([first, second], devices) = held_back(&folder);
    second.couple(devices, NOW);
    let due = NOW + 100 * MS;
    assert_eq!(second.acquire_since(devices[1], MS, NOW + MS, due), Ok(()));
    assert!(second.acquire_since(devices[1], MS, due + 1, due + 1).is_err(), "its own share binds");
    // The first device pays its launch of the same round after the second device has asked for the next one.
    assert_eq!(first.acquire_since(devices[0], 5 * MS, NOW, due + 2), Ok(()));
    let asks_again = due + 3 * MS;
    assert_eq!(first.acquire_since(devices[0], MS, asks_again, asks_again), Err(due + 10 * MS));
    assert_eq!(second.acquire_since(devices[1], MS, due + 1, asks_again), Err(due + 10 * MS));
}

#[test]
fn no_more_is_saved_up_than_others_in_step_have() {
    let folder = directory();
    let ([first, second], devices) = held_back(&folder);
    second.couple(devices, NOW);
    let due = NOW + 200 * MS;
    assert_eq!(first.acquire(devices[0], 20 * MS, due), Ok(()));
    assert_eq!(second.acquire(devices[1], 10 * MS, due), Ok(()));
    assert_eq!(
        second.acquire(devices[1], MS, due),
        Err(due + 19 * MS),
        "of 20 ms that it had, a millisecond on the clock"
    );
}

#[test]
fn a_minute_later_each_goes_by_itself() {
    let folder = directory();
    let ([_first, second], devices) = held_back(&folder);
    second.couple(devices, NOW - LASTS + MS);
    assert!(second.is_coupled(devices[1], NOW) && !second.is_coupled(devices[1], NOW + MS));
    assert_eq!(second.acquire(devices[1], MS, NOW + MS), Ok(()));
}

#[test]
fn a_run_that_ended_when_a_launch_got_through_on_another_device_says_on_which() {
    let folder = directory();
    let ([first, second], devices) = held_back(&folder);
    let due = NOW + 100 * MS;
    let ran = MeasuredBatch { plain: MS, length: 60 * MS, until: due + 2 * MS, after: 0 };
    assert_eq!(second.unblocked_by(devices[1], &ran), None);
    assert_eq!(first.acquire_since(devices[0], MS, NOW + 1, due), Ok(()));
    let kept = ThrottledLaunch { since: NOW + 1, until: due, is_overdraft: false };
    assert_eq!(second.unblocked_by(devices[1], &ran), Some((devices[0], kept)));
    assert_eq!(first.unblocked_by(devices[0], &ran), None, "not by itself");
}

#[test]
fn who_is_held_back_goes_ahead_while_a_run_on_another_device_is_overdue() {
    let folder = directory();
    let ([first, second], [held, overdue]) = held_back(&folder);
    let ahead = |at| first.overdraw_for_peer(held, MS, NOW, NOW + at * MS);
    assert!(!ahead(2));
    second.note_overrun(held, NOW + 2 * MS);
    assert!(!ahead(2), "its own");
    second.note_overrun(overdue, NOW + 2 * MS);
    let is_asking = || first.process_activity(held, NOW + 2 * MS).any(|process| process.waits);
    assert!(is_asking() && ahead(2) && !is_asking());
    let ran = MeasuredBatch { plain: MS, length: 6 * MS, until: NOW + 3 * MS, after: 0 };
    let kept = ThrottledLaunch { since: NOW, until: NOW + 2 * MS, is_overdraft: true };
    assert_eq!(second.unblocked_by(overdue, &ran), Some((held, kept)));
    assert_eq!(first.acquire(held, MS, NOW + 2 * MS), Err(NOW + 102 * MS), "it is owed");
    assert!(!ahead(3), "that may have been what it waited for");
    second.note_overrun(overdue, NOW + 3 * MS);
    first.set_queued(held, MS);
    assert!(!ahead(3), "its work may be what is waited for");
    first.set_queued(held, 0);
    assert!(!ahead(9), "nobody has said so for long");
    second.clear_overrun(overdue);
    assert!(!ahead(3));
    second.note_overrun(overdue, NOW + 4 * MS);
    assert!(ahead(4));
}

#[test]
fn half_of_a_share_goes_ahead_and_no_more() {
    let folder = directory();
    let ([first, second], [held, overdue]) = held_back(&folder);
    let ahead = |amount, at| {
        second.note_overrun(overdue, NOW + at);
        first.overdraw_for_peer(held, amount, NOW, NOW + at)
    };
    assert!(ahead(20 * MS, MS), "as much as may be saved up");
    assert!(ahead(5 * MS, MS + 1), "what costs more than is saved goes once");
    assert!(!ahead(1, MS + 2) && !ahead(1, 21 * MS - 1), "a quarter of the clock pays for it");
    assert!(ahead(1, 21 * MS));
}

#[test]
fn who_is_held_back_is_woken_once_when_a_run_on_another_device_is_overdue() {
    let folder = directory();
    let ([first, second], [held, overdue]) = held_back(&folder);
    let rings = || first.wake_sequence(held);
    let before = rings();
    second.note_overrun(held, NOW + MS);
    assert_eq!(rings(), before, "its own");
    second.note_overrun(overdue, NOW + MS);
    assert_eq!(rings(), before + 1);
    second.note_overrun(overdue, NOW + 2 * MS);
    assert_eq!(rings(), before + 1, "it looks by itself now");
    second.note_overrun(overdue, NOW + 20 * MS);
    assert_eq!(rings(), before + 2);
    second.note_overrun(overdue, NOW + 100 * MS);
    assert_eq!(rings(), before + 2, "its time has come");
    first.withdraw_request(held);
    second.note_overrun(overdue, NOW + 200 * MS);
    assert_eq!(rings(), before + 2, "nobody sleeps");
}
