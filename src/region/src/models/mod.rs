//! Loom models of the memory and compute ledgers. They try every interleaving, and every order that the memory model
//! allows.
//!
//! Each model runs twice. It must pass with the code as it is, and fail with a deliberate mistake: a model that cannot fail
//! proves nothing. `ci/loom.sh` has the bounds and the running times.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "models are tests")]

mod compute;
mod history;
mod intervals;
mod shared_memory;

use loom::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use crate::{
    layout::Layout,
    layout::constants::{SLOT_FREE, SLOT_TAKEN},
    memory::ledger::{Refusal, RefusalReason, ReserveEnv},
    slots::identity::Identity,
    slots::roster::{Liveness, Reaped},
    sync::atomics::Published32,
    sync::atomics::broken::{self, Break},
};
use gpuslice_policy::time::Monotonic;

/// The most times that a thread is interrupted at a point where it could go on.
const PREEMPTIONS: usize = 4;
/// Tries of a reservation after the first.
const TRIES: u32 = 2;
/// Memory limit of the models.
const LIMIT: u64 = 10;
const SLOTS: usize = 3;
/// Entries for uses of shared memory.
const SHARES: usize = 2;
const DEVICE: usize = 0;
/// The clock of the models, in nanoseconds.
const NOW: Monotonic = Monotonic::from_nanos(1 << 40);

/// A region with one device. Words in memory take the place of the kernel's life locks.
struct World {
    layout: Layout<1, SLOTS, SHARES>,
    /// The life locks.
    lives: [Published32; SLOTS],
    join_lock: JoinLock,
}

/// Returns a region with `DEVICES` devices and `SHARES` uses of shared memory in which every word is zero.
fn layout<const DEVICES: usize, const SHARES: usize>() -> Layout<DEVICES, SLOTS, SHARES> {
    Layout {
        header: Default::default(),
        devices: core::array::from_fn(|_| Default::default()),
        slots: Default::default(),
        held: core::array::from_fn(|_| Default::default()),
        quota_denials: core::array::from_fn(|_| core::array::from_fn(|_| Default::default())),
        shares: core::array::from_fn(|_| Default::default()),
        time: core::array::from_fn(|_| Default::default()),
    }
}

impl World {
    /// Makes a region in which all slots are taken. The owners of the slots in `living` are alive. They hold the bytes in
    /// `held`.
    fn new(living: [bool; SLOTS], held: [u64; SLOTS]) -> Arc<Self> {
        let world = Self { layout: layout(), lives: Default::default(), join_lock: JoinLock::default() };
        world.layout.header.device_count.publish(1);
        world.layout.header.slot_high_water.set(u32::try_from(SLOTS).unwrap());
        world.layout.devices[DEVICE].memory_limit.set(LIMIT);
        for slot in 0..SLOTS {
            world.layout.slots[slot].state.publish(SLOT_TAKEN);
            world.lives[slot].publish(u32::from(living[slot]));
            world.layout.charge(DEVICE, slot, held[slot]);
        }
        Arc::new(world)
    }

    /// Fills the table of shares with uses of the process in `slot`. Then a dead process finds no entry for memory that
    /// leaves, and its memory is free as soon as it is reaped.
    fn fill_shares(&self, slot: usize) {
        for key in 1..=SHARES as u64 {
            self.layout.share_owned(slot, DEVICE, key, 0).unwrap();
        }
    }

    fn reserve(&self, slot: usize, bytes: u64) -> Result<(), Refusal> {
        self.layout.reserve(DEVICE, slot, bytes, &mut ModelEnv { world: self, left: TRIES, blind: false })
    }

    /// Reaps like `Region::reap`. `stale`: uses an answer that was obtained before the lock.
    fn reap(&self, stale: bool) -> Reaped {
        if !self.layout.any_dead(self).unwrap() {
            return Reaped::Nobody;
        }
        let remembered = Remembered(core::array::from_fn(|slot| self.is_alive(slot).unwrap()));
        let Some(_lock) = self.join_lock.try_lock() else { return Reaped::UnderWay };
        let (dead, _) = if stale {
            self.layout.reap_locked(&remembered, NOW)
        } else {
            self.layout.reap_locked(self, NOW)
        }
        .unwrap();
        if dead == 0 { Reaped::Nobody } else { Reaped::Dead(dead) }
    }

    /// Joins like `Member::join`, into a slot with a dead owner.
    fn join(&self, slot: usize) {
        let _lock = self.join_lock.lock();
        self.layout.reap_locked(self, NOW).unwrap();
        self.lives[slot].publish(1);
        self.layout.claim_slot(slot, Identity::default());
    }

    /// Returns the bytes that the slice holds.
    fn sum(&self) -> u64 {
        self.layout.held(DEVICE)
    }

