//! Tests that devices are coupled if their kernels wait for each other.

use gpuslice_policy::compute::coupling::{COUPLING_LASTS, MeasuredBatch, ThrottledLaunch};
use gpuslice_policy::compute::limiter::lease;
use gpuslice_policy::time::{Monotonic, WallTime};
use gpuslice_region::{Device, DeviceRequest, Member, Trust, Uuid};

use crate::puppet::{UUID, directory, lease_size, request};
use gpuslice_policy::time::literals::{ms, ns};

const LIMIT: u64 = 1000;
/// Any instant. The share is a half, so 1 ms of GPU time moves `paid_until` by 2 ms.
const NOW: Monotonic = Monotonic::from_nanos(1 << 50);
const OTHER: Uuid = Uuid([8; 16]);

/// Makes two members of a slice with two devices. One of them has paid 50 ms more than was saved up on the first device, and
/// requests more. It may go on in 100 ms.
fn held_back(folder: &tempfile::TempDir) -> ([Member; 2], [Device; 2]) {
    let path = folder.path().join("region");
    let requests = [request(LIMIT), DeviceRequest { uuid: OTHER, ..request(LIMIT) }];
    let members = [0, 1].map(|_| Member::join(&path, Trust::OwnerOnly, &requests).unwrap().0);
    let devices = [UUID, OTHER].map(|uuid| members[0].device(&uuid).unwrap());
    assert_eq!(members[0].acquire(devices[0], ms(70), NOW), Ok(()));
    assert_eq!(members[0].acquire(devices[0], ms(1), NOW + ns(1)), Err(NOW + ms(100)));
    (members, devices)
}

#[test]
fn a_ready_launch_waits_for_a_throttled_one_on_a_coupled_device() {
    let folder = directory();
    let ([first, second], devices) = held_back(&folder);
    assert!(!second.is_coupled(devices[1], NOW));
    second.couple(devices, NOW);
    assert!(second.is_coupled(devices[1], NOW));
    assert_eq!(second.acquire_since(devices[1], ms(1), NOW + ms(1), || NOW + ms(1)), Err(NOW + ms(100)));
    let due = NOW + ms(100);
    assert_eq!(second.acquire_since(devices[1], ms(1), NOW + ms(1), || due), Ok(()), "both can go");
    assert_eq!(
        lease_size(&second, devices[1], due),
        lease::LEAST_LEASE,
        "nothing is left that goes without the other"
    );
    assert_eq!(first.acquire(devices[0], ms(1), due), Ok(()));
}

#[test]
fn a_launch_on_a_coupled_device_waits_for_none_on_other_devices() {
    let folder = directory();
    let ([_first, second], [held, other]) = held_back(&folder);
    second.couple([other, other], NOW);
    assert!(second.is_coupled(other, NOW) && !second.is_coupled(held, NOW));
    assert_eq!(second.acquire_since(other, ms(1), NOW + ms(1), || NOW + ms(1)), Ok(()));
}

#[test]
fn it_waits_for_each_once_and_for_none_that_works_or_has_long_been_silent() {
    let folder = directory();
    let ([first, second], devices) = held_back(&folder);
    second.couple(devices, NOW);
    let ask = |since, at| second.acquire_since(devices[1], ms(1), NOW + ms(since), || NOW + ms(at));
    assert!(ask(1, 2).is_err());
    second.note_overrun(devices[1], NOW + ms(2));
    assert!(first.overdraw_for_peer(devices[0], ms(1), NOW, NOW + ms(2)));
    assert_eq!(ask(1, 2), Ok(()), "the other has gone, and is a round ahead");
    assert!(first.acquire(devices[0], ms(1), NOW + ms(3)).is_err());
    assert!(ask(3, 3).is_err(), "that was the launch of the same round");
    first.set_queued(devices[0], ms(1));
    assert_eq!(ask(10, 10), Ok(()), "its work may be what waits");
    first.set_queued(devices[0], ns(0));
    assert!(ask(20, 20).is_err());
    first.withdraw_request(devices[0]);
    assert_eq!(ask(20, 20), Ok(()), "it has nothing to launch");
    first.settled(devices[0], ms(70), NOW);
    assert_eq!(ask(30, 30), Err(NOW + ms(50)), "it may be about to");
}

#[test]
fn a_launch_that_is_paid_late_is_no_step_ahead() {
    let folder = directory();
    let ([first, second], devices) = held_back(&folder);
    second.couple(devices, NOW);
    let due = NOW + ms(100);
    assert_eq!(second.acquire_since(devices[1], ms(1), NOW + ms(1), || due), Ok(()));
    assert!(
        second.acquire_since(devices[1], ms(1), due + ns(1), || due + ns(1)).is_err(),
        "its own share binds"
    );
    // The first device pays its launch of the same round only after the second device has asked for the next round.
    assert_eq!(first.acquire_since(devices[0], ms(5), NOW, || due + ns(2)), Ok(()));
    let asks_again = due + ms(3);
    assert_eq!(first.acquire_since(devices[0], ms(1), asks_again, || asks_again), Err(due + ms(10)));
    assert_eq!(second.acquire_since(devices[1], ms(1), due + ns(1), || asks_again), Err(due + ms(10)));
}

