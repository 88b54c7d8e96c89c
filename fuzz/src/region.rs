//! Regions with any content, and processes that open them.

use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::FileExt as _,
    path::Path,
};

use gpuslice_policy::compute::coupling::MeasuredBatch;
use gpuslice_policy::compute::limiter::fair_queue::TURN_GRACE;
use gpuslice_policy::compute::measuring::peer_intervals::Interval;
use gpuslice_policy::time::{GpuTime, GpuTimeChange, Monotonic, WallTime};
use gpuslice_region::{
    Device, DeviceRequest, Limits, Member, Monitor, Origin, Region, Trust, Uuid,
    layout::{FIGURES, INTERVALS, MAX_DEVICES, MAX_SLOTS, SIZE},
};

use crate::random::Random;

/// GPU time that a member takes: 2^20 ns.
const TAKEN: GpuTime = GpuTime::from_nanos(1 << 20);

/// A change of a region's file.
#[derive(Debug)]
enum Change {
    Word { at: u64, value: u32 },
    Long { at: u64, value: u64 },
    Noise { at: u64, bytes: u64, seed: u64 },
    Length { bytes: u64 },
}

/// A region into which others wrote, before it is opened and while it is open.
#[derive(Debug)]
pub(crate) struct Case {
    before: Vec<Change>,
    after: Vec<Change>,
}

impl Case {
    pub(crate) fn new(random: &mut Random) -> Self {
        let changes = |random: &mut Random| (0..random.below(6)).map(|_| Change::new(random)).collect();
        let mut before: Vec<_> = changes(random);
        if random.one_in(20) {
            before.push(Change::Length { bytes: random.below(2 * SIZE as u64) });
        }
        Self { before, after: changes(random) }
    }

    /// Opens the region and calls every function of it, whose results may be anything.
    pub(crate) fn run(&self, folder: &Path) {
        let path = folder.join("region");
        let _ = fs::remove_file(&path);
        let (member, _) =
            Member::join(&path, Trust::OwnerOnly, &[request(7), request(8)]).expect("a region can be made");
        for device in member.devices() {
            assert_eq!(member.reserve(device.device, 100), Ok(()));
        }
        member.leave();
        self.before.iter().for_each(|change| change.apply(&path));
        match Monitor::open(&path, Trust::OwnerOnly) {
            Ok(Some(monitor)) => {
                self.after.iter().for_each(|change| change.apply(&path));
                read_all(&monitor);
            }
            Ok(None) => {}
            Err(error) => one_line(&error.to_string()),
        }
        match Member::join(&path, Trust::OwnerOnly, &[request(7), request(9)]) {
            Ok((member, differences)) => {
                assert!(differences.len() <= 2);
                assert!(member.slot() < MAX_SLOTS);
                self.after.iter().for_each(|change| change.apply(&path));
                use_all(&member);
                read_all(&member);
                member.leave();
            }
            Err(error) => one_line(&error.to_string()),
        }
    }
}

impl Change {
    fn new(random: &mut Random) -> Self {
        match random.below(8) {
            0 => Self::Noise {
                at: random.below(SIZE as u64),
                bytes: 1 << random.below(20),
                seed: random.next(),
            },
            1 => Self::Word { at: random.below(SIZE as u64 / 4) * 4, value: edge_of_32(random) },
            2 | 3 => Self::Word { at: place(random) & !3, value: edge_of_32(random) },
            _ => Self::Long { at: place(random) & !7, value: random.edge() },
        }
    }

    fn apply(&self, path: &Path) {
        let file = OpenOptions::new().write(true).open(path).expect("a region can be written");
        match *self {
            Self::Word { at, value } => write(&file, at, &value.to_ne_bytes()),
            Self::Long { at, value } => write(&file, at, &value.to_ne_bytes()),
            Self::Noise { at, bytes, seed } => {
                let mut random = Random::new(seed);
                let noise: Vec<u8> = (0..bytes).map(|_| random.next().to_ne_bytes()[0]).collect();
                write(&file, at, &noise);
            }
            Self::Length { bytes } => file.set_len(bytes).expect("a region can be cut"),
        }
    }
}

/// Writes within the file. Only [`Change::Length`] changes the length of the file.
fn write(file: &File, at: u64, bytes: &[u8]) {
    let room = file.metadata().map_or(0, |found| found.len()).saturating_sub(at);
    let length = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
    file.write_all_at(&bytes[..length], at).expect("a region can be written");
}

