//! Members of the slice, for a program that asks NVML about a device.

use super::entries::Listed;
use super::nvml;
use crate::driver_calls::nvml::devices::{self, ComputeDevice};
use crate::driver_calls::nvml::utilization::knows_our_numbers;
use crate::os::reentrancy::{PhaseOutcome, enter};
use crate::process::{self, Enforcement};
use crate::slice::settings;
use gpuslice_driver::types::nvmlDevice_t;
use gpuslice_region::{Monitor, ProcessView, Region, Uuid, own_pid_namespace};

/// A process of the slice.
#[derive(Debug, Clone, Copy)]
struct SeenProcess {
    /// Process number, in the namespace of that process.
    pid: u32,
    /// True if that is the namespace of this process too.
    near: bool,
    /// Bytes of the device that the process holds.
    held: u64,
}

/// Living processes of a slice; empty if none has used the GPU yet.
#[derive(Debug, Default)]
pub(crate) struct Members(Vec<SeenProcess>);

impl Members {
    /// Returns the members of this process's slice; `None` if the device has no quota.
    pub(crate) fn on(device: nvmlDevice_t) -> Option<Self> {
        nvml::quota(device)?;
        Self::of_all(&devices::parts(device))
    }

    /// Returns the members of this process's slice; `None` if it may use all of the device's time and has no quota.
    fn sharing(device: nvmlDevice_t) -> Option<Self> {
        let parts = devices::parts(device);
        let is_shared = nvml::quota(device).is_some() || nvml::has_share(&parts);
        is_shared.then(|| Self::of_all(&parts))?
    }

    fn of_all(parts: &[ComputeDevice]) -> Option<Self> {
        let _limits = settings::settings()?;
        Some(in_region(|region| Self::of(region, parts)).unwrap_or_default())
    }

    fn of(region: &Region, parts: &[ComputeDevice]) -> Self {
        // An error means that dead members cannot be told now: they stay listed until they can.
        let _reaped = region.reap();
        let here = own_pid_namespace();
        let devices: Vec<_> = parts.iter().filter_map(|part| region.device(&Uuid(part.uuid))).collect();
        let held = |process: &ProcessView| {
            let words = devices.iter().filter_map(|device| process.held.get(device.index()));
            words.fold(0_u64, |sum, held| sum.saturating_add(*held))
        };
        let seen = |process: ProcessView| SeenProcess {
            pid: process.pid,
            near: process.pid_namespace == here,
            held: held(&process),
        };
        Self(region.processes().into_iter().map(seen).collect())
    }

    /// Returns true if a member has the number `pid` in this process's namespace.
    pub(crate) fn has(&self, pid: u32) -> bool {
        self.held(pid).is_some()
    }

    /// Returns true if the driver names every member by a number of this process's namespace, and so can tell its use.
    pub(crate) fn are_told_apart(&self) -> bool {
        self.0.iter().all(|seen| seen.near) && knows_our_numbers()
    }

    /// Returns true if no member holds memory of the device. Every process that runs work there holds some.
    pub(crate) fn hold_nothing(&self) -> bool {
        self.0.iter().all(|seen| seen.held == 0)
    }

    /// Returns the bytes that the member with the number `pid` in this process's namespace holds.
    pub(crate) fn held(&self, pid: u32) -> Option<u64> {
        self.0.iter().find(|seen| seen.near && seen.pid == pid).map(|seen| seen.held)
    }

    /// Returns the entries about members, of a list of the use by processes.
    pub(crate) fn own_uses<T: Listed>(&self, uses: impl Iterator<Item = T>) -> Vec<T> {
        // In another numbering, the members' numbers would be those of other processes.
        if knows_our_numbers() { self.own(uses) } else { Vec::new() }
    }

    /// Returns the entries about members, of any list.
    pub(crate) fn own<T: Listed>(&self, entries: impl Iterator<Item = T>) -> Vec<T> {
        entries.filter(|entry| self.has(entry.pid())).collect()
    }

    /// Returns members that hold memory of the device and that the driver cannot name here, with their bytes. These are members
    /// of other namespaces, and all members if the driver named none (`if_none`).
    pub(crate) fn unnamed(&self, if_none: bool) -> impl Iterator<Item = (u32, u64)> {
        let hidden = self.0.iter().filter(move |seen| seen.held > 0 && (if_none || !seen.near));
        hidden.map(|seen| (seen.pid, seen.held))
    }
}

/// Returns the members, if the device has a quota. Otherwise the driver's answer stands.
pub(crate) fn members(device: nvmlDevice_t) -> Option<Members> {
    found(|| Members::on(device))
}

/// Returns the members, if the slice has a part of the device or of its time. Otherwise the driver's answer stands.
pub(crate) fn sharers(device: nvmlDevice_t) -> Option<Members> {
    found(|| Members::sharing(device))
}

fn found(find: impl FnOnce() -> Option<Members>) -> Option<Members> {
    match enter(find) {
        PhaseOutcome::Done(members) => members,
        PhaseOutcome::Nested => None,
        // After a defect of the library no member is shown.
        PhaseOutcome::Broken => Some(Members::default()),
    }
}

/// Returns the result of `look` at the slice's region; `None` if there is no region.
pub(crate) fn in_region<T>(look: impl FnOnce(&Region) -> T) -> Option<T> {
    if let Enforcement::Active(process) = process::enforcement() {
        return Some(look(process.region()));
    }
    let settings = settings::settings()?;
    let monitor = Monitor::open_program(&settings.region).ok().flatten()?;
    Some(look(monitor.region()))
}
