//! Tests that the share holds when limits, work or processes change.

use gpuslice_policy::time::literals::{ms, us};
use gpuslice_policy::time::{GpuTime, WallTime};

use crate::faults::Fault;
use crate::program::{Kind, Program};
use crate::scenario::rate_limit;
use crate::world::{Machine, World};

const US: GpuTime = GpuTime::from_micros(1);
const S: WallTime = WallTime::from_millis(1_000);

fn world(thousandths: u64, programs: Vec<Program>) -> World {
    let programs = programs.into_iter().map(|program| (0, program)).collect();
    World::new(Machine::default(), &[rate_limit(thousandths, 20)], programs, 7)
}

/// Returns the share over the next `time`, in thousandths.
fn share(world: &mut World, time: WallTime) -> u64 {
    let (before, until) = (world.used(0), world.now + time);
    world.run(until).unwrap();
    (world.used(0) - before) * 1000 / time.nanos()
}

#[test]
fn a_new_share_holds_within_300_ms() {
    for kernel in [20 * US, 1500 * US] {
        for (old, new) in [(50, 800), (800, 50), (300, 300), (950, 100), (10, 500)] {
            let mut world = world(old, vec![Program::new(vec![Kind::kernel(1, kernel)])]);
            share(&mut world, S);
            world.inject(world.now, Fault::RateLimit(0, rate_limit(new, 20)));
            share(&mut world, ms(300));
            let held = share(&mut world, S);
            assert!(held.abs_diff(new) <= 5, "{kernel}, from {old} to {new}: {held}");
        }
    }
}

#[test]
fn a_process_killed_with_a_full_queue_leaves_its_share_to_the_others_within_a_second() {
    let program = |kernel| Program::new(vec![Kind::kernel(kernel, 300 * US)]);
    let mut world = world(100, vec![program(1), program(2)]);
    share(&mut world, S);
    world.inject(world.now, Fault::Kill(0));
    world.inject(world.now + ms(500), Fault::Reap(0));
    share(&mut world, S);
    let held = share(&mut world, S);
    assert!(held.abs_diff(100) <= 5, "{held}");
}

#[test]
fn a_program_that_meets_thousands_of_shapes_keeps_its_share() {
    let kinds =
        (0..5000).map(|function| Kind::kernel(function, 20 * US + function % 97 * (10 * US))).collect();
    let mut world = world(300, vec![Program::new(kinds)]);
    share(&mut world, S);
    let held = share(&mut world, 3 * S);
    assert!(held.abs_diff(300) <= 10, "{held}");
}

#[test]
fn the_first_launch_after_ten_seconds_waits_for_nothing() {
    let mut world = world(50, vec![Program::new(vec![Kind::kernel(1, ms(1))]).requests(10 * S, 1)]);
    share(&mut world, 60 * S);
    let latencies = world.processes[0].program.latencies();
    assert!(latencies.iter().all(|latency| *latency <= us(1_040)), "{latencies:?}");
}

#[test]
fn kernels_that_become_longer_are_noticed_however_they_are_launched() {
    for program in [
        Program::new(vec![Kind::kernel(1, 20 * US)]),
        Program::new(vec![Kind::kernel(1, 20 * US)]).sync(1),
        Program::new(vec![Kind::kernel(1, 20 * US)]).sync(1).think(us(20)),
        Program::new(vec![Kind::kernel(1, 20 * US)]).streams(4),
    ] {
        let mut world = world(100, vec![program.slower_after(2000)]);
        world.watch.is_off = true;
        share(&mut world, S);
        let held = share(&mut world, 3 * S);
        assert!(held.abs_diff(100) <= 5, "{held}");
    }
}
