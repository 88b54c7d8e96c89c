//! Paced launches leave everything else as it was, in each state of the program, the driver and the kernel.

use super::hosts::{bench, busy, kernels, launches, member, number, paced, same, told, used};
use crate::support::{compiler, skip, timed};
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn launches_that_are_recorded_cost_nothing_and_are_all_that_is_recorded() {
    let bench = bench();
    let outcome = paced(bench.host("paced", &["capture", "1ms"]), "30").run().quiet();
    let recorded =
        outcome.out.lines().filter(|line| line.ends_with("launches 0, end 0, 200 kernels, 0 others"));
    assert_eq!(recorded.count(), 9, "{outcome}");
    let failed: Vec<_> =
        outcome.out.lines().filter(|line| line.ends_with("end 401, 0 kernels, 0 others")).collect();
    assert_eq!(failed.len(), 2, "{outcome}");
    // The recordings hold 1600 ms of kernels. If they were paid for, they would take more than 5 s.
    assert!(number(&outcome, "recorded in ") < 1000, "{outcome}");
    // Kernels that ran: two launches before each of eleven recordings, and those of the two recordings that failed.
    assert_eq!(kernels(&bench), 422, "{outcome}");
}

#[test]
fn every_launch_is_counted_once() {
    let bench = bench();
    let mut member = member(&bench, "100us", "30");
    for launched in [1, 8, 300] {
        let before = used(&bench).launches;
        launches(&mut member, launched);
        assert_eq!(used(&bench).launches - before, u64::from(launched));
    }
}

#[test]
fn a_launch_that_waited_for_the_share_is_measured_like_any_other() {
    let bench = bench();
    let mut member = paced(bench.host("paced", &["waits", "100us", "150ms"]), "10").start();
    assert_eq!(member.hear().as_deref(), Some("ready"));
    let counted = |launched: u64| {
        let end = Instant::now() + Duration::from_secs(10);
        while used(&bench).launches < launched {
            assert!(Instant::now() < end, "a run was left open");
        }
        assert_eq!(used(&bench).launches, launched);
    };
    launches(&mut member, 20);
    member.ask("other 0");
    counted(21);
    for round in 1..=3 {
        // The share is used up for more than a second, and a thread that looks after this thread finds nothing to do meanwhile.
        let (all, _) = told(&mut member, "other 1");
        assert!(all > Duration::from_millis(500), "{all:?}");
        counted(21 + 2 * round);
    }
}

#[test]
fn fills_that_are_recorded_take_no_time() {
    let bench = bench();
    let mut member = paced(bench.host("paced", &["fills", "1ms"]), "30").start();
    assert_eq!(member.hear().as_deref(), Some("ready"));
    assert_eq!(member.ask("run 64"), "0");
    let ran = used(&bench).copied.nanos();
    assert_eq!(member.ask("cap 64"), "0");
    let recorded = used(&bench).copied.nanos();
    assert_eq!(member.ask("run 64"), "0");
    assert!(ran > 0 && recorded == ran && used(&bench).copied.nanos() > ran, "{ran}, {recorded}");
}

/// Ways to ask for copies whose direction only the driver knows.
const WAYS: [&str; 11] = [
    "one",
    "with",
    "box1",
    "batch",
    "batch_v2",
    "boxes",
    "boxes_v2",
    "batch_ptsz",
    "batch_v2_ptsz",
    "boxes_ptsz",
    "boxes_v2_ptsz",
];

#[test]
fn copies_between_any_addresses_count_where_both_are_of_the_device() {
    for how in WAYS {
        let bench = bench();
        let mut member = paced(bench.host("paced", &["moves", "1ms"]), "30").start();
        assert_eq!(member.hear().as_deref(), Some("ready"));
        assert_eq!(member.ask(&format!("host {how}")), "0", "{how}");
        assert_eq!(used(&bench).copied.nanos(), 0, "{how}");
        assert_eq!(member.ask(&format!("device {how}")), "0", "{how}");
        assert!(!used(&bench).copied.is_zero(), "{how}");
    }
}

