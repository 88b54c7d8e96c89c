//! Launches in a sandbox that forbids `membarrier`.

use super::hosts::{at_30, at_30_beside, number, paced};
use crate::support::bench::Bench;
use crate::support::{compiler, skip, timed};
use std::time::{Duration, Instant};

#[test]
fn where_a_sandbox_forbids_membarrier_others_look_after_a_threads_launches_all_the_same() {
    let sandbox = compiler::wrapper("wrap_sandbox");
    let inside = |words: &[&str]| {
        let outcome = at_30_beside(words, Some(&sandbox));
        assert_eq!(outcome.err, "no membarrier here\n", "{outcome}");
        outcome
    };
    let longest = || number(&inside(&["threads", "20us", "200"]), "longest ");
    timed::holds(Duration::from_millis(100 - 30), longest, |longest| *longest < 100);
    inside(&["storm", "20us", "150"]).contains(&["failed 0, wait 0"]);
}

#[test]
fn where_a_sandbox_forbids_membarrier_later_streams_end_all_the_same() {
    let outcome = at_30(&["late", "100us"]);
    if outcome.out == "no membarrier\n" {
        return skip(
            "a sandbox that is entered late: this kernel has no membarrier; elsewhere: on a kernel with membarrier",
        );
    }
    outcome.contains(&["sandbox 0", "launched 0 0, wait 0"]);
    assert!(number(&outcome, "ended 0 in ") < 5000, "{outcome}");
}

/// Returns the number of launches that the slice has counted.
fn counted(bench: &Bench) -> u64 {
    bench.time_used().launches
}

/// Returns true if all launches are counted within `within` milliseconds.
fn are_counted(bench: &Bench, launched: u64, within: u64) -> bool {
    let end = Instant::now() + Duration::from_millis(within);
    while counted(bench) != launched {
        if Instant::now() > end {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

#[test]
fn where_a_sandbox_forbids_membarrier_later_a_threads_launches_are_looked_after_from_its_next_one_on() {
    let bench = Bench::simulated();
    let mut host = paced(bench.host("paced_streams", &["sealed", "100us"]), "50").start();
    assert_eq!(host.hear().as_deref(), Some("ready"));
    host.ask("8");
    let mut launched = 8;
    assert!(are_counted(&bench, launched, 10_000));
    if host.ask("seal") == "-1" {
        return skip(
            "a sandbox that is entered late: this kernel has no membarrier; elsewhere: on a kernel with membarrier",
        );
    }
    // A batch of a thread that launches no more stays open until the thread launches again. The library has to find that out.
    let is_looked_after = (0..20).any(|_| {
        host.ask("8");
        launched += 8;
        are_counted(&bench, launched, 500)
    });
    assert!(is_looked_after, "{} of {launched}", counted(&bench));
    for order in ["8", "thread8", "8"] {
        host.ask(order);
        launched += 8;
        assert!(are_counted(&bench, launched, 10_000), "{order}: {} of {launched}", counted(&bench));
    }
}
