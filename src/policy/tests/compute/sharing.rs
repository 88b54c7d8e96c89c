//! How well do slices share a GPU that an arbiter divides? Figures beside their targets.

use gpuslice_policy::config::{CorePolicy, Priority};
use gpuslice_policy::units::Permille;

use crate::arbitrate::{Shared, wish};
use crate::mishaps::Mishap;
use crate::program::{Kind, Program};
use crate::world::Machine;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

fn small(kernel: u64) -> Program {
    Program::new(vec![Kind::kernel(kernel, kernel)])
}

fn used(shared: &Shared) -> Vec<u64> {
    (0..shared.wishes.len()).map(|slice| shared.world.used(slice)).collect()
}

/// What each slice uses in a time, in thousandths, and how busy the GPU is.
fn shares(shared: &mut Shared, time: u64) -> (Vec<u64>, u64) {
    let (before, switching, until) = (used(shared), shared.world.gpu.switching, shared.world.now + time);
    shared.run(until);
    let each: Vec<u64> =
        used(shared).iter().zip(&before).map(|(after, before)| (after - before) * 10_000 / time).collect();
    let busy = each.iter().sum::<u64>() + (shared.world.gpu.switching - switching) * 10_000 / time;
    if std::env::var("SHOW").is_ok() && time > 100 * MS {
        let rates: Vec<_> = shared.world.slices.iter().map(|slice| slice.terms.rate().get()).collect();
        let queued: Vec<u64> =
            shared.world.processes.iter().map(|process| process.shim.ahead.queued() / US).collect();
        println!(
            "  budget {:?} rates {rates:?} queued {queued:?}",
            shared.arbiter.as_ref().map(|arbiter| arbiter.budget())
        );
    }
    (each, busy)
}

fn equal(programs: Vec<Vec<Program>>, weights: &[u32], machine: Machine) -> Shared {
    let wishes = weights.iter().map(|weight| wish(CorePolicy::Equal, *weight)).collect();
    let programs = programs.into_iter().enumerate();
    let programs = programs.flat_map(|(slice, own)| own.into_iter().map(move |program| (slice, program)));
    Shared::new(machine, wishes, programs.collect())
}

#[test]
fn tablex() {
    let kernels = [20 * US, 100 * US, 300 * US, 1500 * US, 5 * MS, 50 * MS];
    for count in [2, 4, 8, 16] {
        let programs = (0..count).map(|at| vec![small(kernels[at % 4])]).collect();
        let mut shared = equal(programs, &vec![100; count], Machine::default());
        shared.run(shared.world.now + S);
        println!("{count} equal {:?}", shares(&mut shared, 4 * S));
    }
    let mut shared = equal(
        vec![vec![small(200 * US)], (0..8).map(|_| small(20 * US)).collect()],
        &[100, 100],
        Machine::default(),
    );
    shared.world.watch.is_off = true;
    shared.run(shared.world.now + S);
    println!("8 procs {:?}", shares(&mut shared, 4 * S));
    let mut shared =
        equal((0..3).map(|_| vec![small(200 * US)]).collect(), &[100, 300, 600], Machine::default());
    shared.run(shared.world.now + S);
    println!("weights {:?}", shares(&mut shared, 4 * S));
    let mut shared = equal(
        (0..2).map(|_| vec![small(200 * US)]).collect(),
        &[100, 100],
        Machine { nvml: None, ..Machine::default() },
    );
    shared.run(shared.world.now + S);
    println!("no nvml {:?}", shares(&mut shared, 4 * S));

    // fixed
    let mut wishes = vec![wish(CorePolicy::Fixed, 100), wish(CorePolicy::Equal, 100)];
    wishes[0].limit = Permille::new(300).unwrap();
    let mut shared =
        Shared::new(Machine::default(), wishes, vec![(0, small(200 * US)), (1, small(100 * US))]);
    shared.run(shared.world.now + S);
    println!("fixed+equal {:?}", shares(&mut shared, 4 * S));
    // high / low
    let mut wishes = vec![wish(CorePolicy::Equal, 100), wish(CorePolicy::Equal, 100)];
    (wishes[0].priority, wishes[1].priority) = (Priority::High, Priority::Low);
    let mut shared =
        Shared::new(Machine::default(), wishes, vec![(0, small(200 * US)), (1, small(100 * US))]);
    shared.run(shared.world.now + S);
    println!("high+low {:?}", shares(&mut shared, 4 * S));
    // inference
    for arbiter in [true, false] {
        for kernel in [200 * US, 5 * MS, 50 * MS] {
            let mut wishes = vec![wish(CorePolicy::Equal, 100), wish(CorePolicy::BestEffort, 100)];
            wishes[0].priority = Priority::High;
            let mut shared = Shared::new(
                Machine::default(),
                wishes,
                vec![(0, small(MS).requests(30 * MS, 10)), (1, small(kernel))],
            );
            if !arbiter {
                shared.arbiter = None;
            }
            shared.run(shared.world.now + S);
            let figures = shares(&mut shared, 20 * S);
            let mut latencies = shared.world.processes[0].program.latencies().to_vec();
            latencies.sort_unstable();
            let at = |part: usize| latencies[latencies.len() * part / 100] / US;
            println!("inference arbiter {arbiter} {kernel} {figures:?} p50 {} p99 {}", at(50), at(99));
        }
    }
    {
        let mut shared = Shared::new(
            Machine::default(),
            vec![wish(CorePolicy::Equal, 100)],
            vec![(0, small(MS).requests(30 * MS, 10))],
        );
        shared.run(shared.world.now + 21 * S);
        let mut latencies = shared.world.processes[0].program.latencies().to_vec();
        latencies.sort_unstable();
        let at = |part: usize| latencies[latencies.len() * part / 100] / US;
        println!("inference alone p50 {} p99 {}", at(50), at(99));
    }
    // lending
    for weights in [[100, 100], [400, 100], [100, 400]] {
        let mut shared = equal((0..2).map(|_| vec![small(200 * US)]).collect(), &weights, Machine::default());
        shared.run(shared.world.now + 2 * S);
        println!("lend {weights:?} before {:?}", shares(&mut shared, S));
        let now = shared.world.now;
        shared.world.befall(now, Mishap::Stop(0, S));
        let course: Vec<_> = (0..10).map(|_| shares(&mut shared, 20 * MS).0).collect();
        println!("{course:?}");
        let rest = now + S - shared.world.now;
        println!("{:?}", shares(&mut shared, rest).0);
        let course: Vec<_> = (0..20).map(|_| shares(&mut shared, 10 * MS).0).collect();
        println!("{course:?}");
    }
}
