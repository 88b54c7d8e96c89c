//! Tests that a slice pays its debt while no process of it is alive.

use std::{fs::OpenOptions, os::unix::fs::FileExt as _, path::Path, time::Duration};

use gpuslice_region::{
    Device, DeviceRequest, Limits, Member, Removal, Trust, Uuid, layout::FIGURES, remove_if_unused,
};

use crate::puppet::{directory, request};
use gpuslice_policy::time::GpuTime;
use gpuslice_policy::time::literals::{ms, ns};

/// GPU time of the kernel that is owed. No test takes long enough for the share to pay it.
const KERNEL: GpuTime = GpuTime::from_millis(30_000);

fn offset(name: &str) -> u64 {
    u64::try_from(FIGURES.iter().find(|(known, _)| *known == name).unwrap().1).unwrap()
}

use gpuslice_region::now;

/// Makes a device with a number, a share in thousandths, and a burst in milliseconds.
fn device(number: u8, permille: u32, burst: u64) -> DeviceRequest {
    let limits = Limits { memory: None, cores_permille: permille, burst: ms(burst), ..Limits::NONE };
    DeviceRequest { uuid: Uuid([number; 16]), limits, ..request(1) }
}

/// Makes a member of a slice with these devices.
fn member(path: &Path, devices: &[DeviceRequest]) -> (Member, Vec<Device>) {
    let (member, _) = Member::join(path, Trust::OwnerOnly, devices).unwrap();
    let places = devices.iter().map(|device| member.device(&device.uuid).unwrap()).collect();
    (member, places)
}

/// Returns the GPU time that the slice owes on a device, in milliseconds.
#[track_caller]
fn owed(member: &Member, device: Device) -> u64 {
    member.rate_limit(device).gpu(member.paid_until(device).since(now())).count(ms(1))
}

/// Makes a slice that has run the kernel on its devices, and has no living process.
fn left_behind(path: &Path, devices: &[DeviceRequest]) {
    let (member, places) = member(path, devices);
    places.iter().for_each(|device| member.acquire(*device, ns(KERNEL.nanos()), now()).unwrap());
    places.iter().for_each(|device| member.settled(*device, ns(KERNEL.nanos()), now()));
    member.leave();
}

#[test]
fn the_debt_of_a_slice_outlives_its_last_process() {
    let directory = directory();
    let path = directory.path().join("region");
    left_behind(&path, &[device(1, 100, 20)]);
    for _ in 0..3 {
        let (member, places) = member(&path, &[device(1, 100, 20)]);
        let owed = owed(&member, places[0]);
        assert!((29_000..=29_980).contains(&owed), "{owed} ms of 30000 and what 20 ms of burst paid");
        assert!(member.acquire(places[0], ns(1), now()).is_err());
        member.leave();
    }
}

#[test]
fn gpu_time_is_owed_whatever_share_pays_for_it() {
    let directory = directory();
    let path = directory.path().join("region");
    left_behind(&path, &[device(1, 100, 20)]);
    for permille in [500, 1000, 10, 200] {
        let (member, places) = member(&path, &[device(1, permille, 20)]);
        let wall = member.paid_until(places[0]).since(now()).count(ms(1));
        let expected = 29_980 * 1000 / u64::from(permille);
        assert!((expected * 9 / 10..=expected).contains(&wall), "{permille}: {wall} ms of {expected}");
        member.leave();
    }
}

#[test]
fn the_debt_on_a_device_waits_for_a_process_that_uses_the_device() {
    let directory = directory();
    let path = directory.path().join("region");
    left_behind(&path, &[device(1, 100, 20), device(2, 100, 20)]);
    for number in 3..9 {
        let (member, places) = member(&path, &[device(number, 100, 20)]);
        assert_eq!(owed(&member, places[0]), 0, "{number}");
        member.leave();
    }
    // The devices are in the other order, and one of them is added to a slice in use.
    let (first, places) = member(&path, &[device(2, 100, 20)]);
    assert!(owed(&first, places[0]) > 29_000);
    let (second, places) = member(&path, &[device(1, 100, 20)]);
    assert!(owed(&second, places[0]) > 29_000);
    assert!(first.devices().len() == 2);
}

#[test]
fn a_burst_that_was_used_is_not_granted_again() {
    let directory = directory();
    let path = directory.path().join("region");
    // The burst is 40 s of GPU time, and the kernel uses 30 s.
    left_behind(&path, &[device(1, 100, 40_000)]);
    let (member, places) = member(&path, &[device(1, 100, 40_000)]);
    let saved = member.rate_limit(places[0]).gpu(now().since(member.paid_until(places[0]))).count(ms(1));
    assert!((10_000..11_000).contains(&saved), "{saved} ms of 10000 that are left");
    member.leave();
}

