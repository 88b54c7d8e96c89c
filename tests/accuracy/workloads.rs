//! Workloads, their limits and their targets. They are those of the tests in virtual time, as far as they can run here.

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// Limits of the judged slice, in percent.
pub(crate) const LIMITS: [u64; 6] = [5, 10, 30, 50, 80, 95];

/// Programs, each of one slice. The first slice is judged.
#[derive(Clone, Copy)]
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    pub(crate) programs: fn(u64) -> Vec<Program>,
    /// Limits of all slices in percent, from the limit of the judged slice.
    pub(crate) limits: fn(u64) -> Vec<u64>,
    /// `GPU_CORE_BURST`.
    pub(crate) burst: &'static str,
    pub(crate) target: Target,
    /// Longest kernel of the judged slice, in nanoseconds.
    pub(crate) longest: u64,
    /// GPU time of one group of kernels that run side by side, or of one long kernel, in nanoseconds. Zero if that is little of
    /// the time that a small limit grants.
    pub(crate) group: u64,
}

/// Kind of targets of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// Kernels up to 5 ms, graphs, mixed lengths: the mean within 0.5 points, 95 % of windows within 1.5.
    Short,
    /// Longer kernels: the mean within the bound of physics, or one point.
    Long,
    /// Beside other slices: the mean within 1 point, windows within 5.
    Beside,
    /// Programs that never need all of their share: the 99th percentile of latencies at most 1.2 times that without a limit.
    Latency,
}

/// Bounds of a cell's figures.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Targets {
    /// Most that the mean may be below and above the limit, in hundredths of points.
    pub(crate) below: i64,
    pub(crate) above: i64,
    /// Most that 95 % of windows of a second may be off, in hundredths of points.
    pub(crate) p95: i64,
    /// Least Jain index, and least throughput relative to limit × unlimited, in thousandths.
    pub(crate) jain: u64,
    pub(crate) throughput: u64,
    /// Longest time without work beyond the time of the debt, in milliseconds.
    pub(crate) stall: u64,
    /// Most for the 99th percentile of latencies, in hundredths of that without a limit.
    pub(crate) p99: u64,
}

impl Targets {
    /// Returns targets for the mean, the windows and an even service of processes, without any other.
    pub(crate) const fn within(mean: i64, p95: i64) -> Self {
        Self { below: mean, above: mean, p95, jain: 990, throughput: 0, stall: u64::MAX, p99: u64::MAX }
    }
}

/// A program of a slice.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(crate) slice: usize,
    /// Lengths of the kernels in nanoseconds. Of several lengths the program takes one at random.
    lengths: Vec<u64>,
    /// Further arguments of `tests/programs/load.c`: how it launches the kernels.
    how: String,
}

impl Program {
    /// Returns true if the program answers requests and reports their latencies.
    pub(crate) fn has_requests(&self) -> bool {
        self.how.contains("every=")
    }

    /// Returns the arguments of the program.
    pub(crate) fn arguments(&self, seconds: u64, seed: usize) -> Vec<String> {
        let lengths: Vec<_> = self.lengths.iter().map(u64::to_string).collect();
        let mut words = vec![seconds.to_string(), lengths.join(",")];
        words.extend(self.how.split_whitespace().map(str::to_owned));
        words.push(format!("seed={}", seed + 1));
        words
    }
}

pub(crate) fn of(slice: usize, lengths: &[u64], how: &str) -> Program {
    Program { slice, lengths: lengths.to_vec(), how: how.to_owned() }
}

fn one(length: u64, how: &str) -> Vec<Program> {
    vec![of(0, &[length], how)]
}

fn mixed() -> Vec<Program> {
    let lengths: Vec<u64> = (0..12).map(|at| 10 * US * (1 << (at * 7 / 11)) + at * 60 * US).collect();
    vec![of(0, &lengths, "")]
}

fn several(count: usize) -> Vec<Program> {
    (0..count).map(|me| of(0, &[if me % 2 == 0 { 20 * US } else { 200 * US }], "")).collect()
}

fn beside(slices: usize) -> Vec<Program> {
    (0..slices).map(|slice| of(slice, &[if slice % 2 == 0 { 100 * US } else { 1_500 * US }], "")).collect()
}

fn alone(limit: u64) -> Vec<u64> {
    vec![limit]
}

fn rest(limit: u64, others: u64) -> Vec<u64> {
    // Turns of 1024 us with switches of 50 us leave 95.3 % of the GPU for all slices.
    let share = 94_u64.saturating_sub(limit) / others;
    core::iter::once(limit).chain((0..others).map(|_| share.max(1))).collect()
}

const SHORT: Workload = Workload {
    name: "",
    programs: |_| Vec::new(),
    limits: alone,
    burst: "strict",
    target: Target::Short,
    longest: 2 * MS,
    group: 0,
};

