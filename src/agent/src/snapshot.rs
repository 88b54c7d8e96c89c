//! Slices and GPUs at one moment, in the form of `/api/v1/slices`. `docs/reference/slices.schema.json` describes it.

use crate::gpus::Gpu;
use gpuslice_policy::units::Setting as _;
use gpuslice_region::{DeviceFigures, Reader, RecentUsage, RegionError};
use gpuslice_slices::discovery::ContainerIdentity;
use gpuslice_slices::overcommit::Committed;
use gpuslice_slices::time::{Meter, measured, permille};
use gpuslice_slices::unlimited::UnlimitedProcess;
use serde::Serialize;
use std::collections::BTreeMap;

/// A slice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct SliceSnapshot {
    /// The slice's name. All slices of one container have different names.
    pub(crate) name: String,
    /// The number that the engine gave to the container of the slice's processes. None if they are in no container, in several
    /// containers, or in a container that no known engine made.
    pub(crate) container: Option<String>,
    /// The name that the engine gave to that container. None if the engine does not tell.
    pub(crate) container_name: Option<String>,
    /// The pod's container that has the slice, or none if no pod has it.
    pub(crate) pod: Option<Pod>,
    /// True if this agent made the slice.
    pub(crate) made: bool,
    /// The path of the slice's region. If only a container has the region, this is the path as that container sees it.
    pub(crate) region: String,
    /// The reason why the slice differs from its configuration.
    pub(crate) problem: Option<String>,
    /// The number of changes of the slice, if this agent made it.
    pub(crate) generation: Option<u64>,
    /// The number of the slice's living processes.
    pub(crate) process_count: usize,
    /// Some of these processes, at most 64. Empty if the client has not asked for them.
    pub(crate) processes: Vec<Process>,
    /// The slice's limits and its use, GPU by GPU.
    pub(crate) devices: Vec<Device>,
}

/// A container of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Pod {
    /// The pod's namespace.
    pub(crate) namespace: String,
    /// The pod's name.
    pub(crate) name: String,
    /// The pod's UID.
    pub(crate) uid: String,
    /// The container's name in the pod.
    pub(crate) container: String,
}

/// A process of a slice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Process {
    /// The process's number in its own process-number namespace.
    pub(crate) pid: u32,
    /// The process's number on the node, or none if the agent does not see the process.
    pub(crate) host_pid: Option<u32>,
    /// The name of the process's program. The arguments follow if the configuration says so. None if the agent does not see the
    /// process.
    pub(crate) command: Option<String>,
    /// Bytes that the process holds on all GPUs together.
    pub(crate) memory_used: u64,
}

/// The limits and the use of a slice on a GPU. The counters begin with the slice's first process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Device {
    /// The GPU's UUID.
    pub(crate) uuid: String,
    /// Bytes that the slice may hold; none: no limit.
    pub(crate) memory_limit: Option<u64>,
    /// Bytes that the slice's processes hold.
    pub(crate) memory_used: u64,
    /// The most bytes that the slice was granted at a time.
    pub(crate) memory_peak: u64,
    /// Bytes of dead processes that the GPU may not have back yet.
    pub(crate) memory_leaving: u64,
    /// Bytes that NVML attributes to its processes beyond those that the ledger has for them. None: that is not known.
    pub(crate) memory_unaccounted: Option<i64>,
    /// Allocations that were refused because of the limit.
    pub(crate) denied: u64,
    /// Allocations within the limit for which the GPU had no memory.
    pub(crate) unmet: u64,
    /// The slice's share of the GPU's time in thousandths; 1000: no limit.
    pub(crate) share_permille: u32,
    /// `fixed`, `equal` or `best-effort`.
    pub(crate) policy: String,
    /// 1 to 1000.
    pub(crate) weight: u32,
    /// `high`, `normal` or `low`.
    pub(crate) priority: String,
    /// GPU time that the slice was charged, in nanoseconds.
    pub(crate) used_ns: u64,
    /// The slice's charges over the last second, in thousandths of the GPU's time. None if the time was not measured.
    pub(crate) used_permille: Option<u64>,
    /// The slice's charges over the last ten seconds, in thousandths of the GPU's time. None if the time was not measured.
    pub(crate) used_permille_10s: Option<u64>,
    /// Time for which the slice's launches waited for the share, in nanoseconds, summed over threads.
    pub(crate) throttled_ns: u64,
    /// Time for which launches waited for the share in the last second, in thousandths. With several threads it can be above
    /// 1000.
    pub(crate) throttled_permille: u64,
    /// The source of the slice's GPU time.
    pub(crate) meter: Meter,
    /// The limits as the region has them.
    #[serde(skip)]
    pub(crate) limits: Option<gpuslice_region::Limits>,
}

/// Slices and GPUs of the node at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Snapshot {
    /// Version of the driver.
    pub(crate) driver: Option<String>,
    /// The GPUs.
    pub(crate) gpus: Vec<Gpu>,
    /// The slices. Those that this agent made come first.
    pub(crate) slices: Vec<SliceSnapshot>,
    /// Processes that use a GPU without the library.
    pub(crate) unlimited: Vec<UnlimitedProcess>,
    /// Number of slices of the configuration without a container and without a living process.
    pub(crate) free: usize,
    /// Number of slices that are not in the configuration, and whose files the agent cannot remove yet.
    pub(crate) left_behind: usize,
    /// The slots that the agent offers a kubelet.
    pub(crate) kubelet: KubeletSlots,
}

/// Counts of the slots that the agent offers a kubelet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct KubeletSlots {
    /// Slots that a pod's container has.
    pub(crate) owned: usize,
    /// The other slots on GPUs that slices can share.
    pub(crate) free: usize,
}

