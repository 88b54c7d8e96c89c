//! Policy, weight and priority divide a GPU among slices while processes die, stop or get other limits.
//!
//! The tests run in real time on the simulated GPU, whose ground truth is the judge. Bounds are wide, because the machine may
//! have other things to do. `ci/accuracy.sh policies` prints the figures.

use crate::arbiters::{arbiter_leases, begun, grant, monitor, replacements, wait, working};
use crate::course::{Course, Event, RunSpec, Settings, run};
use crate::shares::{jain, lending, median_and_most, part, parts};
use crate::support;
use crate::support::bench::Bench;
use crate::support::living::Living;
use crate::support::timed::{self, Verdict};
use crate::workloads::{Program, VARIANTS, of};
use gpuslice_policy::arbiter::MOST_SLICES;
use gpuslice_policy::config::{CorePolicy, Priority};
use gpuslice_policy::time::Monotonic;
use gpuslice_region::{Member, Sharing, Trust};
use std::fs;
use std::time::Duration;

const US: u64 = 1_000;
/// Number of times that a measurement is taken while the machine has no time for it.
const TRIES: usize = 4;

type Setting = (&'static str, &'static str);
const EQUAL: Setting = ("GPU_CORE_POLICY", "equal");
const REST: Setting = ("GPU_CORE_POLICY", "best-effort");
const HIGH: Setting = ("GPU_PRIORITY", "high");
const LOW: Setting = ("GPU_PRIORITY", "low");

fn weight(number: &'static str) -> Setting {
    ("GPU_CORE_WEIGHT", number)
}

/// Returns one program for each slice, which may use all of the GPU and always has work.
fn busy(slices: usize) -> Vec<Program> {
    (0..slices).map(|slice| of(slice, &[200 * US], "")).collect()
}

fn run_programs(
    programs: &[Program],
    settings: Settings<'_>,
    seconds: u64,
    events: &[(u64, Event)],
) -> Course {
    let (programs, limits) = (programs.to_vec(), Some(vec![100; settings.len()]));
    let (variant, events) = (&VARIANTS[0], events.to_vec());
    run(&RunSpec {
        programs,
        limits,
        burst: "strict",
        settings,
        seconds,
        variant,
        events,
        has_requests: false,
    })
    .unwrap()
}

/// Measures, and repeats the measurement while the machine is late. Fails if `is_right` rejects the last measurement. If the
/// machine was late each time, a rejected measurement is inconclusive. `slack` in milliseconds is the lateness that explains a
/// miss. For a share it is the tolerance times the window, e.g. 116 for 4 points of 2.9 s. For a time it is the bound less the
/// time on an idle machine.
#[track_caller]
fn comes_out<T: core::fmt::Debug>(slack: u64, measure: impl Fn() -> T, is_right: impl Fn(&T) -> bool) {
    let slack = Duration::from_millis(slack);
    let mut measured = timed::beside(&measure);
    for _ in 1..TRIES {
        if measured.1.explains(slack) {
            println!("late: {measured:?}");
            measured = timed::beside(&measure);
        }
    }
    let (found, late) = measured;
    let told = format!("{found:?}; {late:?}; slack {slack:?}");
    println!("{told}");
    match timed::verdict(is_right(&found), late, slack) {
        Verdict::Holds => {}
        Verdict::Missed => panic!("the host kept up: {told}"),
        Verdict::Inconclusive => timed::inconclusive(&told),
    }
}

/// Returns true if a share, in hundredths of points, is at most `within` points from `points`.
fn is_near(share: i64, points: i64, within: i64) -> bool {
    (share - points * 100).abs() <= within * 100
}

#[test]
fn equal_slices_divide_the_gpu_by_weight_and_leave_none_of_it() {
    let _alone = support::machine();
    let settings: Settings<'_> = &[&[EQUAL, weight("100")], &[EQUAL, weight("300")], &[EQUAL, weight("600")]];
    comes_out(
        290,
        || parts(&run_programs(&busy(3), settings, 4, &[]), 3, 1000, 3900),
        |shares| jain(shares, &[100, 300, 600]) >= 970 && shares.iter().sum::<i64>() >= 9000,
    );
}

