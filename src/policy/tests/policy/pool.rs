//! Tests that the charge for a pool covers the bytes that it holds, in every interleaving of its threads' steps.
//!
//! Threads allocate, free, wait and trim on a model of a driver's pool. At each of their steps, and at each call of the
//! driver, another thread may continue. After every call of the driver the test compares the ledger with the bytes that the
//! pool holds. The ledger never exceeds the quota, so no fitting allocation is refused. In half of the programs a thread
//! may destroy the pool. The test then compares the ledger with the bytes of the pool's allocations.

use gpuslice_policy::pool::holes::FreeFor;
use gpuslice_policy::pool::{self, POOL_GROWTH, PoolDriver, PoolLedger};
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::sync::{Arc, Mutex};
use shuttle::{Config, Runner, thread};
use std::collections::BTreeMap;

/// Number of schedules of each kind of scheduler. `GPUSLICE_TEST_SCHEDULES` changes it.
const SCHEDULES: usize = 4000;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Use {
    Used,
    /// The block is freed in a stream that has not reached the free.
    Pending(usize),
    Free,
}

/// A driver's pool: pieces of the device, each cut into blocks by first fit.
#[derive(Debug, Default)]
struct Driver {
    pieces: BTreeMap<u64, BTreeMap<u64, (u64, Use)>>,
    next: u64,
    /// True if the program has destroyed the pool.
    ended: bool,
}

impl Driver {
    fn held(&self) -> u64 {
        self.pieces.values().flat_map(BTreeMap::values).map(|(size, _)| size).sum()
    }

    fn used(&self) -> u64 {
        let blocks = self.pieces.values().flat_map(BTreeMap::values);
        blocks.filter(|(_, state)| *state != Use::Free).map(|(size, _)| size).sum()
    }

    /// Returns the bytes that the charge must cover. For a destroyed pool they are the bytes of its allocations.
    fn covered(&self) -> u64 {
        let blocks = self.pieces.values().flat_map(BTreeMap::values);
        let live = blocks.filter(|(_, state)| *state == Use::Used).map(|(size, _)| size);
        if self.ended { live.sum() } else { self.held() }
    }

    /// Destroys the pool. Returns false if it was destroyed before.
    fn end(&mut self) -> bool {
        !core::mem::replace(&mut self.ended, true)
    }

    fn allocate(&mut self, size: u64, stream: usize) -> Option<u64> {
        if self.ended {
            return None;
        }
        for piece in self.pieces.values_mut() {
            let fits = |(_, (room, state)): &(&u64, &(u64, Use))| {
                *room >= size && (*state == Use::Free || *state == Use::Pending(stream))
            };
            let found = piece.iter().find(fits).map(|(address, block)| (*address, *block));
            if let Some((address, (room, state))) = found {
                piece.insert(address, (size, Use::Used));
                if room > size {
                    piece.insert(address + size, (room - size, state));
                }
                return Some(address);
            }
        }
        let room = size.next_multiple_of(POOL_GROWTH);
        self.next += 1;
        let address = self.next << 40;
        let mut piece = BTreeMap::from([(address, (size, Use::Used))]);
        if room > size {
            piece.insert(address + size, (room - size, Use::Free));
        }
        self.pieces.insert(address, piece);
        Some(address)
    }

    fn free(&mut self, address: u64, stream: usize) {
        let (_, piece) = self.pieces.range_mut(..=address).next_back().expect("a piece");
        piece.get_mut(&address).expect("a block").1 = Use::Pending(stream);
    }

    /// Records that a stream reaches its end.
    fn arrive(&mut self, stream: usize) {
        for piece in self.pieces.values_mut() {
            for block in piece.values_mut().filter(|(_, state)| *state == Use::Pending(stream)) {
                block.1 = Use::Free;
            }
            let mut joined: BTreeMap<u64, (u64, Use)> = BTreeMap::new();
            for (address, (size, state)) in core::mem::take(piece) {
                match joined.last_entry() {
                    Some(mut last) if state == Use::Free && last.get().1 == Use::Free => {
                        last.get_mut().0 += size;
                    }
                    _ => drop(joined.insert(address, (size, state))),
                }
            }
            *piece = joined;
        }
    }

    fn trim(&mut self, keep: u64) {
        let unused = |piece: &BTreeMap<u64, (u64, Use)>| piece.values().all(|(_, state)| *state == Use::Free);
        while self.held() > keep
            && let Some(address) = self.pieces.iter().find(|(_, piece)| unused(piece)).map(|(at, _)| *at)
        {
            self.pieces.remove(&address);
        }
    }
}

