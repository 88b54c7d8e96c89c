//! Lack of memory: a program for which the library gets no memory lives on.

use crate::support::bench::{Bench, Host};
use crate::support::chance::seed;
use crate::support::compiler;
use crate::support::outcome::{Outcome, but_refusals};
use std::path::PathBuf;

const MIB: u64 = 1 << 20;
const QUOTA: u64 = 256 * MIB;

fn bench() -> Bench {
    let bench = Bench::simulated_without_contexts().with_quick_nvml();
    bench.with("SIMGPU_CONTEXT_BYTES", "20MiB").with("SIMGPU_MODULE_BYTES", "2MiB")
}

fn program() -> PathBuf {
    compiler::linked("starved.c", "starved", &[]).expect("it links with the simulated driver")
}

fn limited(host: Host<'_>) -> Host<'_> {
    host.limited("256MiB").set("GPU_CORE_PERCENT", "50")
}

/// Asserts that the program came to its own end, that the quota held, and that only known messages were printed.
#[track_caller]
fn is_well(bench: &Bench, outcome: &Outcome, what: &str) {
    assert!(outcome.ended == "exit 0" && outcome.out.contains("at the end\n"), "{what}: {outcome}");
    // If `cuInit` was refused, there is no GPU whose truth could be read.
    if bench.region().with_file_name("state").exists() {
        assert!(bench.truth(0).peak <= QUOTA, "{what}: {:?}", bench.truth(0));
    }
    let rest = but_refusals(&outcome.err);
    let is_known = |line: &str| {
        line.starts_with("simgpu: ")
            || line.starts_with("gpuslice: ")
                && ["GPU work is refused.", "no thread can be started"]
                    .iter()
                    .any(|words| line.contains(words))
    };
    assert!(rest.lines().all(is_known), "{what}: {outcome}");
}

#[test]
fn a_program_without_address_space_lives_on_as_without_the_library() {
    let mut tried = 0;
    for spare in [0, 16 << 10, 64 << 10, 256 << 10, MIB, 2 * MIB, 4 * MIB, 16 * MIB, 64 * MIB] {
        let spare = spare.to_string();
        let bare = bench();
        let bare = bare.program(&program(), &[&spare]).run();
        // If the simulated driver itself ends for lack of memory, the run says nothing about the library.
        if bare.ended != "exit 0" {
            println!("{spare}: bare: {}", bare.ended);
            continue;
        }
        tried += 1;
        let bench = bench();
        let outcome = limited(bench.program(&program(), &[&spare])).run();
        is_well(&bench, &outcome, &spare);
    }
    assert!(tried >= 3, "{tried}");
}

/// Of the later calls, a run tries one in so many, from a random one on, because all of them would take minutes.
const SAMPLED: usize = 12;

/// Runs the program for calls by which the library takes memory. In each run one of them fails, and so do the calls after it, until
/// `count` have failed.
fn each_call_gets_no_memory(count: usize) {
    let wrapper = compiler::wrapper("wrap_memory");
    let run = |bench: &Bench, from: usize, count: usize| {
        let host = bench.program(&program(), &["-"]).preload(&wrapper);
        limited(host).set("WRAP_FROM", &from.to_string()).set("WRAP_COUNT", &count.to_string()).run()
    };
    let dry = bench();
    let outcome = run(&dry, 0, 0);
    is_well(&dry, &outcome, "all succeed");
    let line = outcome.out.lines().find_map(|line| line.strip_prefix("asked ")).expect("a count");
    let all: usize = line.strip_suffix(" times").unwrap().parse().unwrap();
    println!("{all} calls");
    assert!(all > 50, "{all}");
    // Each of the first calls, which set everything up, and samples of the others, beginning anywhere.
    let first = seed("a call that gets no memory").index(SAMPLED);
    let points = (1..=all).filter(|number| *number <= 120 || number % SAMPLED == first);
    for from in points {
        let bench = bench();
        let outcome = run(&bench, from, count);
        is_well(&bench, &outcome, &format!("{count} from {from} of {all}"));
    }
}

#[test]
fn whichever_of_our_calls_gets_no_memory_the_program_lives_on() {
    each_call_gets_no_memory(1);
}

#[test]
fn whichever_of_our_calls_is_the_last_that_gets_memory_the_program_lives_on() {
    each_call_gets_no_memory(1_000_000);
}

#[test]
fn an_allocator_that_asks_the_driver_while_the_library_allocates_is_answered() {
    let bench = bench();
    let host = bench.program(&program(), &["-"]).preload(&compiler::wrapper("wrap_memory"));
    let outcome = limited(host).set("WRAP_FROM", "0").set("WRAP_ASKS", "1").run();
    is_well(&bench, &outcome, "asks");
    assert!(outcome.out.lines().any(|line| line.starts_with("asked ")), "{outcome}");
}

#[test]
fn a_program_that_holds_much_lives_on_where_its_tables_cannot_grow_any_more() {
    let wrapper = compiler::wrapper("wrap_memory");
    for from in [1_000, 3_000, 6_000, 8_000] {
        let bench = bench().with("SIMGPU_MEMORY", "8GiB");
        let host = bench.program(&program(), &["-", "300000"]).preload(&wrapper);
        let outcome = limited(host).set("WRAP_FROM", &from.to_string()).set("WRAP_COUNT", "100000000").run();
        is_well(&bench, &outcome, &from.to_string());
    }
}

#[test]
fn where_the_user_may_start_no_more_threads_one_line_is_said_and_the_program_goes_on() {
    let bare = bench();
    let bare = bare.program(&program(), &["threads"]).run();
    assert_eq!(bare.ended, "exit 0", "{bare}");
    let bench = bench();
    let outcome = limited(bench.program(&program(), &["threads"])).run();
    is_well(&bench, &outcome, "no threads");
    let said = outcome.err.lines().filter(|line| line.contains("no thread can be started")).count();
    assert_eq!(said, 1, "{outcome}");
}

#[test]
fn where_a_sandbox_forbids_to_sleep_nothing_is_said_and_the_share_is_kept() {
    let bench = bench();
    let host = bench.program(&program(), &["-"]).preload(&compiler::wrapper("wrap_sleep"));
    let outcome = limited(host).run().quiet();
    is_well(&bench, &outcome, "no sleep");
}
