//! A program of the demo. It allocates and frees device memory, or computes. It knows of no limit.

use super::driver::{Block, Driver, MemorySource};
use super::wire::{Counts, READY};
use crate::arguments::DemoWorker;
use crate::output::ending::Ending;
use crate::output::failure::{self, Failure};
use gpuslice_driver::types::status;
use std::io::{self, Read as _};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::thread;
use std::time::Duration;

/// Time between two steps.
const STEP_PERIOD: Duration = Duration::from_millis(2);
/// Steps between two reports.
const REPORT_EVERY: u64 = 10;
/// Steps between two requests for more than the whole device.
const GREED_EVERY: u64 = 23;
/// Steps between two requests for exactly the free memory.
const BRIM_EVERY: u64 = 31;
/// Divisors of the device's memory. They give the sizes of the smallest and the largest block.
const PARTS: (u64, u64) = (256, 16);
/// Number of pieces in which a greedy program takes all memory.
const PIECES: u64 = 32;
/// Granularity of the pieces in bytes. It is the smallest amount that `cuMemCreate` gives out.
const GRANULE: u64 = 2 << 20;
/// Number of steps, of a hundred, that allocate.
const ALLOCATING: u64 = 60;

/// Computes, or allocates and frees, until standard input ends: `gpuslice demo-worker`.
pub(crate) fn work(wish: &DemoWorker) -> Result<Ending, Failure> {
    let driver = Driver::open().map_err(Failure::new)?;
    match *wish {
        DemoWorker { seed: Some(seed), .. } => take_memory(driver, seed),
        DemoWorker { greedy: true, .. } => compute(&driver, &mut TakenMemory::default(), true),
        DemoWorker { need, .. } => {
            let mut taker = TakenMemory::default();
            if let Some(bytes) = need {
                taker.take(&driver, bytes)?;
            }
            compute(&driver, &mut taker, false)
        }
    }
}

/// Computes until standard input ends, and reports after each batch of kernels. A program that fills memory
/// reports before each batch instead.
///
/// A program that fills memory first waits until the other programs of its tenant have loaded their kernels. Otherwise
/// they would have no room for them.
fn compute(driver: &Driver, taker: &mut TakenMemory, fills: bool) -> Result<Ending, Failure> {
    let kernel = driver.kernel().map_err(Failure::new)?;
    if fills {
        failure::print(&format!("{READY}\n"))?;
        // If the input has ended, the demo has ended. The loop below finds that.
        let _count = io::stdin().read(&mut [0]);
    }
    let end = end_of_input();
    while end.try_recv() == Err(TryRecvError::Empty) {
        if fills {
            taker.fill(driver)?;
            failure::print(&taker.counts.line())?;
        }
        driver.compute(kernel).map_err(Failure::new)?;
        if !fills {
            failure::print(&taker.counts.line())?;
        }
    }
    taker.blocks.drain(..).try_for_each(|block| driver.free(block)).map_err(Failure::new)?;
    failure::print(&taker.counts.line())?;
    Ok(Ending::Code(0))
}

/// Memory that a program has allocated and keeps.
#[derive(Default)]
struct TakenMemory {
    blocks: Vec<Block>,
    counts: Counts,
}

impl TakenMemory {
    /// Allocates `bytes` at once, or fails as most programs do.
    fn take(&mut self, driver: &Driver, bytes: u64) -> Result<(), Failure> {
        let refused = |status| match status {
            status::OUT_OF_MEMORY => Failure::new("CUDA_ERROR_OUT_OF_MEMORY"),
            status => Failure::new(format!("{} returned {status}", MemorySource::Linear.name())),
        };
        self.blocks.push(driver.allocate(MemorySource::Linear, bytes).map_err(refused)?);
        self.counts.granted = self.counts.granted.saturating_add(1);
        Ok(())
    }

    /// Allocates memory in every way that the driver supports, until no memory is left.
    fn fill(&mut self, driver: &Driver) -> Result<(), Failure> {
        let (_free, total) = driver.memory().map_err(Failure::new)?;
        let piece = (total / PIECES).next_multiple_of(GRANULE);
        for source in MemorySource::ALL.into_iter().cycle() {
            match driver.allocate(source, piece) {
                Ok(block) => self.keep(block),
                Err(status::OUT_OF_MEMORY) => break,
                Err(status::NOT_SUPPORTED) if source != MemorySource::Linear => {}
                Err(status) => return Err(Failure::new(format!("{} returned {status}", source.name()))),
            }
        }
        self.counts.refused = self.counts.refused.saturating_add(1);
        let (free, _total) = driver.memory().map_err(Failure::new)?;
        // Another program of the tenant may have allocated the rest.
        if let Ok(block) = driver.allocate(MemorySource::Linear, free.max(1)) {
            self.keep(block);
        }
        Ok(())
    }

