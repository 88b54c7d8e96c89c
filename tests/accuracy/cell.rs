//! One cell of the table: the figures of one workload under one limit, beside its targets.

use crate::course::{Course, RunSpec, run_in_time};
use crate::figures::{Figures, Terms, WARM_UP, figures, jain, p99, share, sums};
use crate::support::host::Host;
use crate::support::timed::Verdict;
use crate::workloads::{BESIDE_ITSELF, SWITCHED, Target, Targets, Variant, Workload};
use serde_json::{Value, json};

const MS: u64 = 1_000_000;
/// Bursts of `strict` and `latency`, in nanoseconds of GPU time.
const BURSTS: [(&str, u64); 2] = [("strict", 20 * MS), ("latency", 200 * MS)];
/// Longest time without work beyond the time of the debt, in milliseconds: 1 ms, and 1 ms of resolution.
const STALL: u64 = 2;
/// A program whose unlimited share is at most this far above the limit is not always held back by it. Hundredths of points.
const MARGIN: i64 = 50;

/// Figures of a program without a limit.
#[derive(Debug, Clone, Default)]
pub(crate) struct Free {
    /// Share of the GPU, in hundredths of points.
    share: i64,
    /// Durations of the kernels of one second, summed up.
    work: u64,
    p99: u64,
}

/// Runs a workload without the library.
pub(crate) fn free(workload: &Workload, limit: u64, seconds: u64, variant: &Variant) -> Result<Free, String> {
    let course = run_in_time(&spec(workload, limit, None, seconds, variant))?;
    let used = sums(&course.busy(0));
    Ok(Free {
        share: share(&used, WARM_UP, used.len() - 1),
        work: course.work(0) / (seconds - 1).max(1),
        p99: p99(&course.latencies),
    })
}

fn spec<'a>(
    workload: &'a Workload,
    limit: u64,
    limits: Option<Vec<u64>>,
    seconds: u64,
    variant: &'a Variant,
) -> RunSpec<'a> {
    RunSpec {
        programs: (workload.programs)(limit),
        limits,
        burst: workload.burst,
        settings: &[],
        seconds,
        variant,
        events: Vec::new(),
        has_requests: workload.target == Target::Latency,
    }
}

/// Figures of a workload under a limit.
#[derive(Debug)]
pub(crate) struct Cell {
    workload: &'static str,
    limit: u64,
    target: Target,
    pub(crate) figures: Figures,
    /// Share beyond the limit, in hundredths of points.
    beyond: i64,
    /// Physical bound for the error of a window of one second, in hundredths of points.
    bound: i64,
    jain: u64,
    /// GPU time that each process of the slice was served, in microseconds.
    served: Vec<u64>,
    /// Time that was charged beyond the time used, in hundredths of a percent of the latter.
    charged: i64,
    /// True if the limit holds the programs back.
    is_bound: bool,
    /// Throughput in thousandths of the unlimited throughput times the limit.
    throughput: u64,
    /// One group of kernels that run at once, in thousandths of the throughput. The time that is judged may contain one group
    /// more or less.
    edge: u64,
    /// 99th percentile of latencies, in hundredths of the unlimited one.
    p99: u64,
    host: Host,
    /// Names of the targets that the cell misses.
    pub(crate) misses: String,
    /// Share in each tenth of a second, in hundredths of points.
    course: Vec<i64>,
    said: String,
}

/// Runs a workload under a limit.
pub(crate) fn cell(
    workload: &Workload,
    limit: u64,
    seconds: u64,
    free: &Free,
    variant: &Variant,
) -> Result<Cell, String> {
    let spec = spec(workload, limit, Some((workload.limits)(limit)), seconds, variant);
    Ok(measured(&spec, workload, limit, free, &run_in_time(&spec)?))
}

