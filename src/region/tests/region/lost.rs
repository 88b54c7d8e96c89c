//! Tests of members of a region whose file is removed, replaced or truncated.

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::{FileExt as _, MetadataExt as _, symlink},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use gpuslice_region::{
    DeviceRequest, Member, Monitor, RefusalReason, RegionError, Removal, Trust, Uuid,
    layout::{FIGURES, VERSION},
    remove_for_good, remove_if_unused, remove_if_unused_now,
};

use crate::puppet::{Puppet, directory, join, kill, request};

const LIMIT: u64 = 1000;

fn shorten(path: &Path, size: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(size).unwrap();
}

#[test]
fn a_member_of_a_whole_region_is_told_so() {
    let directory = directory();
    let (member, _device) = join(&directory.path().join("region"), LIMIT);
    member.check().unwrap();
}

#[test]
fn all_that_is_used_of_a_region_has_space_so_that_a_full_disk_takes_none_of_it_and_no_more_has() {
    let directory = directory();
    let path = directory.path().join("region");
    let figure = |name: &str| FIGURES.iter().find(|(known, _)| *known == name).unwrap().1 as u64;
    let space = || fs::metadata(&path).unwrap().blocks() * 512;
    for devices in 1..=3 {
        let wanted = [7, 8, 9].map(|byte| DeviceRequest { uuid: Uuid([byte; 16]), ..request(LIMIT) });
        let (member, _) = Member::join(&path, Trust::OwnerOnly, &wanted[..devices]).unwrap();
        assert_eq!(member.devices().len(), devices);
        let used = figure("time.offset") + devices as u64 * figure("time.size");
        assert!((used..used + 64 * 1024).contains(&space()), "{devices} devices: {} of {used}", space());
    }
}

#[test]
fn where_there_is_no_space_for_a_device_no_process_joins_and_none_is_ended() {
    let directory = directory();
    // The file system has room for the words of one device and not of two.
    let mut puppet = Puppet::start();
    if puppet.ask(&format!("small {} 1300", directory.path().display())) != "mounted" {
        eprintln!(
            "SKIP a region without space for a device: this process may not mount; elsewhere: as root, where mounts are allowed"
        );
        return;
    }
    let path = directory.path().join("region").display().to_string();
    let answer = puppet.ask(&format!("join {path} {LIMIT} 2"));
    assert!(answer.contains("take room for a device") && answer.contains("make room there"), "{answer}");
    assert_eq!(puppet.ask(&format!("join {path} {LIMIT}")), "slot 0");
    assert_eq!(puppet.ask("use 100"), "Ok(())");
    assert_eq!(puppet.ask("reserve 600"), "Ok(())");
}

#[test]
fn a_shortened_region_grants_nothing_and_says_so() {
    let figure = |name: &str| FIGURES.iter().find(|(known, _)| *known == name).unwrap().1 as u64;
    let held = figure("held.offset");
    for size in [0, 1, figure("devices.offset"), figure("slots.offset"), held, held + figure("held.row")] {
        let directory = directory();
        let path = directory.path().join("region");
        let (member, device) = join(&path, LIMIT);
        member.reserve(device, 10).unwrap();
        shorten(&path, size);
        let grants = member.reserve(device, 1);
        assert!(matches!(member.check().unwrap_err(), RegionError::Damaged { .. }), "{size}");
        if size > held {
            // Every page that this reservation needs is still there, and so is the limit.
            grants.unwrap();
            continue;
        }
        assert_eq!(grants.unwrap_err().why, RefusalReason::TooLarge, "{size}");
        member.charge(device, 7);
        assert_eq!(member.refund(device, 17), 10);
        member.count_quota_denial(device);
        assert_eq!((member.limits(device).memory, member.processes().len()), (Some(0), 0));
    }
}

#[test]
fn a_region_that_is_shortened_and_made_longer_again_grants_nothing_and_says_so() {
    let directory = directory();
    let path = directory.path().join("region");
    let (member, device) = join(&path, LIMIT);
    let size = fs::metadata(&path).unwrap().len();
    shorten(&path, 0);
    shorten(&path, size);
    assert_eq!(member.reserve(device, 1).unwrap_err().why, RefusalReason::TooLarge);
    assert!(matches!(member.check().unwrap_err(), RegionError::Damaged { .. }));
}