#[test]
fn a_slice_that_is_alone_has_the_whole_gpu_and_one_with_a_limit_no_more_than_that() {
    let _alone = support::machine();
    comes_out(
        95,
        || part(&run_programs(&busy(1), &[&[EQUAL]], 3, &[]), 0, 1000, 2900),
        |share| *share >= 9500,
    );
    let capped: Settings<'_> = &[&[EQUAL, weight("1000"), ("GPU_CORE_PERCENT", "30")], &[EQUAL]];
    comes_out(
        116,
        || parts(&run_programs(&busy(2), capped, 4, &[]), 2, 1000, 3900),
        |shares| is_near(shares[0], 30, 4) && shares[1] >= 5500,
    );
}

#[test]
fn time_that_a_slice_does_not_use_is_lent_and_taken_back() {
    let _alone = support::machine();
    let settings: Settings<'_> = &[&[EQUAL, weight("400")], &[EQUAL, weight("100")]];
    let programs = [of(0, &[200 * US], "work=700000000 pause=700000000"), of(1, &[200 * US], "")];
    comes_out(
        100,
        || {
            let times = lending(&run_programs(&programs, settings, 6, &[]), 7800, 700);
            println!("{times:?}");
            (median_and_most(&times.lent), median_and_most(&times.back))
        },
        |(lent, back)| lent.0 <= 200 && back.0 <= 100,
    );
}

#[test]
fn low_priority_has_its_least_beside_high_and_best_effort_has_the_rest() {
    let _alone = support::machine();
    let settings: Settings<'_> = &[&[EQUAL, HIGH], &[EQUAL, LOW]];
    comes_out(
        435,
        || parts(&run_programs(&busy(2), settings, 4, &[]), 2, 1000, 3900),
        |shares| shares[0] >= 8000 && (300..=1500).contains(&shares[1]),
    );
    // A program that waits for each of its kernels leaves the GPU while it does not launch.
    let settings: Settings<'_> = &[&[EQUAL], &[REST]];
    let programs = [of(0, &[200 * US], "work=1000000000 pause=1000000000"), of(1, &[200 * US], "")];
    comes_out(
        90,
        || {
            let course = run_programs(&programs, settings, 5, &[]);
            let began = course.tracks[0].began[1] as usize;
            (part(&course, 1, began - 700, began - 100), part(&course, 1, began + 200, began + 900))
        },
        // On a busy machine the other program may not be able to launch all that it may.
        |(left, beside)| *left >= 8500 && (100..=1500).contains(beside),
    );
}

#[test]
fn fixed_keeps_its_limit_beside_equal_and_a_low_one_gives_way() {
    let _alone = support::machine();
    let limited: Settings<'_> = &[&[("GPU_CORE_PERCENT", "30")], &[EQUAL]];
    comes_out(
        116,
        || parts(&run_programs(&busy(2), limited, 4, &[]), 2, 1000, 3900),
        |shares| is_near(shares[0], 30, 4) && shares[1] >= 5500,
    );
    let low: Settings<'_> = &[&[LOW], &[EQUAL]];
    comes_out(
        435,
        || parts(&run_programs(&busy(2), low, 4, &[]), 2, 1000, 3900),
        |shares| (300..=1500).contains(&shares[0]) && shares[1] >= 8000,
    );
}

/// Runs three slices with weights. `events` stops one slice after the other for a second, or kills its program. Returns how
/// evenly the two other slices divide the GPU after each event: the Jain index in thousandths.
fn one_by_one(events: &[(u64, Event)]) -> Vec<u64> {
    let settings: Settings<'_> = &[&[EQUAL, weight("100")], &[EQUAL, weight("300")], &[EQUAL, weight("600")]];
    let course = run_programs(&busy(3), settings, 8, events);
    // Slices that remain, with the millisecond from which they are judged: half a second after the event.
    let others = [(1, 2, 2_500), (0, 2, 4_500), (0, 1, 6_500)];
    let weights = [100, 300, 600];
    let pair = |(one, other, from): (usize, usize, usize)| {
        let shares = [one, other].map(|slice| part(&course, slice, from, from + 450));
        jain(&shares, &[weights[one], weights[other]])
    };
    others.into_iter().map(pair).collect()
}

#[test]
fn while_a_slice_is_stopped_the_others_divide_the_gpu() {
    let _alone = support::machine();
    let stops = (0..3_usize).flat_map(|me| {
        let at = 2000 + me as u64 * 2000;
        [(at, Event::Suspend(me)), (at + 1000, Event::Resume(me))]
    });
    let stops: Vec<_> = stops.collect();
    // If the slices only took turns, the index of 300 beside 600 would be 0.9, and of 100 beside 600 it would be 0.67.
    comes_out(90, || one_by_one(&stops), |indices| indices.iter().all(|index| *index >= 960));
}