/// Computes the figures of a cell from a run, and the targets that it misses. `free` has the figures of the same workload without
/// a limit. A share is judged against the limit, or against the unlimited share if that is less. The throughput is judged against
/// the unlimited work times the limit.
fn measured(spec: &RunSpec, workload: &Workload, limit: u64, free: &Free, course: &Course) -> Cell {
    let (seconds, variant) = (spec.seconds, spec.variant);
    let busy = course.busy(0);
    // A program that waits for each launch does not reach every limit.
    let reached = if workload.target == Target::Beside { 10_000 } else { free.share };
    let target = (limit as i64 * 100).min(reached);
    let burst = BURSTS.iter().find(|(name, _)| *name == workload.burst).map_or(0, |(_, burst)| *burst);
    let own = course.tracks.iter().filter(|track| track.slice == 0);
    let served: Vec<u64> =
        own.map(|track| track.busy.iter().skip(WARM_UP).map(|ns| u64::from(*ns)).sum()).collect();
    let used = sums(&busy);
    let reachable = (free.work * (seconds - 1) * limit / 100).max(1);
    let figures = figures(&busy, Terms { target, debt: burst + workload.longest });
    let mut cell = Cell {
        workload: workload.name,
        limit,
        target: workload.target,
        beyond: figures.mean + target - limit as i64 * 100,
        figures,
        bound: workload.longest as i64 * (10_000 - target) / (1000 * MS as i64),
        jain: jain(&served),
        served: served.iter().map(|ns| ns / 1000).collect(),
        charged: course.overcharge(),
        is_bound: reached > limit as i64 * 100 + MARGIN,
        throughput: course.work(0) * 1000 / reachable,
        edge: workload.group * 100_000 / (limit * (seconds - 1) * 1000 * MS),
        p99: p99(&course.latencies) * 100 / free.p99.max(1),
        host: course.host,
        misses: String::new(),
        course: (100..used.len()).step_by(100).map(|to| share(&used, to - 100, to)).collect(),
        said: course.stderr.clone(),
    };
    let targets = variant.targets(cell.workload).unwrap_or_else(|| cell.targets(seconds));
    cell.misses = cell.judge(targets);
    cell
}

impl Cell {
    /// Returns the physical bound for the mean.
    fn mean_bound(&self, seconds: u64) -> i64 {
        self.bound / (seconds as i64 - 1).max(1)
    }

    /// Returns the targets of a workload for which the variant documents no others.
    fn targets(&self, seconds: u64) -> Targets {
        match self.target {
            Target::Short if SWITCHED.contains(&(self.workload, self.limit)) => BESIDE_ITSELF,
            Target::Short => Targets { throughput: 990, stall: STALL, ..Targets::within(50, 150) },
            Target::Long => Targets {
                throughput: 990,
                stall: STALL,
                ..Targets::within(self.mean_bound(seconds).max(100), i64::MAX)
            },
            Target::Beside => Targets::within(100, 500),
            Target::Latency => Targets { p99: 120, ..Targets::within(i64::MAX, i64::MAX) },
        }
    }

    /// Returns the names of the targets that the cell misses.
    fn judge(&self, targets: Targets) -> String {
        let Figures { mean, p95, stall, .. } = self.figures;
        let wrong = [
            (self.beyond > targets.above || self.is_bound && mean < -targets.below, "mean"),
            (self.is_bound && p95 > targets.p95, "p95"),
            (self.jain < targets.jain, "Jain"),
            (self.throughput + self.edge < targets.throughput, "throughput"),
            (stall > targets.stall.saturating_add(self.host.late_most / 1000), "stall"),
            (self.p99 > targets.p99, "p99"),
        ];
        let missed: Vec<_> =
            wrong.iter().filter(|(is_missed, _)| *is_missed).map(|(_, name)| *name).collect();
        missed.join(" ")
    }

    pub(crate) fn verdict(&self) -> Verdict {
        Verdict::of(self.misses.is_empty(), self.host.is_late())
    }

