//! Tests that processes that come and go leave the others their part.

use gpuslice_policy::time::WallTime;
use gpuslice_policy::time::literals::{ms, us};

use crate::faults::Fault;
use crate::program::{Kind, Program};
use crate::scenario::rate_limit;
use crate::world::{Machine, World};

const S: WallTime = WallTime::from_millis(1_000);
/// Number of processes that stay.
const STAY: usize = 2;
/// Number of processes that live beside them at once, and the life time of each.
const COME: usize = 12;
const LIFE: WallTime = WallTime::from_millis(850);

/// Returns the smallest GPU time of a staying process, and the time of all, within `seconds` at a share of `limit` percent.
fn served(limit: u64, seconds: u64) -> (u64, u64) {
    let lives = (seconds * S).count(LIFE) as usize;
    let count = STAY + COME * lives;
    let programs = (0..count).map(|_| (0, Program::new(vec![Kind::kernel(1, us(400))]))).collect();
    let mut world = World::new(Machine::default(), &[rate_limit(limit * 10, 20)], programs, 5);
    // The wait of a process beside newcomers has no bound.
    world.watch.is_off = true;
    let start = world.now;
    for at in 0..COME * lives {
        let begins = start + (at as u64 * LIFE).part(COME as u64);
        world.processes[STAY + at].wake = begins;
        world.inject(begins + LIFE, Fault::Kill(STAY + at));
        world.inject(begins + LIFE + ms(50), Fault::Reap(STAY + at));
    }
    world.run(start + seconds * S).unwrap();
    let stays = world.processes.iter().take(STAY).map(|process| world.gpu.busy(process.client));
    (stays.min().unwrap(), world.used(0))
}

#[test]
fn fourteen_newcomers_a_second_leave_those_that_stay_their_part() {
    for limit in [10, 30, 80] {
        let (least, all) = served(limit, 8);
        let part = least * 1000 / (all / (STAY + COME) as u64);
        println!("{limit} %: one that stays has {part} thousandths of its part, {} ms", least / 1_000_000);
        assert!(part >= 900, "{limit} %: {part} thousandths");
        // Newcomers pay for time that they cannot use, because they are killed.
        assert!(part <= 2000, "{limit} %: {part} thousandths");
    }
}
