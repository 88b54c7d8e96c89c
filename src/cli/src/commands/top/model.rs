//! Combines several looks at slices: their recent use, the slices on each GPU, and their order.

use super::gpus::GpuFigures;
use super::observation::{Device, Observation, ObservedSlice, Process, ProcessId, SliceIdentity};
use gpuslice_policy::time::{GpuTime, WallTime};
use gpuslice_region::Uuid;
use gpuslice_slices::overcommit::Committed;
use gpuslice_slices::{nvml, time};
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time over which recent use is measured. It is a little less than a second, because a look may come early.
const RECENT_SPAN: Duration = Duration::from_millis(950);
/// Number of past seconds that the model keeps.
pub(crate) const MINUTE: usize = 60;

/// A slice on a GPU, or without one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RowKey {
    pub(crate) path: PathBuf,
    pub(crate) uuid: Option<Uuid>,
}

/// Order of slices. The slices of a GPU stay together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Sort {
    #[default]
    Name,
    /// The slice that holds most memory comes first.
    Memory,
    /// The slice that used most GPU time lately comes first.
    Time,
}

impl Sort {
    pub(crate) fn next(self) -> Self {
        match self {
            Self::Name => Self::Memory,
            Self::Memory => Self::Time,
            Self::Time => Self::Name,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Memory => "memory",
            Self::Time => "time",
        }
    }
}

/// A GPU, and the slices on it.
#[derive(Debug)]
pub(crate) struct Group<'a> {
    /// The GPU's UUID; `None` for slices that have no GPU yet.
    pub(crate) uuid: Option<Uuid>,
    /// Bytes of the GPU. `held` has the bytes of it that slices hold.
    pub(crate) total: u64,
    pub(crate) held: u64,
    /// Thousandths of the GPU's time that the slices on it used lately; `None` if that is not known yet.
    pub(crate) used: Option<u64>,
    /// True if the use of time is known for every slice with a living process.
    is_measured: bool,
    /// NVML's figures of the device.
    pub(crate) gpu: Option<&'a nvml::NvmlDevice>,
    /// The limits of the slices with living processes.
    pub(crate) committed: Committed,
    pub(crate) rows: Vec<Row<'a>>,
}

impl Group<'_> {
    /// Returns the used bytes that do not belong to these slices, or `None` if NVML does not tell them.
    pub(crate) fn outside(&self) -> Option<u64> {
        Some(self.gpu?.used?.saturating_sub(self.held))
    }

    /// Returns the thousandths of time in which a kernel ran and no slice was charged. `None`: NVML does not tell it, or
    /// the use of a slice is unknown.
    pub(crate) fn outside_time(&self) -> Option<u64> {
        let busy = u64::from(self.gpu?.utilization?) * 10;
        self.is_measured.then(|| busy.saturating_sub(self.used.unwrap_or(0)))
    }

    fn is_unused(&self) -> bool {
        self.rows.iter().all(|row| row.slice.is_unused())
    }
}

/// A slice on a GPU.
#[derive(Debug)]
pub(crate) struct Row<'a> {
    pub(crate) key: RowKey,
    pub(crate) slice: &'a ObservedSlice,
    pub(crate) device: Option<&'a Device>,
    /// Thousandths of the GPU's time that the slice used lately; `None` at the first look, and if the time is not measured.
    pub(crate) used: Option<u64>,
    /// Thousandths of the GPU's time that the slice used in each of the last seconds, with the newest last.
    pub(crate) seconds: Vec<u64>,
}

/// A process of a slice on a GPU.
#[derive(Debug)]
pub(crate) struct ProcessRow<'a> {
    pub(crate) process: &'a Process,
    pub(crate) held: u64,
    pub(crate) refused: u32,
    /// GPU time in nanoseconds.
    pub(crate) total: u64,
    pub(crate) throttled: u64,
    /// Thousandths of the GPU's time that the process used lately; `None` at its first look, and if the time is not measured.
    pub(crate) used: Option<u64>,
}

/// The counters of a slice at one look.
#[derive(Debug)]
struct Sample {
    at: Instant,
    used: u64,
    processes: Vec<(ProcessId, u64)>,
}

/// The past of one slice on one GPU.
#[derive(Debug)]
struct Track {
    key: RowKey,
    life: SliceIdentity,
    /// The samples up to the last one. The first sample is the newest one that is old enough to compare
    /// with the last, or else the oldest.
    samples: VecDeque<Sample>,
    seconds: VecDeque<u64>,
    /// Time at which the present second ends.
    due: Instant,
}

