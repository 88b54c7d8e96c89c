//! Slices that divide a GPU by policy, weight and priority: figures beside the targets.

use crate::arbiters::{Replaced, replacements};
use crate::course::{Course, RunSpec, Settings, run_in_time};
use crate::figures::p99;
use crate::shares::{jain, lending, median_and_most, part, parts};
use crate::support::host::{Host, Watch};
use crate::support::timed::{Verdict, inconclusive};
use crate::support::{host, machine};
use crate::workloads::{Program, of};
use crate::{note, seconds, variable, variant};
use serde_json::json;
use std::time::Duration;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
/// Seconds of a run if the table was not asked for.
const QUICK: u64 = 4;
/// Most seconds for which the programs are watched without the library.
const FREE: u64 = 4;

const EQUAL: &[(&str, &str)] = &[("GPU_CORE_POLICY", "equal")];
const HIGH: &[(&str, &str)] =
    &[("GPU_CORE_POLICY", "equal"), ("GPU_PRIORITY", "high"), ("GPU_CORE_BURST", "latency")];
const LOW: &[(&str, &str)] = &[("GPU_CORE_POLICY", "equal"), ("GPU_PRIORITY", "low")];
const REST: &[(&str, &str)] = &[("GPU_CORE_POLICY", "best-effort")];

/// Runs slices that may use all of the GPU; without `settings`, runs the programs without the library.
fn run_programs(programs: &[Program], settings: Option<Settings<'_>>, seconds: u64) -> Course {
    let slices = programs.iter().map(|program| program.slice).max().unwrap_or(0) + 1;
    let has_requests = programs[0].has_requests();
    let course = run_in_time(&RunSpec {
        programs: programs.to_vec(),
        limits: settings.map(|_| vec![100; slices]),
        burst: "strict",
        settings: settings.unwrap_or_default(),
        seconds,
        variant: variant(),
        events: Vec::new(),
        has_requests,
    });
    course.unwrap()
}

/// Names and figures of the rows that missed their target.
#[derive(Default)]
struct Table(Vec<String>);

impl Table {
    /// Prints a row: a figure beside its target.
    fn row(&mut self, [name, figure, target]: [&str; 3], is_met: bool, host: &Host) {
        let verdict = Verdict::of(is_met, host.is_late());
        let late = if host.is_late() { " (host late)" } else { "" };
        let word = match verdict {
            Verdict::Holds => "ok",
            Verdict::Missed => "MISS",
            Verdict::Inconclusive => "inconclusive",
        };
        println!("{name:<66}{figure:>20}  {target:<18}{:>26}  {word}{late}", host.text());
        note(&json!({
            "policy": name, "figure": figure, "target": target, "met": is_met,
            "host_was_late": host.is_late(),
        }));
        let text = format!("{name}: {figure}");
        match verdict {
            Verdict::Holds => {}
            Verdict::Missed => self.0.push(text),
            Verdict::Inconclusive => inconclusive(&text),
        }
    }
}

fn several(count: usize) -> Vec<Program> {
    (0..count).map(|slice| of(slice, &[[20, 100, 300, 1500][slice % 4] * US], "")).collect()
}

/// Runs `count` equal slices that always have work. Returns how evenly they divide the GPU: the Jain index in thousandths.
fn fairness(table: &mut Table, seconds: u64, count: usize) -> u64 {
    let (weights, settings, programs) = (vec![1; count], vec![EQUAL; count], several(count));
    let until = |seconds: u64| seconds as usize * 1000 - 1;
    let index = |course: &Course| jain(&parts(course, count, 1000, until(seconds)), &weights);
    let sum = |course: &Course, seconds| parts(course, count, 1000, until(seconds)).iter().sum::<i64>();
    let free = sum(&run_programs(&programs, None, seconds.min(FREE)), seconds.min(FREE)).max(1);
    let busy = |course: &Course| sum(course, seconds) * 1000 / free;
    let course = run_programs(&programs, Some(&settings), seconds);
    let (found, busy) = (index(&course), busy(&course));
    let figure = format!("{}.{:03}", found / 1000, found % 1000);
    let name = format!("{count} equal slices of 20 us to 1.5 ms: Jain");
    table.row([&name, &figure, "at least 0.990"], found >= 990, &course.host);
    let figure = format!("{}.{} %", busy / 10, busy % 10);
    let name = format!("{count} equal slices: GPU busy, of what it is without the library");
    table.row([&name, &figure, "at least 98 %"], busy >= 980, &course.host);
    found
}

