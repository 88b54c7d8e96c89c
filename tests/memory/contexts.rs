//! Memory of a context counts against the quota once, and for as long as the context lives.
#![allow(clippy::indexing_slicing, reason = "a test")]

use crate::support::bench::Bench;
use crate::support::command::{ask, json};
use crate::support::living::Living;
use gpuslice_policy::sizes::blocks::BLOCK;
use gpuslice_region::{Monitor, Trust};
use serde_json::Value;
use std::collections::BTreeMap;

const MIB: u64 = 1 << 20;
/// Bytes of a context in most of these tests, and of a green one.
const CONTEXT: u64 = 100 * MIB;
const GREEN: u64 = 5 * MIB;

/// Makes a GPU of 1 GiB on which a context takes 100 MiB.
fn bench() -> Bench {
    Bench::simulated_without_contexts().with("SIMGPU_CONTEXT_BYTES", "100MiB")
}

/// Returns the bytes of contexts in the words of an ended process, which no other process has cleared yet.
fn left_behind(bench: &Bench) -> u64 {
    let slice = Monitor::open(&bench.region(), Trust::OwnerOnly).unwrap().expect("it is there");
    slice.contexts(slice.devices()[0].device)
}

#[test]
fn contexts_are_made_as_long_as_the_quota_has_room_for_one() {
    let bench = bench();
    let outcome = bench.host("contexts", &["many"]).limited("350MiB").run();
    outcome.says(&[
        "init 0",
        "made 3, then 2, output untouched, left 50",
        "destroy 0",
        "left 150, another 0",
    ]);
    assert_eq!(bench.truth(0).peak, 300 << 20, "no more than fits was ever taken");
}

#[test]
fn a_context_on_an_instance_of_a_gpu_is_measured_as_on_a_whole_one() {
    let bench = bench().with("SIMGPU_MEMORY", "2GiB").with("SIMGPU_MIG", "2");
    let outcome = bench.host("contexts", &["many"]).limited("350MiB").run();
    outcome.contains(&["made 3, then 2, output untouched, left 50"]);
}

#[test]
fn a_quota_smaller_than_a_context_is_refused_in_words_that_say_so() {
    let outcome = bench().host("contexts", &["many"]).limited("64MiB").run();
    outcome.contains(&["made 0, then 2, output untouched, left 9999"]);
    let said =
        outcome.err.lines().filter(|line| line.contains("a context on this device takes about 100MiB"));
    assert_eq!(said.count(), 1, "{outcome}");
}

#[test]
fn a_primary_context_is_paid_for_once_and_given_back_at_its_end() {
    let outcome = bench().host("contexts", &["primary"]).limited("1GiB").run().quiet();
    outcome.says(&[
        "init 0",
        "create 0, left 924",
        "retain 0, left 824",
        "retain 0, left 824",
        "release 0, left 824",
        "release 0, left 924",
        "retain 0, reset 0, left 924",
    ]);
}

#[test]
fn contexts_that_end_beside_a_call_that_ends_none_are_given_back() {
    // The delayed calls take long, so that most contexts that end do so during one.
    let slow = "cuCtxDetach=delay:1ms;cuDevicePrimaryCtxRelease_v2=delay:1ms";
    for library in ["beside", "attached"] {
        let bench = bench().with("SIMGPU_FAULTS", slow);
        let outcome = bench.host("contexts", &[library]).limited("164MiB").run().quiet();
        outcome.says(&["init 0", "refused 0, lost 0"]);
        assert_eq!(left_behind(&bench), CONTEXT, "{library}");
    }
}

#[test]
fn of_uses_that_are_given_back_together_the_last_gives_back_the_contexts_memory() {
    let bench = bench().with("SIMGPU_FAULTS", "cuCtxDetach=delay:1ms");
    let outcome = bench.host("contexts", &["together"]).limited("512MiB").run().quiet();
    outcome.says(&["init 0", "failed 0, lost 0"]);
    assert_eq!(left_behind(&bench), CONTEXT);
}