#[derive(Debug)]
struct World {
    books: Mutex<PoolLedger>,
    driver: Mutex<Driver>,
    /// Number of calls in flight that destroy the pool, and whether one has ended. Meanwhile no thread reads the pool's
    /// counter.
    endings: std::sync::Mutex<(u32, bool)>,
    /// True if the program may destroy the pool.
    can_end: bool,
    /// The charged bytes. This is not one of shuttle's locks, so no other thread runs inside.
    ledger: std::sync::Mutex<u64>,
    quota: u64,
    /// Charged bytes of memory that does not belong to the pool.
    other: std::sync::Mutex<u64>,
    /// Number of times that a thread waits before its allocation is refused.
    patience: u32,
}

impl World {
    fn new(quota: u64) -> Self {
        Self {
            books: Mutex::new(PoolLedger::default()),
            driver: Mutex::new(Driver::default()),
            endings: std::sync::Mutex::default(),
            can_end: false,
            ledger: std::sync::Mutex::new(0),
            quota,
            other: std::sync::Mutex::new(0),
            patience: 3,
        }
    }

    /// Allocates. Returns the address and size, unless the allocation is refused or fails.
    fn take(&self, bytes: u64, stream: usize) -> Option<(u64, u64)> {
        let flight = pool::begin(self, bytes, stream)?;
        let size = flight.bytes();
        let address = self.driver(|driver| driver.allocate(size, stream));
        pool::finish(self, flight, address);
        address.map(|address| (address, size))
    }

    fn driver<R>(&self, call: impl FnOnce(&mut Driver) -> R) -> R {
        thread::yield_now();
        let mut driver = self.driver.lock().unwrap();
        let result = call(&mut driver);
        // No yield comes in between, so the two figures belong to one instant.
        let (held, other) = (driver.covered(), *self.other.lock().unwrap());
        let charged = *self.ledger.lock().unwrap();
        assert!(
            held + other <= charged,
            "the pool holds {held}, other memory {other}, the ledger says {charged}"
        );
        drop(driver);
        thread::yield_now();
        result
    }

    /// Reads the driver's counter, unless the driver may have destroyed the pool. It may destroy the pool between the two checks.
    fn counter(&self, read: impl FnOnce(&Driver) -> u64) -> Option<u64> {
        if *self.endings.lock().unwrap() != (0, false) {
            return None;
        }
        self.driver(|driver| (!driver.ended).then(|| read(driver)))
    }

    /// Takes other memory, or frees the other memory that was taken.
    fn turn_other(&self) {
        let taken = *self.other.lock().unwrap();
        if taken > 0 {
            *self.other.lock().unwrap() = 0;
            self.refund(taken);
        } else if self.reserve(POOL_GROWTH) {
            *self.other.lock().unwrap() += POOL_GROWTH;
        }
    }

    fn destroy(&self) {
        let pending = pool::begin_end(self);
        self.endings.lock().unwrap().0 += 1;
        let is_destroyed = self.driver(Driver::end);
        let mut endings = self.endings.lock().unwrap();
        endings.0 -= u32::from(!is_destroyed);
        endings.1 |= is_destroyed;
        drop(endings);
        if is_destroyed {
            pool::end(self, pending);
        } else {
            pool::reconcile(self);
        }
    }
}

impl PoolDriver for World {
    fn step<R>(&self, step: impl FnOnce(&mut PoolLedger) -> R) -> R {
        thread::yield_now();
        step(&mut self.books.lock().unwrap())
    }

    fn held(&self) -> Option<u64> {
        self.counter(Driver::held)
    }

    fn used(&self) -> Option<u64> {
        self.counter(Driver::used)
    }

    fn trim(&self, keep: u64) {
        self.driver(|driver| driver.trim(keep));
    }

    fn reserve(&self, bytes: u64) -> bool {
        thread::yield_now();
        let mut ledger = self.ledger.lock().unwrap();
        let fits = *ledger + bytes <= self.quota;
        *ledger += if fits { bytes } else { 0 };
        fits
    }

    fn charge(&self, bytes: u64) {
        let mut ledger = self.ledger.lock().unwrap();
        *ledger += bytes;
        assert!(*ledger <= self.quota, "{ledger} is charged, the quota is {}", self.quota);
    }

    fn refund(&self, bytes: u64) {
        let mut ledger = self.ledger.lock().unwrap();
        *ledger = ledger.checked_sub(bytes).expect("only what is held goes back");
    }