#[test]
fn no_thread_is_granted_more_than_the_limit_while_the_region_is_shortened() {
    for _round in 0..20 {
        let directory = directory();
        let path = directory.path().join("region");
        let (member, device) = join(&path, LIMIT);
        let granted: u64 = thread::scope(|scope| {
            let take = || {
                let mut granted = 0;
                // Each thread reserves until the quota is used up or the region is lost.
                while member.reserve(device, 1).is_ok() {
                    granted += 1;
                }
                granted
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            shorten(&path, 0);
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert!(granted <= LIMIT, "{granted}");
    }
}

#[test]
fn regions_that_are_shortened_do_not_take_others_with_them() {
    let directory = directory();
    let [lost, whole] = ["lost", "whole"].map(|name| directory.path().join(name));
    let (first, second) = (join(&lost, LIMIT), join(&whole, LIMIT));
    second.0.reserve(second.1, LIMIT - 1).unwrap();
    shorten(&lost, 0);
    assert!(first.0.reserve(first.1, 1).is_err());
    assert_eq!((second.0.reserve(second.1, 1), second.0.held(second.1)), (Ok(()), LIMIT));
    second.0.check().unwrap();
}

#[test]
fn a_monitor_outlives_the_shortening_of_its_region() {
    let directory = directory();
    let path = directory.path().join("region");
    let _puppet = Puppet::joined(&path, LIMIT);
    let monitor = Monitor::open(&path, Trust::OwnerOnly).unwrap().unwrap();
    shorten(&path, 0);
    assert_eq!((monitor.processes().len(), monitor.devices().len(), monitor.is_ready()), (0, 0, false));
}

#[test]
fn a_removed_or_replaced_region_is_told() {
    let directory = directory();
    let path = directory.path().join("region");
    let (member, _device) = join(&path, LIMIT);
    fs::remove_file(&path).unwrap();
    assert!(matches!(member.check().unwrap_err(), RegionError::Replaced { .. }));
    let (newcomer, _device) = join(&path, LIMIT);
    assert!(matches!(member.check().unwrap_err(), RegionError::Replaced { .. }));
    newcomer.check().unwrap();
    fs::write(directory.path().join("other"), "notes").unwrap();
    fs::rename(directory.path().join("other"), &path).unwrap();
    assert!(matches!(newcomer.check().unwrap_err(), RegionError::Replaced { .. }));
}

/// Makes members of a region that has just lost its name, by removal or replacement.
fn two_without_their_file(path: &Path, lose: impl FnOnce()) -> [Puppet; 2] {
    let puppets = [Puppet::joined(path, LIMIT), Puppet::joined(path, LIMIT)];
    lose();
    puppets
}

#[test]
fn members_keep_to_their_limits_without_their_file() {
    for is_replaced in [false, true] {
        let directory = directory();
        let path = directory.path().join("region");
        let [mut first, mut second] = two_without_their_file(&path, || match is_replaced {
            false => fs::remove_file(&path).unwrap(),
            true => {
                fs::write(directory.path().join("other"), "notes").unwrap();
                fs::rename(directory.path().join("other"), &path).unwrap();
            }
        });
        assert_eq!(second.ask("measure"), "measured");
        assert_eq!(first.ask("reserve 600"), "Ok(())");
        assert!(second.ask("reserve 600").contains("Full"));
        assert!(first.ask("check").contains("Replaced"));
        // Dead processes are found by their numbers, also before their parents have waited for them.
        match is_replaced {
            false => first.kill(),
            true => first.kill_to_zombie(),
        }
        assert_eq!(second.ask("back"), "true");
        assert_eq!(second.ask("reserve 600"), "Ok(())");
        assert!(second.ask("reserve 600").contains("Full"));
    }
}

#[test]
fn a_newcomer_is_refused_while_members_live_without_their_file() {
    let directory = directory();
    let path = directory.path().join("region");
    let [mut first, mut second] = two_without_their_file(&path, || fs::remove_file(&path).unwrap());
    let newcomer = || Member::join(&path, Trust::OwnerOnly, &[request(LIMIT)]);
    let refused = || match newcomer() {
        Err(RegionError::Detached { members, .. }) => members,
        other => panic!("{other:?}"),
    };
    let number = |puppet: &Puppet| u32::try_from(puppet.pid()).unwrap();
    let mut members = refused();
    members.sort_unstable();
    let mut expected = [number(&first), number(&second)];
    expected.sort_unstable();
    assert_eq!(members, expected);
    assert!(!path.exists(), "no second region was made");
    first.kill();
    assert_eq!(refused(), [number(&second)]);
    // A child has the memory and no slot.
    let child = second.ask("fork").parse().unwrap();
    second.kill();
    newcomer().unwrap().0.leave();
    kill(child, libc::SIGKILL);
}

#[test]
fn a_region_with_another_name_is_the_same_region() {
    let directory = directory();
    let path = directory.path().join("region");
    let [mut first, mut second] = two_without_their_file(&path, || {
        fs::rename(&path, directory.path().join("renamed")).unwrap();
    });
    assert_eq!(second.ask("measure"), "measured");
    assert_eq!(first.ask("reserve 600"), "Ok(())");
    first.kill();
    assert_eq!(second.ask("back"), "true");
    assert_eq!(second.ask("reserve 600"), "Ok(())");
}

#[test]
fn a_region_that_is_only_out_of_sight_is_whole() {
    let directory = directory();
    let path = directory.path().join("region");
    let mut puppet = Puppet::joined(&path, LIMIT);
    if puppet.ask(&format!("chroot {}", directory.path().join("empty").display())) != "there" {
        eprintln!("SKIP a region that is out of sight: needs root; to mend it: run the tests as root");
        return;
    }
    assert_eq!(puppet.ask("check"), "Ok(())");
    assert_eq!(puppet.ask("reserve 600"), "Ok(())");
}

/// Starts a process that may make files of `bytes`. If the process has a lower limit already, skips and returns `None`.
fn limited_to_files_of(bytes: u64) -> Option<Puppet> {
    let mut puppet = Puppet::start();
    if puppet.ask(&format!("files {bytes}")) == "limited" {
        return Some(puppet);
    }
    eprintln!("SKIP a limit on the size of files: there is a lower one; elsewhere: without a hard limit");
    None
}

#[test]
fn a_limit_on_the_size_of_files_refuses_a_region_and_ends_no_process() {
    let directory = directory();
    let Some(mut puppet) = limited_to_files_of(1 << 20) else { return };
    let told = puppet.ask(&format!("join {} {LIMIT}", directory.path().join("region").display()));
    assert!(told.contains("File too large"), "{told:?}");
}

#[test]
fn a_limit_on_the_size_of_files_refuses_the_arbiter_leases_and_ends_no_process() {
    let directory = directory();
    let Some(mut puppet) = limited_to_files_of(4095) else { return };
    let told = puppet.ask(&format!("leases {}", directory.path().display()));
    assert!(told.contains("File too large"), "{told:?}");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "a file was made");
}

#[test]
fn members_of_a_removed_region_are_found_behind_a_link_and_beside_names_that_are_not_utf8() {
    let directory = directory();
    let [real, link] = ["real", "link"].map(|name| directory.path().join(name));
    fs::create_dir(&real).unwrap();
    symlink(&real, &link).unwrap();
    let path = link.join("region");
    let mut puppet = Puppet::joined(&path, LIMIT);
    assert_eq!(puppet.ask(&format!("map {}", real.display())), "mapped");
    fs::remove_file(&path).unwrap();
    let refused = Member::join(&path, Trust::OwnerOnly, &[request(LIMIT)]).unwrap_err().to_string();
    assert!(refused.contains(&format!("was removed while in use by process {}", puppet.pid())), "{refused}");
}

#[test]
fn a_region_is_removed_when_its_last_member_has_ended_and_not_before() {
    let directory = directory();
    let path = directory.path().join("region");
    let gone = || remove_if_unused(&path, Trust::OwnerOnly).unwrap();
    assert_eq!(gone(), Removal::Gone);
    let mut puppets = [Puppet::joined(&path, LIMIT), Puppet::joined(&path, LIMIT)];
    assert_eq!(gone(), Removal::InUse(2));
    puppets[0].kill();
    assert_eq!(gone(), Removal::InUse(1));
    puppets[1].kill();
    assert_eq!(gone(), Removal::Gone);
    assert!(!path.exists());
}

#[test]
fn a_region_that_somebody_is_joining_stays() {
    let directory = directory();
    let path = directory.path().join("region");
    join(&path, 1).0.leave();
    let mut joining = Puppet::start();
    assert_eq!(joining.ask(&format!("lock {}", path.display())), "locked");
    assert_eq!(remove_if_unused(&path, Trust::OwnerOnly).unwrap(), Removal::InUse(1));
    // An attempt that waits takes half a second.
    let begun = Instant::now();
    for _ in 0..20 {
        assert_eq!(remove_if_unused_now(&path, Trust::OwnerOnly).unwrap(), Removal::InUse(1));
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    joining.kill();
    assert_eq!(remove_if_unused(&path, Trust::OwnerOnly).unwrap(), Removal::Gone);
}

#[test]
fn a_file_that_is_no_region_is_not_removed() {
    let directory = directory();
    let path = directory.path().join("region");
    fs::write(&path, "notes").unwrap();
    assert!(remove_if_unused(&path, Trust::OwnerOnly).is_err());
    assert_eq!(fs::read(&path).unwrap(), b"notes");
}

#[test]
fn a_region_of_another_version_is_removed_only_while_no_process_lives_in_it() {
    let directory = directory();
    let path = directory.path().join("region");
    let (member, _) = join(&path, LIMIT);
    let file = OpenOptions::new().write(true).open(&path).unwrap();
    file.write_at(&(VERSION + 1).to_ne_bytes(), 8).unwrap();
    for remove in [remove_if_unused, remove_for_good] {
        let refused = remove(&path, Trust::OwnerOnly);
        assert!(matches!(refused, Err(RegionError::Version { found, .. }) if found == VERSION + 1));
    }
    assert!(path.exists());
    member.leave();
    assert_eq!(remove_if_unused(&path, Trust::OwnerOnly).unwrap(), Removal::Gone);
    assert!(!path.exists());
}

#[test]
fn a_process_that_joins_while_regions_are_removed_is_in_the_region_that_stays() {
    let directory = directory();
    let path = &directory.path().join("region");
    thread::scope(|scope| {
        let remove = || {
            for _ in 0..300 {
                let _gone_or_used = remove_if_unused(path, Trust::OwnerOnly);
            }
        };
        let removers: Vec<_> = (0..3).map(|_| scope.spawn(remove)).collect();
        while removers.iter().any(|remover| !remover.is_finished()) {
            let (member, _) = Member::join(path, Trust::OwnerOnly, &[request(1)]).unwrap();
            member.check().unwrap();
            member.leave();
        }
    });
}
