//! Processes of one slice that start together: how evenly they are served, how long a launch waits, and how far the first second
//! exceeds the share. Kernels so short that the ends of measurements count are judged too.

use crate::cell::{cell, free, points};
use crate::course::{Course, RunSpec, run};
use crate::figures::{WARM_UP, jain, share, sums};
use crate::support::host;
use crate::support::machine;
use crate::workloads::{Program, SHORTEST, of};
use crate::{note, seconds, variable, variant};
use gpuslice_policy::compute::limiter::lease;
use gpuslice_policy::compute::limiter::token_bucket::RateLimit;
use gpuslice_policy::time::GpuTime;
use gpuslice_policy::units::Permille;
use serde_json::json;

const MS: u64 = 1_000_000;
/// Number of processes of the slice, and length of each of their kernels in nanoseconds.
const PROCESSES: usize = 8;
const KERNEL: u64 = 400_000;
/// Burst of `strict`, in nanoseconds of GPU time.
const BURST: u64 = 20 * MS;
/// Seconds of a run.
const SECONDS: u64 = 8;
/// Runs at each limit, unless `GPUSLICE_TEST_RUNS` says otherwise.
const RUNS: usize = 30;
/// The limits, in percent.
const LIMITS: [u64; 3] = [10, 30, 80];
/// The least Jain index of a run, in thousandths.
const EVEN: u64 = 990;

/// Result of one run. Shares are in hundredths of points.
#[derive(Debug)]
struct Start {
    jain: u64,
    /// Longest time in which a process had no work on the GPU, in milliseconds.
    wait: u64,
    /// Share of the first second beyond the limit.
    first: i64,
    /// Share from the second second on beyond the limit.
    mean: i64,
    was_late: bool,
}

/// Targets at a limit.
struct Bounds {
    /// Twice the time until each process has had its turn, in milliseconds.
    wait: u64,
    /// The burst and one kernel of each process, in hundredths of points of a second.
    first: i64,
}

impl Bounds {
    fn of(limit: u64) -> Self {
        let share = Permille::new(limit as u16 * 10).expect("limits are below 100 %");
        let rate_limit = RateLimit::new(share, GpuTime::from_nanos(BURST));
        let fair_turn = rate_limit.wall(PROCESSES as u64 * lease::turn(rate_limit));
        let first = BURST + KERNEL * PROCESSES as u64;
        Self { wait: 2 * fair_turn.nanos() / MS, first: (first * 10_000 / (1000 * MS)) as i64 }
    }

    fn missed(&self, start: &Start) -> String {
        let wrong = [
            (start.jain < EVEN, "Jain"),
            (start.wait > self.wait, "wait"),
            (start.first > self.first, "first second"),
        ];
        let missed: Vec<_> =
            wrong.iter().filter(|(is_missed, _)| *is_missed).map(|(_, name)| *name).collect();
        missed.join(" ")
    }
}

fn start(limit: u64, seconds: u64) -> Start {
    let programs: Vec<Program> = (0..PROCESSES).map(|_| of(0, &[KERNEL], "")).collect();
    let course = run(&RunSpec {
        programs,
        limits: Some(vec![limit]),
        burst: "strict",
        settings: &[],
        seconds,
        variant: variant(),
        events: Vec::new(),
        has_requests: false,
    });
    judged(&course.expect("the programs run"), limit as i64 * 100)
}

fn judged(course: &Course, target: i64) -> Start {
    let served: Vec<u64> =
        course.tracks.iter().map(|track| track.busy.iter().map(|ns| u64::from(*ns)).sum()).collect();
    let used = sums(&course.busy(0));
    Start {
        jain: jain(&served),
        wait: course.tracks.iter().map(|track| longest_idle(&track.busy)).max().unwrap_or(0),
        first: share(&used, 0, WARM_UP) - target,
        mean: share(&used, WARM_UP, used.len() - 1) - target,
        was_late: course.host.is_late(),
    }
}

/// Returns the longest run of milliseconds without work.
fn longest_idle(busy: &[u32]) -> u64 {
    let idle = busy.split(|busy| *busy > 0).map(<[u32]>::len);
    idle.max().unwrap_or(0) as u64
}

fn jain_text(thousandths: u64) -> String {
    format!("{}.{:03}", thousandths / 1000, thousandths % 1000)
}

