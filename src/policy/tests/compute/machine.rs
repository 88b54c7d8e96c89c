//! The machine of a world: its GPU, its driver and its clocks.

use crate::shim::Readings;

/// The source of measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meter {
    Events,
    /// Only NVML's samples.
    Nvml,
}

/// Properties of the machine.
#[derive(Debug, Clone, Copy)]
pub struct Machine {
    /// Length of a time slice between processes, and the cost of a switch.
    pub slice: u64,
    pub switch: u64,
    /// True if a process without competitors begins another slice when its own is over.
    pub renews: bool,
    /// True if an event passes only in a slice of its process.
    pub waits: bool,
    /// Time for which an event occupies its stream.
    pub event: u64,
    /// Time of a launch inside the driver, and time to return after the GPU is done.
    pub launch: u64,
    pub back: u64,
    /// Largest delay of wake-ups.
    pub late: u64,
    /// Launches in a stream before the driver blocks.
    pub depth: usize,
    pub readings: Readings,
    /// Length of NVML's windows, and their delay.
    pub nvml: (u64, u64),
    /// True if slices read the published intervals of others.
    pub rings: bool,
    pub meter: Meter,
    /// Number of first launches of a process that return late, and their delay after their kernels may begin. The
    /// thread loses its processor inside the driver.
    pub held: (u64, u64),
}

impl Machine {
    /// Returns the same machine with events that take no time.
    pub fn with_free_events(self) -> Self {
        Self { event: 0, ..self }
    }
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            slice: 2_000_000,
            switch: 50_000,
            renews: false,
            waits: false,
            event: 2_500,
            rings: true,
            launch: 2_500,
            back: 3_000,
            late: 60_000,
            depth: 1024,
            readings: Readings { drift: 20, resolution: 500, origin: 1 << 40 },
            nvml: (166_666_667, 20_000_000),
            meter: Meter::Events,
            held: (0, 0),
        }
    }
}
