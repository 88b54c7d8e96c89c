//! Workloads, their limits and their targets.

use gpuslice_policy::time::literals::{ms, us};
use gpuslice_policy::time::{GpuTime, WallTime};

use crate::program::{Kind, Program};
use crate::world::{Machine, Meter};

const US: GpuTime = GpuTime::from_micros(1);
const MS: GpuTime = GpuTime::from_millis(1);

/// A workload: programs, each with its slice. The checks judge the first slice.
pub struct Workload {
    pub name: &'static str,
    pub build: fn(u64) -> Vec<(usize, Program)>,
    /// Returns the limits of all slices if the first slice has this limit.
    pub limits: fn(u64) -> Vec<u64>,
    pub burst: u64,
    /// GPU time of simultaneous kernels.
    pub group: GpuTime,
    pub target: Target,
    /// Changes the usual machine for this workload.
    pub machine: fn(Machine) -> Machine,
}

/// The criteria of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Kernels up to 5 ms: the mean within 0.5 points, 95 % of windows within 1.5.
    Short,
    /// Kernels of this duration: the mean within its physical bound, or one point.
    Long(GpuTime),
    /// Beside other slices: the mean within 1 point, windows within 5 points.
    Beside,
    /// A workload that never needs all of its share. The 99th percentile of its latencies is at most 1.2 times that without
    /// a limit.
    Latency,
    /// The documented values, from `after` seconds on: mean and windows in hundredths of points, and Jain's index in
    /// thousandths.
    Within { mean: i64, windows: i64, jain: u64, after: u64 },
}

fn one(program: Program) -> Vec<(usize, Program)> {
    vec![(0, program)]
}

fn small(duration: GpuTime) -> Program {
    Program::new(vec![Kind::kernel(1, duration)])
}

fn mixed() -> Program {
    let kinds = (0..12).map(|at| Kind::kernel(at, (10 << (at * 7 / 11)) * US + 60 * at * US));
    Program::new(kinds.collect())
}

fn several(count: usize) -> Vec<(usize, Program)> {
    (0..count).map(|me| (0, if me % 2 == 0 { small(20 * US) } else { small(200 * US) })).collect()
}

/// Ten launches of 1 ms at once, and then a wait for them. Without a limit this is more than half of the share. The other
/// program would use all of it as well.
fn bursty_beside_steady(limit: u64) -> Vec<(usize, Program)> {
    vec![(0, small(MS).requests(WallTime::from_millis(1_000).part(limit), 10)), (0, small(20 * US))]
}

fn beside(slices: usize) -> Vec<(usize, Program)> {
    (0..slices)
        .map(|slice| (slice, if slice % 2 == 0 { small(100 * US) } else { small(1_500 * US) }))
        .collect()
}

fn alone(limit: u64) -> Vec<u64> {
    vec![limit]
}

fn rest(limit: u64, others: u64) -> Vec<u64> {
    let share = 96_u64.saturating_sub(limit) / others;
    core::iter::once(limit).chain((0..others).map(|_| share.max(1))).collect()
}

impl Target {
    /// Returns the number of first seconds, which are not judged.
    pub fn after(self) -> u64 {
        if let Self::Within { after, .. } = self { after } else { 1 }
    }
}