    fn verdict_text(&self) -> String {
        let late = if self.host.is_late() { " (host late)" } else { "" };
        match self.verdict() {
            Verdict::Holds => format!("ok{late}"),
            Verdict::Missed => format!("MISS {}", self.misses),
            Verdict::Inconclusive => format!("inconclusive: {}{late}", self.misses),
        }
    }

    /// Returns the cell as a line of the table.
    pub(crate) fn line(&self) -> String {
        let start = format!("{:<24}{:>4}", self.workload, self.limit);
        let end = format!("{:>24}  {}", self.host.text(), self.verdict_text());
        let figures = &self.figures;
        if self.target == Target::Latency {
            let of = format!("p99 {} of unlimited, share {}", points(self.p99 as i64), points(figures.mean));
            return format!("{start}  {of:<87}{end}");
        }
        let settling = match (self.target, figures.settling) {
            (Target::Long, _) | (_, None) => "-".to_owned(),
            (_, Some(ms)) => format!("{ms} ms"),
        };
        let (jain, rate) = (self.jain, self.throughput);
        format!(
            "{start}{:>8}{:>8}{:>8}{:>8}{settling:>9}{:>8} ms{:>7}.{:03}{:>9}.{} %{:>8} %{end}",
            points(figures.mean),
            points(figures.absolute),
            points(figures.p95),
            points(self.bound),
            figures.stall,
            jain / 1000,
            jain % 1000,
            rate / 10,
            rate % 10,
            points(self.charged),
        )
    }

    /// Returns the cell as JSON. Shares are in hundredths of points.
    pub(crate) fn json(&self, seconds: u64, variant: &Variant) -> Value {
        json!({
            "variant": variant.name, "workload": self.workload, "limit": self.limit, "seconds": seconds,
            "mean": self.figures.mean, "absolute": self.figures.absolute, "p95": self.figures.p95,
            "bound_of_a_second": self.bound, "settling_ms": self.figures.settling,
            "stall_ms": self.figures.stall, "jain_thousandths": self.jain, "served_us": self.served,
            "throughput_thousandths": self.throughput, "charged_hundredths": self.charged, "is_bound": self.is_bound, "p99_hundredths": self.p99,
            "late_p99_us": self.host.late_p99, "late_most_us": self.host.late_most,
            "waited_thousandths": self.host.waited, "host_was_late": self.host.is_late(),
            "misses": self.misses, "course": self.course, "said": self.said,
        })
    }
}

/// Formats hundredths of points as points.
pub(crate) fn points(hundredths: i64) -> String {
    let sign = if hundredths < 0 { "-" } else { "" };
    format!("{sign}{}.{:02}", hundredths.abs() / 100, hundredths.abs() % 100)
}

pub(crate) fn heading() -> String {
    let words = format!(
        "{:<24}{:>4}{:>8}{:>8}{:>8}{:>8}{:>9}{:>11}{:>11}{:>13}{:>10}{:>24}",
        "workload",
        "%",
        "mean",
        "abs",
        "p95 1s",
        "L(1-r)",
        "settles",
        "stall",
        "Jain",
        "throughput",
        "charged",
        "late p99/max, waits"
    );
    format!(
        "share held from the second second on, by ground truth; points of a percent of the GPU's time\n{words}"
    )
}

pub(crate) const TARGETS: &str = "\
targets: mean 0.5, 95 % of windows of a second 1.5; kernels of L above 5 ms: mean max(1, L(1-r)/10 s); beside other slices:
         mean 1, windows 5; Jain 0.990; throughput (kernels' durations) 99 % of limit x unlimited, less one group of kernels
         that go at once or one long kernel; p99 1.2; stall, but for slices beside others: no time
         without work beyond what is owed, 1 ms, one of resolution and the sleepers' lateness. A program that does not reach
         a limit is compared with what it reaches, and need not be as slow. Several
         busy processes at 95 %: mean 2, windows 2.5, Jain 0.950, throughput 97 %, stall 5 ms. Charged: beyond what was used. Host: how late a
         sleep of 1 ms ended (99 % and all), and for how much of the time a program waited for a processor.";
