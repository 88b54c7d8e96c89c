//! What was really tried? A claim that nothing puts to the test holds of anything.

use std::fmt::{self, Display};
use std::ops::AddAssign;

/// How often each happened.
#[derive(Debug, Default, Clone, Copy)]
pub struct Counts {
    /// Samples that were told after their window had ended, and learned from.
    pub late_samples: u64,
    /// Of those, the ones by which a slice beside neighbours was trimmed.
    pub trimmed: u64,
    /// Made-up samples that changed a factor.
    pub lies: u64,
    /// Windows whose events were compared with what ran in them.
    pub windows: u64,
    /// Windows that were not, since the ring had been written over before who is elected read it.
    pub holes: u64,
    /// Kernels of 400 ms whose end was measured.
    pub long_kernels: u64,
    /// Jumps of the clock after which a tenth of a second went by.
    pub jumps: u64,
    pub changes: u64,
    pub deaths: u64,
    /// Processes that waited for the word and whose siblings took more than anybody may be passed over by: they would have
    /// been found starving.
    pub starvable: u64,
    pub word_waits: u64,
    pub queue_waits: u64,
    pub unknown_waits: u64,
}

impl Counts {
    /// All that must happen; holes need not.
    fn named(&self) -> [(&'static str, u64); 12] {
        [
            ("samples learned late", self.late_samples),
            ("samples that trimmed", self.trimmed),
            ("lies acted on", self.lies),
            ("windows compared", self.windows),
            ("kernels of 400 ms that ended", self.long_kernels),
            ("clock jumps survived", self.jumps),
            ("changes of terms", self.changes),
            ("deaths", self.deaths),
            ("starvation judged", self.starvable),
            ("waits for the word", self.word_waits),
            ("waits for the queue", self.queue_waits),
            ("waits for the unknown", self.unknown_waits),
        ]
    }

    /// What never happened.
    pub fn missing(&self) -> Vec<&'static str> {
        self.named().iter().filter(|(_, count)| *count == 0).map(|(name, _)| *name).collect()
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.late_samples += other.late_samples;
        self.trimmed += other.trimmed;
        self.lies += other.lies;
        self.windows += other.windows;
        self.holes += other.holes;
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
        self.named().iter().try_for_each(|(name, count)| writeln!(f, "{name:<30}{count:>12}"))?;
        writeln!(f, "{:<30}{:>12}", "windows with holes", self.holes)
    }
}
