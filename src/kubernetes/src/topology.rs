//! Reads the places of the GPUs in the machine from files of NVIDIA's kernel module and of the kernel.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

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

/// Returns the places of all GPUs by UUID. `machine` is the root folder of the machine. Leaves out GPUs that the kernel module
/// does not list.
#[must_use]
pub fn gpu_locations(machine: &Path) -> BTreeMap<String, GpuLocation> {
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
