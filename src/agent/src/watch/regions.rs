//! Reads the devices and processes of open regions.

use crate::gpus::{Gpu, bare};
use crate::snapshot::{Device, Process};
use gpuslice_region::{DeviceFigures, ProcessView, Reader, RegionError};
use gpuslice_slices::discovery::Machine;
use gpuslice_slices::process::{command_here, short_command};

/// Most processes of a slice that the agent lists. A tenant can enter any number of processes, and each costs reads of `/proc`.
const MOST_PROCESSES: usize = 64;

/// The sources of facts about processes.
#[derive(Debug, Clone, Copy)]
pub(super) struct LookUp<'a> {
    pub(super) machine: &'a Machine,
    /// True if the agent shows the arguments of commands.
    pub(super) arguments: bool,
}

/// Returns the devices of a region. Leaves out a device that the node cannot have, because a tenant can write any UUID: each one
/// would be a series of metrics. `also` names a device that counts as one of the node.
pub(super) fn devices(reader: &Reader, gpus: &[Gpu], also: Option<&str>) -> Result<Vec<Device>, RegionError> {
    let device = |read: &DeviceFigures| {
        let text = read.uuid.to_string();
        let uuid = name_of(&text, gpus, also)?;
        let known = gpus.iter().find(|gpu| bare(&gpu.uuid) == text);
        let memory_unaccounted = known.and_then(|gpu| gpu.unaccounted.get(reader.path()).copied());
        Some(Device::of(reader, read, uuid).map(|device| Device { memory_unaccounted, ..device }))
    };
    reader.devices()?.iter().filter_map(device).collect()
}

/// Returns the name of a device with this UUID, or none if the node cannot have it. NVML does not list instances (MIG).
fn name_of(uuid: &str, gpus: &[Gpu], also: Option<&str>) -> Option<String> {
    if let Some(gpu) = gpus.iter().find(|gpu| bare(&gpu.uuid) == uuid) {
        return Some(gpu.uuid.clone());
    }
    let is_possible = gpus.is_empty() || gpus.iter().any(Gpu::is_divided) || also.map(bare) == Some(uuid);
    is_possible.then(|| format!("GPU-{uuid}"))
}

/// Returns the processes of a region, if `look_up` is given.
pub(super) fn processes(reader: &Reader, look_up: Option<LookUp<'_>>) -> Result<Vec<Process>, RegionError> {
    let Some(look_up) = look_up else { return Ok(Vec::new()) };
    Ok(told(&reader.processes()?, |process| look_up.number_and_command(process)))
}

fn told(
    processes: &[ProcessView],
    look_up: impl Fn(&ProcessView) -> (Option<u32>, Option<String>),
) -> Vec<Process> {
    let process = |process: &ProcessView| {
        let (host_pid, command) = look_up(process);
        let memory_used = process.held.iter().copied().fold(0, u64::saturating_add);
        Process { pid: process.pid, host_pid, command, memory_used }
    };
    processes.iter().take(MOST_PROCESSES).map(process).collect()
}

impl LookUp<'_> {
    fn number_and_command(&self, process: &ProcessView) -> (Option<u32>, Option<String>) {
        let number = self.machine.number_of(process);
        let command = number.and_then(command_here);
        (number, command.map(|command| if self.arguments { command } else { program_of(&command) }))
    }
}

/// Returns the program of a command without its arguments, because arguments may be secret.
pub(super) fn program_of(command: &str) -> String {
    let command = short_command(command);
    command.split(' ').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpus::Obstacle;

    #[test]
    fn the_program_is_shown_without_its_arguments() {
        for (command, program) in [
            ("/usr/bin/python3 serve.py --token=x", "python3"),
            ("a.out", "a.out"),
            ("nginx: worker", "nginx:"),
            ("", ""),
        ] {
            assert_eq!(program_of(command), program);
        }
    }

    #[test]
    fn a_device_that_the_node_cannot_have_is_not_shown() {
        let gpu = |obstacle| Gpu { uuid: "GPU-a".to_owned(), obstacle, ..Gpu::default() };
        let (whole, divided) = ([gpu(None)], [gpu(Some(Obstacle::Divided))]);
        assert_eq!(name_of("a", &whole, None).as_deref(), Some("GPU-a"));
        assert_eq!(name_of("b", &whole, None), None);
        assert_eq!(name_of("b", &[gpu(Some(Obstacle::Exclusive))], None), None);
        for (gpus, also) in [(&whole[..], Some("MIG-b")), (&divided, None), (&[], None)] {
            assert_eq!(name_of("b", gpus, also).as_deref(), Some("GPU-b"));
        }
    }

    #[test]
    fn a_region_full_of_processes_costs_a_bounded_number_of_look_ups() {
        let process = ProcessView {
            slot: 0,
            pid: 1,
            start: 1,
            pid_namespace: 1,
            held: vec![u64::MAX, 1],
            quota_denials: Vec::new(),
            time: Vec::new(),
            spilled: Vec::new(),
            contexts: Vec::new(),
        };
        let asked = std::cell::Cell::new(0);
        let look_up = |_: &ProcessView| {
            asked.set(asked.get() + 1);
            (None, None)
        };
        let told = told(&vec![process; 1024], look_up);
        assert_eq!(
            (told.len(), asked.get(), told[0].memory_used),
            (MOST_PROCESSES, MOST_PROCESSES, u64::MAX)
        );
    }
}