/// Runs slices with three weights, and judges their shares by weight.
fn weights(table: &mut Table, seconds: u64) {
    let with = |weight| vec![EQUAL[0], ("GPU_CORE_WEIGHT", weight)];
    let settings = ["100", "300", "600"].map(with);
    let settings: Vec<&[_]> = settings.iter().map(Vec::as_slice).collect();
    let programs: Vec<Program> = (0..3).map(|slice| of(slice, &[200 * US], "")).collect();
    let index = |course: &Course| jain(&parts(course, 3, 1000, seconds as usize * 1000 - 1), &[1, 3, 6]);
    let course = run_programs(&programs, Some(&settings), seconds);
    let found = index(&course);
    let figure = format!("{}.{:03}", found / 1000, found % 1000);
    table.row(
        ["weights 100, 300, 600: Jain by weight", &figure, "at least 0.990"],
        found >= 990,
        &course.host,
    );
}

/// Runs a slice that works and pauses in turn beside one that always works. Judges how soon time is lent and taken back.
fn lent(table: &mut Table, seconds: u64, weights: [&str; 2]) {
    let settings = weights.map(|weight| vec![EQUAL[0], ("GPU_CORE_WEIGHT", weight)]);
    let settings: Vec<&[_]> = settings.iter().map(Vec::as_slice).collect();
    let programs = [of(0, &[200 * US], "work=600000000 pause=600000000"), of(1, &[200 * US], "")];
    let [first, second] = weights.map(|weight| weight.parse::<i64>().unwrap());
    let times = |course: &Course| {
        let times = lending(course, 9_530 * first / (first + second), 600);
        (median_and_most(&times.lent), median_and_most(&times.back), times.back.len())
    };
    let course = run_programs(&programs, Some(&settings), seconds);
    let (lent, back, count) = times(&course);
    let name = format!("{first} : {second}, the first pauses now and then ({count} times)");
    for (what, (median, worst), most) in [("lent", lent, 200), ("taken back", back, 50)] {
        let figure = format!("{median} ms, {worst} at most");
        let target = format!("within {most} ms");
        table.row([&format!("{name}: {what}"), &figure, &target], worst <= most, &course.host);
    }
}

/// GPU time of a request, and the mean interval between two requests, in nanoseconds.
const REQUEST: u64 = 10 * MS;
const EVERY: u64 = 30 * MS;

/// Returns a lower bound for the 99th percentile of requests' latencies, for any division of the GPU. Another program always has
/// work, and its kernels of `kernel` nanoseconds cannot be stopped. The result is in hundredths of the percentile without that
/// program.
///
/// The function simulates a queue: requests arrive by chance, with exponential intervals, and each one takes the GPU for
/// [`REQUEST`]. A request that arrives while no other request runs finds the other program in the middle of a kernel. Both then
/// take turns until this kernel ends. A request that arrives while another one runs starts when that one ends.
#[allow(clippy::float_arithmetic, reason = "arrivals by chance, as those of the program")]
fn physics(kernel: u64) -> u64 {
    /// Length of a turn of the simulated driver, and time to change from one process to the other.
    const TURN: u64 = 1_024 * US;
    const SWITCH: u64 = 50 * US;
    /// Number of requests.
    const MANY: usize = 200_000;
    let slowest = |kernel: u64| {
        let (mut state, mut arrival, mut free) = (1_u64, 0_f64, 0_f64);
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let mut latencies: Vec<u64> = (0..MANY)
            .map(|_| {
                arrival -= (1.0 - random()).ln() * EVERY as f64;
                let rest = (random() * kernel as f64) as u64;
                let shared = rest + SWITCH * (1 + 2 * (rest / TURN)) * u64::from(kernel > 0);
                let start = if arrival > free { arrival + shared as f64 } else { free };
                free = start + REQUEST as f64;
                (free - arrival) as u64
            })
            .collect();
        latencies.sort_unstable();
        p99(&latencies)
    };
    slowest(kernel) * 100 / slowest(0)
}

/// Returns the middle value.
fn median(values: &[u64]) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

