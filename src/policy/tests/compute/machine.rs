//! The machine of a world: its GPU, its driver and its clocks.

use gpuslice_policy::time::WallTime;
use gpuslice_policy::time::literals::{ms, ns, us};

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
    pub slice: WallTime,
    pub switch: WallTime,
    /// True if a process without competitors begins another time slice when its own is over.
    pub renews: bool,
    /// True if an event passes only in a time slice of its process.
    pub waits: bool,
    /// Time for which an event occupies its stream.
    pub event: WallTime,
    /// Time of a launch inside the driver. Then the time that a waiting host needs to return after the GPU has ended.
    pub launch: WallTime,
    pub back: WallTime,
    /// Largest delay of wake-ups.
    pub late: WallTime,
    /// Number of launches in a stream from which on the driver blocks.
    pub depth: usize,
    pub readings: Readings,
    /// Length of NVML's windows, and their delay.
    pub nvml: (WallTime, WallTime),
    /// True if slices read the published intervals of others.
    pub rings: bool,
    pub meter: Meter,
    /// Number of first launches of a process that return late, and the delay of the return after their kernels may begin.
    /// The thread loses its processor inside the driver.
    pub held: (u64, WallTime),
}

impl Machine {
    /// Returns the same machine with events that take no time.
    pub fn with_free_events(self) -> Self {
        Self { event: WallTime::ZERO, ..self }
    }
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            slice: us(1_024),
            switch: us(50),
            renews: false,
            waits: false,
            event: ns(2_500),
            rings: true,
            launch: ns(2_500),
            back: us(3),
            late: us(60),
            depth: 1024,
            readings: Readings { drift: 20, resolution: 500, origin: 1 << 40 },
            nvml: (ns(166_666_667), ms(20)),
            meter: Meter::Events,
            held: (0, WallTime::ZERO),
        }
    }
}
