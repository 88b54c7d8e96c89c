//! Upper bound of the device memory of a process's graphs.
//!
//! The driver takes memory for a graph at a launch or an upload, and a launch must not fail. So the memory that an
//! executable can ever need counts from its creation on. The sum over all executables is the memory that may be in use at
//! once, with each executable in its own stream.
//!
//! A destroyed executable leaves its memory in the driver's pool. The memory may be in use: the last launch may still run,
//! and memory that the graph did not free stays. It counts until the driver's own figure shows that the pool holds less.
//!
//! The bound holds for two reasons. The driver uses the memory of its pool before it takes more. At any instant the graphs
//! need no more than the sum, and the driver took no more than the sum before.

/// Mapping unit of graph memory: the size of a GPU's large page, in bytes.
pub const GRAPH_PAGE: u64 = 2 << 20;

/// Largest unit in which the driver takes graph memory from the device, in bytes. Drivers of the 12 and 13 series use
/// it. Two executables never use one unit at the same time.
pub const GRAPH_UNIT: u64 = 32 << 20;

/// Number of possible units: powers of two from a page to [`GRAPH_UNIT`].
const UNIT_SIZES: usize = 5;

const _: () = assert!(GRAPH_PAGE << (UNIT_SIZES - 1) == GRAPH_UNIT);

/// Returns the bytes of the pages that the ranges `(address, bytes)` touch. A page in several ranges counts once.
///
/// The driver gives an allocation its address when the node of the allocation is created. Allocations that can share memory
/// have the same address. So this is the most memory that a graph can need.
#[must_use]
pub fn pages(ranges: &[(u64, u64)]) -> u64 {
    let page = |address: u64| address / GRAPH_PAGE;
    let mut spans: Vec<(u64, u64)> = ranges
        .iter()
        .filter(|(_, bytes)| *bytes > 0)
        .map(|(address, bytes)| (page(*address), page(address.saturating_add(bytes.saturating_sub(1)))))
        .collect();
    spans.sort_unstable();
    let (mut count, mut next) = (0_u64, 0_u64);
    for (first, last) in spans {
        let first = first.max(next);
        if last >= first {
            count = count.saturating_add(last.saturating_sub(first)).saturating_add(1);
            next = last.saturating_add(1);
        }
    }
    count.saturating_mul(GRAPH_PAGE)
}

/// The graph memory of a process on a device.
#[derive(Debug, Default)]
pub struct GraphPool {
    /// Executables that exist or are being created.
    living: Sums,
    /// Executables that are destroyed.
    gone: Sums,
    /// The bitwise or of all figures of the driver so far. Each figure was a multiple of the driver's unit.
    seen: u64,
    /// Number of destroyed executables.
    ends: u64,
    /// Number of readings of the driver's figure that have begun. `newest` is the newest one that is included in the sums.
    readings: u64,
    newest: u64,
}

/// The same executables, counted in units of each size.
#[derive(Debug, Default, Clone, Copy)]
struct Sums([u64; UNIT_SIZES]);

/// A reading of the driver's figure in progress.
#[derive(Debug)]
pub struct GraphReading {
    number: u64,
    ends: u64,
    /// The newest included reading at the beginning of this one.
    newest: u64,
}

impl GraphPool {
    /// Returns the bytes that must be reserved.
    #[must_use]
    pub fn owed(&self) -> u64 {
        self.of(self.living).saturating_add(self.of(self.gone))
    }

    /// Returns the bytes of destroyed executables that the pool may still hold.
    #[must_use]
    pub fn left_behind(&self) -> u64 {
        self.of(self.gone)
    }

    /// Returns the sum for the largest unit that the driver may use.
    fn of(&self, sums: Sums) -> u64 {
        let mut sizes = sums.0.iter().enumerate().rev().map(|(size, sum)| (GRAPH_PAGE << size, *sum));
        let largest = sizes.find(|(unit, _)| self.seen.is_multiple_of(*unit));
        largest.map(|(_, sum)| sum).or_else(|| sums.0.first().copied()).unwrap_or(0)
    }

