//! Tests with files that are no valid region.

use std::{
    fs::{self, File, OpenOptions},
    os::fd::AsRawFd as _,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _, chown, symlink},
    path::{Path, PathBuf},
};

use gpuslice_policy::compute::measuring::peer_intervals::Interval;
use gpuslice_policy::time::{GpuTimeChange, Monotonic};
use gpuslice_region::{
    Device, DeviceRequest, Member, Monitor, Origin, RegionError, Trust, Uuid,
    layout::{FIGURES, MAX_DEVICES, MAX_SLOTS},
};

use crate::puppet::{UUID, directory, join, lease_size, request};
use gpuslice_policy::time::literals::ns;

fn figure(name: &str) -> u64 {
    let found = FIGURES.iter().find(|(known, _)| *known == name).unwrap();
    u64::try_from(found.1).unwrap()
}

/// Makes a region without a living process.
fn left_behind(directory: &tempfile::TempDir) -> PathBuf {
    let path = directory.path().join("region");
    join(&path, 100).0.leave();
    path
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

/// Returns the error of both ways to open a region. The two errors must be equal.
fn refusal(path: &Path) -> RegionError {
    let member = Member::join(path, Trust::OwnerOnly, &[request(1)]).unwrap_err();
    let monitor = Monitor::open(path, Trust::OwnerOnly).unwrap_err();
    assert_eq!(member.to_string(), monitor.to_string());
    assert!(member.to_string().starts_with(path.to_str().unwrap()), "{member}");
    assert!(member.to_string().contains("; "), "what mends it is missing: {member}");
    member
}

#[test]
fn a_file_that_does_not_begin_like_a_region_is_refused_and_not_touched() {
    let directory = directory();
    let path = directory.path().join("region");
    for content in [b"".as_slice(), b"gpusl", b"#!/bin/sh\nexit 0\n", &[0; 1_060_864]] {
        fs::write(&path, content).unwrap();
        let error = refusal(&path);
        assert!(matches!(&error, RegionError::Magic { found, .. } if content.starts_with(found)), "{error}");
        assert!(error.to_string().ends_with(" root can"), "the owner is missing: {error}");
        assert_eq!(fs::read(&path).unwrap(), content);
    }
}

#[test]
fn another_version_is_refused_whatever_its_size() {
    let directory = directory();
    let path = left_behind(&directory);
    open(&path).write_at(&[200], figure("header.version")).unwrap();
    for size in [figure("size"), 64, 1 << 24] {
        open(&path).set_len(size).unwrap();
        let error = refusal(&path);
        assert!(matches!(error, RegionError::Version { found: 200, .. }), "{error}");
    }
}

#[test]
fn another_size_is_refused_in_the_file_and_in_its_header() {
    let directory = directory();
    let path = left_behind(&directory);
    for size in [24, figure("size") - 1, figure("size") + 1] {
        open(&path).set_len(size).unwrap();
        let error = refusal(&path);
        assert!(matches!(error, RegionError::Size { found, .. } if found == size), "{error}");
    }
    open(&path).set_len(figure("size")).unwrap();
    open(&path).write_at(&77_u64.to_ne_bytes(), figure("header.size")).unwrap();
    let error = refusal(&path);
    assert!(matches!(error, RegionError::Size { found: 77, .. }), "{error}");
}

#[test]
fn a_path_of_no_regular_file_is_refused_without_waiting_for_it() {
    let directory = directory();
    let target = left_behind(&directory);
    let link = directory.path().join("link");
    symlink(&target, &link).unwrap();
    let pipe = directory.path().join("pipe");
    let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
    // SAFETY: `mkfifo` needs a string that ends with a zero, which a `CString` is.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&pipe).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(directory.path().join("socket")).unwrap();
    let cases =
        [("link", "a symbolic link"), ("pipe", "a pipe"), ("socket", "a socket"), ("", "a directory")];
    for (name, expected) in cases {
        let error = refusal(&directory.path().join(name));
        assert!(matches!(error, RegionError::NotAFile { found, .. } if found == expected), "{error}");
    }
    // To open a device would be to act on it. The kernel tells the reader of a pipe whether a writer was there.
    assert_eq!(writers_hang_up(&reader), 0, "a process has opened the pipe");
    drop(open(&pipe));
    assert_eq!(writers_hang_up(&reader), libc::POLLHUP);
}

/// Returns `POLLHUP` if a process has opened the pipe for writing, and has closed it, since this reader opened the pipe.
fn writers_hang_up(reader: &File) -> i16 {
    let mut asked = libc::pollfd { fd: reader.as_raw_fd(), events: 0, revents: 0 };
    // SAFETY: `poll` needs as many structures as the count says. There is one, which lives until after the call.
    assert!(unsafe { libc::poll(&raw mut asked, 1, 0) } >= 0);
    asked.revents
}

#[test]
fn a_directory_that_is_not_there_is_named_and_not_made() {
    let directory = directory();
    let path = directory.path().join("missing/region");
    let error = Member::join(&path, Trust::OwnerOnly, &[]).unwrap_err();
    assert!(error.to_string().contains("make its directory"), "{error}");
    assert!(!directory.path().join("missing").exists());
}

#[test]
fn a_file_of_another_user_is_refused_unless_it_was_named_on_purpose() {
    let directory = directory();
    let path = left_behind(&directory);
    if chown(&path, Some(4242), None).is_err() {
        eprintln!(
            "SKIP a region of another user: needs root, to give a file away; to mend it: run the tests as root"
        );
        return;
    }
    let error = refusal(&path);
    assert!(matches!(error, RegionError::Owner { found: 4242, ours: 0, .. }), "{error}");
    let said = error.to_string();
    assert!(said.contains("must belong to user 0; let user 4242 or root remove it"), "{said}");
    assert!(Member::join(&path, Trust::AnyOwner, &[request(1)]).is_ok());
}

#[test]
fn a_region_that_is_not_ready_is_nothing_to_monitors_and_made_anew_by_the_next_process() {
    let directory = directory();
    let path = left_behind(&directory);
    open(&path).write_at(&[0; 4], figure("header.ready")).unwrap();
    assert!(Monitor::open(&path, Trust::OwnerOnly).unwrap().is_none());
    let (member, device) = join(&path, 5);
    assert_eq!(member.reserve(device, 5), Ok(()));
    assert!(Monitor::open(&path, Trust::OwnerOnly).unwrap().is_some());
}

#[test]
fn a_share_outside_its_range_is_read_as_the_nearest() {
    let directory = directory();
    let path = directory.path().join("region");
    let (member, device) = join(&path, 1);
    for (written, read) in [(0_u32, 1), (1, 1), (1000, 1000), (1001, 1000), (u32::MAX, 1000)] {
        let offset = figure("devices.offset") + figure("device.cores_permille");
        open(&path).write_at(&written.to_ne_bytes(), offset).unwrap();
        assert_eq!(member.limits(device).cores_permille, read);
    }
}

#[test]
fn a_device_that_is_added_starts_with_nothing_held() {
    let directory = directory();
    let path = directory.path().join("region");
    let (first, _) = join(&path, 1);
    let row = figure("held.offset") + figure("held.row");
    open(&path).write_at(&77_u64.to_ne_bytes(), row).unwrap();
    let other = DeviceRequest { uuid: Uuid([9; 16]), ..request(100) };
    let (second, _) = Member::join(&path, Trust::OwnerOnly, &[other]).unwrap();
    let added = second.device(&other.uuid).unwrap();
    assert_eq!((first.held(added), second.reserve(added, 100)), (0, Ok(())));
}

/// Calls every function of a member. The test fails only by a panic or a hang.
fn use_all(member: &Member) {
    let _ = member.reap();
    let _ = (member.processes(), member.devices(), member.device(&UUID), member.epoch(), member.is_ready());
    // The loop takes few devices, because a reservation waits for words that count pending reservations.
    for view in member.devices().into_iter().step_by(30) {
        let device = view.device;
        let _ = member.reserve(device, 1);
        member.charge(device, u64::MAX);
        let _ = member.refund(device, u64::MAX);
        let _ = (member.held(device), member.own(device), member.limits(device));
        member.count_quota_denial(device);
        use_time(member, device);
        let reported = member.processes();
        assert!(
            reported.len() <= MAX_SLOTS && reported.iter().all(|process| process.held.len() <= MAX_DEVICES)
        );
        member.set_limits(device, view.limits);
    }
}

fn use_time(member: &Member, device: Device) {
    const NOW: Monotonic = Monotonic::from_nanos(1 << 50);
    let _ = (
        lease_size(member, device, NOW),
        member.renew_sampler_lease(device, NOW, ns(1)),
        member.overlap_part(device, ns(1 << 40)),
    );
    let _ = (
        member.time_used(device),
        member.measure_source(device),
        member.interval_at(device, Origin::Slice, member.interval_head(device, Origin::Slice)),
    );
    if let Err(until) = member.acquire(device, ns(1 << 20), NOW) {
        // This is half a millisecond longer than the turn of another process.
        assert_eq!(member.acquire(device, ns(1 << 20), until + ns(500_000)), Ok(()), "waits for ever");
    }
    member.sleep(device, member.wake_sequence(device), ns(0));
    member.settle(device, GpuTimeChange::from_nanos(i64::MIN), NOW);
    member.settle(device, GpuTimeChange::from_nanos(i64::MAX), NOW);
    member.give_back(device, ns(u64::MAX), NOW);
    member.settled(device, ns(u64::MAX), NOW);
    member.adjust_service(device, ns(u64::MAX), ns(u64::MAX));
    let wild = Interval { start: ns(u64::MAX), end: ns(0), context: u16::MAX, goes_on: true };
    member.publish(device, wild);
    member.add_overlap(device, ns(u64::MAX), ns(u64::MAX));
    for now in [Monotonic::BEGIN, NOW, Monotonic::NEVER] {
        member.note_second(device, now);
        for seconds in [0, 1, 60, u64::MAX] {
            let (lately, sum) = (member.used_over(device, seconds, now), member.time_used(device));
            assert!(lately.used <= sum.used && lately.throttled <= sum.throttled, "{lately:?}");
            assert!((1_000_000_000..64_000_000_000).contains(&lately.span.nanos()), "{lately:?}");
        }
    }
    member.set_correction(device, u32::MAX);
    member.withdraw_request(device);
}

/// Overwrites all words of a region behind its prefix, each byte with `seed`, or with noise for a seed of 1 to 3. Then
/// calls every function of a member that has joined before, and of a member that joins afterwards.
fn use_all_words(seed: u8) {
    let directory = directory();
    let path = directory.path().join("region");
    let (member, device) = join(&path, 1000);
    let after_the_prefix = 24;
    let size = usize::try_from(figure("size") - after_the_prefix).unwrap();
    let mut random = u64::from(seed);
    let noise: Vec<u8> = (0..size)
        .map(|_| match seed {
            1..=3 => {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                random.to_be_bytes()[0]
            }
            _ => seed,
        })
        .collect();
    open(&path).write_all_at(&noise, after_the_prefix).unwrap();
    let _ = (member.held(device), member.limits(device));
    use_all(&member);
    // A process that joins later gets a slot or an error.
    if let Ok((other, _)) = Member::join(&path, Trust::OwnerOnly, &[request(1)]) {
        use_all(&other);
    }
}

#[test]
fn words_of_any_value_cause_no_panic() {
    std::thread::scope(|scope| {
        // Two regions at a time, because other tests run beside this one.
        for seeds in [&[0xff_u8, 0x00, 0x80, 0x5a][..], &[1, 2, 3]] {
            scope.spawn(move || seeds.iter().copied().for_each(use_all_words));
        }
    });
}
