//! A batch that launches still join, and the busy period of a stream.

use crate::driver_calls::events::Event;
use crate::os::clock::{CycleInstant, Cycles};
use gpuslice_policy::compute::measuring::batch::{Batch, Spell};
use gpuslice_policy::time::{Monotonic, WallTime};

/// A batch that is not closed.
#[derive(Debug)]
pub(crate) struct OpenBatch {
    pub(crate) batch: Batch,
    /// Event recorded before its first launch; none if events fail.
    pub(crate) start: Option<Event>,
    /// Instant of that event.
    pub(crate) opened: Monotonic,
    /// The same instant by the time stamp counter.
    pub(crate) since: CycleInstant,
    /// How long after that instant the event passes if the stream is known to be empty.
    pub(crate) delay: WallTime,
    /// Time of the host outside the driver between its launches.
    pub(crate) gaps: Cycles,
    /// True if the host had waited for the stream.
    pub(crate) known_idle: bool,
    /// True if it is a launch of unknown cost.
    pub(crate) is_unknown: bool,
    /// True if it is a copy that is not paid for.
    pub(crate) is_copy: bool,
}

impl OpenBatch {
    /// Notes that the first launch has left the driver at `now`. The stream may have been idle from the opening event until then.
    ///
    /// The `delay` is taken off: for that long the event itself waited behind an earlier one and had not passed.
    pub(crate) fn first_launch_returned(&mut self, now: CycleInstant) {
        self.batch.set_idle_before_first(now.since(self.since).wall_time().saturating_sub(self.delay));
    }
}

/// Busy period of a stream: the stream was empty, had its first launch then, and the host has not waited for it since.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BusySince {
    pub(crate) at: CycleInstant,
    /// Sum of the host's time outside the driver, at that instant.
    pub(crate) outside: Cycles,
    pub(crate) spell: Spell,
}

impl BusySince {
    /// Returns for how long the host was inside the driver until `now`. `outside`: the sum of its time outside at
    /// `now`.
    pub(crate) fn inside(&self, now: CycleInstant, outside: Cycles) -> WallTime {
        now.since(self.at).minus(outside.minus(self.outside)).wall_time()
    }
}
