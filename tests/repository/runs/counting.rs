//! Summary of a run: the last line counts the results of the runners.

use crate::support::artefacts;
use std::process::Command;

const REQUIRED: &str = "GPUSLICE_REQUIRE_KUBE";

/// Output of `cargo test -- --show-output` and of a script of the repository. Of three tests that passed, one is inconclusive and
/// prints that twice. A test that failed was inconclusive before.
const LOG: &str = "\
running 5 tests
successes:

---- kept stdout ----
12 ms; the host: an idle thread lost 0ns

---- late stdout ----
INCONCLUSIVE late: 40 ms at tests/launches.rs:7:1; slack 10ms
INCONCLUSIVE late: 50 ms at tests/launches.rs:8:1; slack 10ms

successes:
    kept
    late
    other

failures:

---- wrong stdout ----
INCONCLUSIVE wrong: 40 ms at tests/launches.rs:9:1; slack 10ms

thread 'wrong' (1234) panicked at tests/launches.rs:9:1:
assertion `left == right` failed: too much
  left: 1
 right: 2
note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace

failures:
    wrong

test result: FAILED. 3 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.00s
INCONCLUSIVE is no test's line here
test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s
FAIL quota: status 1
7 passed, 2 failed, 4 skipped
";

/// Returns the output of a function of `ci/parts.sh` for the log.
fn said(function: &str) -> String {
    let file = tempfile::NamedTempFile::new().expect("a file can be made");
    std::fs::write(file.path(), LOG).expect("it can be written");
    output(&format!("{function} {}", file.path().display()), None)
}

/// Returns the output of commands that know the functions of `ci/parts.sh`. `required`: the value of `GPUSLICE_REQUIRE_KUBE`.
fn output(commands: &str, required: Option<&str>) -> String {
    let mut bash = Command::new("bash");
    bash.args(["-c", &format!(". ci/parts.sh && {commands}")]).current_dir(artefacts::repository());
    bash.env_remove(REQUIRED);
    if let Some(value) = required {
        bash.env(REQUIRED, value);
    }
    String::from_utf8(bash.output().expect("bash runs").stdout).expect("it prints text")
}

#[test]
fn an_inconclusive_test_is_counted_once_and_not_as_passed() {
    // Two tests of the first runner passed, two of the second, and seven of the script.
    assert_eq!(said("count"), "11 3 1 1\n");
}

#[test]
fn each_failure_is_named_at_the_end_with_its_message() {
    let wrong = "FAILED: wrong: tests/launches.rs:9:1:\n    assertion `left == right` failed: too much\n      left: 1\n";
    assert_eq!(said("failures"), format!("{wrong}FAIL quota: status 1\n"));
}

/// Replaces `ci/kube.sh`, which takes an hour, by a function that prints its name.
#[test]
fn the_cluster_is_a_counted_skip_unless_it_is_required() {
    let commands = "ci/kube.sh() { echo it runs; }; kube_cluster";
    for required in [None, Some(""), Some("0")] {
        let said = output(commands, required);
        assert!(
            said.starts_with("SKIP scenarios in a Kubernetes cluster: they take an hour; to mend it: "),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    assert_eq!(output(commands, Some("1")), "it runs\n");
    let parts = output("part() { echo \"$1: ${*:2}\"; }; long_parts", None);
    assert!(parts.lines().any(|line| line == "kubernetes cluster: kube_cluster"), "{parts}");
}