    fn keep(&mut self, block: Block) {
        self.counts.granted = self.counts.granted.saturating_add(1);
        self.blocks.push(block);
    }
}

fn take_memory(driver: Driver, seed: u64) -> Result<Ending, Failure> {
    let mut worker = Worker {
        driver,
        sources: MemorySource::ALL.to_vec(),
        blocks: Vec::new(),
        choices: Choices(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
        counts: Counts::default(),
    };
    let end = end_of_input();
    for step in 1_u64.. {
        worker.step(step)?;
        if step % REPORT_EVERY == 1 {
            failure::print(&worker.counts.line())?;
        }
        match end.recv_timeout(STEP_PERIOD) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    worker.give_everything_back()?;
    failure::print(&worker.counts.line())?;
    Ok(Ending::Code(0))
}

/// Returns a channel that closes at the end of standard input. Then the process that started this
/// program wants it to end, or is dead.
fn end_of_input() -> Receiver<()> {
    let (ended, end) = mpsc::channel();
    thread::spawn(move || {
        let _whatever_came = io::stdin().read_to_end(&mut Vec::new());
        let _nobody_waits = ended.send(());
    });
    end
}

struct Worker {
    driver: Driver,
    /// The ways to get memory that this driver supports.
    sources: Vec<MemorySource>,
    blocks: Vec<Block>,
    choices: Choices,
    counts: Counts,
}

impl Worker {
    fn step(&mut self, number: u64) -> Result<(), Failure> {
        // The driver reports the slice's quota to the program as the size of the device.
        let (free, total) = self.driver.memory().map_err(Failure::new)?;
        if number.is_multiple_of(GREED_EVERY) {
            return self.allocate(total.saturating_add(1));
        }
        if number.is_multiple_of(BRIM_EVERY) && free > 0 {
            return self.allocate(free);
        }
        if self.choices.below(100) < ALLOCATING {
            let (least, most) = (total / PARTS.0, total / PARTS.1);
            let bytes = least.saturating_add(self.choices.below(most.saturating_sub(least).max(1)));
            return self.allocate(bytes.max(1));
        }
        self.free_one()
    }

    fn allocate(&mut self, bytes: u64) -> Result<(), Failure> {
        let Some(source) = self.choices.one_of(&self.sources) else {
            return Err(Failure::new(
                "the driver supports none of cuMemAlloc, cuMemCreate and cuMemAllocAsync",
            ));
        };
        match self.driver.allocate(source, bytes) {
            Ok(block) => {
                self.counts.granted = self.counts.granted.saturating_add(1);
                self.blocks.push(block);
                Ok(())
            }
            Err(status::OUT_OF_MEMORY) => {
                self.counts.refused = self.counts.refused.saturating_add(1);
                self.free_one()
            }
            Err(status::NOT_SUPPORTED) => {
                self.sources.retain(|other| *other != source);
                failure::note(&format!("{} is not supported here; going on without it", source.name()));
                Ok(())
            }
            Err(status) => Err(Failure::new(format!("{} returned {status}", source.name()))),
        }
    }

    fn free_one(&mut self) -> Result<(), Failure> {
        if self.blocks.is_empty() {
            return Ok(());
        }
        let place = usize::try_from(self.choices.below(self.blocks.len() as u64)).unwrap_or(0);
        self.driver.free(self.blocks.swap_remove(place)).map_err(Failure::new)
    }

    fn give_everything_back(&mut self) -> Result<(), Failure> {
        self.blocks.drain(..).try_for_each(|block| self.driver.free(block)).map_err(Failure::new)
    }
}

/// A sequence of pseudo-random numbers (xorshift). The same seed always gives the same sequence.
struct Choices(u64);

impl Choices {
    /// Returns a number below `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.checked_rem(bound).unwrap_or(0)
    }

    fn one_of<T: Copy>(&mut self, things: &[T]) -> Option<T> {
        let place = usize::try_from(self.below(things.len() as u64)).ok()?;
        things.get(place).copied()
    }
}
