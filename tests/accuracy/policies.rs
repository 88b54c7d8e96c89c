//! How well do slices divide a GPU by policy, weight and priority? Figures beside the targets.

use crate::course::{Course, Play, Settings, run};
use crate::figures::p99;
use crate::shares::{jain, lending, median_and_most, part, parts};
use crate::workloads::{Program, of};
use crate::{machine, note, seconds, variant};
use serde_json::json;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
/// Seconds where the table was not asked for.
const QUICK: u64 = 4;

const EQUAL: &[(&str, &str)] = &[("GPU_CORE_POLICY", "equal")];
const HIGH: &[(&str, &str)] =
    &[("GPU_CORE_POLICY", "equal"), ("GPU_PRIORITY", "high"), ("GPU_CORE_BURST", "latency")];
const REST: &[(&str, &str)] = &[("GPU_CORE_POLICY", "best-effort")];

/// Slices that may use all of the GPU.
fn play(programs: Vec<Program>, settings: Option<Settings<'_>>, seconds: u64, has_requests: bool) -> Course {
    let slices = programs.iter().map(|program| program.slice).max().unwrap_or(0) + 1;
    let limits = settings.map(|_| vec![100; slices]);
    let (variant, events) = (variant(), Vec::new());
    let settings = settings.unwrap_or_default();
    run(&Play { programs, limits, burst: "strict", settings, seconds, variant, events, has_requests })
        .unwrap()
}

/// A line of the table: a figure, its target, and whether the machine was late.
fn row(name: &str, figure: &str, target: &str, is_met: bool, course: &Course) {
    let late = if course.host.is_late() { " (host late)" } else { "" };
    let verdict = if is_met { "ok" } else { "MISS" };
    println!("{name:<58}{figure:>20}  {target:<22}{:>26}  {verdict}{late}", course.host.text());
    note(&json!({ "policy": name, "figure": figure, "target": target, "met": is_met,
        "host_was_late": course.host.is_late() }));
}

fn thousandths(number: u64) -> String {
    format!("{}.{:03}", number / 1000, number % 1000)
}

fn several(count: usize) -> Vec<Program> {
    (0..count).map(|slice| of(slice, &[[20, 100, 300, 1500][slice % 4] * US], "")).collect()
}

/// Equal slices; returns the least index of all.
fn fairness(seconds: u64, counts: &[usize]) -> u64 {
    let mut least = 1000;
    for count in counts {
        let settings = vec![EQUAL; *count];
        let course = play(several(*count), Some(&settings), seconds, false);
        let free = play(several(*count), None, seconds.min(4), false);
        let to = seconds as usize * 1000 - 1;
        let index = jain(&parts(&course, *count, 1000, to), &vec![1; *count]);
        let sum = |course: &Course, to| parts(course, *count, 1000, to).iter().sum::<i64>();
        let busy = sum(&course, to) * 1000 / sum(&free, seconds.min(4) as usize * 1000 - 1).max(1);
        row(
            &format!("{count} equal slices: Jain"),
            &thousandths(index),
            "at least 0.990",
            index >= 990,
            &course,
        );
        let figure = format!("{}.{} %", busy / 10, busy % 10);
        row(
            &format!("{count} equal slices: GPU busy, of unlimited"),
            &figure,
            "at least 98 %",
            busy >= 980,
            &course,
        );
        least = least.min(index);
    }
    least
}

/// One works for a second and pauses for a second; returns the middle times of lending and taking back.
fn lent(seconds: u64, weights: [&str; 2]) -> (u64, u64) {
    let with = |weight| vec![("GPU_CORE_POLICY", "equal"), ("GPU_CORE_WEIGHT", weight)];
    let (one, other) = (with(weights[0]), with(weights[1]));
    let programs = vec![of(0, &[200 * US], "work=1000000000 pause=1000000000"), of(1, &[200 * US], "")];
    let course = play(programs, Some(&[&one, &other]), seconds, false);
    let [first, second] = weights.map(|weight| weight.parse::<i64>().unwrap());
    let times = lending(&course, 9_760 * first / (first + second), 1000);
    let name = format!("{} : {}, the first works every other second", weights[0], weights[1]);
    let mut medians = [9999, 9999];
    for (at, (what, times, most)) in
        [("lent within", &times.lent, 200), ("taken back within", &times.back, 50)].into_iter().enumerate()
    {
        let (median, worst) = median_and_most(times);
        let figure = format!("{median} ms, most {worst}");
        row(&format!("{name}: {what}"), &figure, &format!("{most} ms"), worst <= most, &course);
        medians[at] = median;
    }
    (medians[0], medians[1])
}

/// Requests of ten launches of 1 ms, at two thirds of a half, of high priority beside one that takes all it gets.
fn latency(seconds: u64) {
    let requests = |slice| of(slice, &[MS], &format!("every={} launches=10", 30 * MS));
    let free = play(vec![requests(0)], None, seconds, true);
    let alone = p99(&free.latencies).max(1);
    for kernel in [200 * US, 5 * MS] {
        let programs = || vec![requests(0), of(1, &[kernel], "")];
        let course = play(programs(), Some(&[HIGH, REST]), seconds, true);
        let of_free = p99(&course.latencies) * 100 / alone;
        let name = format!("high, requests of 10 ms, beside best-effort of {} us", kernel / US);
        row(
            &format!("{name}: p99"),
            &format!("{}.{:02} of unlimited", of_free / 100, of_free % 100),
            "at most 1.20",
            of_free <= 120,
            &course,
        );
        let bare = play(programs(), None, seconds, true);
        let (of_free, busy) =
            (p99(&bare.latencies) * 100 / alone, part(&course, 0, 1000, 2000) + part(&course, 1, 1000, 2000));
        println!(
            "    the same without the library: {}.{:02}; GPU busy with it {} ‰",
            of_free / 100,
            of_free % 100,
            busy / 10
        );
    }
}

/// Low beside high, both always busy; what low has, in hundredths of points.
fn least(seconds: u64) -> i64 {
    let low: &[(&str, &str)] = &[("GPU_CORE_POLICY", "equal"), ("GPU_PRIORITY", "low")];
    let high: &[(&str, &str)] = &[("GPU_CORE_POLICY", "equal"), ("GPU_PRIORITY", "high")];
    let programs = vec![of(0, &[200 * US], ""), of(1, &[100 * US], "")];
    let course = play(programs, Some(&[high, low]), seconds, false);
    let share = part(&course, 1, 1000, seconds as usize * 1000 - 1);
    let figure = format!("{}.{:02} %", share / 100, share % 100);
    row("low beside high, both busy: share of low", &figure, "at least 4.8 %", share >= 480, &course);
    share
}

/// With `GPUSLICE_SECONDS` the table; otherwise a part of it, with generous bounds.
#[test]
fn slices_divide_a_gpu() {
    let _alone = machine();
    println!("{}", crate::host::machine());
    let wanted = seconds();
    let time = wanted.unwrap_or(QUICK);
    if wanted.is_some() {
        fairness(time, &[2, 4, 8, 16]);
        lent(time.max(11), ["100", "100"]);
        lent(time.max(11), ["400", "100"]);
        latency(time.max(20));
        least(time);
        return;
    }
    assert!(fairness(time, &[2]) >= 900);
    assert!(least(time) >= 100);
}