#[test]
fn a_context_that_is_made_anew_while_its_end_is_taken_down_is_given_back_as_well() {
    // The library asks for the state after the driver returned. Meanwhile other threads make the context anew.
    let slow = "cuDevicePrimaryCtxGetState=delay:100us";
    let bench = bench().with("SIMGPU_MEMORY", "64GiB").with("SIMGPU_FAULTS", slow);
    let outcome = bench.host("contexts", &["remade"]).limited("63GiB").run().quiet();
    outcome.says(&["init 0", "lost 0"]);
    assert_eq!(left_behind(&bench), CONTEXT);
}

#[test]
fn a_context_that_was_reset_is_charged_while_a_user_that_retained_it_uses_it() {
    let told = [
        "retain 0, active 1, left 824",
        "reset 0, active 0, left 924",
        "retain 0, active 1, left 824",
        "release 0, active 1, left 824",
        "release 0, active 0, left 924",
        "release 201, active 0, left 924",
        "retain 0, active 1, left 824",
        "reset 0, active 0, left 924",
        "release 0, active 0, left 924",
    ];
    let bare = bench().host("contexts", &["reset"]).run();
    bare.says(&[&["init 0"], &told[..]].concat());
    bench().host("contexts", &["reset"]).limited("1GiB").run().quiet().same_as(&bare);
}

#[test]
fn a_thread_that_waits_for_another_to_retain_the_context_keeps_errno() {
    let bench = bench().with("SIMGPU_FAULTS", "cuDevicePrimaryCtxRetain=delay:2s@1");
    let outcome = bench.host("contexts", &["interrupted"]).limited("1GiB").run().quiet();
    outcome.says(&["init 0", "waited 1, errno 77 77"]);
}

#[test]
fn every_form_of_making_a_context_pays_and_the_last_detachment_gives_back() {
    let outcome = bench().host("contexts", &["forms"]).limited("350MiB").run();
    outcome.says(&[
        "init 0",
        "first 0, left 250",
        "third 0, left 150",
        "fourth 0, left 50",
        "beyond 2 2 2",
        "attach 0 same",
        "detach 0, left 50",
        "detach 0, left 150",
    ]);
}

#[test]
fn a_process_reserves_the_context_size_that_an_earlier_one_learned() {
    let bench = bench();
    bench.host("contexts", &["primary"]).limited("150MiB").run();
    let before = bench.truth(0).peak;
    let holder = bench.host("contexts", &["many"]).limited("150MiB").run();
    holder.contains(&["made 1, then 2, output untouched, left 50"]);
    assert!(before <= 200 << 20 && bench.truth(0).peak <= before, "the second process never went beyond");
}

#[test]
fn without_a_quota_contexts_are_as_without_the_library() {
    let bench = bench();
    let bare = bench.host("contexts", &["many"]).run().quiet();
    // The second run must find the device as the first did.
    bench.truth_at_rest(0);
    bench.host("contexts", &["many"]).loaded().run().quiet().same_as(&bare);
}

/// Returns the figures of `gpuslice status`: the bytes held and the bytes held by contexts, first of the slice's device, then of
/// each process by its number.
fn told(bench: &Bench) -> ([u64; 2], BTreeMap<u32, [u64; 2]>) {
    let report = json(&["status", &bench.region().display().to_string(), "--json"]);
    let device = &report["slices"][0]["devices"][0];
    let number = |value: &Value| value.as_u64().expect("a number");
    let two = |of: &Value| [&of["held"], &of["held_by_contexts"]].map(number);
    let pid = |process: &Value| u32::try_from(number(&process["pid"])).expect("a process number");
    let processes = device["processes"].as_array().expect("processes");
    (two(device), processes.iter().map(|process| (pid(process), two(process))).collect())
}

/// Starts a host that makes contexts and other things on order.
fn maker(bench: &Bench) -> Living {
    let living = bench.host("modules", &["dlsym"]).limited("512MiB").start();
    assert_eq!(living.hear().as_deref(), Some("init 0"));
    living
}