#[test]
fn copies_in_batches_are_paid_for_where_copies_are() {
    for how in ["batch", "batch_v2", "boxes", "boxes_v2"] {
        let bench = bench().with("GPU_CORE_COPIES", "1");
        let mut member = paced(bench.host("paced", &["moves", "1ms"]), "30").start();
        assert_eq!(member.hear().as_deref(), Some("ready"));
        assert_eq!(member.ask(&format!("host {how}")), "0", "{how}");
        assert_eq!(used(&bench).used.nanos(), 0, "{how}");
        let before = busy(&bench);
        let copies = || {
            assert_eq!(member.ask(&format!("device {how}")), "0", "{how}");
            (busy(&bench) - before, used(&bench).used.nanos())
        };
        // More than 5 ms of 6.2 ms are paid for. On a machine that has other things to do, the time between a batch's copies is
        // longer and is not paid for.
        let slack = Duration::from_millis(2);
        let (took, paid) = timed::holds(slack, copies, |(took, paid)| *paid > took / 2);
        assert!(took > 0 && paid > 0, "{how}: {took} ns, {paid} ns paid for");
    }
}

#[test]
fn copies_by_lists_that_are_not_there_are_the_drivers_to_refuse() {
    let outcome = same("paced", &["absent", "1ms"]).quiet();
    outcome.contains(&["0 0: 1 1", "0: 1 1 1", "1 3: 1 1", "1: 1 1 1"]);
}

#[test]
fn a_capture_is_not_spoiled_by_batches_of_streams_that_join_it() {
    let outcome = same("paced", &["join", "10us"]).quiet();
    let whole = outcome.out.lines().filter(|line| line.ends_with("launches 0, end 0, 4 kernels, 0 others"));
    assert_eq!(whole.count(), 20, "{outcome}");
}

#[test]
fn a_capture_in_global_mode_is_not_spoiled_by_launches_of_other_threads() {
    let outcome = same("paced", &["beside", "200us"]).quiet();
    outcome.contains(&["300 captures, 0 spoiled, 0 with other nodes"]);
}

#[test]
fn contexts_and_streams_may_end_under_running_work() {
    same("paced", &["ends", "1ms"]).quiet();
    same("paced", &["streams", "100us"]).quiet();
}

#[test]
fn a_launch_keeps_errno() {
    same("paced", &["keeps", "1ms"]).quiet().says(&["errno is kept by 300"]);
}

#[test]
fn events_that_fail_never_fail_a_launch_and_are_told_once() {
    let faults = [
        "cuEventCreate=2",
        "cuEventCreate=2@3+",
        "cuEventRecord=999",
        "cuEventRecord=999@20+",
        "cuEventRecord=400@9",
        "cuEventRecord=700@9+",
        "cuEventQuery=999@5+",
        "cuEventQuery=400@7",
        "cuEventElapsedTime=999@3+",
        "cuEventElapsedTime=600",
        "cuEventCreate=2@5;cuEventRecord=719@50;cuEventQuery=999@70;cuEventElapsedTime=1@40",
    ];
    for fault in faults {
        let bench = bench().with("SIMGPU_FAULTS", fault);
        let outcome = paced(bench.host("paced", &["plain", "1ms", "400"]), "50").run();
        assert_eq!(
            (outcome.out.as_str(), outcome.ended.as_str()),
            ("launches 0 0, wait 0\n", "exit 0"),
            "{fault}: {outcome}"
        );
        let told: Vec<_> = outcome.err.lines().collect();
        // The program may have ended a handle that is not valid any more, and a broken kernel reports itself. The library prints
        // nothing about either.
        let is_ours = !["=400", "=700"].iter().any(|code| fault.contains(code));
        let is_one = told.iter().all(|line| line.contains("timing events fail"));
        assert!(told.len() == usize::from(is_ours) && is_one, "{fault}: {outcome}");
    }
}

