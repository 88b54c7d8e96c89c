//! The GPU and the signals of a demo, and the waits in it.

use super::stage::{Simulation, Stage, Truth};
use crate::output::failure::Failure;
use crate::system::Signals;
use std::time::{Duration, Instant};

/// Time between two looks.
pub(super) const LOOK: Duration = Duration::from_millis(10);
/// Longest time for the start of programs, and longest time for their end.
pub(super) const LONGEST_START_OR_END: Duration = Duration::from_secs(30);

/// Reason why the demo did not finish.
pub(super) enum DemoEnd {
    Failed(Failure),
    Signal(i32),
}

impl From<Failure> for DemoEnd {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// The GPU and the signals of a demo.
#[derive(Clone, Copy)]
pub(super) struct DemoContext<'a> {
    pub(super) stage: &'a Stage,
    pub(super) signals: &'a Signals,
}

impl DemoContext<'_> {
    /// Waits until the next look. Fails if a signal ends the demo.
    pub(super) fn wait(self) -> Result<(), DemoEnd> {
        match self.signals.within(LOOK) {
            Some(arrived) => Err(DemoEnd::Signal(arrived.number)),
            None => Ok(()),
        }
    }

    /// Waits until the next look. Fails if programs that have been starting since `began` take longer
    /// than [`LONGEST_START_OR_END`].
    pub(super) fn patiently(self, began: Instant) -> Result<(), DemoEnd> {
        if began.elapsed() > LONGEST_START_OR_END {
            let why = "the programs of the demo do not start; look whether the GPU works";
            return Err(Failure::new(why).into());
        }
        self.wait()
    }

    /// Returns the figures of the simulated GPU, or `None` on a real GPU.
    pub(super) fn truth(self) -> Result<Option<Truth>, DemoEnd> {
        Ok(self.stage.simulation.as_ref().map(Simulation::truth).transpose()?)
    }
}