/// Returns the place of a word that other processes believe: a named one, of the first devices and slots or of any.
fn place(random: &mut Random) -> u64 {
    let figure =
        |name: &str| FIGURES.iter().find(|(known, _)| *known == name).map_or(0, |(_, value)| *value as u64);
    let row = |random: &mut Random, most: usize| {
        if random.one_in(4) { random.below(most as u64) } else { random.below(3) }
    };
    let named: Vec<&str> = FIGURES.iter().map(|(name, _)| *name).filter(|name| name.contains('.')).collect();
    let name = *random.pick(&named);
    match name.split_once('.').map_or(name, |(group, _)| group) {
        "device" | "devices" => {
            figure("devices.offset") + row(random, MAX_DEVICES) * figure("device.size") + random.below(6) * 8
        }
        "slot" | "slots" => {
            figure("slots.offset") + row(random, MAX_SLOTS) * figure("slot.size") + random.below(3) * 8
        }
        "held" => {
            figure("held.offset") + row(random, MAX_DEVICES) * figure("held.row") + row(random, MAX_SLOTS) * 8
        }
        "time" => {
            let word = figure(name) - if name == "time.offset" { figure(name) } else { 0 };
            figure("time.offset")
                + row(random, MAX_DEVICES) * figure("time.size")
                + word % figure("time.size")
        }
        "process" => {
            let at = figure("time.offset") + random.below(3) * figure("time.size") + figure("time.processes");
            at + row(random, MAX_SLOTS) * figure("process.size") + random.below(16) * 8
        }
        "interval" => {
            let at = figure("time.offset") + random.below(3) * figure("time.size") + figure("time.intervals");
            at + row(random, INTERVALS) * figure("interval.size") + random.below(4) * 8
        }
        "quota_denials" => {
            figure("quota_denials.offset") + row(random, MAX_SLOTS) * figure("quota_denials.row")
        }
        _ => figure(name),
    }
}

fn edge_of_32(random: &mut Random) -> u32 {
    u32::try_from(random.edge() & u64::from(u32::MAX)).unwrap_or(0)
}

fn request(uuid: u8) -> DeviceRequest {
    let limits = Limits { memory: Some(1 << 20), cores_permille: 500, ..Limits::NONE };
    DeviceRequest { uuid: Uuid([uuid; 16]), total: 1 << 30, limits }
}

fn read_all(region: &Region) {
    let _ = (region.epoch(), region.is_ready(), region.reap(), region.device(&Uuid([7; 16])));
    let devices = region.devices();
    assert!(devices.len() <= MAX_DEVICES);
    for view in &devices {
        assert!((1..=1000).contains(&view.limits.cores_permille), "{view:?}");
        let _ = (region.held(view.device), region.limits(view.device), region.context_bytes(view.device));
        region.learn_context_bytes(view.device, 1 << 20);
        let device = view.device;
        let _ = (region.contexts(device), region.spilled(device));
        let _ = (
            region.rate_limit(device),
            region.correction(device),
            region.measure_source(device),
            region.time_used(device),
        );
        let _ = region.paid_until(device);
        for origin in [Origin::Slice, Origin::Relayed] {
            let _ = region.interval_at(device, origin, region.interval_head(device, origin));
        }
        region.set_limits(view.device, view.limits);
    }
    let processes = region.processes();
    assert!(processes.len() <= MAX_SLOTS);
    assert!(
        processes
            .iter()
            .all(|process| process.held.len() <= MAX_DEVICES && process.quota_denials.len() <= MAX_DEVICES)
    );
}

/// Uses few devices, because a reservation waits for words that say that another process is reserving.
fn use_all(member: &Member) {
    for view in member.devices().into_iter().take(2) {
        use_time(member, view.device);
        let device = view.device;
        let before = member.own(device);
        if member.reserve(device, 4096).is_ok() {
            assert!(
                member.own(device) > before || before > u64::MAX >> 2,
                "{before} and {}",
                member.own(device)
            );
            let _ = member.refund(device, 4096);
        }
        member.charge(device, u64::MAX);
        let _ = member.refund(device, u64::MAX);
        member.count_quota_denial(device);
        member.begin_context(device, u64::MAX);
        member.end_context(device, 4096);
    }
    // Coupling comes last, because it writes words that the other calls read.
    if let [one, other, ..] = member.devices().as_slice() {
        use_step(member, [one.device, other.device]);
    }
}

