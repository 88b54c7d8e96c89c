//! Tests that processes that race for a quota never exceed it, and are never denied while there is room.
//!
//! The tests count the bytes that are really held in a mapping of their own. A process adds bytes to it after the grant and
//! subtracts them before the refund. So the mapping never counts more than is held.

#![allow(clippy::disallowed_types, reason = "the truth must not come from what is tested")]

use std::{
    fs::{File, OpenOptions},
    os::fd::AsRawFd as _,
    path::Path,
    ptr,
    sync::atomic::{AtomicU64, Ordering},
};

use gpuslice_region::{Device, Member, RefusalReason};

use crate::puppet::{Puppet, directory, join};

/// Number of puppets in a race. It is far more than processors, so that some lose theirs in the middle of a reservation.
const RACERS: usize = 16;

/// State shared by all puppets of a test.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Truth {
    /// 1: run. 2: stop.
    run: AtomicU64,
    held: AtomicU64,
    /// Number of times that the slice held more than the limit.
    passed: AtomicU64,
}

impl Truth {
    /// Maps a file; the mapping is never unmapped.
    fn at(path: &Path) -> &'static Self {
        let file: File =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap();
        file.set_len(4096).unwrap();
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: without `MAP_FIXED` the kernel chooses a free address; the file is long enough.
        let start =
            unsafe { libc::mmap(ptr::null_mut(), 4096, rights, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        assert_ne!(start, libc::MAP_FAILED);
        // SAFETY: the mapping is aligned, long enough and never unmapped. `Truth` consists of atomics.
        unsafe { &*start.cast() }
    }

    fn wait_for_start(&self) {
        while self.run.load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
    }

    fn granted(&self, bytes: u64, limit: u64) {
        if self.held.fetch_add(bytes, Ordering::SeqCst) + bytes > limit {
            self.passed.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// Reserves `unit` bytes until the ledger denies it. Answers with the bytes reserved, and how often a denial was not final.
pub(crate) fn take(member: &Member, device: Device, truth: &Path, unit: u64) -> String {
    let truth = Truth::at(truth);
    let limit = member.limits(device).memory.unwrap();
    let (mut taken, mut contended) = (0, 0);
    truth.wait_for_start();
    loop {
        match member.reserve(device, unit).map_err(|refusal| refusal.why) {
            Ok(()) => {
                truth.granted(unit, limit);
                taken += unit;
            }
            Err(RefusalReason::Contended) => contended += 1,
            Err(_) => return format!("{taken} {contended}"),
        }
    }
}

/// Reserves and refunds random amounts, at most `most` at once, until the test stops it. Answers with the numbers of grants
/// and denials.
pub(crate) fn churn(member: &Member, device: Device, truth: &Path, most: u64, seed: u64) -> String {
    let truth = Truth::at(truth);
    let limit = member.limits(device).memory.unwrap();
    let (mut random, mut mine, mut granted, mut refused) = (seed | 1, 0_u64, 0_u64, 0_u64);
    let mut draw = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    truth.wait_for_start();
    while truth.run.load(Ordering::SeqCst) == 1 {
        let free = most - mine;
        if free > 0 && draw(2) == 0 {
            let bytes = 1 + draw(free);
            match member.reserve(device, bytes) {
                Ok(()) => {
                    truth.granted(bytes, limit);
                    mine += bytes;
                    granted += 1;
                }
                Err(_) => refused += 1,
            }
        } else if mine > 0 {
            let bytes = 1 + draw(mine);
            truth.held.fetch_sub(bytes, Ordering::SeqCst);
            mine -= bytes;
            assert_eq!(member.refund(device, bytes), 0);
        }
    }
    assert_eq!(member.own(device), mine);
    format!("{granted} {refused}")
}

/// Reserves and refunds `bytes` until the test stops it. Answers with the numbers of grants and of final denials.
pub(crate) fn grab(member: &Member, device: Device, truth: &Path, bytes: u64) -> String {
    let truth = Truth::at(truth);
    let (mut granted, mut refused) = (0_u64, 0_u64);
    truth.wait_for_start();
    while truth.run.load(Ordering::SeqCst) == 1 {
        match member.reserve(device, bytes).map_err(|refusal| refusal.why) {
            Ok(()) => {
                granted += 1;
                assert_eq!(member.refund(device, bytes), 0);
            }
            Err(RefusalReason::Contended) => {}
            Err(_) => refused += 1,
        }
    }
    format!("{granted} {refused}")
}

fn pair(answer: &str) -> (u64, u64) {
    let (first, second) = answer.split_once(' ').unwrap();
    (first.parse().unwrap(), second.parse().unwrap())
}

/// Starts puppets in a slice of `limit` and gives each a command.
fn start(directory: &tempfile::TempDir, limit: u64, command: impl Fn(&str, usize) -> String) -> Vec<Puppet> {
    let (region, truth) = (directory.path().join("region"), directory.path().join("truth"));
    let mut puppets: Vec<_> = (0..RACERS).map(|_| Puppet::joined(&region, limit)).collect();
    for (index, puppet) in puppets.iter_mut().enumerate() {
        puppet.tell(&command(&truth.display().to_string(), index));
    }
    puppets
}

#[test]
fn a_race_to_the_last_byte_grants_the_limit_exactly() {
    for (limit, unit) in [(40_000, 1), (1 << 36, 1 << 24), (15, 1)] {
        let directory = directory();
        let mut puppets = start(&directory, limit, |truth, _| format!("take {truth} {unit}"));
        let truth = Truth::at(&directory.path().join("truth"));
        truth.run.store(1, Ordering::SeqCst);
        let answers: Vec<_> = puppets.iter_mut().map(|puppet| pair(&puppet.hear())).collect();
        assert_eq!(truth.passed.load(Ordering::SeqCst), 0, "the limit was passed");
        assert_eq!(answers.iter().map(|answer| answer.0).sum::<u64>(), limit, "not all was granted");
        assert_eq!(answers.iter().map(|answer| answer.1).sum::<u64>(), 0, "it was not clear: {answers:?}");
    }
}

/// Number of readings during which processes churn. They take half a second, in which each process gets a processor.
const READS: u32 = 3_000_000;

#[test]
fn processes_that_fit_together_are_never_refused() {
    let (directory, most) = (directory(), 1000);
    let limit = u64::try_from(RACERS).unwrap() * most;
    let mut puppets =
        start(&directory, limit, |truth, index| format!("churn {truth} {most} {}", index * 77 + 5));
    let answers = run_for(&directory, &mut puppets, READS);
    assert!(answers.iter().all(|answer| answer.1 == 0), "(granted, refused): {answers:?}");
}

#[test]
fn vain_requests_of_others_refuse_no_reservation() {
    let directory = directory();
    // One of the others fits beside the first process, and two never do. So most reservations fail.
    let share = |index: usize| if index == 0 { 400 } else { 600 };
    let mut puppets = start(&directory, 1000, |truth, index| format!("grab {truth} {}", share(index)));
    let answers = run_for(&directory, &mut puppets, READS);
    assert!(answers[0].0 > 0 && answers[0].1 == 0, "(granted, refused): {answers:?}");
}

#[test]
fn processes_that_do_not_fit_together_never_pass_the_limit() {
    let (directory, most) = (directory(), 1000);
    let mut puppets =
        start(&directory, 4 * most, |truth, index| format!("churn {truth} {most} {}", index * 77 + 5));
    let answers = run_for(&directory, &mut puppets, 3_000);
    assert!(answers.iter().any(|answer| answer.1 > 0), "no process was refused: nothing was tried");
}

/// Lets puppets churn while the test reads the slice `times` times, and stops them.
fn run_for(directory: &tempfile::TempDir, puppets: &mut [Puppet], times: u32) -> Vec<(u64, u64)> {
    let truth = Truth::at(&directory.path().join("truth"));
    let monitor =
        gpuslice_region::Monitor::open(&directory.path().join("region"), gpuslice_region::Trust::OwnerOnly);
    let monitor = monitor.unwrap().unwrap();
    let device = monitor.devices()[0].device;
    truth.run.store(1, Ordering::SeqCst);
    for _ in 0..times {
        let _ = monitor.held(device);
        if times < 10_000 {
            let _ = monitor.reap().unwrap();
        }
    }
    truth.run.store(2, Ordering::SeqCst);
    let answers = puppets.iter_mut().map(|puppet| pair(&puppet.hear())).collect();
    assert_eq!(truth.passed.load(Ordering::SeqCst), 0, "the limit was passed");
    assert_eq!(monitor.held(device), truth.held.load(Ordering::SeqCst));
    answers
}

#[test]
fn processes_killed_in_the_middle_leave_nothing_behind() {
    let (directory, most) = (directory(), 1000);
    let limit = 4 * most;
    // The bytes of a killed process cannot leave the count at the instant of its death. So the processes that will be
    // killed have a separate count, which the test does not check.
    let doomed = |index: usize| index.is_multiple_of(2);
    let mut puppets = start(&directory, limit, |truth, index| {
        let truth = if doomed(index) { format!("{truth}-of-the-dead") } else { truth.to_owned() };
        format!("churn {truth} {most} {}", index * 77 + 5)
    });
    let (member, device) = join(&directory.path().join("region"), limit);
    member.note_available(device, 0);
    let truth = Truth::at(&directory.path().join("truth"));
    Truth::at(&directory.path().join("truth-of-the-dead")).run.store(1, Ordering::SeqCst);
    truth.run.store(1, Ordering::SeqCst);
    for puppet in puppets.iter_mut().step_by(2) {
        // This takes long enough for the others to run. The killed process dies at any point.
        for _ in 0..5 {
            let _ = member.reserve(device, 1).map(|()| member.refund(device, 1));
        }
        puppet.kill();
    }
    truth.run.store(2, Ordering::SeqCst);
    for puppet in puppets.iter_mut().skip(1).step_by(2) {
        puppet.hear();
    }
    assert_eq!(truth.passed.load(Ordering::SeqCst), 0, "the limit was passed");
    let left = limit - truth.held.load(Ordering::SeqCst);
    member.reap().unwrap();
    assert!(member.end_leaving(device, || Some(u64::MAX)));
    assert_eq!(member.reserve(device, left), Ok(()), "what the dead held is there again");
    assert_eq!(member.reserve(device, 1).unwrap_err().why, RefusalReason::Full);
    assert_eq!(member.processes().len(), 1 + RACERS / 2);
}
