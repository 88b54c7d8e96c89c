//! Asks NVML about the GPUs of the node.
//!
//! A separate thread asks NVML once a second. If the driver hangs, only that thread waits. Other threads get the last
//! answer while it is fresh.

use crate::memory_answers::{Asked, answer_for, names_rightly};
use crate::process_lists::{ComparedSlices, ProcessLists};
use gpuslice_policy::compute::attribution::nvml_windows::Use;
use gpuslice_policy::config::parse_uuid_text;
use gpuslice_region::Uuid;
use gpuslice_slices::figures::printable;
use gpuslice_slices::nvml::{Nvml, NvmlDevice, NvmlMachine, NvmlTimeout, PROHIBITED, SHARED};
use gpuslice_slices::nvml_retry::AGAIN;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::warn;

/// Time between two rounds of questions to NVML.
const QUESTION_PERIOD: Duration = Duration::from_secs(1);
/// Age from which an answer is too old to be shown.
const FRESH: Duration = Duration::from_secs(10);

/// A GPU of the node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Gpu {
    /// The GPU's UUID, as NVML writes it: `GPU-…`.
    pub(crate) uuid: String,
    /// The GPU's number, as `nvidia-smi` shows it.
    pub(crate) index: u32,
    /// The product's name.
    pub(crate) model: Option<String>,
    /// True if NVML answers for the GPU: it tells a figure that changes over time.
    pub(crate) healthy: bool,
    /// Bytes of memory that the GPU has.
    pub(crate) memory_total: Option<u64>,
    /// Bytes that all processes use, also processes outside of slices.
    pub(crate) memory_used: Option<u64>,
    /// Bytes that the driver keeps for itself.
    pub(crate) memory_reserved: Option<u64>,
    /// Percent of NVML's last sample period in which a kernel ran.
    pub(crate) utilization_percent: Option<u32>,
    /// Degrees Celsius.
    pub(crate) temperature_celsius: Option<u32>,
    /// Numbers of the compute processes on the GPU. None: NVML does not tell.
    #[serde(skip)]
    pub(crate) users: Option<BTreeSet<u32>>,
    /// Bytes that NVML attributes to slices beyond their ledgers, by the paths of the slices' regions.
    #[serde(skip)]
    pub(crate) unaccounted: BTreeMap<PathBuf, i64>,
    /// Use of the processes that NVML has named since the answer before. None: NVML does not tell.
    #[serde(skip)]
    pub(crate) uses: Option<Vec<Use>>,
    /// UUIDs of the GPUs to which this GPU has NVLink.
    #[serde(skip)]
    pub(crate) nvlink: Vec<String>,
    /// The reason why slices cannot share the GPU, or none if they can.
    #[serde(skip)]
    pub(crate) obstacle: Option<Obstacle>,
}

/// The last answer of NVML about the GPUs.
#[derive(Debug, Clone, Default)]
struct GpuReading {
    driver: Option<String>,
    gpus: Vec<Gpu>,
    at: Option<Instant>,
    /// Time at which a thread last asked for the use of the GPUs by process.
    wanted_at: Option<Instant>,
}

/// The GPUs of the node, for all threads.
#[derive(Debug, Clone, Default)]
pub(crate) struct Gpus(Arc<Mutex<GpuReading>>, NewSlices);

/// The newest list of slices whose memory is compared. None: the thread that asks NVML has taken it.
type NewSlices = Arc<Mutex<Option<ComparedSlices>>>;

impl Gpus {
    /// Returns the version of the driver, or `None` if NVML does not tell it.
    pub(crate) fn driver(&self) -> Option<String> {
        self.seen().driver
    }

    /// Returns all GPUs that NVML has ever listed. If the last answer is too old, they have none of the figures that change.
    pub(crate) fn all(&self) -> Vec<Gpu> {
        let seen = self.seen();
        let is_fresh = seen.at.is_some_and(|at| at.elapsed() < FRESH);
        let told = |gpu: Gpu| if is_fresh { gpu } else { gpu.silent() };
        seen.gpus.into_iter().map(told).collect()
    }