    fn own(&self, slot: usize) -> u64 {
        self.layout.held_by(DEVICE, slot)
    }
}

/// The file lock of joining and reaping.
///
/// It is not loom's `Mutex`. Loom orders the work under a mutex before the next `try_lock`, so in no model would a
/// `try_lock` fail. A thread can try an exchange of a flag between any two steps.
#[derive(Default)]
struct JoinLock(AtomicBool);

impl JoinLock {
    fn try_lock(&self) -> Option<Joining<'_>> {
        let taken = self.0.compare_exchange(false, true, Ordering::AcqRel, Ordering::Acquire);
        taken.is_ok().then(|| Joining(self))
    }

    fn lock(&self) -> Joining<'_> {
        loop {
            if let Some(joining) = self.try_lock() {
                return joining;
            }
            thread::yield_now();
        }
    }
}

struct Joining<'lock>(&'lock JoinLock);

impl Drop for Joining<'_> {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Release);
    }
}

impl Liveness for World {
    type Error = core::convert::Infallible;

    fn is_alive(&self, slot: usize) -> Result<bool, Self::Error> {
        Ok(self.lives[slot].observe() == 1)
    }
}

/// An earlier answer to the question whether each owner is alive.
struct Remembered([bool; SLOTS]);

impl Liveness for Remembered {
    type Error = core::convert::Infallible;

    fn is_alive(&self, slot: usize) -> Result<bool, Self::Error> {
        Ok(self.0[slot])
    }
}

struct ModelEnv<'world> {
    world: &'world World,
    left: u32,
    /// If another process is reaping, takes this for the absence of dead processes.
    blind: bool,
}

impl ReserveEnv for ModelEnv<'_> {
    fn reap(&mut self) -> Reaped {
        match self.world.reap(false) {
            Reaped::UnderWay if self.blind => Reaped::Nobody,
            reaped => reaped,
        }
    }

    fn wait(&mut self) -> bool {
        thread::yield_now();
        self.left = self.left.saturating_sub(1);
        self.left != 0
    }
}

fn model(body: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(body);
}

/// Runs `work` in another thread.
fn beside<World: 'static, Result: 'static>(
    world: &Arc<World>,
    act: impl FnOnce(&World) -> Result + 'static,
) -> JoinHandle<Result> {
    let world = Arc::clone(world);
    thread::spawn(move || act(&world))
}

fn full(result: &Result<(), Refusal>) -> bool {
    matches!(result, Err(Refusal { why: RefusalReason::Full, .. }))
}

/// Two processes request 6 of 10 each.
fn two_of_which_one_fits() {
    model(|| {
        let world = World::new([true; SLOTS], [0; SLOTS]);
        let other = beside(&world, |world| world.reserve(1, 6));
        let results = [world.reserve(0, 6), other.join().unwrap()];
        let granted = results.iter().filter(|result| result.is_ok()).count();
        assert!(granted <= 1, "both were granted");
        assert!(!results.iter().all(full), "both were refused for certain");
        assert_eq!(world.own(0) + world.own(1), 6 * u64::try_from(granted).unwrap());
    });
}

#[test]
fn of_two_reservations_that_do_not_fit_together_one_is_granted_at_most_and_not_both_are_refused() {
    two_of_which_one_fits();
}

#[test]
#[should_panic(expected = "both were granted")]
fn without_the_fence_both_are_granted() {
    broken::make(Break::NoFence);
    two_of_which_one_fits();
}

/// A process that joins in a fresh slot and another process request 6 of 10 each.
fn a_newcomer_and_another() {
    model(|| {
        let world = World::new([true, false, false], [0; SLOTS]);
        world.layout.slots.iter().skip(1).for_each(|slot| slot.state.publish(SLOT_FREE));
        world.layout.header.slot_high_water.set(1);
        let newcomer = beside(&world, |world| {
            world.join(1);
            world.reserve(1, 6)
        });
        let results = [world.reserve(0, 6), newcomer.join().unwrap()];
        assert!(!results.iter().all(Result::is_ok), "both were granted");
    });
}

#[test]
fn a_newcomer_is_seen_by_every_reservation_that_it_does_not_see() {
    a_newcomer_and_another();
}

#[test]
#[should_panic(expected = "both were granted")]
fn without_the_fence_a_newcomer_is_not_seen() {
    broken::make(Break::NoFence);
    a_newcomer_and_another();
}

