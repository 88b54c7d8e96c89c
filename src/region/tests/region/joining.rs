//! Tests of processes that join, and of the devices and limits that they bring.

use std::{fs, os::unix::fs::PermissionsExt as _, thread};

use gpuslice_region::{
    DeviceRequest, Difference, Limits, Member, Monitor, Reaped, RegionError, Trust, Uuid,
    layout::{MAX_DEVICES, MAX_SLOTS},
};

use crate::puppet::{Puppet, TOTAL, UUID, directory, join, request};
use gpuslice_policy::time::GpuTime;

#[test]
fn the_first_process_makes_the_region_and_its_limits_hold_for_the_next() {
    let directory = directory();
    let path = directory.path().join("region");
    let (first, device) = join(&path, 100);
    assert_eq!(first.reserve(device, 40), Ok(()));
    let (second, differences) = Member::join(&path, Trust::OwnerOnly, &[request(900)]).unwrap();
    let (holds, asked) = (request(100).limits, request(900).limits);
    assert_eq!(differences, [Difference { uuid: UUID, asked, holds }]);
    let device = second.device(&UUID).unwrap();
    assert_eq!(second.limits(device), holds);
    assert_eq!((second.held(device), second.own(device)), (40, 0));
    assert_eq!(second.devices()[0].total, TOTAL);
}

#[test]
fn a_region_without_living_members_is_made_anew() {
    let directory = directory();
    let path = directory.path().join("region");
    let mut puppet = Puppet::joined(&path, 100);
    puppet.ask("reserve 70");
    let monitor = Monitor::open(&path, Trust::OwnerOnly).unwrap().unwrap();
    let epoch = monitor.epoch();
    puppet.kill();
    let other = DeviceRequest { uuid: Uuid([9; 16]), ..request(900) };
    let (member, differences) = Member::join(&path, Trust::OwnerOnly, &[other, request(900)]).unwrap();
    assert!(differences.is_empty());
    let device = member.device(&UUID).unwrap();
    assert_eq!(device.index(), 1);
    assert_eq!((member.held(device), member.limits(device).memory), (0, Some(900)));
    assert_ne!(monitor.epoch(), epoch);
}

#[test]
fn a_device_that_is_new_is_added_and_one_that_is_named_twice_is_there_once() {
    let directory = directory();
    let path = directory.path().join("region");
    let (first, device) = join(&path, 100);
    let limits = Limits { memory: None, cores_permille: 1000, ..Limits::NONE };
    let other = DeviceRequest { uuid: Uuid([9; 16]), total: 5, limits };
    let (second, _) = Member::join(&path, Trust::OwnerOnly, &[other, other]).unwrap();
    assert_eq!(first.devices().len(), 2);
    assert_eq!(first.device(&UUID), Some(device));
    let added = first.device(&other.uuid).unwrap();
    assert_eq!(first.limits(added), limits);
    assert_eq!(second.reserve(added, 1 << 40), Ok(()));
    assert_eq!((first.held(added), first.held(device)), (1 << 40, 0));
}

#[test]
fn a_limit_that_is_changed_holds_at_once_and_for_all() {
    let directory = directory();
    let path = directory.path().join("region");
    let (member, device) = join(&path, 100);
    assert_eq!(member.reserve(device, 100), Ok(()));
    let monitor = Monitor::open(&path, Trust::OwnerOnly).unwrap().unwrap();
    monitor.set_limits(device, Limits { memory: Some(150), cores_permille: 5000, ..Limits::NONE });
    assert_eq!(member.limits(device), Limits { memory: Some(150), cores_permille: 1000, ..Limits::NONE });
    assert_eq!(member.reserve(device, 50), Ok(()));
    assert!(member.reserve(device, 1).is_err());
    monitor.set_limits(device, Limits { memory: Some(10), cores_permille: 1000, ..Limits::NONE });
    assert!(member.reserve(device, 1).is_err());
    assert_eq!(member.held(device), 150);
}

#[test]
fn launches_are_free_until_they_are_paid_for_on_any_device() {
    let directory = directory();
    let path = directory.path().join("region");
    let mut paced = Puppet::joined(&path, 100);
    let monitor = Monitor::open(&path, Trust::OwnerOnly).unwrap().unwrap();
    assert!(!monitor.is_unlimited());
    paced.kill();
    let mut whole = request(100);
    whole.limits.cores_permille = 1000;
    let (member, _) = Member::join(&path, Trust::OwnerOnly, &[whole]).unwrap();
    let device = member.device(&UUID).unwrap();
    assert!(member.is_unlimited(), "made anew");
    let told = |limits: Limits| {
        monitor.set_limits(device, limits);
        (member.is_unlimited(), member.is_paced(device))
    };
    assert_eq!(told(Limits { memory: Some(50), ..whole.limits }), (true, false));
    assert_eq!(told(Limits { cores_permille: 999, ..whole.limits }), (false, true));
    // From here on a launch reads the entry of its device.
    assert_eq!(told(whole.limits), (false, false));
}

#[test]
fn a_process_is_seen_with_its_memory_and_its_denials() {
    let directory = directory();
    let (member, device) = join(&directory.path().join("region"), 100);
    member.charge(device, 130);
    assert!(member.reserve(device, 1).is_err());
    member.count_quota_denial(device);
    let processes = member.processes();
    assert_eq!(processes.len(), 1);
    assert_eq!((processes[0].slot, processes[0].pid), (member.slot(), std::process::id()));
    assert_ne!((processes[0].start, processes[0].pid_namespace), (0, 0));
    assert_eq!(
        (processes[0].held.as_slice(), processes[0].quota_denials.as_slice()),
        ([130].as_slice(), [1].as_slice())
    );
    assert_eq!(member.refund(device, 200), 70);
    assert_eq!(member.held(device), 0);
    member.leave();
    let (member, device) = join(&directory.path().join("region"), 100);
    assert_eq!(member.processes()[0].quota_denials[device.index()], 0);
}