    /// Returns the use of the GPUs by process in the last answer, and sets `last` to the time of that answer. Returns none if
    /// the answer is not newer than `last`. Leaves out a GPU for which NVML does not tell the use.
    ///
    /// A call makes the agent ask NVML for the use in its next rounds. The question takes milliseconds, and all other processes
    /// of the machine that ask NVML wait for that time.
    pub(crate) fn newer_uses(&self, last: &mut Option<Instant>) -> Option<HashMap<Uuid, Vec<Use>>> {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.wanted_at = Some(Instant::now());
        if seen.at <= *last {
            return None;
        }
        *last = seen.at;
        let of = |gpu: &Gpu| Some((Uuid(parse_uuid_text(&gpu.uuid)?), gpu.uses.clone()?));
        Some(seen.gpus.iter().filter_map(of).collect())
    }

    /// Returns true if a thread has asked for the [use of the GPUs](Self::newer_uses) within the last ten seconds.
    fn wants_uses(&self) -> bool {
        let seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.wanted_at.is_some_and(|at| at.elapsed() < FRESH)
    }

    /// Takes the slices whose memory is compared from the next list of processes on.
    pub(crate) fn compare(&self, slices: ComparedSlices) {
        *self.1.lock().unwrap_or_else(PoisonError::into_inner) = Some(slices);
    }

    fn seen(&self) -> GpuReading {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks NVML until all senders of questions are gone. Answers the questions of processes between its own. Calls `first` once,
    /// after the first attempt, even if that failed.
    pub(crate) fn watch(&self, questions: &Receiver<Asked>, first: impl FnOnce()) {
        let mut first = Some(first);
        loop {
            if let Some(nvml) = Nvml::open(NvmlTimeout::Full, |silence| warn!("{silence}")) {
                self.ask(nvml, questions, || first.take().into_iter().for_each(|first| first()));
            }
            first.take().into_iter().for_each(|first| first());
            if !answer_for(AGAIN, questions, None) {
                return;
            }
        }
    }

    /// Asks NVML once a second, until NVML fails to answer or all senders of questions are gone. The question for NVLink is asked
    /// only if the list of GPUs has changed, and the question for processes only every five seconds. Calls `asked` after each
    /// complete round.
    fn ask(&self, mut nvml: Nvml, questions: &Receiver<Asked>, mut asked: impl FnMut()) {
        let (mut linked, mut lists, mut uses) = (Linked::default(), ProcessLists::default(), Uses::default());
        while let Some(machine) = nvml.machine() {
            nvml.refresh();
            let mut gpus = looked_at(&nvml, &machine);
            linked.look(&nvml, &machine);
            if let Some(slices) = self.1.lock().unwrap_or_else(PoisonError::into_inner).take() {
                lists.compare(slices);
            }
            lists.look(&nvml, &machine.gpus);
            for gpu in &mut gpus {
                gpu.nvlink = linked.to(&gpu.uuid);
                if let Some(list) = lists.of(&gpu.uuid) {
                    (gpu.users, gpu.unaccounted) = (Some(list.users), list.unaccounted);
                }
            }
            if self.wants_uses() {
                gpus.iter_mut().for_each(|gpu| gpu.uses = uses.look(&nvml, &gpu.uuid));
            } else {
                uses = Uses::default();
            }
            if !nvml.is_alive() {
                return;
            }
            let names_rightly = names_rightly(machine.driver.as_deref());
            self.take(machine.driver, gpus);
            asked();
            if !answer_for(QUESTION_PERIOD, questions, Some(&nvml).filter(|_| names_rightly)) {
                return;
            }
        }
    }

    /// Takes an answer for one GPU, as if NVML had told this use of its processes.
    #[cfg(test)]
    pub(crate) fn answer(&self, uuid: &[u8; 16], uses: Vec<Use>) {
        self.take(
            None,
            vec![Gpu {
                uuid: gpuslice_policy::config::gpu_uuid_text(uuid),
                healthy: true,
                uses: Some(uses),
                ..Gpu::default()
            }],
        );
    }

    /// Remembers an answer. A GPU that is missing in the answer has fallen off the bus: it stays in the list without its
    /// figures. A GPU that NVML lists, and for which it does not answer, loses its figures too.
    fn take(&self, driver: Option<String>, gpus: Vec<Gpu>) {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut before = std::mem::take(&mut seen.gpus);
        let as_known = |gpu: Gpu| {
            let known = before.iter().position(|known| known.uuid == gpu.uuid).map(|at| before.remove(at));
            if gpu.healthy { gpu } else { known.unwrap_or(gpu).silent() }
        };
        let listed: Vec<Gpu> = gpus.into_iter().map(as_known).collect();
        seen.gpus = listed.into_iter().chain(before.into_iter().map(Gpu::silent)).collect();
        seen.driver = driver;
        seen.at = Some(Instant::now());
    }
}

impl Gpu {
    /// Returns the bytes that slices can have. The driver keeps the remaining bytes for itself.
    pub(crate) fn memory_for_slices(&self) -> u64 {
        self.memory_total.unwrap_or(0).saturating_sub(self.memory_reserved.unwrap_or(0))
    }