/// The sums of the limits and the use of the slices on a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Sums {
    /// Bytes that the slices hold.
    pub(crate) memory_held: u64,
    /// Sum of the slices' quotas in bytes. If it is more than the GPU has, memory is overcommitted.
    pub(crate) limit_sum: u64,
    /// Sum of the slices' `fixed` shares below 100 %, in thousandths. If it is above 1000, time is overcommitted.
    pub(crate) share_permille_sum: u32,
    /// Sum of the slices' charges over the last second, in thousandths of the GPU's time. None if a slice with processes was
    /// not measured.
    pub(crate) used_permille: Option<u64>,
    /// Warnings in words: overcommitted resources, and containers with processes without the library.
    pub(crate) warnings: Vec<String>,
}

impl Snapshot {
    /// Returns the sums of a GPU. A slice of the configuration or of a pod counts even before its first process.
    pub(crate) fn sums(&self, gpu: &Gpu) -> Sums {
        let on_it =
            || self.slices.iter().flat_map(|slice| &slice.devices).filter(|device| device.uuid == gpu.uuid);
        let inhabited = self.slices.iter().filter(|slice| slice.process_count > 0);
        let mut inhabited =
            inhabited.flat_map(|slice| &slice.devices).filter(|device| device.uuid == gpu.uuid);
        let is_measured = inhabited.all(|device| device.used_permille.is_some());
        let mut committed = Committed::default();
        for device in on_it() {
            if let Some(limits) = &device.limits {
                committed.add(gpu.memory_total.unwrap_or(u64::MAX), limits);
            }
        }
        let mut warnings = committed.warnings(&format!("GPU {}", gpu.index));
        warnings.extend(self.warnings_of_unlimited(gpu));
        let sum = |figure: fn(&Device) -> u64| on_it().map(figure).fold(0, u64::saturating_add);
        Sums {
            memory_held: sum(|device| device.memory_used),
            limit_sum: committed.memory,
            share_permille_sum: committed.share_permille,
            used_permille: is_measured.then(|| sum(|device| device.used_permille.unwrap_or(0))),
            warnings,
        }
    }
}

impl Snapshot {
    /// Counts the processes that use a GPU without the library, by the number of their container. One container may have
    /// several mount namespaces. The empty number and None stand for the host. Returns an empty map if NVML does not tell the
    /// processes.
    pub(crate) fn unlimited_on(&self, gpu: &Gpu) -> BTreeMap<String, (Option<&ContainerIdentity>, usize)> {
        let Some(users) = &gpu.users else { return BTreeMap::new() };
        let mut counts = BTreeMap::from([(String::new(), (None, 0_usize))]);
        for process in self.unlimited.iter().filter(|process| users.contains(&process.pid)) {
            let container = process.container.as_ref();
            let number = container.map(|one| one.id.clone().unwrap_or_else(|| one.short()));
            let (_, count) = counts.entry(number.unwrap_or_default()).or_insert((container, 0));
            *count = count.saturating_add(1);
        }
        counts
    }

    /// Returns a warning for each container with processes that use a GPU without the library.
    fn warnings_of_unlimited(&self, gpu: &Gpu) -> Vec<String> {
        let warning = |(container, count): (Option<&ContainerIdentity>, usize)| {
            let container = container?;
            let name = container.name.as_deref().map_or_else(String::new, |name| format!(" {name}"));
            let uses = if count == 1 { "1 process uses" } else { &format!("{count} processes use") };
            let (place, number) = (container.short(), gpu.index);
            Some(format!(
                "container {place}{name}: {uses} GPU {number} without libgpuslice.so, so no limit holds there"
            ))
        };
        self.unlimited_on(gpu).into_values().filter_map(warning).collect()
    }
}

impl SliceSnapshot {
    /// Returns the container, which distinguishes the slice from others of its name. Returns an empty text for a slice that
    /// this agent made: its name is unique, and it stays the same slice while containers come and go.
    pub(crate) fn place(&self) -> &str {
        if self.made { "" } else { self.container.as_deref().unwrap_or_default() }
    }
}

impl Device {
    /// Reads a device of a region.
    pub(crate) fn of(reader: &Reader, read: &DeviceFigures, uuid: String) -> Result<Self, RegionError> {
        let [last, ten] = [reader.used_over(read.device, 1)?, reader.used_over(read.device, 10)?];
        let used = |over: &RecentUsage| measured(read.limits.is_paced(), permille(over.used, over.span));
        Ok(Self {
            uuid,
            memory_used: read.held,
            memory_peak: read.peak,
            memory_leaving: read.leaving,
            denied: read.quota_denials,
            unmet: read.device_denials,
            used_ns: read.time.used.nanos(),
            used_permille: used(&last),
            used_permille_10s: used(&ten),
            throttled_ns: read.time.throttled.nanos(),
            throttled_permille: permille(last.throttled, last.span),
            meter: Meter::of_word(read.measure_source),
            ..Self::limited(read.limits)
        })
    }

    /// Returns the GPU time that the slice was charged, in nanoseconds, or `None` if it was never measured.
    pub(crate) fn charged(&self) -> Option<u64> {
        measured(self.limits.is_some_and(|limits| limits.is_paced()), self.used_ns)
    }

    /// Returns a device with these limits, and with no use.
    pub(crate) fn limited(limits: gpuslice_region::Limits) -> Self {
        let unused = measured(limits.is_paced(), 0);
        Self {
            used_permille: unused,
            used_permille_10s: unused,
            memory_limit: limits.memory,
            share_permille: limits.cores_permille,
            policy: limits.sharing.policy.setting(),
            weight: limits.sharing.weight,
            priority: limits.sharing.priority.setting(),
            limits: Some(limits),
            ..Self::default()
        }
    }
}