/// Runs requests of ten launches of 1 ms with high priority beside a slice that takes all it gets. The requests need two thirds
/// of a half of the GPU.
fn latency(table: &mut Table, seconds: u64) {
    let requests = of(0, &[REQUEST / 10], &format!("every={EVERY} launches=10"));
    let unlimited = run_programs(core::slice::from_ref(&requests), None, seconds).latencies;
    let alone = p99(&unlimited).max(1);
    let of_alone = |course: &Course| p99(&course.latencies) * 100 / alone;
    for kernel in [200 * US, 5 * MS] {
        let programs = [requests.clone(), of(1, &[kernel], "")];
        let course = run_programs(&programs, Some(&[HIGH, REST]), seconds);
        let (found, bare) = (of_alone(&course), of_alone(&run_programs(&programs, None, seconds / 2)));
        let name = format!("high, requests of 10 ms, beside best-effort of {} us: p99", kernel / US);
        let figure = format!("{}.{:02} of unlimited", found / 100, found % 100);
        let physics = physics(kernel);
        let hundredths = |of: u64| format!("{}.{:02}", of / 100, of % 100);
        // No division of the GPU is better than physics allows.
        let most = physics.max(120);
        table.row([&name, &figure, &format!("at most {}", hundredths(most))], found <= most, &course.host);
        let medians =
            [&unlimited, &course.latencies].map(|latencies| hundredths(median(latencies) / (10 * US)));
        println!(
            "    physics: at least {}; without the library: {}; medians {} ms alone and {} ms",
            hundredths(physics),
            hundredths(bare),
            medians[0],
            medians[1]
        );
        let until = seconds as usize * 1000 - 1;
        let busy: i64 = parts(&course, 2, 1000, until).iter().sum();
        let name = format!("high beside best-effort of {} us: GPU busy", kernel / US);
        let figure = format!("{}.{} %", busy / 100, busy % 100 / 10);
        // The bound is 98 %, less the time of changes from one process to the other. Changes take 4.7 % of the time while both
        // have work, which is half of the time at most.
        table.row([&name, &figure, "at least 95.6 %"], busy >= 9_560, &course.host);
    }
}

/// Runs a low slice beside a high one, both always busy. Returns the share of the low one, in hundredths of points.
fn least(table: &mut Table, seconds: u64) -> i64 {
    let programs = [of(0, &[200 * US], ""), of(1, &[100 * US], "")];
    let low = |course: &Course| part(course, 1, 1000, seconds as usize * 1000 - 1);
    let course = run_programs(&programs, Some(&[HIGH, LOW]), seconds);
    let share = low(&course);
    let figure = format!("{}.{:02} %", share / 100, share % 100);
    let name = "low beside high, both always busy: share of low";
    table.row([name, &figure, "at least 4.8 %"], share >= 480, &course.host);
    share
}

/// Kills the arbiter of four equal slices, again and again. Judges how soon another process takes its place.
fn replaced(table: &mut Table) {
    let watch = Watch::start(&[]);
    let replaced = replacements(4);
    let host = watch.end();
    let worst = |of: fn(&Replaced) -> Duration| replaced.iter().map(of).max().unwrap_or_default().as_millis();
    let (held, divided) = (worst(|replaced| replaced.held), worst(|replaced| replaced.divided));
    let name = format!("the arbiter is killed ({} times): the rest have its part", replaced.len());
    let figure = format!("{divided} ms at most");
    let is_met = !replaced.is_empty() && divided <= 300;
    table.row([&name, &figure, "within 300 ms"], is_met, &host);
    println!("    after {held} ms at most another process holds the lease");
}

/// Runs the table if `GPUSLICE_TEST_SECONDS` is set, and a part of it with generous bounds otherwise.
#[test]
fn slices_divide_a_gpu() {
    let _alone = machine();
    let mut table = Table::default();
    println!("slices that divide a GPU: {}", host::machine());
    let Some(time) = seconds() else {
        assert!(fairness(&mut table, QUICK, 2) >= 900);
        assert!(least(&mut table, QUICK) >= 100);
        return;
    };
    let only = variable("GPUSLICE_TEST_WORKLOAD").unwrap_or_default();
    let is_wanted = |part: &str| only.split('|').any(|wanted| part.contains(wanted));
    for count in [2, 4, 8, 16].into_iter().filter(|_| is_wanted("equal")) {
        fairness(&mut table, time, count);
    }
    if is_wanted("weights") {
        weights(&mut table, time);
    }
    for pair in [["100", "100"], ["400", "100"], ["100", "400"]].into_iter().filter(|_| is_wanted("lent")) {
        lent(&mut table, time.max(8), pair);
    }
    if is_wanted("low beside high") {
        least(&mut table, time);
    }
    if is_wanted("killed") {
        replaced(&mut table);
    }
    if is_wanted("latency") {
        latency(&mut table, time.max(30));
    }
    assert!(table.0.is_empty(), "{:#?}", table.0);
}