    /// Returns true if the GPU may have instances (MIG).
    pub(crate) fn is_divided(&self) -> bool {
        self.obstacle == Some(Obstacle::Divided)
    }

    /// Returns true if the agent offers the GPU to pods.
    pub(crate) fn is_shared(&self) -> bool {
        self.healthy && self.obstacle.is_none() && self.memory_for_slices() > 0
    }

    /// Returns the GPU without the figures that change.
    fn silent(self) -> Self {
        let Self { uuid, index, model, memory_total, nvlink, obstacle, .. } = self;
        Self { uuid, index, model, memory_total, nvlink, obstacle, ..Self::default() }
    }
}

/// The GPUs, and the GPUs to which each has NVLink. The agent asks for them again when the list of GPUs changes.
#[derive(Debug, Default)]
struct Linked {
    gpus: Vec<String>,
    /// For each GPU of `gpus`, the GPUs to which it has NVLink.
    to: Vec<Vec<String>>,
}

impl Linked {
    fn look(&mut self, nvml: &Nvml, machine: &NvmlMachine) {
        if self.gpus != machine.gpus {
            self.to = nvml.links(&machine.gpus);
            self.gpus.clone_from(&machine.gpus);
        }
    }

    /// Returns the UUIDs of the GPUs to which a GPU has NVLink.
    fn to(&self, uuid: &str) -> Vec<String> {
        let known = self.gpus.iter().zip(&self.to).find(|(gpu, _)| *gpu == uuid);
        known.map(|(_, linked)| linked.clone()).unwrap_or_default()
    }
}

/// The use of the GPUs by process: for each GPU the time of NVML's last sample, by NVML's clock in microseconds.
#[derive(Debug, Default)]
struct Uses(BTreeMap<String, u64>);

impl Uses {
    /// Returns the use of a GPU by process since the last call.
    ///
    /// The first call returns no use. NVML's first answer may cover the last ten seconds, and name processes that have ended.
    /// The function takes only the time of the last sample from it.
    fn look(&mut self, nvml: &Nvml, uuid: &str) -> Option<Vec<Use>> {
        let before = self.0.get(uuid).copied();
        let samples = nvml.samples(&nvml.device(bare(uuid))?, before.unwrap_or(0))?;
        let last = samples.iter().map(|sample| sample.stamp).chain(before).max().unwrap_or(0);
        self.0.insert(uuid.to_owned(), last);
        let uses = samples.iter().map(|sample| Use {
            pid: sample.pid,
            stamp: sample.stamp,
            percent: sample.percent,
        });
        Some(before.map(|_| uses.collect()).unwrap_or_default())
    }
}

/// Returns the text of a UUID without its prefix `GPU-`, as a region has it.
pub(crate) fn bare(uuid: &str) -> &str {
    uuid.split_once('-').map_or(uuid, |(_, bare)| bare)
}

fn looked_at(nvml: &Nvml, machine: &NvmlMachine) -> Vec<Gpu> {
    let gpu = |(index, uuid): (usize, &String)| {
        let index = u32::try_from(index).ok().filter(|_| !uuid.is_empty())?;
        let Some(device) = nvml.device(bare(uuid)) else {
            return Some(Gpu { uuid: uuid.clone(), index, ..Gpu::default() });
        };
        Some(Gpu {
            uuid: uuid.clone(),
            index,
            model: device.product.as_deref().map(printable),
            healthy: is_answered_for(&device),
            memory_total: device.total,
            memory_used: device.used,
            memory_reserved: device.reserved,
            utilization_percent: device.utilization,
            temperature_celsius: device.temperature,
            users: None,
            unaccounted: BTreeMap::new(),
            uses: None,
            nvlink: Vec::new(),
            obstacle: obstacle(&device),
        })
    };
    machine.gpus.iter().enumerate().filter_map(gpu).collect()
}

/// Returns true if NVML tells a figure of the device that changes over time. NVML may remember the other figures of a lost
/// device.
fn is_answered_for(device: &NvmlDevice) -> bool {
    device.used.is_some() || device.utilization.is_some() || device.temperature.is_some()
}

/// The reason why slices cannot share a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// The GPU has instances (MIG), or will have some.
    Divided,
    /// The compute mode permits no process.
    Prohibited,
    /// The compute mode permits one process.
    Exclusive,
}

