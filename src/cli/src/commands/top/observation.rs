//! Looks at slices at one moment.
//!
//! Each look opens each region again. The checks at the opening find a region that was removed, replaced, shortened or
//! overwritten since the last look. At most one region is mapped at a time.

use crate::slices::{self, Survey, bounds, survey};
use gpuslice_region::{DeviceFigures, Limits, ProcessView, RegionError, Trust, Uuid};
use gpuslice_slices::discovery::{FoundRegion, Machine};
use gpuslice_slices::figures;
use gpuslice_slices::process;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The result of one look.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Observation {
    pub(crate) slices: Vec<ObservedSlice>,
    /// Messages about regions that cannot be read. Each has the reason and the remedy.
    pub(crate) unreadable: Vec<String>,
    /// Number of regions of other users.
    pub(crate) others: u32,
}

/// Identity of a slice under its name. If the slice's region is removed or replaced, the same name means another slice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SliceIdentity {
    pub(crate) inode: u64,
    pub(crate) epoch: u64,
}

/// A slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObservedSlice {
    pub(crate) path: PathBuf,
    pub(crate) name: String,
    pub(crate) life: SliceIdentity,
    /// True if no process of the slice lives, and its region can be removed.
    pub(crate) is_removable: bool,
    pub(crate) devices: Vec<Device>,
    pub(crate) processes: Vec<Process>,
}

/// A device of a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Device {
    /// The device's place in the slice, from 0.
    pub(crate) number: usize,
    pub(crate) uuid: Uuid,
    /// Bytes of memory that the device has.
    pub(crate) total: u64,
    pub(crate) limits: Limits,
    /// Bytes that the slice holds. Below: the part of contexts, and the most bytes that it was granted at a time.
    pub(crate) held: u64,
    pub(crate) contexts: u64,
    pub(crate) peak: u64,
    /// Charged GPU time in nanoseconds. Below, in nanoseconds too: the time for which launches waited, and the queued GPU time.
    pub(crate) used: u64,
    pub(crate) throttled: u64,
    pub(crate) queued: u64,
    /// Allocations that were refused because of the quota. Below: allocations for which the driver had no memory.
    pub(crate) refused: u64,
    pub(crate) unmet: u64,
    /// Bytes that the slice holds in host memory.
    pub(crate) spilled: u64,
}

/// A process of a slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) id: ProcessId,
    /// The process's number in this process's namespace; `None` if it is not visible, or if the caller has not asked for it.
    pub(crate) number: Option<u32>,
    /// The process's command; `None` if the process is not visible, or if the caller has not asked for it.
    pub(crate) command: Option<String>,
    /// Bytes that the process holds, by device. Below, by device too: refused allocations, used GPU time, and time of waiting.
    pub(crate) held: Vec<u64>,
    pub(crate) refused: Vec<u32>,
    pub(crate) used: Vec<u64>,
    pub(crate) throttled: Vec<u64>,
}

/// Identity of a process. The number alone is not enough, because the kernel reuses numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessId {
    pub(crate) pid: u32,
    pub(crate) start: u64,
    pub(crate) slot: usize,
}

/// The slices that a look reads.
#[derive(Debug, Clone)]
pub(crate) enum Scope {
    /// All slices that `gpuslice list` shows.
    All,
    /// The slice with this region.
    One(FoundRegion),
}

impl Scope {
    /// Returns the regions that a look reads.
    pub(crate) fn regions<'a>(&'a self, survey: &'a Survey) -> &'a [FoundRegion] {
        match self {
            Self::All => survey.regions(),
            Self::One(region) => std::slice::from_ref(region),
        }
    }

    /// Returns the owners whose regions this process opens. A region that the user named may belong to any user. Among all
    /// regions, only root opens those of other users.
    fn trust(&self) -> Trust {
        if matches!(self, Self::All) { slices::trust() } else { Trust::AnyOwner }
    }
}

impl Observation {
    /// Looks at slices. Looks up the commands of the processes only for the slice `open`.
    pub(crate) fn now(scope: &Scope, survey: &Survey, open: Option<&Path>) -> Self {
        let mut seen = Self::default();
        for region in scope.regions(survey) {
            let wants_commands = open == Some(region.path.as_path());
            match ObservedSlice::at(region, survey, scope.trust(), wants_commands) {
                Ok(Some(slice)) => seen.slices.push(slice),
                Ok(None) | Err(RegionError::Replaced { .. }) => {}
                Err(error) if matches!(scope, Scope::All) && slices::is_of_others(&error) => {
                    seen.others = seen.others.saturating_add(1);
                }
                Err(error) => {
                    let text = survey::in_words(region, &error.to_string());
                    seen.unreadable.push(figures::printable(&text));
                }
            }
        }
        seen
    }
}

/// Returns the identity of the slice that has the region at `path` in this epoch.
pub(crate) fn life_of(path: &Path, epoch: u64) -> SliceIdentity {
    SliceIdentity { inode: fs::symlink_metadata(path).map_or(0, |found| found.ino()), epoch }
}

impl ObservedSlice {
    /// Returns the slice with a region, or `None` if there is none.
    fn at(
        region: &FoundRegion,
        survey: &Survey,
        trust: Trust,
        wants_commands: bool,
    ) -> Result<Option<Self>, RegionError> {
        let path = &region.path;
        let Some(reader) = slices::look_at(path, trust)? else { return Ok(None) };
        let life = life_of(path, reader.epoch());
        let read = || -> Result<Self, RegionError> {
            let devices = reader.devices()?.iter().map(Device::of).collect();
            // The numbers of processes are shown only beside their commands.
            let machine = wants_commands.then_some(&survey.machine);
            let process = |view: &ProcessView| Process::of(view, machine);
            let processes: Vec<Process> = reader.processes()?.iter().map(process).collect();
            let is_removable = processes.is_empty() && bounds::kept(region).is_none();
            let name = figures::printable(&survey.full_label(region));
            Ok(Self { path: path.clone(), name, life, is_removable, devices, processes })
        };
        match read() {
            Ok(slice) => Ok(Some(slice)),
            // Another process replaced or shortened the region during the reading. The next look sees its new state.
            Err(RegionError::Reinitialised { .. } | RegionError::Damaged { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl ObservedSlice {
    /// Returns true if no process of the slice lives.
    pub(crate) fn is_unused(&self) -> bool {
        self.processes.is_empty()
    }
}

impl Device {
    fn of(read: &DeviceFigures) -> Self {
        Self {
            number: read.device.index(),
            uuid: read.uuid,
            total: read.total,
            limits: read.limits,
            held: read.held,
            contexts: read.contexts,
            peak: read.peak,
            used: read.time.used.nanos(),
            throttled: read.time.throttled.nanos(),
            queued: read.time.queued.nanos(),
            refused: read.quota_denials,
            unmet: read.device_denials,
            spilled: read.spilled,
        }
    }
}

impl Process {
    /// If `machine` is none, the result has neither the command nor the number in this process's namespace.
    fn of(view: &ProcessView, machine: Option<&Machine>) -> Self {
        let number = machine.and_then(|machine| machine.number_of(view));
        Self {
            id: ProcessId { pid: view.pid, start: view.start, slot: view.slot },
            number,
            command: number.and_then(process::command_here).map(|command| process::short_command(&command)),
            held: view.held.clone(),
            refused: view.quota_denials.clone(),
            used: view.time.iter().map(|time| time.used.nanos()).collect(),
            throttled: view.time.iter().map(|time| time.throttled.nanos()).collect(),
        }
    }
}
