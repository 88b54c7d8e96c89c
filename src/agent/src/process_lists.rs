//! Asks NVML for the compute processes of GPUs, and compares their memory with the ledgers of the node's slices.

use gpuslice_policy::config::parse_uuid_text;
use gpuslice_region::{Reader, Uuid};
use gpuslice_slices::discovery::Machine;
use gpuslice_slices::nvml::Nvml;
use gpuslice_slices::unaccounted::{DeviceLedger, unaccounted};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time between two questions for the processes of GPUs.
const LISTS: Duration = Duration::from_secs(5);
/// Number of comparisons at one look, while ledgers change. Each asks for two lists of processes.
const COMPARISONS: u32 = 3;
/// Longest time after whose end no further comparison begins. The thread renews NVML's answers as well, and an answer that is ten
/// seconds old makes a GPU unhealthy.
const LONGEST_COMPARING: Duration = Duration::from_secs(1);
/// Most processes of a slice that is compared. A tenant can enter any number of them, and each costs reads of `/proc`.
const MOST_COMPARED: usize = 64;

/// The slices of the node, whose memory is compared.
#[derive(Debug, Clone, Default)]
pub(crate) struct ComparedSlices {
    /// The processes of the node.
    pub(crate) machine: Machine,
    /// The regions of the slices. This thread and the one that answers clients share them, because each mapping of a region
    /// counts as memory of the agent.
    pub(crate) readers: Vec<Arc<Reader>>,
}

/// The processes of a GPU.
#[derive(Debug, Clone, Default)]
pub(crate) struct ProcessList {
    /// Numbers of the processes. A process with several instances counts once.
    pub(crate) users: BTreeSet<u32>,
    /// Bytes that NVML attributes to slices beyond their ledgers, by the paths of the slices' regions.
    pub(crate) unaccounted: BTreeMap<PathBuf, i64>,
}

/// The processes of all GPUs. The agent asks for them every five seconds only: NVML takes milliseconds for an answer, and
/// other processes that ask NVML wait meanwhile.
#[derive(Debug, Default)]
pub(crate) struct ProcessLists {
    asked: Option<Instant>,
    slices: ComparedSlices,
    by_gpu: BTreeMap<String, ProcessList>,
}

impl ProcessLists {
    /// Compares these slices from the next question on.
    pub(crate) fn compare(&mut self, slices: ComparedSlices) {
        self.slices = slices;
    }

    /// Asks for the processes of the GPUs with these UUIDs, if that is due.
    pub(crate) fn look(&mut self, nvml: &Nvml, gpus: &[String]) {
        if self.asked.is_some_and(|asked| asked.elapsed() < LISTS) {
            return;
        }
        let begun = Instant::now();
        self.asked = Some(begun);
        let ComparedSlices { machine, readers } = &self.slices;
        let is_late = || begun.elapsed() >= LONGEST_COMPARING;
        let compared: Vec<Compared<'_>> =
            readers.iter().take_while(|_| !is_late()).filter_map(|reader| Compared::of(reader)).collect();
        let list = |uuid: &String| {
            let slices = if is_late() { &[] } else { compared.as_slice() };
            Some((uuid.clone(), ask(nvml, uuid, slices, machine)?))
        };
        self.by_gpu = gpus.iter().filter_map(list).collect();
    }

    /// Returns the processes of a GPU, or none if NVML does not tell them.
    pub(crate) fn of(&self, uuid: &str) -> Option<ProcessList> {
        self.by_gpu.get(uuid).cloned()
    }
}

/// A slice that is compared.
struct Compared<'a> {
    reader: &'a Reader,
    /// The slice's devices, by their places in the slice.
    devices: Vec<(Uuid, usize)>,
}

impl<'a> Compared<'a> {
    /// Returns a slice, if it has processes, but not too many.
    fn of(reader: &'a Reader) -> Option<Self> {
        reader.process_count().ok().filter(|count| (1..=MOST_COMPARED).contains(count))?;
        let devices = reader.devices().ok()?;
        Some(Self {
            reader,
            devices: devices.iter().map(|known| (known.uuid, known.device.index())).collect(),
        })
    }

    /// Returns the slice's account of a GPU, if it has that GPU.
    fn ledger_of(&self, gpu: Uuid) -> Option<DeviceLedger<'a>> {
        let (_, number) = self.devices.iter().find(|(uuid, _)| *uuid == gpu)?;
        Some(DeviceLedger { reader: self.reader, number: *number })
    }
}

/// Asks for the processes of a GPU, and compares the slices of these regions.
fn ask(nvml: &Nvml, uuid: &str, slices: &[Compared<'_>], machine: &Machine) -> Option<ProcessList> {
    let gpu = Uuid(parse_uuid_text(uuid)?);
    let device = nvml.device(&gpu.to_string())?;
    let users = nvml.processes(&device)?.iter().map(|one| one.pid).collect();
    let ledgers: Vec<DeviceLedger<'_>> = slices.iter().filter_map(|slice| slice.ledger_of(gpu)).collect();
    let found = unaccounted(nvml, &device, &ledgers, machine, COMPARISONS);
    let path = |ledger: &DeviceLedger<'_>| ledger.reader.path().to_owned();
    let unaccounted =
        ledgers.iter().zip(found).filter_map(|(slice, bytes)| Some((path(slice), bytes?))).collect();
    Some(ProcessList { users, unaccounted })
}
