//! Threads and processes of a slice whose launches are paced: their starts, forks, signals, suspensions and deaths.

use super::hosts::{bench, busy, launches, member, paced, same, until};
use crate::support::timed;
use gpuslice_region::layout::FIGURES;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

#[test]
fn credit_of_a_thread_is_not_lost_with_it() {
    let bench = bench();
    let once = || {
        let outcome = paced(bench.host("paced", &["lives", "1ms"]), "50").run().quiet();
        let line = outcome.out.lines().last().unwrap_or_default();
        line.split_whitespace().nth(2).and_then(|word| word.parse::<u64>().ok()).expect("a duration")
    };
    // The kernels take 400 ms, at half of the GPU's time. Other work of the machine makes that longer, never shorter.
    let taken = timed::holds(Duration::from_millis(2000 - 800), once, |taken| *taken < 2000);
    assert!(taken >= 400, "{taken} ms");
}

/// Returns the nanoseconds that the first process of a slice has prepaid on its first device, credit included.
fn prepaid(region: &Path) -> u64 {
    let figure = |name: &str| FIGURES.iter().find(|(known, _)| *known == name).expect("a figure").1 as u64;
    let place = ["time.offset", "time.processes", "process.unsettled_ns"].map(figure).iter().sum();
    let mut word = [0; 8];
    let region = File::open(region).expect("the slice has a region");
    region.read_exact_at(&mut word, place).expect("the region is whole");
    u64::from_le_bytes(word)
}

#[test]
fn a_quiet_thread_gives_back_its_credit() {
    let bench = bench();
    let mut member = member(&bench, "100us", "50");
    // A lease of 1 ms pays for ten kernels, so credit is left after one. The thread keeps it for 50 ms, and does not end.
    until(
        || {
            let _took = launches(&mut member, 1);
            prepaid(&bench.region())
        },
        |prepaid| *prepaid > 500_000,
    );
    until(|| prepaid(&bench.region()), |prepaid| *prepaid == 0);
}

#[test]
fn a_process_ends_forks_and_executes_as_without_pacing() {
    let ways =
        ["return", "exit", "_exit", "quick_exit", "kill", "abort", "exec", "thread", "first", "children"];
    // Chance decides which work waits at the instant of the end.
    for how in ways.into_iter().cycle().take(4 * ways.len()) {
        same("paced_life", &[how, "1ms"]);
    }
}

#[test]
fn signals_are_the_programs_and_interrupt_no_launch() {
    same("paced_life", &["signals", "1ms"])
        .quiet()
        .says(&["failed 0, many signals, 0 elsewhere, 0 of them blocked"]);
}

#[test]
fn a_bus_error_that_a_program_is_sent_and_blocks_waits_for_it() {
    same("paced_life", &["bus", "1ms"]).quiet();
    let bench = bench();
    let outcome = paced(bench.host("paced_life", &["after_bus", "1ms"]), "30").run().quiet();
    outcome.contains(&["after: 1 threads of the library, 0 with open signals"]);
}

#[test]
fn one_thread_without_signals_comes_with_pacing_and_none_without() {
    let lines = |threads: usize| {
        [
            "before: 0 threads of the library, 0 with open signals".to_owned(),
            format!("then: {threads} threads of the library, 0 with open signals"),
            format!("later: {threads} threads of the library, 0 with open signals"),
            "mask kept, action kept, descriptors no more".to_owned(),
        ]
    };
    for (percent, threads) in [("30", 1), ("100", 0)] {
        let bench = bench();
        let outcome = paced(bench.host("paced_life", &["threads", "1ms"]), percent).run().quiet();
        let expected = lines(threads);
        outcome.says(&expected.each_ref().map(String::as_str));
    }
}

#[test]
fn no_process_waits_for_one_that_is_killed_while_it_has_credit_or_asks() {
    let bench = bench();
    let mut survivor = member(&bench, "1ms", "30");
    launches(&mut survivor, 20);
    for round in 0..12_u64 {
        let mut others: Vec<_> = (0..2).map(|_| member(&bench, "1ms", "30")).collect();
        others.iter_mut().for_each(|other| other.order("1000000"));
        // All three wait for their turn. Then the other two die, at another instant in each round.
        let (_, beside) = launches(&mut survivor, 20 + u32::try_from(round).unwrap());
        for other in &mut others {
            other.kill();
        }
        let (all, alone) = launches(&mut survivor, 30);
        // The prepaid time of the dead is taken back within one second. A machine that has other things to do may take one more.
        assert!(beside.max(alone) < Duration::from_secs(2), "{beside:?}, {alone:?}");
        assert!(all < Duration::from_secs(3), "30 ms of kernels took {all:?}");
    }
}

#[test]
fn a_newcomer_with_another_share_is_told_whose_holds() {
    let bench = bench();
    let mut first = member(&bench, "1ms", "30");
    let (status, said) = member(&bench, "1ms", "50").end();
    assert!(status.success(), "{status}");
    assert!(said.contains("was started with a share of 50%; its slice has a share of 30%;"), "{said}");
    launches(&mut first, 5);
    let (_, said) = first.end();
    assert_eq!(said, "");
}

#[test]
fn launches_are_paced_without_the_regions_file() {
    let bench = bench();
    let mut member = member(&bench, "1ms", "30");
    launches(&mut member, 20);
    std::fs::remove_file(bench.region()).unwrap();
    // The launches need not wait for the burst of 20 ms and for 50 ms that are queued ahead.
    let (took, _) = launches(&mut member, 300);
    assert!(took >= Duration::from_millis((300 - 20 - 50) * 10 / 3), "{took:?}");
    let (status, said) = member.end();
    assert!(status.success(), "{status}");
    assert!(said.lines().count() == 1 && said.contains("go on and keep to its limits"), "{said}");
}

#[test]
fn no_process_waits_for_one_that_is_suspended() {
    let bench = bench();
    let mut other = member(&bench, "1ms", "30");
    let mut survivor = member(&bench, "1ms", "30");
    for _ in 0..6 {
        other.order("60");
        launches(&mut survivor, 25);
        other.suspend();
        let (_, longest) = launches(&mut survivor, 40);
        other.signal(libc::SIGCONT);
        assert!(longest < Duration::from_secs(1), "{longest:?}");
        other.hear();
    }
}

#[test]
fn a_process_that_was_suspended_gets_no_more_than_its_share() {
    let bench = bench();
    let began = Instant::now();
    let mut host = member(&bench, "1ms", "30");
    host.order("1000000");
    for _ in 0..4 {
        while busy(&bench) < 1 {
            std::thread::yield_now();
        }
        host.suspend();
        let until = Instant::now() + Duration::from_millis(250);
        while Instant::now() < until {
            std::thread::yield_now();
        }
        host.signal(libc::SIGCONT);
        let until = Instant::now() + Duration::from_millis(250);
        while Instant::now() < until {
            std::thread::yield_now();
        }
    }
    let (used, passed) = (busy(&bench), began.elapsed());
    host.kill();
    // The saved burst (20 ms) and the prepaid time come on top.
    let most = passed.as_nanos() * 30 / 100 + 80_000_000;
    assert!(u128::from(used) < most, "{used} ns busy within {passed:?}");
    assert!(u128::from(used) > passed.as_nanos() / 10, "{used} ns busy within {passed:?}");
}