    /// Begins the creation of an executable that needs `pages` bytes.
    pub fn begin(&mut self, pages: u64) {
        self.living.add(pages);
    }

    /// Cancels a creation before the driver is called.
    pub fn cancel(&mut self, pages: u64) {
        self.living.subtract(pages);
    }

    /// Ends an executable. The pool keeps its memory.
    pub fn end(&mut self, pages: u64) {
        self.living.subtract(pages);
        self.gone.add(pages);
        self.ends = self.ends.wrapping_add(1);
    }

    /// Begins a reading of the driver's figure.
    pub fn begin_reading(&mut self) -> GraphReading {
        self.readings = self.readings.wrapping_add(1);
        GraphReading { number: self.readings, ends: self.ends, newest: self.newest }
    }

    /// Ends a reading with the driver's figure: destroyed executables hold no more than this figure. Returns false if the
    /// figure cannot be used, for one of two reasons:
    ///
    /// - An executable has ended meanwhile. Its memory may be missing in the figure.
    /// - The figure exceeds the memory that this pool explains, and another reading was included meanwhile. The other
    ///   reading may have been lower.
    pub fn end_reading(&mut self, reading: &GraphReading, reserved: u64) -> bool {
        if reading.ends != self.ends {
            return false;
        }
        if reading.number < self.newest {
            return true;
        }
        if reserved > self.owed() && reading.newest != self.newest {
            return false;
        }
        self.newest = reading.number;
        self.seen |= reserved;
        self.gone.change(|gone, unit| gone.min(rounded(reserved, unit)));
        // Memory that this pool does not explain counts all the same.
        let unexplained = reserved.saturating_sub(self.owed());
        self.gone.change(|gone, unit| gone.saturating_add(rounded(unexplained, unit)));
        true
    }
}

impl Sums {
    fn change(&mut self, to: impl Fn(u64, u64) -> u64) {
        for (size, sum) in self.0.iter_mut().enumerate() {
            *sum = to(*sum, GRAPH_PAGE << size);
        }
    }

    fn add(&mut self, pages: u64) {
        self.change(|sum, unit| sum.saturating_add(rounded(pages, unit)));
    }

    fn subtract(&mut self, pages: u64) {
        self.change(|sum, unit| sum.saturating_sub(rounded(pages, unit)));
    }
}

