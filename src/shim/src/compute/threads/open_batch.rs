//! A batch that launches still go into, and the busy period of a stream.

use crate::driver_calls::events::Event;
use crate::os::clock;
use gpuslice_policy::compute::measuring::batch::{Run, Spell};

/// A batch that is not closed. Instants are cycles of `clock` unless they say otherwise.
#[derive(Debug)]
pub(crate) struct OpenBatch {
    pub(crate) run: Run,
    /// Recorded before its first launch; none where events fail.
    pub(crate) start: Option<Event>,
    /// When that was, on the monotonic clock, as events are.
    pub(crate) opened: u64,
    /// When that was, in cycles.
    pub(crate) since: u64,
    /// How long after that the event passes where the stream is known to be empty, in nanoseconds.
    pub(crate) delay: u64,
    /// For how long the host was outside the driver between its launches, in cycles.
    pub(crate) gaps: u64,
    /// True if the host had waited for the stream.
    pub(crate) known_idle: bool,
    /// True if it is a launch of unknown cost.
    pub(crate) is_unknown: bool,
    /// True if it is a copy that is not paid for.
    pub(crate) is_copy: bool,
}

impl OpenBatch {
    /// Its first launch has left the driver at `now`.
    pub(crate) fn lead(&mut self, now: u64) {
        self.run.lead(clock::between(now, self.since).saturating_sub(self.delay));
    }
}

/// The busy period of a stream: it was empty, had its first launch then, and has not been waited for since. In cycles.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BusySince {
    pub(crate) at: u64,
    /// How long the host had been outside the driver in sum.
    pub(crate) outside: u64,
    pub(crate) spell: Spell,
}

impl BusySince {
    /// For how many nanoseconds the host was inside the driver until `now`, when it had been outside for `outside` in sum.
    pub(crate) fn inside(&self, now: u64, outside: u64) -> u64 {
        clock::between(now.saturating_sub(self.at), outside.saturating_sub(self.outside))
    }
}
