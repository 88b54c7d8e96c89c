//! Accuracy of slices beside each other, by the intervals that they publish.

use gpuslice_policy::time::{GpuTime, WallTime};

use crate::program::{Kind, Program};
use crate::scenario::rate_limit;
use crate::world::{Machine, World};

const S: WallTime = WallTime::from_millis(1_000);
const LOOK: WallTime = WallTime::from_millis(50);
/// Shares in percent, each with the duration of a kernel and the number of contexts of each process.
type Set = &'static [(u64, GpuTime, &'static [usize])];

/// Returns a duration of a kernel.
const fn us(microseconds: u64) -> GpuTime {
    GpuTime::from_micros(microseconds)
}

const SETS: [Set; 29] = [
    &[(30, us(20), &[1]), (60, us(20), &[1])],
    &[(30, us(20), &[1]), (60, us(5_000), &[1])],
    &[(30, us(20), &[1]), (60, us(50_000), &[1])],
    &[(30, us(5_000), &[1]), (60, us(5_000), &[1])],
    &[(30, us(50_000), &[1]), (60, us(50_000), &[1])],
    &[(30, us(50_000), &[1]), (60, us(1500), &[1])],
    &[(30, us(1500), &[1]), (60, us(5_000), &[1])],
    &[(47, us(20), &[1]), (47, us(20), &[1])],
    &[(47, us(20), &[1]), (47, us(50_000), &[1])],
    &[(47, us(5_000), &[1]), (47, us(50_000), &[1])],
    &[(20, us(20), &[1]), (20, us(300), &[1]), (50, us(5_000), &[1])],
    &[(22, us(20), &[1]), (22, us(300), &[1]), (22, us(5_000), &[1]), (22, us(50_000), &[1])],
    &[(30, us(20), &[1, 1]), (60, us(5_000), &[1])],
    &[(30, us(5_000), &[1]), (60, us(20), &[1, 1, 1, 1])],
    &[(47, us(300), &[1, 1]), (47, us(300), &[1, 1])],
    &[(30, us(50_000), &[1, 1]), (60, us(5_000), &[1, 1])],
    &[(5, us(100), &[1]), (29, us(1500), &[1]), (29, us(100), &[1]), (29, us(1500), &[1])],
    &[(30, us(100), &[1]), (20, us(1500), &[1]), (20, us(100), &[1]), (20, us(1500), &[1])],
    &[(80, us(100), &[1]), (12, us(1500), &[1])],
    &[(30, us(20), &[2]), (60, us(20), &[1])],
    &[(30, us(1500), &[2]), (60, us(1500), &[1])],
    &[(30, us(5_000), &[2]), (60, us(5_000), &[1])],
    &[(30, us(300), &[2]), (60, us(20), &[1])],
    &[(30, us(50_000), &[2]), (60, us(5_000), &[1])],
    &[(60, us(5_000), &[2]), (30, us(5_000), &[1])],
    &[(60, us(300), &[2]), (30, us(5_000), &[2])],
    &[(20, us(300), &[2]), (30, us(1500), &[1]), (40, us(5_000), &[1])],
    &[(20, us(5_000), &[1]), (30, us(100), &[2]), (40, us(300), &[2])],
    &[(20, us(300), &[2, 1]), (30, us(1500), &[1]), (40, us(100), &[1])],
];

/// Returns two errors of each slice in hundredths of points. The first is the error of its mean over ten seconds. The
/// second is the error of 95 % of its windows of one second.
fn errors(machine: Machine, set: Set) -> Vec<(i64, i64)> {
    let limits: Vec<_> = set.iter().map(|(share, ..)| rate_limit(share * 10, 20)).collect();
    let programs = |(slice, (_, kernel, processes)): (usize, &(u64, GpuTime, &'static [usize]))| {
        let program = Program::new(vec![Kind::kernel(slice as u64 + 1, *kernel)]);
        processes.iter().map(move |contexts| (slice, program.clone().contexts(*contexts)))
    };
    let mut world = World::new(machine, &limits, set.iter().enumerate().flat_map(programs).collect(), 5);
    world.watch.is_off = true;
    world.run(world.now + 2 * S).unwrap();
    let mut used: Vec<Vec<u64>> = Vec::new();
    for _ in 0..=(10 * S).count(LOOK) {
        used.push((0..set.len()).map(|slice| world.used(slice)).collect());
        world.run(world.now + LOOK).unwrap();
    }
    let share = |slice: usize, from: usize, to: usize| {
        let time = (to - from) as u64 * LOOK;
        ((used[to][slice] - used[from][slice]) * 10_000 / time.nanos()) as i64 - set[slice].0 as i64 * 100
    };
    let second = S.count(LOOK) as usize;
    let of = |slice| {
        let mut windows: Vec<i64> =
            (0..used.len() - second).map(|at| share(slice, at, at + second).abs()).collect();
        windows.sort_unstable();
        (share(slice, 0, used.len() - 1), windows[windows.len() * 95 / 100])
    };
    (0..set.len()).map(of).collect()
}

#[test]
fn table_of_slices_side_by_side() {
    let (mut cells, mut missed) = (0, Vec::new());
    for (name, renews, waits) in [("yields", false, false), ("renews", true, false), ("waits", false, true)] {
        // These are the default of drivers (1.024 ms) and the lengths that an operator can set (2, 10 and 30 ms). 9 ms lies
        // between lengths with which the replay begins.
        for slice in [1_024, 2_000, 9_000, 10_000, 30_000] {
            for set in SETS {
                let machine =
                    Machine { slice: WallTime::from_micros(slice), renews, waits, ..Machine::default() };
                let errors = errors(machine, set);
                let misses = errors.iter().any(|(mean, windows)| mean.abs() > 100 || *windows > 500);
                cells += 1;
                let shares: Vec<String> = set
                    .iter()
                    .map(|(share, kernel, processes)| {
                        format!("{share}%x{}us*{processes:?}", kernel.count(us(1)))
                    })
                    .collect();
                println!(
                    "{:>5} us {name} {:<60} {errors:?}{}",
                    slice,
                    shares.join(" "),
                    if misses { "  MISSES" } else { "" }
                );
                missed.extend(misses.then_some((slice, name, set)));
            }
        }
    }
    println!(
        "{} of {cells} miss the targets: the mean within 1 point, 95 % of windows of a second within 5",
        missed.len()
    );
    assert!(missed.is_empty(), "{missed:?}");
}
