//! Does the last line of a run count what the runners said?

use crate::support::artefacts;
use std::process::Command;

/// Output of `cargo test -- --show-output` and of a script of ours. Of three tests that ended well one is inconclusive, and
/// says so twice. One that failed was inconclusive before.
const LOG: &str = "\
running 5 tests
successes:

---- kept stdout ----
12 ms; the host: an idle thread lost 0ns

---- late stdout ----
INCONCLUSIVE late: 40 ms at tests/paced.rs:7:1; slack 10ms
INCONCLUSIVE late: 50 ms at tests/paced.rs:8:1; slack 10ms

successes:
    kept
    late
    other

failures:

---- wrong stdout ----
INCONCLUSIVE wrong: 40 ms at tests/paced.rs:9:1; slack 10ms
thread 'wrong' panicked

failures:
    wrong

test result: FAILED. 3 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.00s
INCONCLUSIVE is no test's line here
test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.00s
7 passed, 2 failed, 4 skipped
";

#[test]
fn an_inconclusive_test_is_counted_once_and_not_as_passed() {
    let file = tempfile::NamedTempFile::new().expect("a file can be made");
    std::fs::write(file.path(), LOG).expect("it can be written");
    let script = format!(". ci/parts.sh && count {}", file.path().display());
    let output = Command::new("bash").args(["-c", &script]).current_dir(artefacts::repository()).output();
    let output = output.expect("bash runs");
    // Passed: two of the first, two of the second, seven of the script.
    assert_eq!(String::from_utf8_lossy(&output.stdout), "11 3 1 1\n", "{output:?}");
}
