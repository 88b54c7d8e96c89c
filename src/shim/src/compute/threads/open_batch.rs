//! An open batch, which launches still join, and the busy period of a stream.

use crate::driver_calls::events::Event;
use crate::os::clock::{CycleInstant, Cycles};
use gpuslice_policy::compute::measuring::batch::{Batch, Spell};
use gpuslice_policy::time::{Monotonic, WallTime};

/// A batch that is not closed.
#[derive(Debug)]
pub(crate) struct OpenBatch {
    pub(crate) batch: Batch,
    /// Event before its first launch; `None` if events fail.
    pub(crate) start: Option<Event>,
    /// Instant at which the opening event was recorded.
    pub(crate) opened: Monotonic,
    /// The same instant by the time stamp counter.
    pub(crate) since: CycleInstant,
    /// Time from that instant until the GPU passes the event, if the stream is known to be empty.
    pub(crate) delay: WallTime,
    /// Time of the host outside the driver between its launches.
    pub(crate) gaps: Cycles,
    /// True if the host had waited for the stream before the batch was opened.
    pub(crate) known_idle: bool,
    /// True if the batch is one launch of unknown cost.
    pub(crate) is_unknown: bool,
    /// True if the batch is a copy that is not paid for.
    pub(crate) is_copy: bool,
}

impl OpenBatch {
    /// Notes that the first launch has left the driver at `now`. The stream may have been idle from the opening event until then.
    ///
    /// The `delay` is subtracted: during that time the opening event itself waited behind an earlier event.
    pub(crate) fn first_launch_returned(&mut self, now: CycleInstant) {
        self.batch.set_idle_before_first(now.since(self.since).wall_time().saturating_sub(self.delay));
    }
}

/// Start of a busy period of a stream. The stream was empty, then had its first launch, and the host has not waited for it since.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BusySince {
    pub(crate) at: CycleInstant,
    /// Sum of the host's time outside the driver, at the start of the period.
    pub(crate) outside: Cycles,
    pub(crate) spell: Spell,
}

impl BusySince {
    /// Returns the time that the host was inside the driver from the start of the period until `now`. `outside`: the sum of
    /// its time outside the driver at `now`.
    pub(crate) fn inside(&self, now: CycleInstant, outside: Cycles) -> WallTime {
        now.since(self.at).minus(outside.minus(self.outside)).wall_time()
    }
}