#[track_caller]
fn does(maker: &mut Living, order: &str) {
    assert_eq!(maker.numbers(order)[0], 0, "{order}");
}

#[test]
fn memory_of_contexts_is_their_charge_whatever_else_is_held() {
    let bench = bench().with("SIMGPU_GREEN_BYTES", "5MiB").with("SIMGPU_MODULE_GRANULE", "2MiB");
    let mut maker = maker(&bench);
    for (order, contexts) in [
        ("retain", CONTEXT),
        ("retain", CONTEXT),
        ("current primary", CONTEXT),
        ("alloc 1000000", CONTEXT),
        ("load data 4194304", CONTEXT),
        ("use function", CONTEXT),
        ("context usual", 2 * CONTEXT),
        ("green", 2 * CONTEXT + GREEN),
        ("green", 2 * CONTEXT + 2 * GREEN),
        // A heap belongs to its context.
        ("limit 2 18874368", 2 * CONTEXT + 2 * GREEN + 10 * MIB),
        ("limit 2 8388608", 2 * CONTEXT + 2 * GREEN),
        ("limit 2 18874368", 2 * CONTEXT + 2 * GREEN + 10 * MIB),
        ("end", CONTEXT + 2 * GREEN),
        ("ungreen", CONTEXT + GREEN),
        // The green context keeps the primary one alive.
        ("release", CONTEXT + GREEN),
        ("release", CONTEXT + GREEN),
        ("green current", CONTEXT + GREEN),
    ] {
        does(&mut maker, order);
        let held = bench.truth(0).held;
        assert_eq!(told(&bench).1[&maker.pid()], [held, contexts], "{order}");
    }
    // A context that does not fit leaves no charge.
    does(&mut maker, &format!("alloc {}", 350 * MIB));
    assert_eq!(maker.numbers("context usual")[0], 2);
    assert_eq!(told(&bench).0[1], CONTEXT + GREEN);
    does(&mut maker, "ungreen");
    assert_eq!((told(&bench).0, bench.truth(0).held), ([0, 0], 0));
    assert!(maker.end().0.success());
}

#[test]
fn status_shows_context_memory_of_several_processes_and_none_of_the_dead() {
    const CONTEXT: u64 = 64 * MIB;
    // An allocation of a million bytes takes a block.
    const MORE: u64 = BLOCK;
    let bench = bench().with("SIMGPU_CONTEXT_BYTES", "64MiB");
    let mut makers = [maker(&bench), maker(&bench)];
    for maker in &mut makers {
        does(maker, "retain");
        does(maker, "current primary");
    }
    does(&mut makers[0], "alloc 1000000");
    let [first, second] = [makers[0].pid(), makers[1].pid()];
    let each = BTreeMap::from([(first, [CONTEXT + MORE, CONTEXT]), (second, [CONTEXT; 2])]);
    assert_eq!(told(&bench), ([2 * CONTEXT + MORE, 2 * CONTEXT], each));
    let text = ask(&["status", &bench.region().display().to_string()]).code(0).out;
    let words = "\n            contexts use 128.00 MiB of that, the largest so far 64.00 MiB\n";
    assert!(text.contains(words), "{text}");
    does(&mut makers[1], "release");
    assert_eq!(told(&bench).0, [CONTEXT + MORE, CONTEXT]);
    does(&mut makers[1], "retain");
    assert_eq!(told(&bench).0, [2 * CONTEXT + MORE, 2 * CONTEXT]);
    makers[0].kill();
    // The first look after the death shows nothing of the process, and no word of it stays.
    assert_eq!(told(&bench), ([CONTEXT; 2], BTreeMap::from([(second, [CONTEXT; 2])])));
    let slice = Monitor::open(&bench.region(), Trust::OwnerOnly).unwrap().expect("it is there");
    slice.reap().unwrap();
    let device = slice.devices()[0].device;
    assert_eq!((slice.held(device), slice.contexts(device)), (CONTEXT, CONTEXT));
    let [_, maker] = makers;
    assert!(maker.end().0.success());
}