impl Track {
    fn new(key: RowKey, life: SliceIdentity, now: Instant) -> Self {
        Self {
            key,
            life,
            samples: VecDeque::new(),
            seconds: VecDeque::new(),
            due: now + Duration::from_secs(1),
        }
    }

    fn take(&mut self, sample: Sample) {
        let now = sample.at;
        self.samples.push_back(sample);
        let is_old = |sample: &Sample| now.saturating_duration_since(sample.at) >= RECENT_SPAN;
        while self.samples.get(1).is_some_and(is_old) {
            self.samples.pop_front();
        }
        let Some(used) = self.used() else { return };
        // A second that is nearly over counts as a whole one, because its look may come early or late.
        while now + (Duration::from_secs(1) - RECENT_SPAN) >= self.due {
            self.due += Duration::from_secs(1);
            self.seconds.push_back(used);
            if self.seconds.len() > MINUTE {
                self.seconds.pop_front();
            }
        }
    }

    fn used(&self) -> Option<u64> {
        let [first, last] = self.ends()?;
        permille(first.used, last.used, last.at - first.at)
    }

    fn used_by(&self, id: ProcessId) -> Option<u64> {
        let [first, last] = self.ends()?;
        let of = |sample: &Sample| Some(sample.processes.iter().find(|(other, _)| *other == id)?.1);
        permille(of(first)?, of(last)?, last.at - first.at)
    }

    fn ends(&self) -> Option<[&Sample; 2]> {
        Some([self.samples.front()?, self.samples.back()?])
    }
}

fn permille(before: u64, after: u64, span: Duration) -> Option<u64> {
    let used = GpuTime::from_nanos(after.saturating_sub(before));
    (!span.is_zero()).then(|| time::permille(used, WallTime::of(span)))
}

/// The combination of all looks, and NVML's figures.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) seen: Observation,
    pub(crate) gpus: GpuFigures,
    tracks: Vec<Track>,
}

impl Model {
    /// Receives a look. Forgets slices that are missing in it, and slices whose name another slice has taken.
    pub(crate) fn take(&mut self, seen: Observation, now: Instant) {
        let mut old = std::mem::take(&mut self.tracks);
        for slice in &seen.slices {
            for device in &slice.devices {
                let key = RowKey { path: slice.path.clone(), uuid: Some(device.uuid) };
                let is_same = |track: &Track| track.key == key && track.life == slice.life;
                let known = old.iter().position(is_same).map(|place| old.swap_remove(place));
                let mut track = known.unwrap_or_else(|| Track::new(key, slice.life, now));
                let used = |process: &Process| Some((process.id, *process.used.get(device.number)?));
                let processes = slice.processes.iter().filter_map(used).collect();
                track.take(Sample { at: now, used: device.used, processes });
                self.tracks.push(track);
            }
        }
        self.seen = seen;
    }

    pub(crate) fn slice(&self, path: &Path) -> Option<&ObservedSlice> {
        self.seen.slices.iter().find(|slice| slice.path == path)
    }

    /// Returns the devices of all slices, each once.
    pub(crate) fn uuids(&self) -> Vec<Uuid> {
        let mut uuids: Vec<Uuid> = Vec::new();
        for device in self.seen.slices.iter().flat_map(|slice| &slice.devices) {
            if !uuids.contains(&device.uuid) {
                uuids.push(device.uuid);
            }
        }
        uuids
    }

    /// Returns the number of processes of all slices.
    pub(crate) fn processes(&self) -> usize {
        self.seen.slices.iter().map(|slice| slice.processes.len()).sum()
    }