/// Steps of ten kernels of 5 us. The program waits for each step.
pub(crate) const SHORTEST: Workload =
    Workload { name: "5 us, ten waited for", programs: |_| one(5 * US, "wait=10"), ..SHORT };

/// Slices side by side.
const BESIDE: [Workload; 2] = [
    Workload {
        name: "2 slices",
        programs: |_| beside(2),
        limits: |limit| rest(limit, 1),
        target: Target::Beside,
        ..SHORT
    },
    Workload {
        name: "4 slices",
        programs: |_| beside(4),
        limits: |limit| rest(limit, 3),
        target: Target::Beside,
        ..SHORT
    },
];

pub(crate) const WORKLOADS: [Workload; 17] = [
    Workload { name: "20 us, async", programs: |_| one(20 * US, ""), ..SHORT },
    Workload { name: "20 us, each waited for", programs: |_| one(20 * US, "wait=1"), ..SHORT },
    Workload { name: "1.5 ms, few blocks", programs: |_| one(1_500 * US, "blocks=4"), ..SHORT },
    Workload { name: "mixed 10 us to 2 ms", programs: |_| mixed(), ..SHORT },
    Workload {
        name: "50 ms, waited for",
        programs: |_| one(50 * MS, "wait=1"),
        target: Target::Long,
        longest: 50 * MS,
        group: 50 * MS,
        ..SHORT
    },
    Workload {
        name: "150 ms, waited for",
        programs: |_| one(150 * MS, "wait=1"),
        target: Target::Long,
        longest: 150 * MS,
        group: 150 * MS,
        ..SHORT
    },
    Workload { name: "graph of 8 ms", programs: |_| one(8 * MS, "how=3"), longest: 8 * MS, ..SHORT },
    Workload {
        name: "cooperative, 4 ms",
        programs: |_| one(4 * MS, "how=1 wait=1"),
        longest: 4 * MS,
        ..SHORT
    },
    Workload { name: "cuLaunchKernelEx, 300 us", programs: |_| one(300 * US, "how=2"), ..SHORT },
    Workload {
        name: "8 streams of 1.5 ms",
        programs: |_| one(1_500 * US, "streams=8 blocks=16"),
        group: 15 * MS,
        ..SHORT
    },
    Workload { name: "2 processes", programs: |_| several(2), ..SHORT },
    Workload { name: "8 processes", programs: |_| several(8), ..SHORT },
    Workload {
        name: "long beside short",
        programs: |_| {
            vec![of(0, &[10 * MS], ""), of(0, &[20 * US], ""), of(0, &[300 * US], "wait=1 blocks=16")]
        },
        longest: 10 * MS,
        ..SHORT
    },
    Workload {
        name: "bursty beside steady",
        // Ten launches of 1 ms at once, then a wait for them. Alone, this program would use more than half of the share. The
        // other program would use all of the share.
        programs: |limit| {
            vec![of(0, &[MS], &format!("every={} launches=10", 10 * MS * 100 / limit)), of(0, &[20 * US], "")]
        },
        ..SHORT
    },
    BESIDE[0],
    BESIDE[1],
    Workload {
        name: "inference at 2/3",
        // Ten launches of 1 ms, which take two thirds of the share on average.
        programs: |limit| one(MS, &format!("every={} launches=10", 10 * MS * 150 / limit)),
        burst: "latency",
        target: Target::Latency,
        ..SHORT
    },
];

/// Kernels of all lengths, in each way of measuring: in batches, alone, and behind a host that has paused. Two timing events take
/// 5 us of the GPU's time.
const LENGTHS: [Workload; 14] = [
    Workload { name: "10 us", programs: |_| one(10 * US, ""), ..SHORT },
    Workload { name: "20 us", programs: |_| one(20 * US, ""), ..SHORT },
    Workload { name: "50 us", programs: |_| one(50 * US, ""), ..SHORT },
    Workload { name: "100 us", programs: |_| one(100 * US, ""), ..SHORT },
    Workload { name: "200 us", programs: |_| one(200 * US, ""), ..SHORT },
    Workload { name: "400 us", programs: |_| one(400 * US, ""), ..SHORT },
    Workload { name: "520 us", programs: |_| one(520 * US, ""), ..SHORT },
    Workload { name: "1 ms", programs: |_| one(MS, ""), ..SHORT },
    Workload { name: "2 ms", programs: |_| one(2 * MS, ""), ..SHORT },
    Workload { name: "5 ms", programs: |_| one(5 * MS, ""), longest: 5 * MS, ..SHORT },
    Workload { name: "graph of 220 us", programs: |_| one(220 * US, "how=3"), ..SHORT },
    Workload { name: "graph of 310 us", programs: |_| one(310 * US, "how=3"), ..SHORT },
    Workload { name: "200 us, waited for", programs: |_| one(200 * US, "wait=1"), ..SHORT },
    Workload { name: "520 us, waited for", programs: |_| one(520 * US, "wait=1"), ..SHORT },
];

