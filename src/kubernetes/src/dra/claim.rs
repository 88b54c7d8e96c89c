//! Claims in the form of the apiserver, and the parts of GPUs that the scheduler allocated to them.

use super::device;
use crate::api::Metadata;
use crate::files::MIB;
use crate::objects::{Inventory, Part, whole};
use serde::Deserialize;
use std::collections::BTreeMap;

/// A resource claim.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Claim {
    pub(super) metadata: Metadata,
    status: Status,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Status {
    /// None: the claim has no devices, or has lost its devices.
    allocation: Option<Allocation>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Allocation {
    devices: Devices,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Devices {
    results: Vec<Allocated>,
}

/// Device that is allocated to a claim.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Allocated {
    /// Name of the claim's request. If the request has alternatives, `/` and the name of the chosen one follow.
    request: String,
    driver: String,
    pub(super) pool: String,
    pub(super) device: String,
    /// Identifies this claim among those that share the device.
    #[serde(rename = "shareID")]
    pub(super) share: Option<String>,
    /// The claim's part of the device; none if the claim has the whole device.
    consumed_capacity: Option<BTreeMap<String, String>>,
    admin_access: Option<bool>,
}

impl Allocated {
    /// Returns the name of the request, as containers use it.
    pub(super) fn request(&self) -> &str {
        self.request.split_once('/').map_or(&self.request, |(request, _)| request)
    }

    /// Returns the quantity of a capacity. The scheduler may put the driver's name before the capacity's name.
    fn consumed(&self, capacity: &str) -> Result<Option<u64>, String> {
        let Some(consumed) = &self.consumed_capacity else { return Ok(None) };
        let qualified = format!("{}/{capacity}", device::DRIVER);
        let Some(quantity) = consumed.get(capacity).or_else(|| consumed.get(&qualified)) else {
            return Err(format!("the claim's part of {} has no {capacity}", self.device));
        };
        let read = whole(quantity).map(Some);
        read.ok_or_else(|| {
            format!("the claim's {capacity} of {} is {quantity:?}, which is no whole number", self.device)
        })
    }

    /// Returns the part of a GPU of this node for which the device stands.
    fn part(&self, inventory: &Inventory) -> Result<Part, String> {
        let device = &self.device;
        if self.admin_access == Some(true) {
            return Err(format!("the claim has admin access to {device}, which no slice has"));
        }
        let Some(gpu) = inventory.gpus.iter().find(|gpu| device::name(gpu) == *device) else {
            return Err(format!("{device} is no GPU of this node"));
        };
        if let Some(why) = &gpu.why {
            return Err(format!("{device} cannot be shared: {why}"));
        }
        if !gpu.healthy {
            return Err(format!("{device} does not work"));
        }
        let bytes = self.consumed(device::MEMORY)?;
        let mem_mib = bytes.map_or(gpu.mem_mib, |bytes| bytes.checked_div(MIB).unwrap_or(0));
        let core = self.consumed(device::CORES)?.unwrap_or(0);
        let core = u32::try_from(core).ok().filter(|core| *core <= gpu.core);
        let core = core.ok_or_else(|| format!("the claim has more than {} % of {device}", gpu.core))?;
        if mem_mib == 0 || mem_mib > gpu.mem_mib {
            return Err(format!("the claim has {mem_mib} MiB of {device}, which has {} MiB", gpu.mem_mib));
        }
        Ok(Part { uuid: gpu.uuid.clone(), mem_mib, core })
    }
}

impl Claim {
    /// Returns the devices of this driver in a pool that are allocated to the claim.
    pub(super) fn devices(&self, pool: &str) -> Vec<Allocated> {
        let results = self.status.allocation.iter().flat_map(|allocation| &allocation.devices.results);
        results.filter(|result| result.driver == device::DRIVER && result.pool == pool).cloned().collect()
    }
}

/// Returns the parts of GPUs for which `devices` stand, one for each GPU. If a claim has a GPU twice, its limits add up.
pub(super) fn parts(devices: &[Allocated], inventory: &Inventory) -> Result<Vec<Part>, String> {
    let mut parts: Vec<Part> = Vec::new();
    for device in devices {
        let part = device.part(inventory)?;
        match parts.iter_mut().find(|other| other.uuid == part.uuid) {
            Some(other) => {
                other.mem_mib = other.mem_mib.saturating_add(part.mem_mib);
                // 0 means no limit. If one part has no limit, the sum has none.
                let is_limited = other.core > 0 && part.core > 0;
                other.core = if is_limited { other.core.saturating_add(part.core) } else { 0 };
            }
            None => parts.push(part),
        }
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::Gpu;
    use serde_json::{Value, json};

    fn inventory() -> Inventory {
        let gpu = |uuid: &str, healthy| Gpu {
            uuid: uuid.to_owned(),
            mem_mib: 16_384,
            core: 100,
            healthy,
            ..Gpu::default()
        };
        let divided = Gpu { why: Some("MIG is enabled".to_owned()), ..gpu("GPU-D", false) };
        let gpus = vec![gpu("GPU-A", true), gpu("GPU-B", true), gpu("GPU-C", false), divided];
        Inventory { v: 1, driver: String::new(), gpus }
    }

    fn result(device: &str, consumed: &Value) -> Value {
        json!({"request": "r", "driver": "gpuslice.dev", "pool": "n1", "device": device, "consumedCapacity": consumed})
    }

    fn claim(results: &[Value]) -> Claim {
        serde_json::from_value(json!({"status": {"allocation": {"devices": {"results": results}}}})).unwrap()
    }

    fn read(results: &[Value]) -> Result<Vec<(String, u64, u32)>, String> {
        let parts = parts(&claim(results).devices("n1"), &inventory())?;
        Ok(parts.into_iter().map(|part| (part.uuid, part.mem_mib, part.core)).collect())
    }

    #[test]
    fn a_part_is_that_of_the_scheduler_with_and_without_the_drivers_name() {
        let parts = [
            result("gpu-a", &json!({"memory": "10Gi", "cores": "40"})),
            result("gpu-b", &json!({"gpuslice.dev/memory": "1073741824", "gpuslice.dev/cores": "0"})),
        ];
        let expected = [("GPU-A".to_owned(), 10_240, 40), ("GPU-B".to_owned(), 1024, 0)];
        assert_eq!(read(&parts).unwrap(), expected);
        // An apiserver without consumable capacity allocates a whole device to one claim.
        assert_eq!(read(&[result("gpu-a", &Value::Null)]).unwrap(), [("GPU-A".to_owned(), 16_384, 0)]);
    }

    #[test]
    fn a_gpu_that_a_claim_has_twice_has_the_sum() {
        let part = |cores: &str| result("gpu-a", &json!({"memory": "2Gi", "cores": cores}));
        assert_eq!(read(&[part("10"), part("20")]).unwrap(), [("GPU-A".to_owned(), 4096, 30)]);
        assert_eq!(read(&[part("10"), part("0")]).unwrap(), [("GPU-A".to_owned(), 4096, 0)]);
    }

    #[test]
    fn devices_of_others_are_passed_over_and_a_request_is_named_without_its_alternative() {
        let mut other = result("gpu-a", &Value::Null);
        other["driver"] = json!("gpu.example.com");
        let mut elsewhere = result("gpu-a", &Value::Null);
        elsewhere["pool"] = json!("n2");
        let mut ours = result("gpu-a", &Value::Null);
        ours["request"] = json!("r/large");
        let devices = claim(&[other, elsewhere, ours]).devices("n1");
        assert_eq!(devices.iter().map(Allocated::request).collect::<Vec<_>>(), ["r"]);
    }

    #[test]
    fn a_part_that_makes_no_sense_is_refused_with_the_reason() {
        let mut admin = result("gpu-a", &Value::Null);
        admin["adminAccess"] = json!(true);
        for (part, has) in [
            (result("gpu-x", &json!({})), "gpu-x is no GPU of this node"),
            (result("gpu-c", &json!({})), "gpu-c does not work"),
            (result("gpu-d", &json!({})), "gpu-d cannot be shared: MIG is enabled"),
            (result("gpu-a", &json!({"cores": "1"})), "has no memory"),
            (result("gpu-a", &json!({"memory": "1Gi"})), "has no cores"),
            (result("gpu-a", &json!({"memory": "1500m", "cores": "1"})), "\"1500m\""),
            (result("gpu-a", &json!({"memory": "1", "cores": "1"})), "0 MiB"),
            (result("gpu-a", &json!({"memory": "17Gi", "cores": "1"})), "17408 MiB"),
            (result("gpu-a", &json!({"memory": "1Gi", "cores": "101"})), "more than 100 %"),
            (admin, "admin access"),
        ] {
            let why = read(&[part]).unwrap_err();
            assert!(why.contains(has), "{why}");
        }
    }
}