/// Asserts that for any words of the other device, no process waits for it for longer than ten seconds.
fn use_step(member: &Member, devices: [Device; 2]) {
    const NOW: Monotonic = Monotonic::from_nanos(1 << 51);
    const MOST: WallTime = WallTime::from_millis(10_000);
    let [device, other] = devices;
    let _ = member.unblocked_by(
        device,
        &MeasuredBatch {
            predicted: WallTime::NANOSECOND,
            length: WallTime::MAX,
            until: NOW,
            after: WallTime::MAX,
        },
    );
    member.note_overrun(other, NOW);
    let _ = (
        member.has_peer_overrun(device, NOW),
        member.overdraw_for_peer(device, GpuTime::MAX, Monotonic::BEGIN, NOW),
    );
    member.couple(devices, NOW);
    assert!(member.is_coupled(device, NOW) && member.is_coupled(other, NOW));
    member.settle(device, GpuTimeChange::from_nanos(i64::MIN), NOW);
    let kept = member.acquire_since(device, TAKEN, NOW - MOST, || NOW);
    assert!(kept.is_ok() || kept.is_err_and(|until| until <= NOW + TURN_GRACE), "{kept:?}");
    let _ = (
        member.acquire_since(device, TAKEN, NOW, || NOW),
        member.acquire_since(other, TAKEN, Monotonic::BEGIN, || NOW),
    );
}

fn one_line(text: &str) {
    assert!(!text.is_empty() && text.chars().all(|letter| !letter.is_control()), "{text:?}");
}

/// Asserts that for any words no process sleeps for longer than a second, and none is told to look again in the past.
fn use_time(member: &Member, device: Device) {
    const NOW: Monotonic = Monotonic::from_nanos(1 << 50);
    let _ = (
        member.lease_situation(device, NOW),
        member.renew_sampler_lease(device, NOW, WallTime::NANOSECOND),
        member.overlap_part(device, WallTime::from_nanos(1 << 40)),
    );
    if let Err(until) = member.acquire(device, TAKEN, NOW) {
        assert!(until >= NOW, "{until:?}");
        assert_eq!(
            member.acquire(device, TAKEN, until.saturating_add(TAKEN.wall_if_alone())),
            Ok(()),
            "waits for ever"
        );
    }
    member.sleep(device, member.wake_sequence(device), Monotonic::BEGIN);
    member.idle_until_now(device, NOW);
    let _ = member.expire_grant(device, || NOW);
    member.set_grant(device, member.grant(device), || NOW);
    member.set_grant(device, u64::MAX, || NOW);
    member.credit_wall_time(device, WallTime::MAX, || NOW);
    assert!(member.process_activity(device, NOW).count() <= MAX_SLOTS);
    member.overdraw(device, GpuTime::MAX, NOW);
    member.settle(device, GpuTimeChange::from_nanos(i64::MIN), NOW);
    member.settle(device, GpuTimeChange::from_nanos(i64::MAX), NOW);
    member.give_back(device, GpuTime::MAX, NOW);
    member.settled(device, GpuTime::MAX, NOW);
    member.adjust_service(device, GpuTime::MAX, GpuTime::MAX);
    let wild = Interval { start: Monotonic::NEVER, end: Monotonic::BEGIN, context: u16::MAX, goes_on: true };
    member.publish(device, wild);
    member.add_overlap(device, WallTime::MAX, WallTime::MAX);
    member.set_correction(device, u32::MAX);
    member.set_measure_source(device, u32::MAX);
    member.set_queued(device, GpuTime::MAX);
    member.note_second(device, NOW);
    member.count_used(device, GpuTime::MAX);
    member.count_throttled(device, WallTime::MAX);
    member.count_copied(device, GpuTime::MAX);
    member.count_launches(device, u64::MAX);
    member.note_second(device, NOW + WallTime::from_nanos(1 << 30));
    let _ = (member.used_over(device, 1, NOW), member.used_over(device, u64::MAX, Monotonic::NEVER));
    member.withdraw_request(device);
    assert!(!member.is_waiting(device), "it asks for ever");
}