#[test]
fn after_a_slice_is_killed_the_others_divide_the_gpu_and_its_successor_takes_part() {
    let _alone = support::machine();
    let kills: Vec<_> = (0..3).map(|me| (2000 + me as u64 * 2000, Event::Kill(me))).collect();
    comes_out(90, || one_by_one(&kills), |indices| indices.iter().all(|index| *index >= 960));
}

#[test]
fn an_arbiter_that_dies_is_replaced_within_three_tenths_of_a_second() {
    /// Promised time.
    const PROMISED: Duration = Duration::from_millis(300);
    /// On a machine that has other things to do, no process may get a processor for a while.
    const BUSY: Duration = Duration::from_secs(3);
    let _alone = support::machine();
    comes_out(
        100,
        || {
            let replaced = replacements(4);
            assert!(replaced.iter().all(|replaced| replaced.divided < BUSY), "{replaced:?}");
            replaced
        },
        |replaced| replaced.iter().any(|replaced| replaced.divided <= PROMISED),
    );
}

#[test]
fn another_policy_weight_or_priority_takes_effect_while_programs_run() {
    let _alone = support::machine();
    let sharing = |policy, priority, weight| Sharing { policy, priority, weight };
    let events = [
        (2000, Event::Sharing(0, sharing(CorePolicy::Equal, Priority::Normal, 400))),
        (3000, Event::Sharing(0, sharing(CorePolicy::BestEffort, Priority::Normal, 400))),
        (4000, Event::Sharing(0, sharing(CorePolicy::Equal, Priority::High, 1))),
    ];
    let settings: Settings<'_> = &[&[EQUAL], &[EQUAL]];
    comes_out(
        52,
        || {
            let course = run_programs(&busy(2), settings, 5, &events);
            [1000, 2300, 3300, 4300].map(|from| part(&course, 0, from, from + 650) / 100)
        },
        |shares| {
            let due = [50, 80, 5, 95];
            shares.iter().zip(due).all(|(share, due): (&i64, i64)| (share - due).abs() <= 8)
        },
    );
}

/// Returns the GPU time that a slice was charged so far.
fn used(bench: &Bench, slice: usize) -> u64 {
    let monitor = monitor(bench, slice);
    monitor.devices().iter().map(|device| monitor.time_used(device.device).used.nanos()).sum()
}

/// Waits until each of the slices was charged for 50 ms more.
#[track_caller]
fn go_on(bench: &Bench, slices: usize) {
    for slice in 0..slices {
        let before = used(bench, slice);
        wait("a slice is charged nothing", || used(bench, slice) >= before + 50_000_000);
    }
}

#[test]
fn regions_that_were_left_behind_take_the_place_of_no_slice() {
    let _alone = support::machine();
    let bench = Bench::simulated();
    let leave_behind = |number: usize| {
        let path = bench.region().with_file_name(format!("left-{number}"));
        Member::join(&path, Trust::OwnerOnly, &[]).unwrap().0.leave();
    };
    (0..60).for_each(leave_behind);
    let _programs = [working(&bench, 0, &[EQUAL]), working(&bench, 1, &[EQUAL])];
    (60..120).for_each(leave_behind);
    go_on(&bench, 2);
    wait("a slice has no grant", || grant(&bench, 0) != 0 && grant(&bench, 1) != 0);
}

#[test]
fn that_a_slice_is_one_too_many_is_said_once() {
    let _alone = support::machine();
    let bench = Bench::simulated();
    let member_of = |number: usize| {
        let path = bench.region().with_file_name(format!("living-{number:02}"));
        Member::join(&path, Trust::OwnerOnly, &[]).unwrap().0
    };
    // One slice is the program's own.
    let mut members: Vec<Member> = (1..MOST_SLICES).map(member_of).collect();
    let mut program = working(&bench, 0, &[EQUAL]);
    (0..6).for_each(|_| go_on(&bench, 1));
    members.push(member_of(MOST_SLICES));
    // This is time enough to read the folder several times.
    (0..12).for_each(|_| go_on(&bench, 1));
    program.kill();
    let said = program.end().1;
    assert_eq!(said.lines().count(), 1, "{said}");
    let path = bench.region().with_file_name(format!("living-{MOST_SLICES}"));
    assert!(
        said.contains(&format!("gpuslice: {}: GPUs are divided among 48 slices", path.display())),
        "{said}"
    );
}

