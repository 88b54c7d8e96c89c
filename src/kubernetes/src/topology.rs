//! Reads the places of the GPUs in the machine from files of NVIDIA's kernel module and of the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;
use tokio::sync::{Mutex, oneshot};
use tokio::time::timeout;

/// Longest wait for the places of GPUs. A read without a fault takes milliseconds.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Place of a GPU in the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuLocation {
    /// Address on the PCI bus: `0000:01:00.0`.
    pub bus: String,
    /// Number of the NUMA node; none if the machine has only one.
    pub numa: Option<u32>,
    /// PCI root of the GPU and of the devices near to it: `pci0000:00`.
    pub root: Option<String>,
}

/// The places of GPUs that were read so far.
#[derive(Debug, Default)]
pub struct KnownLocations(Mutex<ReadLocations>);

#[derive(Debug, Default)]
struct ReadLocations {
    /// UUIDs of the GPUs that the node had at the read of `locations`.
    gpus: BTreeSet<String>,
    locations: BTreeMap<String, GpuLocation>,
    pending: Option<PendingRead>,
}

/// A read that has not ended.
#[derive(Debug)]
struct PendingRead {
    /// UUIDs of the GPUs that the node had at its start.
    gpus: BTreeSet<String>,
    told: oneshot::Receiver<BTreeMap<String, GpuLocation>>,
}

impl KnownLocations {
    /// Returns the places of the GPUs by UUID. `gpus` are the GPUs of the node, and `machine` is its root folder.
    ///
    /// The driver answers the read of its files. It wakes idle GPUs for that, and a driver that hangs never answers. So the
    /// function reads only if the node has other GPUs than before, and on a thread of its own. If that thread is late, the
    /// function returns the places of the last read.
    pub async fn of(&self, gpus: BTreeSet<String>, machine: &Path) -> BTreeMap<String, GpuLocation> {
        let mut known = self.0.lock().await;
        if known.gpus != gpus && known.pending.is_none() {
            let (machine, (tell, told)) = (machine.to_owned(), oneshot::channel());
            let read = move || {
                let _nobody_waits_any_more = tell.send(gpu_locations(&machine));
            };
            known.pending = thread::Builder::new().spawn(read).is_ok().then_some(PendingRead { gpus, told });
        }
        if let Some(mut read) = known.pending.take() {
            match timeout(LONGEST_WAIT, &mut read.told).await {
                Ok(Ok(locations)) => (known.gpus, known.locations) = (read.gpus, locations),
                Ok(Err(_)) => {}
                Err(_) => known.pending = Some(read),
            }
        }
        known.locations.clone()
    }
}

/// Returns the places of all GPUs by UUID. `machine` is the root folder of the machine. Leaves out GPUs that the kernel module
/// does not list.
fn gpu_locations(machine: &Path) -> BTreeMap<String, GpuLocation> {
    let entries = fs::read_dir(machine.join("proc/driver/nvidia/gpus")).into_iter().flatten().flatten();
    let location = |entry: fs::DirEntry| {
        let said = fs::read_to_string(entry.path().join("information")).ok()?;
        let uuid = said.lines().find_map(|line| line.strip_prefix("GPU UUID:"))?.trim().to_owned();
        let bus = entry.file_name().into_string().ok()?;
        let device = machine.join("sys/bus/pci/devices").join(&bus);
        let numa = fs::read_to_string(device.join("numa_node")).ok();
        // The file has -1 if the machine has no NUMA nodes.
        let numa = numa.and_then(|text| text.trim().parse().ok());
        Some((uuid, GpuLocation { bus, numa, root: root(&device) }))
    };
    entries.filter_map(location).collect()
}

/// Returns the first part of a device's path that is a root of the PCI bus.
fn root(device: &Path) -> Option<String> {
    let path = fs::canonicalize(device).ok()?;
    let mut parts = path.iter().filter_map(|part| part.to_str());
    parts.find(|part| part.starts_with("pci")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_driver_that_hangs_delays_places_only_and_answers_one_question_for_the_same_gpus() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("proc/driver/nvidia/gpus/0000:01:00.0");
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("information");
        assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
        let (known, gpus) = (KnownLocations::default(), || BTreeSet::from(["GPU-a".to_owned()]));
        assert!(known.of(gpus(), root.path()).await.is_empty());
        // The thread of the first call still waits for the content. A second thread would wait for ever.
        assert!(known.of(gpus(), root.path()).await.is_empty());
        fs::write(&file, "GPU UUID: \t GPU-a\n").unwrap();
        let told = known.of(gpus(), root.path()).await;
        assert_eq!(told.keys().collect::<Vec<_>>(), ["GPU-a"]);
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(known.of(gpus(), root.path()).await, told);
        assert!(known.of(BTreeSet::from(["GPU-b".to_owned()]), root.path()).await.is_empty());
    }

    #[test]
    fn a_gpus_place_is_that_of_its_pci_address() {
        let root = tempfile::tempdir().unwrap();
        let make = |path: &str, content: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        };
        let gpus = "proc/driver/nvidia/gpus";
        make(
            &format!("{gpus}/0000:01:00.0/information"),
            "Model: \t x\nGPU UUID: \t GPU-a\nBus Type: \t PCIe\n",
        );
        make(&format!("{gpus}/0000:81:00.0/information"), "GPU UUID: \t GPU-b\n");
        make(&format!("{gpus}/0000:82:00.0/information"), "nothing\n");
        make("sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/numa_node", "0\n");
        make("sys/devices/pci0000:80/0000:81:00.0/numa_node", "-1\n");
        fs::create_dir_all(root.path().join("sys/bus/pci/devices")).unwrap();
        let link = root.path().join("sys/bus/pci/devices/0000:01:00.0");
        std::os::unix::fs::symlink("../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0", link).unwrap();
        let location = |bus: &str, numa, root: Option<&str>| GpuLocation {
            bus: bus.to_owned(),
            numa,
            root: root.map(str::to_owned),
        };
        let expected = BTreeMap::from([
            ("GPU-a".to_owned(), location("0000:01:00.0", Some(0), Some("pci0000:00"))),
            ("GPU-b".to_owned(), location("0000:81:00.0", None, None)),
        ]);
        assert_eq!(gpu_locations(root.path()), expected);
        assert!(gpu_locations(&root.path().join("none")).is_empty());
    }
}