/// Workloads on the usual machine.
pub const WORKLOADS: [Workload; 21] = [
    Workload {
        name: "5 us, ten waited for",
        build: |_| one(small(5 * US).sync(10)),
        limits: alone,
        burst: 20,
        group: GpuTime::ZERO,
        target: Target::Short,
        machine: usual,
    },
    Workload {
        // The GPU waits for each launch, because launches are slow.
        name: "5 us, slow launches",
        build: |_| one(small(5 * US).sync(10)),
        limits: alone,
        burst: 20,
        group: GpuTime::ZERO,
        target: Target::Short,
        machine: |machine| Machine { launch: us(10), back: us(20), ..machine },
    },
    Workload {
        name: "5 us, slow, free events",
        build: |_| one(small(5 * US).sync(10)),
        limits: alone,
        burst: 20,
        group: GpuTime::ZERO,
        target: Target::Short,
        machine: |machine| Machine { launch: us(10), back: us(20), ..machine }.with_free_events(),
    },
    Workload {
        name: "20 us, free events",
        build: |_| one(small(20 * US)),
        limits: alone,
        burst: 20,
        group: GpuTime::ZERO,
        target: Target::Short,
        machine: Machine::with_free_events,
    },
    Workload {
        name: "mixed, free events",
        build: |_| one(mixed()),
        limits: alone,
        burst: 20,
        group: GpuTime::ZERO,
        target: Target::Short,
        machine: Machine::with_free_events,
    },
    Workload {
        name: "20 us, async",
        build: |_| one(small(20 * US)),
        limits: alone,
        burst: 20,
        group: GpuTime::ZERO,
        target: Target::Short,
        machine: usual,
    },
    Workload {
        name: "20 us, each waited for",
        build: |_| one(small(20 * US).sync(1)),
        limits: alone,
        burst: 20,
        group: GpuTime::ZERO,
        target: Target::Short,
        machine: usual,
    },
    Workload {
        name: "1.5 ms, few blocks",
        build: |_| one(small(1_500 * US)),
        limits: alone,
        burst: 20,
        group: GpuTime::ZERO,
        target: Target::Short,
        machine: usual,
    },
    Workload {
        name: "mixed 10 us to 2 ms",
        build: |_| one(mixed()),
        limits: alone,
        burst: 20,
        group: GpuTime::ZERO,
        target: Target::Short,
        machine: usual,
    },
    Workload {
        name: "50 ms, waited for",
        build: |_| one(small(50 * MS).sync(1)),
        limits: alone,
        burst: 20,
        group: GpuTime::ZERO,
        target: Target::Long(GpuTime::from_millis(50)),
        machine: usual,
    },
    Workload {
        name: "150 ms, waited for",
        build: |_| one(small(150 * MS).sync(1)),
        limits: alone,
        burst: 20,
        group: GpuTime::ZERO,
        target: Target::Long(GpuTime::from_millis(150)),
        machine: usual,
    },
    Workload {
        name: "graph of 8 ms",
        build: |_| one(Program::new(vec![Kind::graph(1, 8 * MS)])),
        limits: alone,
        burst: 20,
        group: GpuTime::ZERO,
        target: Target::Long(GpuTime::from_millis(8)),
        machine: usual,
    },
    Workload {
        name: "cooperative, 4 ms",
        build: |_| one(small(4 * MS).sync(1)),
        limits: alone,
        burst: 20,
        group: GpuTime::ZERO,
        target: Target::Short,
        machine: usual,
    },
    Workload {
        name: "8 streams of 1.5 ms",
        build: |_| one(small(1_500 * US).streams(8)),
        limits: alone,
        burst: 20,
        group: GpuTime::from_millis(15),
        target: Target::Short,
        machine: usual,
    },
    Workload {
        name: "2 processes",
        build: |_| several(2),
        limits: alone,
        burst: 20,
        group: GpuTime::ZERO,
        target: Target::Short,
        machine: usual,
    },
    Workload {
        name: "8 processes",
        build: |_| several(8),
        limits: alone,
        burst: 20,
        group: GpuTime::ZERO,
        target: Target::Short,
        machine: usual,
    },
    Workload {
        name: "long beside short",
        build: |_| vec![(0, small(10 * MS)), (0, small(20 * US)), (0, small(300 * US).sync(1))],
        limits: alone,
        burst: 20,
        group: GpuTime::ZERO,
        target: Target::Long(GpuTime::from_millis(10)),
        machine: usual,
    },
    Workload {
        name: "bursty beside steady",
        build: bursty_beside_steady,
        limits: alone,
        burst: 20,
        group: GpuTime::ZERO,
        target: Target::Short,
        machine: usual,
    },
    Workload {
        name: "2 slices",
        build: |_| beside(2),
        limits: |limit| rest(limit, 1),
        burst: 20,
        group: GpuTime::ZERO,
        target: Target::Beside,
        machine: usual,
    },
    Workload {
        name: "4 slices",
        build: |_| beside(4),
        limits: |limit| rest(limit, 3),
        burst: 20,
        group: GpuTime::ZERO,
        target: Target::Beside,
        machine: usual,
    },
    Workload {
        name: "inference at 2/3",
        // Ten launches of 1 ms, at two thirds of the share on average.
        build: |limit| one(small(MS).requests(WallTime::from_millis(1_500).part(limit), 10)),
        limits: alone,
        burst: 200,
        group: GpuTime::ZERO,
        target: Target::Latency,
        machine: usual,
    },
];

