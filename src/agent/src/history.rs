//! Keeps the use of GPUs and slices in the last ten minutes.

use crate::snapshot::Snapshot;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Time between two points.
pub(crate) const POINT_PERIOD: Duration = Duration::from_secs(2);
/// Points of a line. They cover ten minutes.
const POINTS: usize = 300;
/// Most lines. A tenant can enter any number of GPUs in its region, and 1024 lines take 4 MiB.
const LINES: usize = 1024;

/// The key of a line. A line belongs to a slice on a GPU, or to a GPU.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct SeriesKey {
    /// The slice's container. Empty if there is none, or if the agent made the slice.
    pub(crate) container: String,
    /// The slice's name. Empty if the line is the GPU's own.
    pub(crate) slice: String,
    /// The GPU.
    pub(crate) uuid: String,
}

/// The use at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Point {
    /// MiB of memory; `None` if unknown.
    pub(crate) memory_mib: Option<u32>,
    /// Thousandths of the GPU's time; `None` if unknown.
    pub(crate) used_permille: Option<u16>,
    /// Wall time for which launches waited for the share, in thousandths of the time.
    pub(crate) throttled_permille: u16,
}

/// The last ten minutes of all existing slices and GPUs.
#[derive(Debug, Default)]
pub(crate) struct History(BTreeMap<SeriesKey, VecDeque<Point>>);

impl History {
    /// Adds a point to each line. Removes the lines of slices that do not exist any more.
    pub(crate) fn take(&mut self, now: &Snapshot) {
        let mut before = std::mem::take(&mut self.0);
        for (key, point) in points(now).take(LINES) {
            let mut line = before.remove(&key).unwrap_or_default();
            line.push_back(point);
            while line.len() > POINTS {
                line.pop_front();
            }
            self.0.insert(key, line);
        }
    }

    /// Returns all lines. Each begins with its oldest point. The last point covers the last [`POINT_PERIOD`].
    pub(crate) fn lines(&self) -> impl Iterator<Item = (&SeriesKey, &VecDeque<Point>)> {
        self.0.iter()
    }
}

/// Returns the points of this moment. The points of GPUs come first, then those of the configuration's slices, then those of
/// other slices. So a tenant that enters many GPUs in its region cannot take the lines of GPUs and of the configuration's
/// slices.
fn points(now: &Snapshot) -> impl Iterator<Item = (SeriesKey, Point)> {
    let mib = |bytes: u64| u32::try_from(bytes >> 20).unwrap_or(u32::MAX);
    let part = |permille: u64| u16::try_from(permille).unwrap_or(u16::MAX);
    let slices = now.slices.iter().flat_map(move |slice| {
        slice.devices.iter().map(move |device| {
            let key = SeriesKey {
                container: slice.place().to_owned(),
                slice: slice.name.clone(),
                uuid: device.uuid.clone(),
            };
            let point = Point {
                memory_mib: Some(mib(device.memory_used)),
                used_permille: device.used_permille.map(part),
                throttled_permille: part(device.throttled_permille),
            };
            (key, point)
        })
    });
    let gpus = now.gpus.iter().map(move |gpu| {
        let key = SeriesKey { container: String::new(), slice: String::new(), uuid: gpu.uuid.clone() };
        let point = Point {
            memory_mib: gpu.memory_used.map(mib),
            used_permille: gpu.utilization_percent.map(|percent| part(u64::from(percent).saturating_mul(10))),
            throttled_permille: 0,
        };
        (key, point)
    });
    gpus.chain(slices)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpus::Gpu;

    #[test]
    fn a_line_has_ten_minutes_and_ends_with_its_gpu() {
        let gpu =
            |used: u64| Gpu { uuid: "GPU-a".to_owned(), memory_used: Some(used << 20), ..Gpu::default() };
        let mut history = History::default();
        for used in 0..400 {
            history.take(&Snapshot { gpus: vec![gpu(used)], ..Snapshot::default() });
        }
        let lines: Vec<_> = history.lines().collect();
        assert_eq!(lines.len(), 1);
        let memory: Vec<_> = lines[0].1.iter().map(|point| point.memory_mib).collect();
        assert_eq!((memory.len(), memory[0], memory[299]), (300, Some(100), Some(399)));
        history.take(&Snapshot::default());
        assert_eq!(history.lines().count(), 0);
    }

    #[test]
    fn lines_are_bounded_and_gpus_come_first() {
        let device = |uuid: String| crate::snapshot::Device { uuid, ..Default::default() };
        let slice = crate::snapshot::SliceSnapshot {
            name: "a".to_owned(),
            container: None,
            container_name: None,
            pod: None,
            made: false,
            region: String::new(),
            problem: None,
            generation: None,
            process_count: 1,
            processes: Vec::new(),
            devices: (0..2000).map(|number| device(number.to_string())).collect(),
        };
        let gpu = Gpu { uuid: "GPU-a".to_owned(), ..Gpu::default() };
        let mut history = History::default();
        history.take(&Snapshot { gpus: vec![gpu], slices: vec![slice], ..Snapshot::default() });
        assert_eq!(history.lines().count(), LINES);
        assert!(history.lines().any(|(key, _)| key.uuid == "GPU-a" && key.slice.is_empty()));
    }
}
