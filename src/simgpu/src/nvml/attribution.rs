//! Use of a device by each process, as NVML reports it.

use std::collections::BTreeMap;

use crate::engine::ProcessSample;
use crate::state::device_time::process_number;
use crate::state::layout::{Process, State, life};

/// How much one process used a device over several windows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) pid: u32,
    /// End of the newest window in which the process was active, in microseconds of the monotonic clock.
    pub(super) timestamp_us: u64,
    /// Mean over all windows, also over those in which the process was idle.
    pub(super) sm: u32,
    pub(super) memory: u32,
}

/// Returns one entry for each process. `windows` are the ends of all windows. `samples` are those of
/// processes that were active in a window.
pub(super) fn shares(windows: &[u64], samples: &[ProcessSample]) -> Vec<Share> {
    let mut sums: BTreeMap<u32, Share> = BTreeMap::new();
    for sample in samples.iter().filter(|sample| windows.contains(&sample.timestamp_us)) {
        let sum = sums.entry(sample.pid).or_default();
        sum.pid = sample.pid;
        sum.timestamp_us = sum.timestamp_us.max(sample.timestamp_us);
        sum.sm += sample.sm;
        sum.memory += sample.memory;
    }
    let count = u32::try_from(windows.len()).unwrap_or(u32::MAX).max(1);
    let mean = |sum: Share| Share { sm: sum.sm / count, memory: sum.memory / count, ..sum };
    sums.into_values().map(mean).collect()
}

/// Returns the process that has this number in the engine. It is found also after its death, as long as its slot is not free.
pub(super) fn process_of(state: &State, number: u32) -> Option<&Process> {
    let known = |process: &&Process| process.life != life::FREE && process_number(process.serial) == number;
    state.processes.iter().find(known)
}