/// Prints the figures of the runs at a limit. Returns true if a run missed a target.
fn row(limit: u64, starts: &[Start]) -> bool {
    let bounds = Bounds::of(limit);
    let sorted = |of: fn(&Start) -> i64| {
        let mut all: Vec<i64> = starts.iter().map(of).collect();
        all.sort_unstable();
        all
    };
    let middle = |all: &[i64]| all[all.len() / 2];
    let jain = sorted(|start| start.jain as i64);
    let [wait, first, mean] =
        [sorted(|start| start.wait as i64), sorted(|start| start.first), sorted(|start| start.mean)];
    let missed: Vec<String> =
        starts.iter().map(|start| bounds.missed(start)).filter(|missed| !missed.is_empty()).collect();
    let late = starts.iter().filter(|start| start.was_late).count();
    let verdict = if missed.is_empty() {
        "ok".to_owned()
    } else {
        let mut names: Vec<&str> = missed.iter().map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        format!("MISS in {} ({})", missed.len(), names.join(", "))
    };
    println!(
        "{limit:>3}{:>6}{:>10}{:>8}{:>12}{:>8}{:>8}{:>12}{:>8}{:>8}{:>10}{:>8}{:>6}  {verdict}",
        starts.len(),
        jain_text(jain[0] as u64),
        jain_text(middle(&jain) as u64),
        wait[wait.len() - 1],
        middle(&wait),
        bounds.wait,
        points(first[first.len() - 1]),
        points(middle(&first)),
        points(bounds.first),
        points(mean[0]),
        points(mean[mean.len() - 1]),
        late,
    );
    !missed.is_empty()
}

fn heading() {
    println!(
        "{PROCESSES} processes of one slice that start together, kernels of {} us; {}",
        KERNEL / 1000,
        host::machine()
    );
    println!(
        "{:>3}{:>6}{:>10}{:>8}{:>12}{:>8}{:>8}{:>12}{:>8}{:>8}{:>10}{:>8}{:>6}",
        "%",
        "runs",
        "Jain min",
        "median",
        "wait ms max",
        "median",
        "bound",
        "first s max",
        "median",
        "bound",
        "mean min",
        "max",
        "late"
    );
}

/// Runs kernels of 5 us in steps that the program waits for. Returns the limits that miss.
fn shortest(seconds: u64) -> Vec<String> {
    println!("{}", crate::heading());
    let before = free(&SHORTEST, 0, seconds.min(crate::FREE), variant()).expect("the program runs");
    let missed = |limit: &u64| {
        let cell = cell(&SHORTEST, *limit, seconds, &before, variant()).expect("the program runs");
        println!("{}", cell.line());
        note(&cell.json(seconds, variant()));
        (!cell.misses.is_empty()).then(|| format!("{limit} %: {}", cell.misses))
    };
    [30, 50].iter().filter_map(missed).collect()
}

#[test]
fn processes_that_start_together_are_served_evenly() {
    let _alone = machine();
    heading();
    let Some(time) = seconds() else {
        let start = start(30, 3);
        row(30, core::slice::from_ref(&start));
        // A machine that has other things to do delays single processes.
        assert!(start.jain >= 900 && start.first <= 500, "{start:?}");
        return;
    };
    let runs = variable("GPUSLICE_TEST_RUNS").map_or(RUNS, |text| text.parse().expect("a number of runs"));
    let limits = variable("GPUSLICE_TEST_LIMITS").map_or_else(|| LIMITS.to_vec(), |_| crate::limits());
    let mut missed = Vec::new();
    for limit in limits.into_iter().filter(|_| runs > 0) {
        let starts: Vec<Start> = (0..runs).map(|_| start(limit, SECONDS)).collect();
        for start in &starts {
            note(&json!({
                "start": PROCESSES, "limit": limit, "jain_thousandths": start.jain, "wait_ms": start.wait,
                "first_second": start.first, "mean": start.mean, "host_was_late": start.was_late,
            }));
        }
        if row(limit, &starts) {
            missed.push(format!("{limit} %"));
        }
    }
    println!(
        "targets: Jain {}; wait: no process is without work for longer than twice the time until each has had its turn; first\n         second: the burst and a kernel of each process beyond the limit, in points. late: runs in which the host was late.",
        jain_text(EVEN)
    );
    missed.extend(shortest(time));
    println!("{}", crate::TARGETS);
    assert!(missed.is_empty(), "{missed:?}");
}