/// Three processes request 4 of 10 each.
#[test]
fn of_three_reservations_of_which_two_fit_two_are_granted_at_most_and_one_at_most_is_refused() {
    model(|| {
        let world = World::new([true; SLOTS], [0; SLOTS]);
        let others = [1, 2].map(|slot| beside(&world, move |world| world.reserve(slot, 4)));
        let first = world.reserve(0, 4);
        let results = others.map(|other| other.join().unwrap()).into_iter().chain([first]);
        let results: Vec<_> = results.collect();
        assert!(!results.iter().all(Result::is_ok), "all were granted");
        assert!(results.iter().filter(|result| full(result)).count() <= 1, "one more would fit");
    });
}

/// Two processes request 4 of 10 each.
fn two_that_both_fit() {
    model(|| {
        let world = World::new([true; SLOTS], [0; SLOTS]);
        let other = beside(&world, |world| world.reserve(1, 4));
        let results = [world.reserve(0, 4), other.join().unwrap()];
        assert!(!results.iter().any(full), "refused although it fits");
    });
}

#[test]
fn of_two_reservations_that_both_fit_none_is_refused() {
    two_that_both_fit();
}

/// One process requests 6 and refunds them, another requests 6. The ledger may deny the second only because of an instant
/// at which the first was granted.
fn one_that_is_taken_back() {
    model(|| {
        let world = World::new([true; SLOTS], [0, 0, 2]);
        // A request for 9 never fits beside the 2.
        let other = beside(&world, |world| world.reserve(1, 9));
        assert!(!full(&world.reserve(0, 6)), "refused for bytes that were never held");
        assert!(other.join().unwrap().is_err());
    });
}

#[test]
fn a_reservation_that_is_taken_back_refuses_no_other() {
    one_that_is_taken_back();
}

#[test]
#[should_panic(expected = "refused for bytes that were never held")]
fn if_pending_reservations_counted_as_held_one_that_is_taken_back_would_refuse_another() {
    broken::make(Break::PendingIgnored);
    one_that_is_taken_back();
}

/// Slot 0 refunds 4, then slot 1 charges 4. At no instant do both hold them. So a request for 6 always fits.
fn bytes_that_move() {
    model(|| {
        let world = World::new([true; SLOTS], [4, 0, 0]);
        let other = beside(&world, |world| {
            assert_eq!(world.layout.refund(DEVICE, 0, 4), 0);
            let _ = world.reserve(1, 4);
        });
        assert!(!full(&world.reserve(2, 6)), "bytes were counted twice");
        other.join().unwrap();
    });
}

#[test]
fn bytes_that_move_from_one_process_to_another_are_not_counted_twice_in_a_refusal() {
    bytes_that_move();
}

#[test]
#[should_panic(expected = "bytes were counted twice")]
fn after_a_single_reading_bytes_that_move_are_counted_twice() {
    broken::make(Break::ReadOnce);
    bytes_that_move();
}

/// The owner of slot 0 died while it held 8. One process requests 6 while a monitor reaps.
fn the_dead_make_room(blind: bool) {
    model(move || {
        let world = World::new([false, true, true], [8, 0, 0]);
        world.fill_shares(2);
        let monitor = beside(&world, |world| world.reap(false));
        let mut around = ModelEnv { world: &world, left: TRIES, blind };
        let result = world.layout.reserve(DEVICE, 1, 6, &mut around);
        monitor.join().unwrap();
        assert!(!full(&result), "refused for the sake of the dead");
        assert_eq!(world.own(0), 0);
    });
}

#[test]
fn no_reservation_is_refused_because_of_the_dead_while_another_process_reaps_them() {
    the_dead_make_room(false);
}

#[test]
#[should_panic(expected = "refused for the sake of the dead")]
fn a_process_that_takes_a_reap_under_way_for_no_dead_refuses_because_of_them() {
    the_dead_make_room(true);
}

/// The owner of slot 0 died while it held 8. A process joins in the slot and reserves while a monitor reaps.
fn the_slot_of_the_dead_is_taken_again(stale: bool) {
    model(move || {
        let world = World::new([false, true, true], [8, 0, 0]);
        world.fill_shares(2);
        let monitor = beside(&world, move |world| world.reap(stale));
        world.join(0);
        let result = world.reserve(0, 6);
        monitor.join().unwrap();
        assert!(!full(&result), "refused for the sake of the dead");
        assert_eq!(world.own(0), if result.is_ok() { 6 } else { 0 }, "the newcomer was cleared");
        assert!(world.layout.is_taken(0), "the newcomer was cleared");
    });
}

#[test]
fn a_newcomer_in_the_slot_of_the_dead_keeps_its_reservation_while_another_reaps() {
    the_slot_of_the_dead_is_taken_again(false);
}

#[test]
#[should_panic(expected = "the newcomer was cleared")]
fn a_reaper_that_remembers_the_dead_from_before_the_lock_clears_the_newcomer() {
    the_slot_of_the_dead_is_taken_again(true);
}
