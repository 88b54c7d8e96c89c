//! Tests the reservation for graphs against a driver that keeps to its manual: it never holds more than is reserved.

use gpuslice_policy::sizes::graph::{GRAPH_PAGE, GraphPool, GraphReading};
use proptest::prelude::*;

/// A driver's graph pool. It takes memory from the device if the graphs in use need more than the pool holds.
#[derive(Debug, Default)]
struct Driver {
    unit: u64,
    reserved: u64,
    /// Bytes of each executable, and whether it is in use. Destroyed executables come after living ones.
    living: Vec<(u64, bool)>,
    gone: Vec<(u64, bool)>,
}

impl Driver {
    fn in_use(&self) -> u64 {
        let both = self.living.iter().chain(&self.gone).filter(|(_, used)| *used);
        both.map(|(pages, _)| pages.next_multiple_of(self.unit)).sum()
    }

    fn use_of(list: &mut [(u64, bool)], which: usize) -> Option<&mut bool> {
        let count = list.len();
        list.get_mut(which.checked_rem(count)?).map(|(_, used)| used)
    }
}

/// A step of the test.
#[derive(Debug, Clone)]
enum Step {
    Make(u64),
    Launch(usize),
    Done(usize),
    End(usize),
    /// A destroyed executable is not in use any more.
    Free(usize),
    Trim,
    BeginReading,
    /// The driver answers a reading in progress.
    Answer(usize),
    EndReading(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1_u64..40).prop_map(|pages| Step::Make(pages * GRAPH_PAGE)),
        any::<usize>().prop_map(Step::Launch),
        any::<usize>().prop_map(Step::Done),
        any::<usize>().prop_map(Step::End),
        any::<usize>().prop_map(Step::Free),
        Just(Step::Trim),
        Just(Step::BeginReading),
        any::<usize>().prop_map(Step::Answer),
        any::<usize>().prop_map(Step::EndReading),
    ]
}

fn run(
    driver: &mut Driver,
    pool: &mut GraphPool,
    readings: &mut Vec<(GraphReading, Option<u64>)>,
    step: &Step,
) {
    match *step {
        Step::Make(pages) => {
            pool.begin(pages);
            driver.living.push((pages, false));
        }
        Step::Launch(which) => {
            if let Some(used) = Driver::use_of(&mut driver.living, which) {
                *used = true;
                driver.reserved = driver.reserved.max(driver.in_use());
            }
        }
        Step::Done(which) => {
            if let Some(used) = Driver::use_of(&mut driver.living, which) {
                *used = false;
            }
        }
        Step::End(which) if !driver.living.is_empty() => {
            let ended = driver.living.swap_remove(which % driver.living.len());
            pool.end(ended.0);
            driver.gone.push(ended);
        }
        Step::Free(which) => {
            if let Some(used) = Driver::use_of(&mut driver.gone, which) {
                *used = false;
            }
        }
        Step::Trim => driver.reserved = driver.in_use(),
        Step::BeginReading => {
            let reading = pool.begin_reading();
            readings.push((reading, None));
        }
        Step::Answer(which) if !readings.is_empty() => {
            let count = readings.len();
            if let Some((_, answer)) = readings.get_mut(which % count) {
                answer.get_or_insert(driver.reserved);
            }
        }
        Step::EndReading(which) if !readings.is_empty() => {
            let (reading, answer) = readings.swap_remove(which % readings.len());
            let reserved = answer.unwrap_or(driver.reserved);
            let before = pool.owed();
            let _used = pool.end_reading(&reading, reserved);
            // The driver takes nothing beyond the owed bytes, so no answer can increase them.
            assert!(pool.owed() <= before, "{reserved} read late: {} is owed after {before}", pool.owed());
        }
        Step::End(_) | Step::Answer(_) | Step::EndReading(_) => {}
    }
}

proptest! {
    /// Checks that the bound holds at every instant, even if all living executables were launched at once.
    #[test]
    fn the_reservation_covers_all_that_the_driver_can_take(
        size in 0_u32..5,
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let mut driver = Driver { unit: GRAPH_PAGE << size, ..Driver::default() };
        let (mut pool, mut readings) = (GraphPool::default(), Vec::new());
        for step in &steps {
            run(&mut driver, &mut pool, &mut readings, step);
            let living: u64 = driver.living.iter().map(|(pages, _)| pages.next_multiple_of(driver.unit)).sum();
            let gone = driver.gone.iter().filter(|(_, used)| *used);
            let gone: u64 = gone.map(|(pages, _)| pages.next_multiple_of(driver.unit)).sum();
            prop_assert!(driver.reserved.max(living + gone) <= pool.owed(), "after {step:?}: {driver:?}, {pool:?}");
        }
        // At the end nothing is owed.
        while !driver.living.is_empty() {
            run(&mut driver, &mut pool, &mut readings, &Step::End(0));
        }
        driver.gone.clear();
        driver.reserved = 0;
        let last = pool.begin_reading();
        prop_assert!(pool.end_reading(&last, 0));
        prop_assert_eq!(pool.owed(), 0);
    }
}