#[test]
fn processes_that_start_at_once_are_one_slice_with_a_slot_each() {
    let directory = directory();
    let path = directory.path().join("region").display().to_string();
    let mut puppets: Vec<_> = (0..24).map(|_| Puppet::start()).collect();
    puppets.iter_mut().for_each(|puppet| puppet.tell(&format!("join {path} 48")));
    let mut slots: Vec<_> = puppets.iter_mut().map(Puppet::hear).collect();
    slots.sort();
    slots.dedup();
    assert_eq!(slots.len(), 24, "{slots:?}");
    let granted =
        puppets.iter_mut().filter_map(|puppet| (puppet.ask("reserve 3") == "Ok(())").then_some(())).count();
    assert_eq!(granted, 16);
}

#[test]
fn threads_that_join_at_once_have_a_slot_each() {
    let directory = directory();
    let path = &directory.path().join("region");
    let members: Vec<Member> = thread::scope(|scope| {
        let threads: Vec<_> = (0..16).map(|_| scope.spawn(|| join(path, 10).0)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut slots: Vec<_> = members.iter().map(Member::slot).collect();
    slots.sort_unstable();
    assert_eq!(slots, (0..16).collect::<Vec<_>>());
}

#[test]
fn making_a_region_leaves_one_file_for_its_owner_alone_whatever_the_mask() {
    let directory = directory();
    let path = directory.path().join("region");
    let mut puppet = Puppet::start();
    puppet.ask("mask");
    assert_eq!(puppet.ask(&format!("join {} 1", path.display())), "slot 0");
    let names: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(names, [path.as_path()]);
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
}

#[test]
fn the_dead_of_a_removed_region_are_not_asked_for_in_another_that_has_its_path() {
    let directory = directory();
    let path = directory.path().join("region");
    let (member, device) = join(&path, 1);
    fs::remove_file(&path).unwrap();
    assert_eq!(member.reap().unwrap(), Reaped::Nobody);
    let (_newcomer, _) = join(&path, 1);
    // By the locks of the other region the owner is alive. By its process number and start time it is this process.
    assert_eq!(member.reserve(device, 1), Ok(()));
    assert_eq!((member.reap().unwrap(), member.own(device)), (Reaped::Nobody, 1));
}

#[test]
fn a_process_that_waits_for_a_suspended_newcomer_is_told_its_pid() {
    let directory = directory();
    let path = directory.path().join("region");
    let mut suspended = Puppet::joined(&path, 1);
    assert_eq!(suspended.ask(&format!("lock {}", path.display())), "locked");
    suspended.signal(libc::SIGSTOP);
    let error = Member::join(&path, Trust::OwnerOnly, &[]).unwrap_err();
    suspended.signal(libc::SIGCONT);
    assert!(
        matches!(&error, RegionError::Busy { by, .. } if i64::from(*by) == i64::from(suspended.pid())),
        "{error}"
    );
    suspended.kill();
    assert!(Member::join(&path, Trust::OwnerOnly, &[]).is_ok());
}

#[test]
fn a_full_table_refuses_the_next_process_and_no_other() {
    let directory = directory();
    let path = directory.path().join("region");
    let mut members: Vec<_> = (0..MAX_SLOTS).map(|_| join(&path, 1)).collect();
    let error = Member::join(&path, Trust::OwnerOnly, &[]).unwrap_err();
    assert!(matches!(error, RegionError::TableFull { .. }), "{error}");
    assert_eq!(members[MAX_SLOTS - 1].0.reserve(members[MAX_SLOTS - 1].1, 1), Ok(()));
    members.swap_remove(5).0.leave();
    assert_eq!(join(&path, 1).0.slot(), 5);
}

#[test]
fn more_devices_than_there_is_room_for_are_refused_and_leave_no_process_behind() {
    let directory = directory();
    let path = directory.path().join("region");
    let devices = |count: usize| -> Vec<_> {
        (0..count)
            .map(|index| DeviceRequest { uuid: Uuid((index as u128).to_le_bytes()), ..request(1) })
            .collect()
    };
    let error = Member::join(&path, Trust::OwnerOnly, &devices(MAX_DEVICES + 1)).unwrap_err();
    assert!(matches!(error, RegionError::TooManyDevices { .. }), "{error}");
    let (member, _) = Member::join(&path, Trust::OwnerOnly, &devices(MAX_DEVICES)).unwrap();
    assert_eq!((member.devices().len(), member.processes().len(), member.slot()), (MAX_DEVICES, 1, 0));
}

#[test]
fn a_missing_region_has_no_monitor() {
    let directory = directory();
    assert!(Monitor::open(&directory.path().join("region"), Trust::OwnerOnly).unwrap().is_none());
}

#[test]
fn limits_beyond_their_range_are_the_nearest_and_count_as_no_difference() {
    let directory = directory();
    let path = directory.path().join("region");
    let limits = Limits { memory: None, cores_permille: 0, burst: GpuTime::MAX, ..Limits::NONE };
    let wanted = [DeviceRequest { limits, ..request(1) }];
    let (first, _) = Member::join(&path, Trust::OwnerOnly, &wanted).unwrap();
    let (_second, differences) = Member::join(&path, Trust::OwnerOnly, &wanted).unwrap();
    assert_eq!(differences, []);
    let device = first.device(&UUID).unwrap();
    let nearest =
        Limits { memory: None, cores_permille: 1, burst: GpuTime::from_millis(60_000), ..Limits::NONE };
    assert_eq!(first.limits(device), nearest);
}
