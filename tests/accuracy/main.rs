//! Accuracy of shares of GPU time with programs that really run. The simulated GPU's ground truth is the judge.
//!
//! Without variables the tests run a few cells with generous bounds, because the machine may have other things to do. With
//! `GPUSLICE_TEST_SECONDS` they run the whole table (`ci/accuracy.sh`). `docs/development/testing.md` has the other variables.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::print_stdout,
    clippy::panic,
    reason = "a test: it ends where something is wrong, and prints figures"
)]

mod arbiters;
mod cell;
mod changes;
mod course;
mod debts;
mod divisions;
mod figures;
mod picture;
mod policies;
mod shares;
mod starts;
#[path = "../support/mod.rs"]
mod support;
mod workloads;

use cell::{TARGETS, cell, free, heading};
use serde_json::Value;
use std::io::Write as _;
use support::timed::{Verdict, inconclusive};
use workloads::{LIMITS, Target, VARIANTS, Variant, Workload};

/// Seconds of a cell if the table was not asked for.
const QUICK: u64 = 3;
/// Most seconds for which a program is watched without a limit: it does the same all the time.
const FREE: u64 = 4;

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns the seconds of each cell if the table was asked for.
fn seconds() -> Option<u64> {
    variable("GPUSLICE_TEST_SECONDS").map(|text| text.parse().expect("GPUSLICE_TEST_SECONDS is a number"))
}

/// Returns the variant whose name contains `GPUSLICE_TEST_VARIANT`.
fn variant() -> &'static Variant {
    let name = variable("GPUSLICE_TEST_VARIANT").unwrap_or_default();
    VARIANTS
        .iter()
        .find(|variant| variant.name.contains(&name))
        .expect("GPUSLICE_TEST_VARIANT is a part of a name")
}

/// Appends a line of JSON to the file that `GPUSLICE_TEST_JSON` names.
fn note(line: &Value) {
    let Some(path) = variable("GPUSLICE_TEST_JSON") else { return };
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
    writeln!(file, "{line}").unwrap();
}

fn limits() -> Vec<u64> {
    let wanted = variable("GPUSLICE_TEST_LIMITS");
    let number = |word: &str| word.parse().expect("GPUSLICE_TEST_LIMITS are numbers");
    wanted.map_or_else(|| LIMITS.to_vec(), |text| text.split(',').map(number).collect())
}

/// Prints a workload's part of the table. Returns the cells that miss.
fn rows(workload: &Workload, seconds: u64, variant: &Variant) -> Vec<String> {
    let (mut missed, mut unlimited) = (Vec::new(), None);
    let requests = workload.target == Target::Latency;
    for limit in limits() {
        // With a smaller limit, requests come at longer intervals. The slowest of a hundred requests counts, so the cell lasts
        // longer.
        let seconds = if requests { seconds * (1 + 20 / limit) } else { seconds };
        let length = if requests { seconds } else { seconds.min(FREE) };
        let known = unlimited.take().filter(|_| !requests);
        let before = known.map_or_else(|| free(workload, limit, length, variant), Ok);
        match before.and_then(|before| {
            let cell = cell(workload, limit, seconds, &before, variant);
            unlimited = Some(before);
            cell
        }) {
            Ok(cell) => {
                println!("{}", cell.line());
                note(&cell.json(seconds, variant));
                let text = format!("{} {limit}: {}", workload.name, cell.misses);
                match cell.verdict() {
                    Verdict::Holds => {}
                    Verdict::Missed => missed.push(text),
                    Verdict::Inconclusive => inconclusive(&text),
                }
            }
            Err(said) => {
                println!("{:<24}{limit:>4}  MISS it does not run: {}", workload.name, said.trim());
                missed.push(format!("{} {limit}: {said}", workload.name));
            }
        }
    }
    missed
}

fn table(seconds: u64) {
    let (only, variant) = (variable("GPUSLICE_TEST_WORKLOAD").unwrap_or_default(), variant());
    let is_wanted = |workload: &&Workload| only.split('|').any(|part| workload.name.contains(part));
    println!("{}: {}; {seconds} s a cell", variant.name, support::host::machine());
    println!("{}", heading());
    let wanted = variant.workloads.iter().filter(is_wanted);
    assert!(wanted.clone().count() > 0, "no workload has {only} in its name");
    let missed: Vec<String> = wanted.flat_map(|workload| rows(workload, seconds, variant)).collect();
    println!("{TARGETS}");
    println!("load at the end: {}", support::host::machine());
    assert!(missed.is_empty(), "{} cells miss: {missed:#?}", missed.len());
}

/// Asserts that a limit is kept within a few points, and that work is done.
fn quick() {
    println!("{}", heading());
    for (name, limit) in [("20 us, async", 30), ("graph of 8 ms", 10), ("2 processes", 50)] {
        let workload = variant().workloads.iter().find(|workload| workload.name == name).unwrap();
        let before = free(workload, limit, QUICK, variant()).unwrap();
        let cell = cell(workload, limit, QUICK, &before, variant()).unwrap();
        println!("{}", cell.line());
        assert!(cell.figures.mean <= 500, "{cell:?}");
        // If the machine has no time for the programs, the GPU is idle.
        assert!(cell.figures.mean >= -100 * limit as i64 / 2, "{cell:?}");
    }
}

#[test]
fn a_share_holds_when_programs_really_run() {
    let _alone = support::machine();
    seconds().map_or_else(quick, table);
}