#[test]
fn without_an_arbiter_no_slice_starves_and_it_is_said_once() {
    let _alone = support::machine();
    let bench = Bench::simulated();
    let precious = bench.file("precious", "precious");
    std::os::unix::fs::symlink(&precious, arbiter_leases(&bench)).unwrap();
    let programs = [working(&bench, 0, &[EQUAL, HIGH]), working(&bench, 1, &[REST, LOW])];
    go_on(&bench, 2);
    assert_eq!([grant(&bench, 0), grant(&bench, 1)], [0, 0]);
    for mut program in programs {
        program.kill();
        let said = program.end().1;
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains("a symbolic link") && said.contains("this one keeps its own limit"), "{said}");
    }
    assert_eq!(fs::read(precious).unwrap(), b"precious");
}

#[test]
fn a_lease_file_that_is_shortened_or_removed_ends_no_process_and_is_made_anew_once_it_is_gone() {
    let _alone = support::machine();
    let bench = Bench::simulated();
    let _programs = [working(&bench, 0, &[EQUAL]), working(&bench, 1, &[EQUAL, weight("300")])];
    wait("a slice has no grant", || grant(&bench, 0) != 0 && grant(&bench, 1) != 0);
    fs::OpenOptions::new().write(true).open(arbiter_leases(&bench)).unwrap().set_len(0).unwrap();
    wait("an old grant still holds", || grant(&bench, 0) == 0 && grant(&bench, 1) == 0);
    go_on(&bench, 2);
    fs::remove_file(arbiter_leases(&bench)).unwrap();
    wait("no arbiter grants anything", || grant(&bench, 0) != 0 && grant(&bench, 1) != 0);
    go_on(&bench, 2);
}

#[test]
fn words_that_are_overwritten_with_anything_starve_no_slice() {
    let _alone = support::machine();
    let bench = Bench::simulated();
    let _programs = [working(&bench, 0, &[EQUAL]), working(&bench, 1, &[EQUAL])];
    wait("a slice has no grant", || grant(&bench, 0) != 0 && grant(&bench, 1) != 0);
    for byte in [0xff, 0x5a, 0] {
        fs::write(arbiter_leases(&bench), vec![byte; 4096]).unwrap();
        for slice in 0..2 {
            let monitor = monitor(&bench, slice);
            let device = monitor.devices()[0].device;
            let word = u64::from_ne_bytes([byte; 8]);
            monitor.set_grant(device, word, || Monotonic::BEGIN);
        }
        go_on(&bench, 2);
    }
}

/// Runs a slice with kernels of `kernel` nanoseconds beside a slice that has a process and no work. Looks at the busy slice for a
/// second. Returns its queued time at each look, in rising order, and the part of the second that it used, in thousandths.
fn beside_idle(first: &[Setting], kernel: u64) -> (Vec<u64>, u64) {
    let bench = Bench::simulated();
    let start = |slice: usize, settings: &[Setting], words: &[&str]| {
        begun(bench.host("load", words).loaded().set_all(settings).in_slice(slice))
    };
    // The program works for a millisecond and then pauses for a minute.
    let _idle = start(0, first, &["60", "200000", "work=1000000", "pause=60000000000"]);
    // With a burst so large, saved time is no bound: the bound of the queue alone decides how much is queued.
    let _busy = start(1, &[EQUAL, ("GPU_CORE_BURST", "latency")], &["60", &kernel.to_string()]);
    let progress = |time: u64| {
        let before = used(&bench, 1);
        wait("the slice is charged nothing", || used(&bench, 1) >= before + time);
    };
    // The looks begin after the first launches, whose cost is unknown, and once the slice knows its neighbours.
    progress(500_000_000);
    let (began, before, mut queued) = (support::monotonic(), used(&bench, 1), Vec::new());
    let (monitor, mut time) = (monitor(&bench, 1), 0);
    let device = monitor.devices()[0].device;
    while time < 1_000_000_000 {
        queued.push(
            monitor
                .region()
                .process_activity(device, gpuslice_region::now())
                .map(|work| work.queued.nanos())
                .sum(),
        );
        std::thread::sleep(Duration::from_millis(2));
        time = support::monotonic() - began;
    }
    queued.sort_unstable();
    (queued, (used(&bench, 1) - before) * 1000 / time)
}

