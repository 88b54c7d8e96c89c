//! Property tests of the memory ledger: it answers as a simple model does, after any sequence of calls and deaths.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "all of this is test")]

mod history;
mod intervals;
mod shared_memory;
mod time;

use std::cell::RefCell;

use proptest::prelude::*;

use crate::{
    layout::constants::NO_LIMIT,
    layout::{Layout, held_at},
    memory::ledger::{Refusal, RefusalReason, ReserveEnv},
    slots::identity::Identity,
    slots::roster::{Liveness, Reaped},
    sync::atomics::Held,
};
use gpuslice_policy::time::Monotonic;

const SLOTS: usize = 4;
const DEVICES: usize = 2;
const SHARES: usize = 8;
/// The clock, in nanoseconds.
const NOW: Monotonic = Monotonic::from_nanos(1 << 40);
/// Sequences that the tests try. In miri each takes ten seconds.
const CASES: u32 = if cfg!(miri) { 2 } else { 500 };

/// A small region. The test's thread plays all processes, and the kernel.
struct World {
    layout: Layout<DEVICES, SLOTS, SHARES>,
    lives: RefCell<[bool; SLOTS]>,
}

impl World {
    fn new(limit: u64) -> Self {
        let layout = Layout {
            header: Default::default(),
            devices: Default::default(),
            slots: Default::default(),
            held: Default::default(),
            quota_denials: Default::default(),
            shares: Default::default(),
            time: Default::default(),
        };
        layout.header.device_count.publish(u32::try_from(DEVICES).unwrap());
        for entry in &layout.devices {
            entry.memory_limit.set(limit);
            entry.available.set(1);
        }
        Self { layout, lives: RefCell::new([false; SLOTS]) }
    }
}

impl Liveness for World {
    type Error = core::convert::Infallible;

    fn is_alive(&self, slot: usize) -> Result<bool, Self::Error> {
        Ok(self.lives.borrow()[slot])
    }
}

/// No other thread runs, so no reservation waits.
impl ReserveEnv for &World {
    fn reap(&mut self) -> Reaped {
        match self.layout.reap_locked(*self, NOW).unwrap() {
            (0, _) => Reaped::Nobody,
            (dead, _) => Reaped::Dead(dead),
        }
    }

    fn wait(&mut self) -> bool {
        panic!("a reservation waited for no process");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Join(usize),
    Die(usize),
    Reap,
    /// The device has all memory back that left it.
    Back(usize),
    Reserve {
        device: usize,
        slot: usize,
        bytes: u64,
    },
    Charge {
        device: usize,
        slot: usize,
        bytes: u64,
    },
    Refund {
        device: usize,
        slot: usize,
        bytes: u64,
    },
    Limit {
        device: usize,
        limit: u64,
    },
}

fn bytes() -> impl Strategy<Value = u64> {
    prop_oneof![0..120_u64, Just(Held::MOST_BYTES), Just(Held::MOST_BYTES + 1), any::<u64>()]
}

fn step() -> impl Strategy<Value = Step> {
    let place = || (0..DEVICES, 0..SLOTS, bytes());
    prop_oneof![
        1 => (0..SLOTS).prop_map(Step::Join),
        1 => (0..SLOTS).prop_map(Step::Die),
        1 => Just(Step::Reap),
        1 => (0..DEVICES).prop_map(Step::Back),
        6 => place().prop_map(|(device, slot, bytes)| Step::Reserve { device, slot, bytes }),
        1 => place().prop_map(|(device, slot, bytes)| Step::Charge { device, slot, bytes }),
        4 => place().prop_map(|(device, slot, bytes)| Step::Refund { device, slot, bytes }),
        1 => (0..DEVICES, prop_oneof![0..200_u64, Just(NO_LIMIT)])
            .prop_map(|(device, limit)| Step::Limit { device, limit }),
    ]
}

/// The expected state: the slots with their processes, alive or dead, the bytes of each, and the bytes that leave.
#[derive(Default)]
struct Model {
    taken: [bool; SLOTS],
    held: [[u64; SLOTS]; DEVICES],
    left: [Vec<u64>; DEVICES],
    limit: [u64; DEVICES],
}

impl Model {
    fn sum(&self, device: usize) -> u64 {
        self.held[device].iter().chain(&self.left[device]).fold(0, |sum, held| sum.saturating_add(*held))
    }