#[test]
fn the_usual_launch_makes_no_system_call() {
    if Command::new("strace").arg("-V").output().is_err() {
        return skip("system calls of a launch: there is no strace; to mend it: apt-get install strace");
    }
    let calls = |percent: Option<&str>| {
        let bench = bench();
        let list = bench.file("calls", "");
        let program = compiler::plain("paced").display().to_string();
        let arguments = ["-f", "-o", list.to_str().unwrap(), &program, "hot", "500ns"];
        let host = bench.program("/usr/bin/strace".as_ref(), &arguments);
        let outcome = match percent {
            Some(percent) => paced(host, percent).run(),
            None => host.run(),
        };
        outcome.contains(&["hot launches end 0"]);
        let text = std::fs::read_to_string(&list).unwrap();
        let from = text.lines().position(|line| line.contains("hot launches begin")).expect("they begin");
        let thread = text.lines().nth(from).unwrap().split_whitespace().next().unwrap().to_owned();
        let during = text.lines().skip(from + 1).take_while(|line| !line.contains("hot launches end"));
        // A call during which another thread makes one has a second line.
        during.filter(|line| line.starts_with(&thread) && !line.contains(" resumed>")).count()
    };
    let (bare, paced) = (calls(None), calls(Some("95")));
    println!("4000 launches: {bare} system calls of the driver, {paced} with the library");
    assert!(paced <= bare + 80, "{bare} without the library, {paced} with it");
}

#[test]
fn a_host_that_is_delayed_before_it_records_the_end_of_a_batch_does_not_pay_for_it() {
    // The delay hits one of a batch's two events, and then the next event, which is the other one.
    let cases = [("1ms", 200, 200), ("1ms", 200, 201), ("100us", 2000, 30), ("100us", 2000, 31)];
    for (kernel, count, at) in cases {
        let fault = format!("cuEventRecord=delay:400ms@{at}");
        let bench = bench().with("SIMGPU_FAULTS", &fault);
        let mut member = member(&bench, kernel, "50");
        launches(&mut member, count);
        let (used, ran) = (used(&bench).used.nanos(), busy(&bench));
        println!("{kernel}, {fault}: {used} ns used, {ran} ns busy");
        // A machine that has other things to do makes kernels look longer, but hardly all of them by a whole length.
        assert!(
            ran > 0 && used > ran / 2 && used < 2 * ran,
            "{kernel}, {fault}: {used} ns used, {ran} ns busy"
        );
    }
}

#[test]
fn a_kernel_that_does_not_end_is_charged_while_it_runs() {
    let bench = bench();
    let mut endless = member(&bench, "60s", "50");
    let mut waiting = member(&bench, "1ms", "50");
    launches(&mut waiting, 4);
    endless.ask("1");
    while busy(&bench) < 400_000_000 {
        std::thread::yield_now();
    }
    // At half of the time the slice owes at least as long as the kernel has run.
    waiting.order("1");
    let asked = Instant::now();
    while busy(&bench) < 900_000_000 {
        assert_eq!(waiting.heard(), None, "a launch went though the share was used up");
        std::thread::yield_now();
    }
    endless.kill();
    let answer = waiting.hear().expect("it goes on when the other is gone");
    println!("waited {:?} ({answer})", asked.elapsed());
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
}

#[test]
fn a_program_whose_first_launches_return_after_their_kernels_have_ended_keeps_to_its_share() {
    let program = compiler::linked("late.c", "late", &[]).expect("late.c links with the simulated driver");
    let bench = bench();
    let host = paced(bench.program(&program, &["2"]), "10").preload(&compiler::wrapper("wrap_late"));
    let outcome = host.run().quiet();
    outcome.contains(&["wrapped: yes"]);
    let launches = number(&outcome, "first second ");
    // The bound adds up the share, the burst, a lease, and the kernels of 400 us that could not be measured.
    assert!((200..=(100 + 20 + 1) * 10 / 4 + 4).contains(&launches), "{launches} launches");
    let longest = number(&outcome, "longest ");
    assert!(longest < 500, "a launch took {longest} ms");
}
