//! Reads the state of a slice at one moment.

use crate::discovery::{ContainerIdentity, FoundRegion, Machine};
use crate::nvml::{self, Nvml};
use crate::overcommit::Committed;
use crate::process::command_here;
use crate::time::{ProcessTime, Time, UsageBetween};
use crate::unaccounted::{DeviceLedger, TRIES, unaccounted};
use crate::{figures, system};
use gpuslice_region::{DeviceFigures, Limits, ProcessView, Reader, RegionError};
use serde::Serialize;
use std::fs;
use std::os::unix::fs::MetadataExt as _;

/// The state of a slice at one moment. The fields are those of `status --json`.
#[derive(Debug, Serialize)]
pub struct Slice {
    /// The slice's name.
    pub name: String,
    /// The number that the engine gave to the slice's container. Null if the slice is in no other container, or if no known
    /// engine made the container.
    pub container: Option<String>,
    /// The name that the engine gave to that container; null if the engine does not tell.
    pub container_name: Option<String>,
    /// The path of the slice's region. If only a container has the region, this is the path as that container sees it.
    pub region: String,
    /// Number of the user that owns the region.
    pub uid: Option<u32>,
    /// The name of that user; null if the machine knows no name.
    pub user: Option<String>,
    /// Start of the slice's oldest process, in seconds since 1970; null if this process sees none of them.
    pub started: Option<u64>,
    /// Number of living processes of the slice.
    pub processes: usize,
    /// The slice's devices.
    pub devices: Vec<Device>,
    /// The container that has the slice.
    #[serde(skip)]
    identity: Option<ContainerIdentity>,
}

/// A GPU, or an instance, that slices of a report use. The sums leave out slices without a process.
#[derive(Debug, Serialize)]
pub struct Gpu {
    /// The GPU's UUID, as NVML writes it.
    pub uuid: String,
    /// The GPU's number, as in [`Device`].
    pub index: Option<u32>,
    /// The number of an instance within its GPU; none for a whole GPU.
    pub instance: Option<u32>,
    /// The product's name; none if NVML does not tell.
    pub product: Option<String>,
    /// Bytes of memory that the GPU has.
    pub total: u64,
    /// Bytes that all processes use, by NVML.
    pub used: Option<u64>,
    /// Percent of the time in which kernels ran, by NVML.
    pub utilization_percent: Option<u32>,
    /// Degrees Celsius, by NVML.
    pub temperature_celsius: Option<u32>,
    /// Bytes that the slices hold.
    pub held: u64,
    /// Sum of the slices' quotas in bytes.
    pub limit_sum: u64,
    /// Sum of the slices' `fixed` shares below 100 %, in thousandths.
    pub share_permille_sum: u32,
    /// The sums of the limits, from which warnings are made.
    #[serde(skip)]
    pub committed: Committed,
}

/// A device of a slice.
#[derive(Debug, Serialize)]
pub struct Device {
    /// The device's place in the slice, from 0.
    pub number: usize,
    /// The device's UUID, as NVML writes it.
    pub uuid: String,
    /// The GPU's number, as `nvidia-smi` shows it; null if NVML does not tell.
    pub index: Option<u32>,
    /// The number of an instance within its GPU; null for a whole GPU.
    pub instance: Option<u32>,
    /// The product's name; null if NVML does not tell.
    pub product: Option<String>,
    /// Bytes of memory that the device has.
    pub total: u64,
    /// Bytes that the slice may hold; null if there is no limit.
    pub limit: Option<u64>,
    /// True if allocations beyond the limit are served from host memory.
    pub oversubscribe: bool,
    /// Bytes that the living processes of the slice hold.
    pub held: u64,
    /// The part of `held` that contexts hold.
    pub held_by_contexts: u64,
    /// Bytes of dead members that no process has reaped. They count until a process does. A reader needs the right to write the
    /// region to reap them.
    pub held_by_dead: u64,
    /// Bytes of dead members that the device may not have back yet. The slice grants them to no process.
    pub leaving: u64,
    /// True if the device shares the host's memory. Contexts and code then count by estimates.
    pub host_memory: bool,
    /// The most bytes that the slice was granted at a time, since the region was made.
    pub peak: u64,
    /// Bytes beyond the limit that the slice holds in host memory.
    pub spilled: u64,
    /// Allocations that the slice was refused because of the limit, since the region was made.
    pub refused: u64,
    /// Allocations within the limit for which the driver had no memory, since the region was made.
    pub unmet: u64,
    /// The most bytes that one context of the slice took; null if none has been measured.
    pub context_bytes: Option<u64>,
    /// Bytes that NVML attributes to the slice's processes beyond the bytes of the ledger. Negative if NVML attributes fewer;
    /// null if NVML does not tell, or if the report does not compare.
    pub unaccounted: Option<i64>,
    /// The device's time, and the slice's use of it.
    pub time: Time,
    /// The processes of the slice, and the use of the device by each.
    pub processes: Vec<Process>,
    /// The limits as the region has them.
    #[serde(skip)]
    limits: Limits,
    /// NVML's description of the device.
    #[serde(skip)]
    seen: Option<nvml::NvmlDevice>,
}