#[test]
fn a_region_stays_until_a_new_one_would_grant_no_more() {
    let directory = directory();
    let path = directory.path().join("region");
    let remove = || remove_if_unused(&path, Trust::OwnerOnly).unwrap();
    // Three slices: one owes time, one must save up its burst again, and one owes time on a device that no process uses.
    for (devices, next, most) in [
        ([device(1, 100, 20)], None, 300),
        ([device(1, 100, 40_000)], None, 300),
        ([device(1, 100, 20)], Some(device(2, 100, 20)), 300),
    ] {
        left_behind(&path, &devices);
        if let Some(next) = next {
            member(&path, &[next]).0.leave();
        }
        let Removal::Owing(paid_in) = remove() else { panic!("{devices:?}: {:?}", remove()) };
        assert!(paid_in > Duration::from_secs(200) && paid_in <= Duration::from_secs(most), "{paid_in:?}");
        std::fs::remove_file(&path).unwrap();
    }
    // The kernel takes 2 ms of GPU time, at nearly the whole rate.
    let (member, places) = member(&path, &[device(1, 999, 1)]);
    member.acquire(places[0], ms(2), now()).unwrap();
    member.settled(places[0], ms(2), now());
    let paid_until = member.paid_until(places[0]);
    member.leave();
    while now() < paid_until + ms(2) {
        std::hint::spin_loop();
    }
    assert_eq!(remove(), Removal::Gone);
}

#[test]
fn a_slice_that_used_no_time_owes_nothing() {
    let directory = directory();
    let path = directory.path().join("region");
    member(&path, &[device(1, 1, 60_000)]).0.leave();
    assert_eq!(remove_if_unused(&path, Trust::OwnerOnly).unwrap(), Removal::Gone);
}

#[test]
fn a_debt_of_another_boot_is_not_believed() {
    let directory = directory();
    let path = directory.path().join("region");
    for (debts_are_kept, expected) in [(false, 0), (true, 0)] {
        left_behind(&path, &[device(1, 100, 20)]);
        if debts_are_kept {
            // The region was initialised again for another device, so the header has the debt.
            member(&path, &[device(2, 100, 20)]).0.leave();
        }
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&[1; 16], offset("header.boot")).unwrap();
        let (member, places) = member(&path, &[device(1, 100, 20)]);
        assert_eq!(owed(&member, places[0]), expected);
        member.leave();
        left_behind(&path, &[device(1, 100, 20)]);
        file.write_all_at(&[1; 16], offset("header.boot")).unwrap();
        assert_eq!(remove_if_unused(&path, Trust::OwnerOnly).unwrap(), Removal::Gone);
    }
}

#[test]
fn no_more_is_owed_than_can_be_whatever_the_words_say() {
    let directory = directory();
    let path = directory.path().join("region");
    left_behind(&path, &[device(1, 100, 20)]);
    member(&path, &[device(2, 100, 20)]).0.leave();
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    let word = |name: &str| offset("debts.offset") + offset(name);
    file.write_all_at(&u64::MAX.to_ne_bytes(), word("debt.paid_until")).unwrap();
    file.write_all_at(&u32::MAX.to_ne_bytes(), word("debt.cores_permille")).unwrap();
    file.write_all_at(&u64::MAX.to_ne_bytes(), word("debt.burst")).unwrap();
    let (member, places) = member(&path, &[device(1, 100, 20)]);
    assert!((59_000..=60_000).contains(&owed(&member, places[0])));
}

/// Makes a member of a slice without burst, which has been busy for `milliseconds`.
fn busy_for(path: &Path, milliseconds: u64) -> (Member, Device) {
    let (member, places) = member(path, &[device(1, 100, 0)]);
    member.idle_until_now(places[0], now() - ms(milliseconds));
    (member, places[0])
}

/// Returns the GPU time, in milliseconds, that the slice has paid from an instant on.
fn paid_since(path: &Path, began: u64) -> u64 {
    let (member, places) = member(path, &[device(1, 100, 0)]);
    let paid = member.rate_limit(places[0]).gpu(member.paid_until(places[0]).since(ns(began))).count(ms(1));
    member.leave();
    paid
}

#[test]
fn the_dead_are_charged_the_possible_time_of_a_launch_that_nothing_predicts() {
    for (busy, expected) in [(20, 20..=24), (3000, 49..=50)] {
        let directory = directory();
        let path = directory.path().join("region");
        let (witness, _) = busy_for(&path, 0);
        let (dead, device) = busy_for(&path, busy);
        dead.set_unpredicted(device, true);
        dead.set_queued(device, ms(1));
        assert_eq!(dead.time_used(device).queued, ms(1), "the mark is no time");
        let began = now() - ms(busy);
        dead.leave();
        // The charge counts from the launch on. A tenth of 3 s has paid for part of it, so the slice owes nothing now.
        let paid = paid_since(&path, began.nanos());
        assert!(expected.contains(&paid), "{busy} ms: {paid} ms");
        assert!(witness.time_used(device).used.count(ms(1)).abs_diff(paid) <= 1, "counted as used");
    }
}

#[test]
fn the_dead_are_charged_nothing_where_all_is_known_to_have_ended() {
    let directory = directory();
    let path = directory.path().join("region");
    let (dead, device) = busy_for(&path, 20);
    dead.set_unpredicted(device, true);
    dead.set_unpredicted(device, false);
    dead.end_work(device);
    let began = now() - ms(20);
    dead.leave();
    assert_eq!(paid_since(&path, began.nanos()), 0);
}