    /// Returns all GPUs with their slices, in the order of NVML's numbers, or else of their UUIDs. GPUs with unused slices only,
    /// and slices without a GPU, come last.
    pub(crate) fn groups(&self, sort: Sort, reversed: bool) -> Vec<Group<'_>> {
        let mut groups: Vec<Group<'_>> = Vec::new();
        for row in self.rows() {
            let uuid = row.key.uuid;
            let place = groups.iter().position(|group| group.uuid == uuid).unwrap_or_else(|| {
                let gpu = self.gpus.iter().find(|(other, _)| Some(*other) == uuid).map(|(_, gpu)| gpu);
                let committed = Committed::default();
                groups.push(Group {
                    uuid,
                    total: 0,
                    held: 0,
                    used: None,
                    is_measured: true,
                    gpu,
                    committed,
                    rows: Vec::new(),
                });
                groups.len() - 1
            });
            let Some(group) = groups.get_mut(place) else { continue };
            group.total = group.total.max(row.device.map_or(0, |device| device.total));
            group.held = group.held.saturating_add(row.device.map_or(0, |device| device.held));
            if let Some(device) = row.device.filter(|_| !row.slice.is_unused()) {
                group.committed.add(device.total, &device.limits);
            }
            group.is_measured &= row.used.is_some() || row.slice.is_unused();
            group.used = match (group.used, row.used) {
                (Some(sum), Some(used)) => Some(sum.saturating_add(used)),
                (sum, used) => sum.or(used),
            };
            group.rows.push(row);
        }
        for group in &mut groups {
            sort_rows(&mut group.rows, sort, reversed);
        }
        groups.sort_by_key(|group| {
            let number = group.gpu.and_then(|gpu| Some((gpu.index?, gpu.instance)));
            let uuid = group.uuid.map(|uuid| uuid.0);
            (uuid.is_none(), group.is_unused(), number.is_none(), number, uuid)
        });
        groups
    }

    fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.seen.slices.iter().flat_map(|slice| {
            let alone = slice.devices.is_empty().then(|| self.row(slice, None));
            slice.devices.iter().map(|device| self.row(slice, Some(device))).chain(alone)
        })
    }

    fn row<'a>(&'a self, slice: &'a ObservedSlice, device: Option<&'a Device>) -> Row<'a> {
        let key = RowKey { path: slice.path.clone(), uuid: device.map(|device| device.uuid) };
        let track = self.track(&key);
        let seconds = track.map(|track| track.seconds.iter().copied().collect()).unwrap_or_default();
        let is_paced = device.is_some_and(|device| device.limits.is_paced());
        let used = track.and_then(Track::used).and_then(|used| time::measured(is_paced, used));
        Row { used, seconds, key, slice, device }
    }

    fn track(&self, key: &RowKey) -> Option<&Track> {
        self.tracks.iter().find(|track| track.key == *key)
    }

    /// Returns the processes of a slice on a GPU.
    pub(crate) fn processes_of(&self, row: &Row<'_>, sort: Sort, reversed: bool) -> Vec<ProcessRow<'_>> {
        let Some(slice) = self.slice(&row.key.path) else { return Vec::new() };
        let number = row.device.map_or(usize::MAX, |device| device.number);
        let track = self.track(&row.key).filter(|_| row.used.is_some());
        let of = |process| ProcessRow::of(process, number, track);
        let mut rows: Vec<ProcessRow<'_>> = slice.processes.iter().map(of).collect();
        match sort {
            Sort::Name => rows.sort_by_key(|row| row.process.id.pid),
            Sort::Memory => rows.sort_by_key(|row| Reverse(row.held)),
            Sort::Time => rows.sort_by_key(|row| Reverse((row.used, row.total))),
        }
        if reversed {
            rows.reverse();
        }
        rows
    }
}

impl<'a> ProcessRow<'a> {
    fn of(process: &'a Process, number: usize, track: Option<&Track>) -> Self {
        let of = |figures: &[u64]| figures.get(number).copied().unwrap_or(0);
        Self {
            process,
            held: of(&process.held),
            refused: process.refused.get(number).copied().unwrap_or(0),
            total: of(&process.used),
            throttled: of(&process.throttled),
            used: track.and_then(|track| track.used_by(process.id)),
        }
    }
}

fn sort_rows(rows: &mut [Row<'_>], sort: Sort, reversed: bool) {
    let held = |row: &Row<'_>| row.device.map_or(0, |device| device.held);
    rows.sort_by(|one, other| one.slice.name.cmp(&other.slice.name).then(one.key.path.cmp(&other.key.path)));
    match sort {
        Sort::Name => {}
        Sort::Memory => rows.sort_by_key(|row| Reverse(held(row))),
        Sort::Time => rows.sort_by_key(|row| Reverse(row.used)),
    }
    if reversed {
        rows.reverse();
    }
    // Unused slices are last in every order.
    rows.sort_by_key(|row| row.slice.is_unused());
}

#[cfg(test)]
pub(crate) mod tests;