/// Cells in which several processes are always busy. The GPU changes from one process to the other every 1.024 ms and has 95.3 %
/// of its time for kernels. The rest lies within their intervals and is charged.
pub(crate) const SWITCHED: [(&str, u64); 4] =
    [("2 processes", 95), ("8 processes", 95), ("long beside short", 95), ("bursty beside steady", 95)];
/// Targets of the cells in [`SWITCHED`].
pub(crate) const BESIDE_ITSELF: Targets =
    Targets { jain: 950, throughput: 970, stall: 5, ..Targets::within(200, 250) };

/// An environment in which something may be missing or wrong.
pub(crate) struct Variant {
    pub(crate) name: &'static str,
    pub(crate) variables: &'static [(&'static str, &'static str)],
    /// True if there is a libnvidia-ml.
    pub(crate) has_nvml: bool,
    /// True if each slice's region lies in a folder of its own.
    pub(crate) is_apart: bool,
    /// Workloads to run in this environment.
    pub(crate) workloads: &'static [Workload],
    /// Documented targets of workloads whose names contain a text, in place of the usual ones. The first match counts.
    pub(crate) documented: &'static [(&'static str, Targets)],
}

impl Variant {
    /// Returns the documented targets of a workload, or `None` for the usual ones.
    pub(crate) fn targets(&self, workload: &str) -> Option<Targets> {
        let documented = self.documented.iter().find(|(part, _)| workload.contains(part));
        documented.map(|(_, targets)| *targets)
    }
}

const WHOLE: Variant = Variant {
    name: "all as it should be",
    variables: &[],
    has_nvml: true,
    is_apart: false,
    workloads: &WORKLOADS,
    documented: &[],
};

pub(crate) const VARIANTS: [Variant; 8] = [
    WHOLE,
    Variant { name: "folders of their own", is_apart: true, workloads: &BESIDE, ..WHOLE },
    Variant { name: "kernels of all lengths", workloads: &LENGTHS, ..WHOLE },
    Variant {
        name: "no event can be recorded",
        variables: &[("SIMGPU_FAULTS", EVENTS_FAIL)],
        documented: &WITHOUT_EVENTS,
        ..WHOLE
    },
    Variant { name: "no libnvidia-ml", has_nvml: false, ..WHOLE },
    Variant { name: "NVML knows no process", variables: &[("SIMGPU_NVML_PIDS", "none")], ..WHOLE },
    Variant { name: "an instance (MIG)", variables: &[("SIMGPU_MIG", "2")], ..WHOLE },
    Variant {
        name: "NVML's windows take a second",
        variables: &[("SIMGPU_NVML_WINDOW_MS", "1000"), ("SIMGPU_NVML_LAG_MS", "300")],
        ..WHOLE
    },
];

/// NVML's samples are the only source for the cost of launches, so all launches cost the same: docs/results/accuracy-table.md.
/// Cells last four seconds, of which the first launches' guessed cost takes a part.
const WITHOUT_EVENTS: [(&str, Targets); 8] = [
    // The first kernels run before NVML tells their cost. The next one waits until the share has paid for them.
    ("ms, waited for", Targets { jain: 0, stall: 2500, ..Targets::within(700, i64::MAX) }),
    // Kernels that could run side by side run one after the other.
    ("8 streams", Targets { throughput: 130, stall: 50, ..Targets::within(300, 500) }),
    ("inference", Targets { p99: 220, ..Targets::within(i64::MAX, i64::MAX) }),
    // A sample names one process, so the costs of processes are learned slowly. They get too little meanwhile, and uneven parts.
    ("long beside short", SEVERAL_WITHOUT_EVENTS),
    ("bursty", SEVERAL_WITHOUT_EVENTS),
    ("processes", SEVERAL_WITHOUT_EVENTS),
    ("slices", Targets { above: 1000, ..SEVERAL_WITHOUT_EVENTS }),
    ("", Targets { jain: 990, throughput: 960, stall: 500, ..Targets::within(500, 1000) }),
];

/// Targets of several processes without timing events: hardly more than the share, and no long stop.
const SEVERAL_WITHOUT_EVENTS: Targets =
    Targets { above: 500, jain: 0, stall: 1000, ..Targets::within(i64::MAX, i64::MAX) };

const EVENTS_FAIL: &str =
    "cuEventRecord=999;cuEventRecord_ptsz=999;cuEventRecordWithFlags=999;cuEventRecordWithFlags_ptsz=999";
