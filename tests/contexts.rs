//! Does a context's own memory count against the quota, once, and as long as the context lives?
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, reason = "a test")]

mod support;

use support::bench::Bench;

/// A GPU of 1 GiB on which a context takes 100 MiB.
fn bench() -> Bench {
    Bench::simulated().with("SIMGPU_CONTEXT_BYTES", "100MiB")
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
fn a_refusal_is_told_to_who_wants_to_know_everything() {
    let refused = |level: &str| {
        let bench = bench();
        let host = bench.host("contexts", &["many"]).limited("350MiB").set("GPUSLICE_LOG", level);
        host.run()
            .err
            .lines()
            .filter(|line| line.contains("is refused: the slice holds 300MiB of 350MiB."))
            .count()
    };
    assert_eq!([refused("debug"), refused("info")], [1, 0]);
}

#[test]
fn what_ends_beside_a_call_that_ends_no_context_is_given_back() {
    // They take long, so that most of what ends does so beside one.
    let slow = "cuCtxDetach=delay:1ms;cuDevicePrimaryCtxRelease_v2=delay:1ms";
    for library in ["beside", "attached"] {
        let bench = bench().with("SIMGPU_FAULTS", slow);
        let outcome = bench.host("contexts", &[library]).limited("164MiB").run().quiet();
        outcome.says(&["init 0", "refused 0, lost 0"]);
    }
}

#[test]
fn of_uses_that_are_given_back_together_the_last_gives_back_what_the_context_holds() {
    let bench = bench().with("SIMGPU_FAULTS", "cuCtxDetach=delay:1ms");
    let outcome = bench.host("contexts", &["together"]).limited("512MiB").run().quiet();
    outcome.says(&["init 0", "failed 0, lost 0"]);
}

#[test]
fn a_context_that_is_made_anew_while_its_end_is_taken_down_is_given_back_as_well() {
    // We ask for the state when the driver is back: meanwhile others make it anew.
    let slow = "cuDevicePrimaryCtxGetState=delay:100us";
    let bench = bench().with("SIMGPU_MEMORY", "64GiB").with("SIMGPU_FAULTS", slow);
    let outcome = bench.host("contexts", &["remade"]).limited("63GiB").run().quiet();
    outcome.says(&["init 0", "lost 0"]);
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
fn what_one_process_learned_about_contexts_is_reserved_by_the_next() {
    let bench = bench();
    bench.host("contexts", &["primary"]).limited("150MiB").run();
    let before = bench.truth(0).peak;
    let holder = bench.host("contexts", &["many"]).limited("150MiB").run();
    holder.contains(&["made 1, then 2, output untouched, left 50"]);
    assert!(before <= 200 << 20 && bench.truth(0).peak <= before, "the second process never went beyond");
}

#[test]
fn without_a_quota_contexts_are_nobodys_business() {
    let bench = bench();
    let bare = bench.host("contexts", &["many"]).run().quiet();
    bench.host("contexts", &["many"]).loaded().run().quiet().same_as(&bare);
}