#[test]
fn beside_high_priority_that_has_no_work_others_queue_little_and_keep_the_gpu_busy() {
    let _alone = support::machine();
    // Most that is queued in three quarters of the looks: 3 ms and the span of one measurement, or one launch.
    for (kernel, most) in [(200 * US, 6_000 * US), (5_000 * US, 6_000 * US)] {
        let mostly = |first: &[Setting]| {
            let (queued, busy) = beside_idle(first, kernel);
            (queued[queued.len() * 3 / 4], busy)
        };
        comes_out(100, || mostly(&[EQUAL, HIGH]), |(queued, busy)| *queued <= most && *busy >= 900);
        comes_out(100, || mostly(&[EQUAL]), |(queued, _)| *queued > most);
    }
}

#[test]
fn a_directory_that_is_slow_to_read_is_read_seldom_and_grants_stay_current() {
    /// Time that a read of the directory takes, in milliseconds. The library reads it again after twenty times as long at the
    /// earliest. An arbiter that is silent for 100 ms is replaced.
    const SLOW: u64 = 60;
    /// Position of the instant in a grant, and the shift of its unit.
    const AT: (u32, u32) = (26, 20);
    let _alone = support::machine();
    comes_out(
        20,
        || {
            let bench = Bench::simulated();
            let read = bench.file("read", "");
            let readings = || fs::metadata(&read).unwrap().len();
            let host = bench.host("load", &["60", "200000"]).loaded().set(REST.0, REST.1);
            let host = host.preload(&support::compiler::wrapper("wrap_folder"));
            let host =
                host.set("FOLDER_MS", &SLOW.to_string()).set("FOLDER_READ", &read.display().to_string());
            let _slow = begun(host.in_slice(1));
            wait("no process reads the directory", || readings() > 0);
            // Once the arbiter finds this slice, the grant of the slice beside it tells that slice to give way.
            let _high = working(&bench, 0, &[EQUAL, HIGH]);
            wait("the slice has no grant", || grant(&bench, 1) != 0);
            let (said_at, seen) = ((grant(&bench, 1) >> AT.0) << AT.1, support::monotonic());
            let late = seen.saturating_sub(said_at) / 1_000_000;
            // The process that makes a region reads the directory once too, so only later reads are timed.
            let before = readings();
            wait("the directory is not read again", || readings() > before);
            let one = support::monotonic();
            wait("the directory is not read a third time", || readings() > before + 1);
            (late, (support::monotonic() - one) / 1_000_000)
        },
        |(late, apart)| *late < SLOW * 2 / 3 && *apart >= SLOW * 20,
    );
}

/// Returns the names of the threads of a process.
fn threads(program: &Living) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{}/task", program.pid())).unwrap().flatten();
    tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok()).collect()
}

#[test]
fn a_slice_with_the_whole_gpu_costs_nothing_beside_others_and_makes_no_file() {
    let _alone = support::machine();
    let bench = Bench::simulated();
    let free = working(&bench, 0, &[("GPU_MEM_LIMIT", "2GiB")]);
    std::thread::sleep(Duration::from_millis(100));
    assert!(!arbiter_leases(&bench).exists());
    let _beside = working(&bench, 1, &[EQUAL]);
    wait("no process makes the lease file", || arbiter_leases(&bench).exists());
    let before = used(&bench, 1);
    wait("the other slice is charged nothing", || used(&bench, 1) >= before + 200_000_000);
    assert_eq!((used(&bench, 0), grant(&bench, 0)), (0, 0), "it is not measured and has no grant");
    assert!(threads(&free).iter().all(|name| name.trim() != "gpuslice"), "{:?}", threads(&free));
}

#[test]
fn slices_of_policy_fixed_need_no_arbiter() {
    let _alone = support::machine();
    let bench = Bench::simulated();
    let share = ("GPU_CORE_PERCENT", "40");
    let _programs = [working(&bench, 0, &[share]), working(&bench, 1, &[share])];
    go_on(&bench, 2);
    assert!(!arbiter_leases(&bench).exists());
    assert_eq!([grant(&bench, 0), grant(&bench, 1)], [0, 0]);
}

#[test]
fn a_process_that_was_started_with_another_policy_prints_the_policy_that_holds() {
    let bench = Bench::simulated();
    let first = working(&bench, 0, &[EQUAL, weight("300")]);
    let mut second = working(&bench, 0, &[REST, HIGH]);
    second.kill();
    let said = second.end().1;
    assert!(
        said.contains(
            "started with policy best-effort, a weight of 100, high priority; its slice has policy equal"
        ) && said.contains("a weight of 300, normal priority; the slice's limits hold."),
        "{said}"
    );
    drop(first);
}
