//! Counts the cases that the seeds reached, since a claim without cases proves nothing.

use std::fmt::{self, Display};
use std::ops::AddAssign;

/// Number of times that each case happened.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counts {
    /// Kernels of 400 ms with a measured end.
    pub long_kernels: u64,
    /// Clock jumps that were followed by a tenth of a second.
    pub jumps: u64,
    pub changes: u64,
    pub deaths: u64,
    /// Processes that waited for the word while their siblings took more than the bound. For them the check of starvation
    /// could have failed.
    pub starvable: u64,
    pub word_waits: u64,
    pub queue_waits: u64,
    pub unknown_waits: u64,
}

impl Counts {
    /// Returns all cases, each with a name. Every case must occur.
    fn named(&self) -> [(&'static str, u64); 8] {
        [
            ("kernels of 400 ms that ended", self.long_kernels),
            ("clock jumps survived", self.jumps),
            ("changes of the rate limit", self.changes),
            ("deaths", self.deaths),
            ("starvation judged", self.starvable),
            ("waits for the word", self.word_waits),
            ("waits for the queue", self.queue_waits),
            ("waits for the unknown", self.unknown_waits),
        ]
    }

    /// Returns the cases that never occurred.
    pub fn missing(&self) -> Vec<&'static str> {
        self.named().iter().filter(|(_, count)| *count == 0).map(|(name, _)| *name).collect()
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.long_kernels += other.long_kernels;
        self.jumps += other.jumps;
        self.changes += other.changes;
        self.deaths += other.deaths;
        self.starvable += other.starvable;
        self.word_waits += other.word_waits;
        self.queue_waits += other.queue_waits;
        self.unknown_waits += other.unknown_waits;
    }
}

impl Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.named().iter().try_for_each(|(name, count)| writeln!(f, "{name:<30}{count:>12}"))
    }
}