/// A process of a slice, on one device.
#[derive(Debug, Serialize)]
pub struct Process {
    /// The process's number, in its own process-number namespace.
    pub pid: u32,
    /// The process's number in this process's namespace; null if this process does not see it.
    pub host_pid: Option<u32>,
    /// The process's command; null if this process does not see it.
    pub command: Option<String>,
    /// The process's start, in seconds since 1970; null if this process does not see it.
    pub started: Option<u64>,
    /// Bytes that the process holds.
    pub held: u64,
    /// The part of `held` that its contexts hold.
    pub held_by_contexts: u64,
    /// Bytes beyond the limit that the process holds in host memory.
    pub spilled: u64,
    /// Allocations that the process was refused because of the limit.
    pub refused: u32,
    /// The process's use of the device's time.
    pub time: ProcessTime,
}

/// The sources of a report, other than the region.
#[derive(Debug, Clone, Copy)]
pub struct Beside<'a> {
    /// The processes of this machine.
    pub machine: &'a Machine,
    /// NVML, which names GPUs.
    pub nvml: Option<&'a Nvml>,
    /// True if the report compares the ledger with NVML.
    pub compares: bool,
    /// The slice's use of GPU time since an earlier moment.
    pub look: Option<&'a UsageBetween>,
}

impl Slice {
    /// Reads the slice in the region `found`, which `reader` has opened. `name` is the name that commands use for the slice.
    ///
    /// # Errors
    /// The region is not the one that `reader` has opened: see [`Reader::check`].
    pub fn of(
        name: &str,
        found: &FoundRegion,
        reader: &Reader,
        beside: Beside<'_>,
    ) -> Result<Self, RegionError> {
        let boot = booted();
        let processes: Vec<Seen> =
            reader.processes()?.into_iter().map(|process| Seen::of(process, beside.machine, boot)).collect();
        let of = |read: &DeviceFigures| Device::of(reader, read, &processes, beside);
        let devices: Result<_, RegionError> = reader.devices()?.iter().map(of).collect();
        let uid = fs::symlink_metadata(reader.path()).ok().map(|found| found.uid());
        let identity = found.container.as_ref().map(|container| container.identity.clone());
        Ok(Self {
            name: figures::printable(name),
            container: identity.as_ref().and_then(|identity| identity.id.clone()),
            container_name: identity.as_ref().and_then(|identity| identity.name.clone()),
            region: figures::printable(&found.inside().display().to_string()),
            uid,
            user: uid.and_then(system::user_name).map(|name| figures::printable(&name)),
            started: processes.iter().filter_map(|seen| seen.started).min(),
            processes: processes.len(),
            devices: devices?,
            identity,
        })
    }

    /// Returns true if no process of the slice lives.
    #[must_use]
    pub fn is_unused(&self) -> bool {
        self.processes == 0
    }

    /// Returns the number and the name of the slice's container, as engines show them. None if the slice is in no container.
    #[must_use]
    pub fn container_words(&self) -> Option<String> {
        let identity = self.identity.as_ref()?;
        let words = [Some(identity.short()), identity.name.clone()];
        Some(words.into_iter().flatten().collect::<Vec<_>>().join(" "))
    }
}

/// Moves slices without a process to the end, and keeps the order otherwise.
pub fn unused_last(slices: &mut [Slice]) {
    slices.sort_by_key(Slice::is_unused);
}

/// Returns the GPUs of these slices in the order of the GPUs' numbers. GPUs without a number come last.
#[must_use]
pub fn gpus(slices: &[Slice]) -> Vec<Gpu> {
    let mut gpus: Vec<Gpu> = Vec::new();
    for (slice, device) in slices.iter().flat_map(|slice| slice.devices.iter().map(move |one| (slice, one))) {
        let place = gpus.iter().position(|gpu| gpu.uuid == device.uuid).unwrap_or_else(|| {
            gpus.push(Gpu::of(device));
            gpus.len() - 1
        });
        if let Some(gpu) = gpus.get_mut(place).filter(|_| !slice.is_unused()) {
            gpu.add(device);
        }
    }
    gpus.sort_by_cached_key(|gpu| {
        (gpu.index.is_none(), gpu.index, gpu.instance.is_some(), gpu.instance, gpu.uuid.clone())
    });
    gpus
}

/// Returns warnings about overcommitted GPUs.
#[must_use]
pub fn warnings(gpus: &[Gpu]) -> Vec<String> {
    gpus.iter().flat_map(|gpu| gpu.committed.warnings(&gpu.name())).collect()
}