    fn reap(&mut self, world: &World) {
        for slot in 0..SLOTS {
            if self.taken[slot] && !world.lives.borrow()[slot] {
                self.taken[slot] = false;
                for device in 0..DEVICES {
                    let held = core::mem::take(&mut self.held[device][slot]);
                    // If the table is full, nothing leaves.
                    if held > 0 && self.left.iter().map(Vec::len).sum::<usize>() < SHARES {
                        self.left[device].push(held);
                    }
                }
            }
        }
    }

    fn reserve(
        &mut self,
        world: &World,
        device: usize,
        slot: usize,
        bytes: u64,
    ) -> Result<(), RefusalReason> {
        let limit = self.limit[device].min(Held::MOST_BYTES);
        if bytes > limit {
            return Err(RefusalReason::TooLarge);
        }
        let fits = |held: u64| held.saturating_add(bytes) <= limit;
        if !fits(self.sum(device)) {
            self.reap(world);
        }
        if !fits(self.sum(device)) {
            return Err(RefusalReason::Full);
        }
        self.held[device][slot] += bytes;
        Ok(())
    }
}

fn run(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let world = World::new(100);
    let mut model = Model { limit: [100; DEVICES], ..Model::default() };
    for step in steps {
        let lives = |slot: usize| world.lives.borrow()[slot];
        match step {
            Step::Join(slot) if !lives(slot) => {
                world.lives.borrow_mut()[slot] = true;
                world.layout.claim_slot(slot, Identity::default());
                model.taken[slot] = true;
                model.held.iter_mut().for_each(|row| row[slot] = 0);
            }
            Step::Die(slot) => world.lives.borrow_mut()[slot] = false,
            Step::Reap => {
                let _ = (&world).reap();
                model.reap(&world);
            }
            Step::Back(device) => {
                let any = !core::mem::take(&mut model.left[device]).is_empty();
                prop_assert_eq!(world.layout.end_if_back(device, || Some(u64::MAX)), any);
            }
            Step::Reserve { device, slot, bytes } if lives(slot) => {
                let expected = model.reserve(&world, device, slot, bytes);
                let found = world.layout.reserve(device, slot, bytes, &mut &world);
                prop_assert_eq!(found.map_err(|refusal: Refusal| refusal.why), expected);
            }
            Step::Charge { device, slot, bytes } if lives(slot) => {
                world.layout.charge(device, slot, bytes);
                let held = &mut model.held[device][slot];
                *held = held.saturating_add(bytes).min(Held::MOST_BYTES);
            }
            Step::Refund { device, slot, bytes } if lives(slot) => {
                let held = &mut model.held[device][slot];
                let missing = bytes.saturating_sub(*held);
                *held -= bytes - missing;
                prop_assert_eq!(world.layout.refund(device, slot, bytes), missing);
            }
            Step::Limit { device, limit } => {
                world.layout.devices[device].memory_limit.set(limit);
                model.limit[device] = limit;
            }
            _ => {}
        }
        for device in 0..DEVICES {
            prop_assert_eq!(world.layout.held(device), model.sum(device));
            for slot in 0..SLOTS {
                prop_assert_eq!(world.layout.held_by(device, slot), model.held[device][slot]);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(CASES) })]

    #[test]
    fn any_sequence_of_calls_and_deaths_is_answered_as_the_model_answers(
        steps in proptest::collection::vec(step(), 1..80)
    ) {
        run(steps)?;
    }
}

#[test]
fn the_peak_knows_nothing_of_pending_reservations() {
    let world = World::new(100);
    for slot in 0..2 {
        world.lives.borrow_mut()[slot] = true;
        world.layout.claim_slot(slot, Identity::default());
    }
    let peak = || world.layout.devices[0].peak.get();
    world.layout.reserve(0, 0, 60, &mut &world).unwrap();
    world.layout.held[0][held_at(1, SLOTS)].enter(90).unwrap();
    world.layout.charge(0, 0, 10);
    assert_eq!(peak(), 70);
    world.layout.held[0][held_at(1, SLOTS)].withdraw(90);
    world.layout.charge(0, 1, 50);
    assert_eq!(peak(), 120);
}
