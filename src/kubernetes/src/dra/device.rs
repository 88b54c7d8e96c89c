//! A GPU as a device that the scheduler can divide.

use crate::objects::{Gpu, Inventory};
use crate::topology::GpuLocation;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Name of this driver.
pub(super) const DRIVER: &str = "gpuslice.dev";
/// Name of the capacity that counts memory, in bytes.
pub(super) const MEMORY: &str = "memory";
/// Name of the capacity that counts GPU time, in percent.
pub(super) const CORES: &str = "cores";
/// Taint of a GPU that does not work.
const UNHEALTHY: &str = "gpuslice.dev/unhealthy";
/// Fewest mebibytes of a part. With less memory, the driver makes no context.
const LEAST_MIB: u64 = 256;
/// Most characters of a device's attribute.
const MOST_TEXT: usize = 64;

/// Returns the name of a GPU's device. This is the UUID, which stays the same if the GPUs get other numbers.
pub(super) fn name(gpu: &Gpu) -> String {
    gpu.uuid.to_lowercase()
}

/// Returns the devices of a node, in the order of their names. `gpu_locations` has the places of its GPUs, by UUID. A GPU that
/// does not work gets a taint. If `taints` is false, the list leaves that GPU out.
pub(super) fn devices(
    inventory: &Inventory,
    gpu_locations: &BTreeMap<String, GpuLocation>,
    taints: bool,
) -> Value {
    let is_shown = |gpu: &&Gpu| gpu.mem_mib > LEAST_MIB && (gpu.healthy || taints);
    let mut shown: Vec<&Gpu> = inventory.gpus.iter().filter(is_shown).collect();
    shown.sort_by_key(|gpu| name(gpu));
    shown.into_iter().map(|gpu| device(gpu, &inventory.driver, gpu_locations.get(&gpu.uuid))).collect()
}

fn device(gpu: &Gpu, driver: &str, location: Option<&GpuLocation>) -> Value {
    let whole = mebibytes(gpu.mem_mib);
    let mut device = json!({
        "name": name(gpu),
        "attributes": attributes(gpu, driver, location),
        "capacity": {
            MEMORY: {"value": whole, "requestPolicy": {
                "default": whole,
                "validRange": {"min": mebibytes(LEAST_MIB), "step": mebibytes(1)},
            }},
            // A claim that asks for no share gets none: its launches are not throttled.
            CORES: {"value": gpu.core.to_string(), "requestPolicy": {
                "default": "0",
                "validRange": {"min": "0", "step": "1"},
            }},
        },
        "allowMultipleAllocations": true,
    });
    // Pods keep a GPU that they have, because NVML may only have been late. So the taint does not evict them.
    let reason = if gpu.why.is_some() { "not-shared" } else { "lost" };
    let taints = json!([{"key": UNHEALTHY, "value": reason, "effect": "NoSchedule"}]);
    if let Some(fields) = device.as_object_mut().filter(|_| !gpu.healthy) {
        fields.insert("taints".to_owned(), taints);
    }
    device
}