    fn waits(&self) -> impl FnMut() -> bool {
        let mut waited = 0;
        move || {
            thread::yield_now();
            waited += 1;
            waited < self.patience
        }
    }
}

/// Runs a thread of a program. Another thread may free its blocks, because all are in one list.
fn run(world: &World, blocks: &Mutex<Vec<(u64, u64)>>, own: usize, calls: u32) {
    for _ in 0..calls {
        let stream = if thread_rng().gen_ratio(1, 4) { 0 } else { own };
        match thread_rng().gen_range(0..16_u32) {
            0 => pool::releasing(world, || world.driver(|driver| driver.trim(0))),
            // A context ends.
            15 => {
                pool::begin_release(world);
                world.driver(|driver| driver.trim(0));
                world.step(PoolLedger::distrust);
                pool::end_release(world);
            }
            1..4 => {
                let wait = |driver: &mut Driver| {
                    driver.arrive(stream);
                    driver.trim(0);
                };
                pool::releasing(world, || world.driver(wait));
            }
            4 if world.can_end && thread_rng().gen_ratio(1, 4) => world.destroy(),
            4 => world.driver(|driver| driver.arrive(stream)),
            14 => world.turn_other(),
            5..9 => {
                let taken = {
                    let mut blocks = blocks.lock().unwrap();
                    let which = thread_rng().gen_range(0..blocks.len().max(1));
                    (which < blocks.len()).then(|| blocks.swap_remove(which))
                };
                let Some((address, bytes)) = taken else {
                    continue;
                };
                let leaving = pool::begin_free(world, address, bytes);
                world.driver(|driver| driver.free(address, stream));
                pool::finish_free(world, &leaving, FreeFor::Stream(stream));
            }
            _ => {
                let most = if thread_rng().gen_ratio(1, 4) { 40 } else { 24 };
                let bytes = thread_rng().gen_range(1..=most) << 20;
                let block = world.take(bytes, stream);
                blocks.lock().unwrap().extend(block);
            }
        }
    }
}

fn storm() {
    let quota = POOL_GROWTH * thread_rng().gen_range(2..6_u64);
    let world = Arc::new(World { can_end: thread_rng().gen_ratio(1, 2), ..World::new(quota) });
    let blocks = Arc::new(Mutex::new(Vec::new()));
    let threads: Vec<_> = (1..=thread_rng().gen_range(2..6_usize))
        .map(|own| {
            let (world, blocks) = (Arc::clone(&world), Arc::clone(&blocks));
            thread::spawn(move || run(&world, &blocks, own, 12))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    // With all threads at rest, the charge equals the pool's memory. For a destroyed pool this needs no further reading.
    if !world.driver.lock().unwrap().ended {
        pool::reconcile(&*world);
    }
    let other = *world.other.lock().unwrap();
    assert_eq!(*world.ledger.lock().unwrap(), world.driver.lock().unwrap().covered() + other);
}

/// Threads take blocks until one is refused, without a free. In every order, no byte of the quota may be left.
fn fill() {
    let quota = POOL_GROWTH * thread_rng().gen_range(1..5_u64);
    let world = Arc::new(World { patience: u32::MAX, ..World::new(quota) });
    let threads: Vec<_> = (1..=thread_rng().gen_range(2..5_usize))
        .map(|stream| {
            let world = Arc::clone(&world);
            let bytes = thread_rng().gen_range(4..=24_u64) << 20;
            thread::spawn(move || while world.take(bytes, stream).is_some() {})
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    while world.take(1 << 20, 1).is_some() {}
    assert_eq!(world.driver.lock().unwrap().used(), quota);
}

fn try_schedules(scheduler: impl Scheduler + 'static, program: fn()) {
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    let tried = Runner::new(scheduler, config).run(program);
    assert!(tried > 0);
}

fn schedules() -> usize {
    std::env::var("GPUSLICE_TEST_SCHEDULES").ok().and_then(|text| text.parse().ok()).unwrap_or(SCHEDULES)
}

#[test]
fn the_ledger_covers_the_memory_of_a_pool_in_random_interleavings() {
    try_schedules(RandomScheduler::new(schedules()), storm);
}

#[test]
fn the_ledger_covers_the_memory_of_a_pool_when_threads_stand_still_for_long() {
    try_schedules(PctScheduler::new(4, schedules()), storm);
}

#[test]
fn threads_that_fill_a_pool_get_all_of_the_quota() {
    try_schedules(RandomScheduler::new(schedules()), fill);
}