impl Obstacle {
    /// Returns the reason and the remedy, for people.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Divided => {
                "MIG is enabled, and a slice has no limits on an instance; to share it: nvidia-smi -mig 0"
            }
            Self::Prohibited => "no process may use it (compute mode); to share it: nvidia-smi -c 0",
            Self::Exclusive => "only one process may use it (compute mode); to share it: nvidia-smi -c 0",
        }
    }
}

/// Returns the reason why slices cannot share a GPU, or none if they can.
fn obstacle(device: &NvmlDevice) -> Option<Obstacle> {
    if device.is_divided == Some(true) {
        return Some(Obstacle::Divided);
    }
    match device.compute_mode {
        None | Some(SHARED) => None,
        Some(PROHIBITED) => Some(Obstacle::Prohibited),
        Some(_) => Some(Obstacle::Exclusive),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_with_mig_or_for_one_process_is_not_shared() {
        let found = |is_divided: Option<bool>, compute_mode: Option<u32>| {
            obstacle(&NvmlDevice { is_divided, compute_mode, ..NvmlDevice::default() })
                .map_or("", Obstacle::text)
        };
        // For some GPUs, NVML tells neither MIG nor compute mode.
        assert_eq!([found(None, None), found(Some(false), Some(0))], ["", ""]);
        assert!(found(Some(true), Some(0)).starts_with("MIG is enabled"));
        for (mode, says) in [(1, "only one process"), (2, "no process"), (3, "only one process")] {
            assert!(found(Some(false), Some(mode)).starts_with(says), "{mode}");
        }
    }

    fn gpu(uuid: &str) -> Gpu {
        Gpu {
            uuid: uuid.to_owned(),
            healthy: true,
            memory_used: Some(7),
            memory_total: Some(9),
            ..Gpu::default()
        }
    }

    #[test]
    fn a_gpu_that_nvml_stops_listing_is_shown_as_lost() {
        let gpus = Gpus::default();
        gpus.take(Some("580".to_owned()), vec![gpu("GPU-a"), gpu("GPU-b")]);
        gpus.take(Some("580".to_owned()), vec![gpu("GPU-b")]);
        let all = gpus.all();
        let told: Vec<_> = all
            .iter()
            .map(|gpu| (gpu.uuid.as_str(), gpu.healthy, gpu.memory_used, gpu.memory_total))
            .collect();
        assert_eq!(told, [("GPU-b", true, Some(7), Some(9)), ("GPU-a", false, None, Some(9))]);
    }

    #[test]
    fn a_gpu_that_nvml_lists_and_does_not_describe_stays_the_gpu_that_it_was() {
        let gpus = Gpus::default();
        let known = Gpu { model: Some("H100".to_owned()), obstacle: Some(Obstacle::Divided), ..gpu("GPU-a") };
        gpus.take(None, vec![known.clone(), gpu("GPU-b")]);
        for _ in 0..2 {
            gpus.take(None, vec![Gpu { uuid: "GPU-a".to_owned(), ..Gpu::default() }, gpu("GPU-b")]);
            let all = gpus.all();
            assert_eq!(all, [known.clone().silent(), gpu("GPU-b")]);
            assert_eq!((all[0].healthy, all[0].memory_total, all[0].memory_used), (false, Some(9), None));
            assert_eq!(all[0].model.as_deref(), Some("H100"));
        }
    }

    #[test]
    fn a_gpu_without_a_figure_that_changes_is_not_healthy() {
        let told = |device: NvmlDevice| is_answered_for(&device);
        assert!(!told(NvmlDevice { index: Some(0), total: Some(9), ..NvmlDevice::default() }));
        assert!(told(NvmlDevice { used: Some(7), ..NvmlDevice::default() }));
        // For a GPU that uses the host's memory, NVML tells no memory.
        assert!(told(NvmlDevice { temperature: Some(40), ..NvmlDevice::default() }));
    }

    #[test]
    fn old_answers_of_nvml_are_not_shown() {
        let gpus = Gpus::default();
        gpus.take(None, vec![gpu("GPU-a")]);
        assert!(gpus.all()[0].healthy);
        gpus.0.lock().unwrap().at = Instant::now().checked_sub(FRESH);
        assert_eq!((gpus.all()[0].healthy, gpus.all()[0].memory_used), (false, None));
    }
}