fn attributes(gpu: &Gpu, driver: &str, location: Option<&GpuLocation>) -> Map<String, Value> {
    let text = |text: &str| json!({"string": text.chars().take(MOST_TEXT).collect::<String>()});
    let is_known = |text: &&str| !text.is_empty();
    let named = [
        ("uuid", Some(text(&gpu.uuid))),
        ("model", Some(gpu.model.as_str()).filter(is_known).map(text)),
        ("driverVersion", version(driver).map(|version| json!({"version": version}))),
        ("memoryMiB", Some(json!({"int": gpu.mem_mib}))),
        ("numaNode", location.and_then(|location| location.numa).map(|node| json!({"int": node}))),
        ("resource.kubernetes.io/pciBusID", location.map(|location| text(&location.bus))),
        ("resource.kubernetes.io/pcieRoot", location.and_then(|location| location.root.as_deref()).map(text)),
    ];
    named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// Returns the driver's version as a semantic version, which has three numbers without leading zeros. Example: 580.65.6 for
/// 580.65.06.
fn version(driver: &str) -> Option<String> {
    let mut numbers = driver.split('.').map(str::parse::<u32>).collect::<Result<Vec<_>, _>>().ok()?;
    numbers.resize(3, 0);
    Some(numbers.iter().map(u32::to_string).collect::<Vec<_>>().join("."))
}

/// Formats a quantity as the apiserver does, in the largest unit in which it is a whole number.
fn mebibytes(count: u64) -> String {
    match (count.checked_rem(1024), count.checked_div(1024)) {
        (Some(0), Some(gibibytes)) => format!("{gibibytes}Gi"),
        _ => format!("{count}Mi"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inventory(healthy: bool) -> Inventory {
        let gpu = |uuid: &str, mem_mib, healthy| Gpu {
            uuid: uuid.to_owned(),
            model: "NVIDIA H200".to_owned(),
            mem_mib,
            core: 100,
            healthy,
            ..Gpu::default()
        };
        let gpus = vec![gpu("GPU-b", 143_771, healthy), gpu("GPU-A", 16_384, true), gpu("GPU-c", 0, true)];
        Inventory { v: 1, driver: "580.65.06".to_owned(), gpus }
    }

    #[test]
    fn a_device_has_the_gpus_attributes_and_can_be_divided() {
        let location = GpuLocation {
            bus: "0000:01:00.0".to_owned(),
            numa: Some(1),
            root: Some("pci0000:00".to_owned()),
        };
        let gpu_locations = BTreeMap::from([("GPU-b".to_owned(), location)]);
        let devices = devices(&inventory(true), &gpu_locations, true);
        assert_eq!(devices.as_array().unwrap().len(), 2, "one has no memory to divide");
        assert_eq!(
            devices[0]["attributes"],
            json!({
                "uuid": {"string": "GPU-A"}, "model": {"string": "NVIDIA H200"},
                "driverVersion": {"version": "580.65.6"}, "memoryMiB": {"int": 16_384},
            })
        );
        assert_eq!(
            devices[1],
            json!({
                "name": "gpu-b",
                "attributes": {
                    "uuid": {"string": "GPU-b"}, "model": {"string": "NVIDIA H200"},
                    "driverVersion": {"version": "580.65.6"}, "memoryMiB": {"int": 143_771},
                    "numaNode": {"int": 1},
                    "resource.kubernetes.io/pciBusID": {"string": "0000:01:00.0"},
                    "resource.kubernetes.io/pcieRoot": {"string": "pci0000:00"},
                },
                "capacity": {
                    "memory": {"value": "143771Mi", "requestPolicy":
                        {"default": "143771Mi", "validRange": {"min": "256Mi", "step": "1Mi"}}},
                    "cores": {"value": "100", "requestPolicy":
                        {"default": "0", "validRange": {"min": "0", "step": "1"}}},
                },
                "allowMultipleAllocations": true,
            })
        );
        assert_eq!(devices[0]["capacity"]["memory"]["value"], "16Gi");
    }

    #[test]
    fn a_lost_gpu_has_a_taint_or_is_left_out() {
        let gpu_locations = BTreeMap::new();
        let tainted = devices(&inventory(false), &gpu_locations, true);
        assert_eq!(
            tainted[1]["taints"],
            json!([{"key": "gpuslice.dev/unhealthy", "value": "lost", "effect": "NoSchedule"}])
        );
        assert_eq!(tainted[0].get("taints"), None);
        let mut divided = inventory(false);
        divided.gpus[0].why = Some("MIG is enabled".to_owned());
        assert_eq!(devices(&divided, &gpu_locations, true)[1]["taints"][0]["value"], "not-shared");
        let left = devices(&inventory(false), &gpu_locations, false);
        assert_eq!((left.as_array().unwrap().len(), &left[0]["name"]), (1, &json!("gpu-a")));
    }

    #[test]
    fn a_driver_version_of_another_form_is_left_out() {
        assert_eq!(version("550.54").as_deref(), Some("550.54.0"));
        assert_eq!((version(""), version("r550")), (None, None));
    }
}
