//! What is there to tell about a slice?

use crate::nvml::Nvml;
use crate::time::{Look, ProcessTime, Time};
use crate::unaccounted::unaccounted;
use crate::{figures, slices, system};
use gpuslice_region::{DeviceFigures, ProcessView, Reader, RegionError};
use serde::Serialize;
use std::fs;
use std::os::unix::fs::MetadataExt as _;

/// A slice at one moment. Its form is that of `status --json`.
#[derive(Debug, Serialize)]
pub(crate) struct Slice {
    /// What it is called.
    pub(crate) name: String,
    /// Where its region is.
    pub(crate) region: String,
    /// Processes that live in it.
    pub(crate) processes: usize,
    /// Its devices.
    pub(crate) devices: Vec<Device>,
}

/// A device of a slice.
#[derive(Debug, Serialize)]
pub(crate) struct Device {
    /// Its place in the slice, from 0.
    pub(crate) number: usize,
    /// Its UUID, as NVML writes it.
    pub(crate) uuid: String,
    /// Bytes that it has.
    pub(crate) total: u64,
    /// Bytes that the slice may hold; null where there is no limit.
    pub(crate) limit: Option<u64>,
    /// Whether what passes the limit is served from host memory.
    pub(crate) oversubscribe: bool,
    /// Bytes that the living processes of the slice hold.
    pub(crate) held: u64,
    /// How many of them are contexts', of all those that live.
    pub(crate) held_by_contexts: u64,
    /// Bytes of the dead, which count until somebody clears them: whoever looked may not.
    pub(crate) held_by_dead: u64,
    /// The most bytes that it was granted at a time, since the region was made.
    pub(crate) peak: u64,
    /// Bytes beyond the limit that it was given in host memory.
    pub(crate) spilled: u64,
    /// Allocations that it was refused because of the limit, since the region was made.
    pub(crate) refused: u64,
    /// Allocations within the limit that the driver had no memory for, since the region was made.
    pub(crate) unmet: u64,
    /// The most bytes that one context of the slice's was seen to take; null while none was seen.
    pub(crate) context_bytes: Option<u64>,
    /// Bytes that NVML attributes to the slice's processes beyond what they hold by the ledger; less than nothing
    /// where it is fewer; null where that cannot be told.
    pub(crate) unaccounted: Option<i64>,
    /// Its time, and what the slice uses of it.
    pub(crate) time: Time,
    /// What each process has of it.
    pub(crate) processes: Vec<Process>,
}

/// A process of a slice, on one device.
#[derive(Debug, Serialize)]
pub(crate) struct Process {
    /// Its number, in its own process-number namespace.
    pub(crate) pid: u32,
    /// What it runs; null where it cannot be seen from here.
    pub(crate) command: Option<String>,
    /// When it started, in seconds since 1970; null where it cannot be seen from here.
    pub(crate) started: Option<u64>,
    /// Bytes that it holds.
    pub(crate) held: u64,
    /// How many of them are its contexts'.
    pub(crate) held_by_contexts: u64,
    /// Bytes beyond the limit that it was given in host memory.
    pub(crate) spilled: u64,
    /// Allocations that it was refused.
    pub(crate) refused: u32,
    /// What it uses of the device's time.
    pub(crate) time: ProcessTime,
}

impl Slice {
    /// Looks at a slice, beside NVML if it is given, and at what it used since an earlier look.
    pub(crate) fn of(reader: &Reader, nvml: Option<&Nvml>, look: Option<&Look>) -> Result<Self, RegionError> {
        let processes = reader.processes()?;
        let of = |read: &DeviceFigures| Device::of(reader, read, &processes, (nvml, look));
        let devices: Result<_, RegionError> = reader.devices()?.iter().map(of).collect();
        Ok(Self {
            name: figures::printable(&slices::label(reader.path())),
            region: figures::printable(&reader.path().display().to_string()),
            processes: processes.len(),
            devices: devices?,
        })
    }
}

impl Device {
    fn of(
        reader: &Reader,
        read: &DeviceFigures,
        processes: &[ProcessView],
        (nvml, look): (Option<&Nvml>, Option<&Look>),
    ) -> Result<Self, RegionError> {
        let number = read.device.index();
        let uuid = read.uuid.to_string();
        let seen = nvml.and_then(|nvml| Some((nvml, nvml.device(&uuid)?)));
        let boot = booted();
        let processes: Vec<Process> = processes
            .iter()
            .map(|process| Process {
                pid: process.pid,
                command: command_of(process),
                started: is_near(process).then(|| boot.map(|boot| boot + seconds(process.start))).flatten(),
                held: process.held.get(number).copied().unwrap_or(0),
                held_by_contexts: process.contexts.get(number).copied().unwrap_or(0),
                spilled: process.spilled.get(number).copied().unwrap_or(0),
                refused: process.refused.get(number).copied().unwrap_or(0),
                time: ProcessTime::of(process, number, look),
            })
            .collect();
        Ok(Self {
            number,
            uuid: seen.as_ref().map_or_else(|| format!("GPU-{uuid}"), |(_, device)| device.name.clone()),
            total: read.total,
            limit: read.limits.memory,
            oversubscribe: read.limits.oversubscribe,
            held: read.held,
            held_by_contexts: read.contexts,
            held_by_dead: read.held_by_dead,
            peak: read.peak,
            spilled: read.spilled,
            refused: read.refused,
            unmet: read.unmet,
            context_bytes: read.context_bytes,
            unaccounted: seen.and_then(|(nvml, device)| unaccounted(nvml, &device, reader, number)),
            time: Time::of(reader, read, look)?,
            processes,
        })
    }
}

/// What a process runs, if it is one that can be seen from here: numbers mean nothing in another namespace, and
/// are used again.
pub(crate) fn command_of(process: &ProcessView) -> Option<String> {
    if !is_near(process) {
        return None;
    }
    let words = fs::read(format!("/proc/{}/cmdline", process.pid)).ok()?;
    let text = String::from_utf8_lossy(&words).trim_end_matches('\0').replace('\0', " ");
    Some(figures::printable(&text))
}

/// When the machine was started, in seconds since 1970.
fn booted() -> Option<u64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

/// A span that `/proc` tells in clock ticks.
fn seconds(ticks: u64) -> u64 {
    ticks / system::ticks_per_second()
}

/// Whether a process's number means it here as well.
pub(crate) fn is_near(process: &ProcessView) -> bool {
    let namespace = fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino());
    process.pid_namespace == namespace && start_of(process.pid) == Some(process.start)
}

/// When a process started: the 22nd field of its `stat`, counted behind the name, which may hold anything.
fn start_of(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}
