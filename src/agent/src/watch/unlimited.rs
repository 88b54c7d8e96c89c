//! Finds processes that use the node's GPUs without the library. Logs each such process of a container once.

use super::regions::program_of;
use crate::gpus::Gpu;
use gpuslice_slices::discovery::Container;
use gpuslice_slices::process::command_here;
use gpuslice_slices::unlimited::{UnlimitedProcess, unlimited};
use std::collections::BTreeSet;
use tracing::warn;

/// The processes without the library.
#[derive(Debug, Default)]
pub(super) struct UnlimitedProcesses(Vec<UnlimitedProcess>);

impl UnlimitedProcesses {
    /// Checks the processes that NVML lists. Logs those without the library that were not known before.
    pub(super) fn search(&mut self, gpus: &[Gpu], containers: &[Container]) {
        let pids: BTreeSet<u32> =
            gpus.iter().filter_map(|gpu| gpu.users.as_ref()).flatten().copied().collect();
        let found = unlimited(&pids, containers);
        found.iter().filter(|process| !self.0.contains(process)).for_each(tell);
        self.0 = found;
    }

    /// Returns the processes that the last search found.
    pub(super) fn all(&self) -> &[UnlimitedProcess] {
        &self.0
    }
}

/// Logs a process of a container. Programs of the host are not logged, because their user runs them without limits on purpose.
fn tell(process: &UnlimitedProcess) {
    let Some(container) = &process.container else { return };
    let program = command_here(process.pid).map(|command| program_of(&command)).unwrap_or_default();
    let name = container.name.as_deref().unwrap_or_default();
    warn!(
        pid = process.pid,
        container = %container.short(),
        name,
        program,
        "uses a GPU without libgpuslice.so: no limit holds for it; `gpuslice doctor` in the container tells why"
    );
}