fn rounded(bytes: u64, unit: u64) -> u64 {
    bytes.checked_next_multiple_of(unit).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn read(pool: &mut GraphPool, reserved: u64) -> bool {
        let reading = pool.begin_reading();
        pool.end_reading(&reading, reserved)
    }

    #[test]
    fn addresses_that_are_used_twice_count_once() {
        let at = 1 << 40;
        assert_eq!(pages(&[(at, 64 * MIB), (at, 32 * MIB)]), 64 * MIB);
        assert_eq!(pages(&[(at, 1), (at + 512, 1)]), GRAPH_PAGE);
        assert_eq!(pages(&[(at + 16 * MIB, 16 * MIB), (at, 20 * MIB)]), 32 * MIB);
        assert_eq!(pages(&[(at, 1), (at + GRAPH_PAGE, 1), (at, 0)]), 2 * GRAPH_PAGE);
        assert_eq!(pages(&[(at + GRAPH_PAGE - 1, 2)]), 2 * GRAPH_PAGE);
        assert_eq!(pages(&[]), 0);
        assert_eq!(pages(&[(u64::MAX, u64::MAX)]), GRAPH_PAGE);
    }

    #[test]
    fn executables_count_together_since_each_may_run_in_a_stream_of_its_own() {
        let mut pool = GraphPool::default();
        pool.begin(64 * MIB);
        pool.begin(32 * MIB);
        assert_eq!(pool.owed(), 96 * MIB);
        pool.cancel(32 * MIB);
        assert_eq!((pool.owed(), pool.left_behind()), (64 * MIB, 0));
    }

    #[test]
    fn trimmed_memory_is_not_owed_again_by_an_answer_from_before_the_trim() {
        let mut pool = GraphPool::default();
        pool.begin(64 * MIB);
        pool.end(64 * MIB);
        // The driver answers the later reading before the trim.
        let (after, before) = (pool.begin_reading(), pool.begin_reading());
        assert!(pool.end_reading(&after, 0));
        assert!(!pool.end_reading(&before, 64 * MIB));
        assert_eq!(pool.owed(), 0);
        // Without another reading in between, the figure counts, whatever its reason.
        assert!(read(&mut pool, 64 * MIB));
        assert_eq!(pool.owed(), 64 * MIB);
    }

    #[test]
    fn memory_of_ended_graphs_counts_until_the_driver_says_that_its_pool_holds_less() {
        let mut pool = GraphPool::default();
        pool.begin(64 * MIB);
        pool.end(64 * MIB);
        assert_eq!(pool.owed(), 64 * MIB);
        assert!(read(&mut pool, 64 * MIB));
        assert_eq!(pool.owed(), 64 * MIB);
        pool.begin(64 * MIB);
        assert_eq!(pool.owed(), 128 * MIB);
        assert!(read(&mut pool, 32 * MIB));
        assert_eq!(pool.owed(), 96 * MIB);
        assert!(read(&mut pool, 0));
        assert_eq!((pool.owed(), pool.left_behind()), (64 * MIB, 0));
    }

    #[test]
    fn a_reading_does_not_cover_graphs_that_ended_while_it_was_taken() {
        let mut pool = GraphPool::default();
        pool.begin(64 * MIB);
        let early = pool.begin_reading();
        pool.end(64 * MIB);
        assert!(!pool.end_reading(&early, 0));
        assert_eq!(pool.owed(), 64 * MIB);
    }

    #[test]
    fn an_older_reading_does_not_replace_a_newer_one() {
        let mut pool = GraphPool::default();
        pool.begin(64 * MIB);
        pool.end(64 * MIB);
        let (older, newer) = (pool.begin_reading(), pool.begin_reading());
        assert!(pool.end_reading(&newer, 0) && pool.end_reading(&older, 64 * MIB));
        assert_eq!(pool.owed(), 0);
    }

    #[test]
    fn small_executables_cost_a_unit_each_until_the_driver_is_seen_to_take_less() {
        let mut pool = GraphPool::default();
        pool.begin(GRAPH_PAGE);
        pool.begin(GRAPH_PAGE);
        assert_eq!(pool.owed(), 2 * GRAPH_UNIT);
        assert!(read(&mut pool, GRAPH_UNIT));
        assert_eq!(pool.owed(), 2 * GRAPH_UNIT, "a whole unit says nothing");
        assert!(read(&mut pool, GRAPH_PAGE));
        assert_eq!(pool.owed(), 2 * GRAPH_PAGE);
        pool.end(GRAPH_PAGE);
        assert!(read(&mut pool, 0));
        assert_eq!(pool.owed(), GRAPH_PAGE);
    }

    #[test]
    fn a_unit_in_between_is_found_and_never_undercut() {
        let mut pool = GraphPool::default();
        pool.begin(GRAPH_PAGE);
        for (reserved, owed) in [(16 * MIB, 16 * MIB), (24 * MIB, 24 * MIB), (64 * MIB, 64 * MIB)] {
            assert!(read(&mut pool, reserved));
            assert_eq!(pool.owed(), owed);
        }
        assert!(read(&mut pool, 8 * MIB));
        assert_eq!(pool.owed(), 16 * MIB, "unexplained bytes are not forgotten while the pool holds them");
        assert!(read(&mut pool, 0));
        assert_eq!(pool.owed(), 8 * MIB);
    }

    #[test]
    fn more_than_can_be_explained_counts_all_the_same() {
        let mut pool = GraphPool::default();
        pool.begin(GRAPH_UNIT);
        assert!(read(&mut pool, 3 * GRAPH_UNIT));
        assert_eq!(pool.owed(), 3 * GRAPH_UNIT);
        assert!(read(&mut pool, GRAPH_UNIT));
        assert_eq!(pool.owed(), 2 * GRAPH_UNIT);
        assert!(read(&mut pool, 0));
        assert_eq!(pool.owed(), GRAPH_UNIT);
    }
}
