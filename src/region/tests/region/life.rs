//! Tests that a process counts as dead exactly if it is dead.

use std::os::fd::AsRawFd as _;

use gpuslice_region::{IntervalLocks, Monitor, Reaped, Trust, now};

use crate::puppet::{Puppet, UUID, directory, join, kill};
use gpuslice_policy::time::literals::{ms, ns};

const LIMIT: u64 = 1000;

/// Returns the number of processes and bytes held, as a monitor sees them after reaping.
fn seen(monitor: &Monitor) -> (usize, u64) {
    monitor.reap().unwrap();
    (monitor.processes().len(), monitor.held(monitor.devices()[0].device))
}

/// Makes a member process that holds 600 bytes, and a monitor.
fn one_that_holds(directory: &tempfile::TempDir) -> (Puppet, Monitor) {
    let path = directory.path().join("region");
    let mut puppet = Puppet::joined(&path, LIMIT);
    assert_eq!(puppet.ask("reserve 600"), "Ok(())");
    let monitor = Monitor::open(&path, Trust::OwnerOnly).unwrap().unwrap();
    assert_eq!(seen(&monitor), (1, 600));
    (puppet, monitor)
}

#[test]
fn a_process_that_closes_all_descriptors_lives() {
    let directory = directory();
    let (mut puppet, monitor) = one_that_holds(&directory);
    puppet.ask("close");
    assert_eq!(seen(&monitor), (1, 600));
}

#[test]
fn a_process_that_joins_has_no_descriptor_more() {
    let directory = directory();
    let mut puppet = Puppet::start();
    let before = puppet.ask("descriptors");
    assert!(
        puppet.ask(&format!("join {} 1", directory.path().join("region").display())).starts_with("slot ")
    );
    assert_eq!(puppet.ask("descriptors"), before);
}

#[test]
fn a_suspended_process_lives() {
    let directory = directory();
    let (puppet, monitor) = one_that_holds(&directory);
    puppet.signal(libc::SIGSTOP);
    assert_eq!(seen(&monitor), (1, 600));
    puppet.signal(libc::SIGCONT);
}

#[test]
fn a_killed_process_is_dead() {
    let directory = directory();
    let (mut puppet, monitor) = one_that_holds(&directory);
    puppet.kill();
    assert_eq!(monitor.reap().unwrap(), Reaped::Dead(1));
    assert_eq!(seen(&monitor), (0, 0));
}

#[test]
fn a_killed_process_that_is_still_a_zombie_is_dead() {
    let directory = directory();
    let (puppet, monitor) = one_that_holds(&directory);
    puppet.kill_to_zombie();
    assert_eq!(seen(&monitor), (0, 0));
}

#[test]
fn a_forked_child_does_not_keep_its_dead_parent_alive() {
    let directory = directory();
    let (mut puppet, monitor) = one_that_holds(&directory);
    let child: i32 = puppet.ask("fork").parse().unwrap();
    assert_eq!(seen(&monitor), (1, 600));
    puppet.kill();
    let after = seen(&monitor);
    kill(child, libc::SIGKILL);
    assert_eq!(after, (0, 0));
}

#[test]
fn a_forked_child_does_not_keep_the_interval_locks_of_its_dead_parent() {
    let directory = directory();
    let path = directory.path().join("library");
    std::fs::write(&path, "").unwrap();
    let mut puppet = Puppet::start();
    assert_eq!(puppet.ask(&format!("publish {}", path.display())), "true", "it is alone");
    let mut locks = IntervalLocks::open([&path], UUID, 2).unwrap();
    let mut is_alone = |at| {
        locks.read(at, |_| false, |_, _, _| ()).unwrap();
        !locks.has_others()
    };
    let began = now();
    assert!(!is_alone(began));
    let child: i32 = puppet.ask("fork").parse().unwrap();
    puppet.kill();
    // The child closes the file some time after its parent has forked it. The looks are more than a tenth of a second
    // apart, so each reads the directory again.
    let is_late = || now() > began + ms(10_000);
    let is_gone =
        (1_u64..).map(|look| is_alone(began + ms(200 * look))).find(|is_gone| *is_gone || is_late());
    kill(child, libc::SIGKILL);
    assert_eq!(is_gone, Some(true));
}

#[test]
fn a_dead_child_does_not_make_its_parent_dead() {
    let directory = directory();
    let (mut puppet, monitor) = one_that_holds(&directory);
    let child: i32 = puppet.ask("fork").parse().unwrap();
    kill(child, libc::SIGKILL);
    assert_eq!(puppet.ask("ping"), "pong");
    assert_eq!(seen(&monitor), (1, 600));
}

#[test]
fn a_process_that_executes_another_program_is_no_member_any_more() {
    let directory = directory();
    let (mut puppet, monitor) = one_that_holds(&directory);
    assert_eq!(puppet.ask("execute"), "executing");
    // The new program answers, so the memory of the old program is gone.
    assert_eq!(puppet.ask("hello"), "hello");
    assert_eq!(seen(&monitor), (0, 0));
}

#[test]
fn a_reservation_that_does_not_fit_takes_the_room_of_the_dead() {
    let directory = directory();
    let (mut puppet, _monitor) = one_that_holds(&directory);
    let (member, device) = join(&directory.path().join("region"), LIMIT);
    assert!(member.reserve(device, 500).is_err());
    member.note_available(device, 0);
    puppet.kill();
    assert!(member.reserve(device, LIMIT).is_err(), "the dead one's memory leaves");
    assert!(member.end_leaving(device, || Some(u64::MAX)));
    assert_eq!(member.reserve(device, LIMIT), Ok(()));
}

#[test]
fn reports_reap_when_it_is_due_and_not_before() {
    let directory = directory();
    let (mut puppet, monitor) = one_that_holds(&directory);
    assert_eq!(monitor.reap_if_due(ns(1)).unwrap(), Some(Reaped::Nobody));
    puppet.kill();
    assert_eq!(monitor.reap_if_due(ns(50_000_000)).unwrap(), None);
    assert_eq!(monitor.reap_if_due(ns(50_000_001)).unwrap(), Some(Reaped::Dead(1)));
}

#[test]
fn a_file_system_that_forgets_the_lock_of_a_closed_file_is_refused() {
    let directory = directory();
    for name in ["lower", "upper", "work", "merged"] {
        std::fs::create_dir(directory.path().join(name)).unwrap();
    }
    // The puppet mounts in its own namespace, so that nothing is left of it.
    let mut puppet = Puppet::start();
    if puppet.ask(&format!("overlay {}", directory.path().display())) != "mounted" {
        eprintln!(
            "SKIP a file system that forgets locks: this process may not mount overlayfs; elsewhere: as root, where overlayfs can be mounted"
        );
        return;
    }
    let answer = puppet.ask(&format!("join {} {LIMIT}", directory.path().join("merged/region").display()));
    assert!(answer.contains("forgets the lock") && answer.contains("/dev/shm"), "{answer}");
}

#[test]
fn a_region_in_use_is_locked_against_programs_that_remove_old_files() {
    let directory = directory();
    let path = directory.path().join("region");
    let is_free = || {
        let file = std::fs::File::open(&path).unwrap();
        // SAFETY: `flock` needs an open descriptor, which `file` owns.
        unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 }
    };
    let mut puppets = [Puppet::joined(&path, LIMIT), Puppet::joined(&path, LIMIT)];
    assert_eq!(puppets[0].ask("close"), "closed");
    puppets[1].kill();
    assert!(!is_free(), "the one that has closed its descriptors lives");
    puppets[0].kill();
    assert!(is_free());
}
