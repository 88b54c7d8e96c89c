//! Summary of a run: the last line counts the results of the runners.

use crate::support::artefacts;
use std::process::Command;

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
    let script = format!(". ci/parts.sh && {function} {}", file.path().display());
    let output = Command::new("bash").args(["-c", &script]).current_dir(artefacts::repository()).output();
    String::from_utf8(output.expect("bash runs").stdout).expect("it prints text")
}

#[test]
fn an_inconclusive_test_is_counted_once_and_not_as_passed() {
    // Passed: two of the first runner, two of the second, seven of the script.
    assert_eq!(said("count"), "11 3 1 1\n");
}

#[test]
fn each_failure_is_named_at_the_end_with_its_message() {
    let wrong = "FAILED: wrong: tests/launches.rs:9:1:\n    assertion `left == right` failed: too much\n      left: 1\n";
    assert_eq!(said("failures"), format!("{wrong}FAIL quota: status 1\n"));
}