fn usual(machine: Machine) -> Machine {
    machine
}

fn coarse(machine: Machine) -> Machine {
    Machine { meter: Meter::Nvml, ..machine }
}

fn seconds(machine: Machine) -> Machine {
    Machine { nvml: (ms(1_000), ms(300)), ..machine }
}

/// Makes a machine on which slices do not see each other.
fn apart(machine: Machine) -> Machine {
    Machine { rings: false, ..machine }
}

/// Targets for one process, and for several processes of a slice, that only NVML measures.
const ONE_BY_NVML: Target = Target::Within { mean: 50, windows: 400, jain: 990, after: 4 };
const SEVERAL_BY_NVML: Target = Target::Within { mean: 400, windows: 800, jain: 300, after: 4 };

/// Returns a workload of a slice alone, on a machine without events.
const fn by_nvml(name: &'static str, build: fn(u64) -> Vec<(usize, Program)>, target: Target) -> Workload {
    Workload { name, build, limits: alone, burst: 20, group: GpuTime::ZERO, target, machine: coarse }
}

/// Machines with less information: only NVML's samples, or rare samples, or no intervals of other slices. Without intervals
/// a slice has less than its share beside others, because its charge includes their turns. A window of NVML names one
/// process. So with NVML alone, processes of a slice divide its time unevenly, and slices beside others have their shares
/// only roughly.
pub const DEGRADED: [Workload; 10] = [
    by_nvml("nvml: 20 us", |_| one(small(20 * US)), ONE_BY_NVML),
    by_nvml("nvml: mixed", |_| one(mixed()), ONE_BY_NVML),
    by_nvml("nvml: 50 ms, waited", |_| one(small(50 * MS).sync(1)), ONE_BY_NVML),
    Workload {
        name: "nvml, 1 s: mixed",
        build: |_| one(mixed()),
        limits: alone,
        burst: 20,
        group: GpuTime::ZERO,
        target: Target::Within { mean: 100, windows: 600, jain: 990, after: 4 },
        machine: |machine| seconds(coarse(machine)),
    },
    by_nvml("nvml: 2 processes", |_| several(2), SEVERAL_BY_NVML),
    by_nvml("nvml: 8 processes", |_| several(8), SEVERAL_BY_NVML),
    by_nvml("nvml: 8 equal", |_| (0..8).map(|_| (0, small(400 * US))).collect(), SEVERAL_BY_NVML),
    by_nvml("nvml: bursty beside steady", bursty_beside_steady, SEVERAL_BY_NVML),
    Workload {
        name: "nvml: 2 slices",
        build: |_| beside(2),
        limits: |limit| rest(limit, 1),
        burst: 20,
        group: GpuTime::ZERO,
        target: Target::Within { mean: 1500, windows: 2500, jain: 990, after: 4 },
        machine: coarse,
    },
    Workload {
        name: "out of sight: 2 slices",
        build: |_| beside(2),
        limits: |limit| rest(limit, 1),
        burst: 20,
        group: GpuTime::ZERO,
        target: Target::Within { mean: 2000, windows: 2000, jain: 990, after: 4 },
        machine: apart,
    },
];