#[test]
fn no_more_is_saved_up_than_others_in_step_have() {
    let folder = directory();
    let ([first, second], devices) = held_back(&folder);
    second.couple(devices, NOW);
    let due = NOW + ms(200);
    assert_eq!(first.acquire(devices[0], ms(20), due), Ok(()));
    assert_eq!(second.acquire(devices[1], ms(10), due), Ok(()));
    assert_eq!(
        second.acquire(devices[1], ms(1), due),
        Err(due + ms(19)),
        "of 20 ms that it had, a millisecond on the clock"
    );
}

#[test]
fn a_minute_later_each_goes_by_itself() {
    let folder = directory();
    let ([_first, second], devices) = held_back(&folder);
    second.couple(devices, NOW - COUPLING_LASTS + ms(1));
    assert!(second.is_coupled(devices[1], NOW) && !second.is_coupled(devices[1], NOW + ms(1)));
    assert_eq!(second.acquire(devices[1], ms(1), NOW + ms(1)), Ok(()));
}

#[test]
fn a_batch_that_a_launch_on_another_device_ended_names_that_device() {
    let folder = directory();
    let ([first, second], devices) = held_back(&folder);
    let due = NOW + ms(100);
    let ran = MeasuredBatch { predicted: ms(1), length: ms(60), until: due + ms(2), after: ns(0) };
    assert_eq!(second.unblocked_by(devices[1], &ran), None);
    assert_eq!(first.acquire_since(devices[0], ms(1), NOW + ns(1), || due), Ok(()));
    let kept = ThrottledLaunch { since: NOW + ns(1), until: due, is_overdraft: false };
    assert_eq!(second.unblocked_by(devices[1], &ran), Some((devices[0], kept)));
    assert_eq!(first.unblocked_by(devices[0], &ran), None, "not by itself");
}

#[test]
fn a_throttled_launch_gets_an_overdraft_while_a_batch_on_another_device_overruns() {
    let folder = directory();
    let ([first, second], [held, overdue]) = held_back(&folder);
    let ahead = |at| first.overdraw_for_peer(held, ms(1), NOW, NOW + ms(at));
    assert!(!ahead(2));
    second.note_overrun(held, NOW + ms(2));
    assert!(!ahead(2), "its own");
    second.note_overrun(overdue, NOW + ms(2));
    let is_asking = || first.process_activity(held, NOW + ms(2)).any(|process| process.waits);
    assert!(is_asking() && ahead(2) && !is_asking());
    let ran = MeasuredBatch { predicted: ms(1), length: ms(6), until: NOW + ms(3), after: ns(0) };
    let kept = ThrottledLaunch { since: NOW, until: NOW + ms(2), is_overdraft: true };
    assert_eq!(second.unblocked_by(overdue, &ran), Some((held, kept)));
    assert_eq!(first.acquire(held, ms(1), NOW + ms(2)), Err(NOW + ms(102)), "it is owed");
    assert!(!ahead(3), "that may have been what it waited for");
    second.note_overrun(overdue, NOW + ms(3));
    first.set_queued(held, ms(1));
    assert!(!ahead(3), "its work may be what is waited for");
    first.set_queued(held, ns(0));
    assert!(!ahead(9), "no process has published it for long");
    second.clear_overrun(overdue);
    assert!(!ahead(3));
    second.note_overrun(overdue, NOW + ms(4));
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
    assert!(ahead(ms(20), ms(1)), "as much as may be saved up");
    assert!(ahead(ms(5), ms::<WallTime>(1) + ns(1)), "what costs more than is saved goes once");
    assert!(
        !ahead(ns(1), ms::<WallTime>(1) + ns(2)) && !ahead(ns(1), ms::<WallTime>(21) - ns(1)),
        "a quarter of the clock pays for it"
    );
    assert!(ahead(ns(1), ms(21)));
}

#[test]
fn a_throttled_launch_is_woken_once_when_a_batch_on_another_device_overruns() {
    let folder = directory();
    let ([first, second], [held, overdue]) = held_back(&folder);
    let rings = || first.wake_sequence(held);
    let before = rings();
    second.note_overrun(held, NOW + ms(1));
    assert_eq!(rings(), before, "its own");
    second.note_overrun(overdue, NOW + ms(1));
    assert_eq!(rings(), before + 1);
    second.note_overrun(overdue, NOW + ms(2));
    assert_eq!(rings(), before + 1, "it looks by itself now");
    second.note_overrun(overdue, NOW + ms(20));
    assert_eq!(rings(), before + 2);
    second.note_overrun(overdue, NOW + ms(100));
    assert_eq!(rings(), before + 2, "its time has come");
    first.withdraw_request(held);
    second.note_overrun(overdue, NOW + ms(200));
    assert_eq!(rings(), before + 2, "no process sleeps");
}