impl Gpu {
    fn of(device: &Device) -> Self {
        let seen = device.seen.clone().unwrap_or_default();
        Self {
            uuid: device.uuid.clone(),
            index: device.index,
            instance: device.instance,
            product: device.product.clone(),
            total: device.total,
            used: seen.used,
            utilization_percent: seen.utilization,
            temperature_celsius: seen.temperature,
            held: 0,
            limit_sum: 0,
            share_permille_sum: 0,
            committed: Committed::default(),
        }
    }

    fn add(&mut self, device: &Device) {
        self.committed.add(device.total, &device.limits);
        self.held = self.held.saturating_add(device.held);
        (self.limit_sum, self.share_permille_sum) = (self.committed.memory, self.committed.share_permille);
    }

    /// Returns the GPU's short name: `GPU 0`, or its UUID if it has no number.
    #[must_use]
    pub fn name(&self) -> String {
        number(self.index, self.instance).map_or_else(|| self.uuid.clone(), |number| format!("GPU {number}"))
    }
}

/// Returns the number of a GPU as `0`, or of an instance as `0:1`, as container tools write it.
#[must_use]
pub fn number(index: Option<u32>, instance: Option<u32>) -> Option<String> {
    let index = index?;
    Some(instance.map_or_else(|| index.to_string(), |instance| format!("{index}:{instance}")))
}

/// Returns the start of a UUID: `GPU-8932f937`. The start identifies a device of a machine, and the lists of `set` accept it.
#[must_use]
pub fn short(uuid: &str) -> String {
    uuid.chars().take(12).collect()
}

impl Device {
    fn of(
        reader: &Reader,
        read: &DeviceFigures,
        processes: &[Seen],
        beside: Beside<'_>,
    ) -> Result<Self, RegionError> {
        let number = read.device.index();
        let uuid = read.uuid.to_string();
        let seen = beside.nvml.and_then(|nvml| Some((nvml, nvml.device(&uuid)?)));
        let look = beside.look.filter(|look| look.measures(read));
        let processes: Vec<Process> = processes
            .iter()
            .map(|seen| (seen, &seen.process))
            .map(|(seen, process)| Process {
                pid: process.pid,
                host_pid: seen.number,
                command: seen.command.clone(),
                started: seen.started,
                held: process.held.get(number).copied().unwrap_or(0),
                held_by_contexts: process.contexts.get(number).copied().unwrap_or(0),
                spilled: process.spilled.get(number).copied().unwrap_or(0),
                refused: process.quota_denials.get(number).copied().unwrap_or(0),
                time: ProcessTime::of(process, number, look),
            })
            .collect();
        let unaccounted = seen.as_ref().filter(|_| beside.compares).and_then(|(nvml, device)| {
            let ledger = [DeviceLedger { reader, number }];
            unaccounted(nvml, device, &ledger, beside.machine, TRIES).pop().flatten()
        });
        let seen = seen.map(|(_, device)| device);
        Ok(Self {
            number,
            uuid: seen.as_ref().map_or_else(|| format!("GPU-{uuid}"), |device| device.uuid.clone()),
            index: seen.as_ref().and_then(|device| device.index),
            instance: seen.as_ref().and_then(|device| device.instance),
            product: seen.as_ref().and_then(|device| Some(figures::printable(device.product.as_ref()?))),
            total: read.total,
            limit: read.limits.memory,
            oversubscribe: read.limits.oversubscribe,
            held: read.held,
            held_by_contexts: read.contexts,
            held_by_dead: read.held_by_dead,
            leaving: read.leaving,
            host_memory: read.host_memory,
            peak: read.peak,
            spilled: read.spilled,
            refused: read.quota_denials,
            unmet: read.device_denials,
            context_bytes: read.context_bytes,
            unaccounted,
            time: Time::of(reader, read, look)?,
            processes,
            limits: read.limits,
            seen,
        })
    }
}

/// A process of a slice, with the number, command and start that this process sees.
#[derive(Debug)]
struct Seen {
    process: ProcessView,
    /// The process's number in this process's namespace.
    number: Option<u32>,
    /// The process's command.
    command: Option<String>,
    /// The process's start, in seconds since 1970.
    started: Option<u64>,
}

impl Seen {
    /// Looks for a process on a machine that booted at `boot`.
    fn of(process: ProcessView, machine: &Machine, boot: Option<u64>) -> Self {
        let number = machine.number_of(&process);
        let started = number.and(boot).map(|boot| boot + seconds(process.start));
        Self { process, number, command: number.and_then(command_here), started }
    }
}

/// Returns the time at which the machine booted, in seconds since 1970.
fn booted() -> Option<u64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

/// Converts clock ticks of `/proc` to seconds.
fn seconds(ticks: u64) -> u64 {
    ticks / system::ticks_per_second()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_called_by_its_number_and_an_instance_by_two() {
        assert_eq!(number(Some(3), None).as_deref(), Some("3"));
        assert_eq!(number(Some(3), Some(1)).as_deref(), Some("3:1"));
        assert_eq!(number(None, None), None);
        assert_eq!(short("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"), "GPU-8932f937");
    }
}
