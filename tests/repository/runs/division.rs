//! Division of tests into runs: each test binary of the workspace belongs to one run.

use crate::support::artefacts;
use serde_json::Value;
use std::process::Command;

/// Returns the names of all test binaries from cargo: the `tests` of each package, without the unit tests beside the code.
fn binaries() -> Vec<String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| String::from("cargo"));
    let mut command = Command::new(cargo);
    command.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]);
    let output = command.current_dir(artefacts::repository()).output().expect("cargo runs");
    assert!(output.status.success(), "{output:?}");
    let told: Value = serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let packages = told["packages"].as_array().expect("a list").iter();
    let targets = packages.flat_map(|package| package["targets"].as_array().expect("a list"));
    let tests = targets.filter(|target| target["kind"][0] == "test");
    tests.map(|target| target["name"].as_str().expect("a name").to_owned()).collect()
}

/// Returns the mistakes in a list of lines `RUN BINARY` for these binaries.
fn mistakes(list: &str, binaries: &[String]) -> Vec<String> {
    let lines = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let rows: Vec<(&str, &str)> = lines.map(|line| line.split_once(' ').unwrap_or((line, ""))).collect();
    let mut found = Vec::new();
    for (run, binary) in &rows {
        if !["short", "timed", "long"].contains(run) {
            found.push(format!("{binary}: there is no run {run}"));
        }
        if !binaries.iter().any(|known| known == binary) {
            found.push(format!("{binary}: there is no such binary"));
        }
    }
    for binary in binaries {
        let runs = rows.iter().filter(|(_, listed)| listed == binary).count();
        let same = binaries.iter().filter(|other| *other == binary).count();
        if (runs, same) != (1, 1) {
            found.push(format!("{binary}: in the list {runs} times, a name of {same} binaries"));
        }
    }
    found
}

#[test]
fn each_test_binary_belongs_to_one_run() {
    let list =
        std::fs::read_to_string(artefacts::repository().join("ci/tests.txt")).expect("there is a list");
    let binaries = binaries();
    assert!(binaries.len() > 15, "{binaries:?}");
    assert_eq!(mistakes(&list, &binaries), Vec::<String>::new(), "see ci/tests.txt");
}

#[test]
fn a_binary_in_no_run_or_in_two_is_named() {
    let binaries = ["limits", "crash", "churn"].map(String::from);
    assert_eq!(mistakes("# a comment\nshort limits\nshort crash\nlong churn\n", &binaries), [""; 0]);
    let wrong = mistakes("short limits\nlong limits\nnightly crash\nshort gone\n", &binaries);
    let expected = [
        "crash: there is no run nightly",
        "gone: there is no such binary",
        "limits: in the list 2 times, a name of 1 binaries",
        "churn: in the list 0 times, a name of 1 binaries",
    ];
    assert_eq!(wrong, expected);
    let twice = ["deaths", "deaths"].map(String::from);
    assert_eq!(mistakes("short deaths\n", &twice).len(), 2, "cargo selects both");
}
