//! The terms of a slice: the part of its GPU that it may use.

use crate::config::SliceConfig;
use crate::gpus::Gpu;
use gpuslice_policy::config::{
    Ceiling, Config, CorePolicy, DeviceIdentity, DeviceName, PerDevice, Quota, parse_uuid_text,
};
use gpuslice_policy::units::{Bytes, Permille, Setting as _};
use gpuslice_region::{Limits, Sharing};
use serde::{Deserialize, Serialize};

/// The part of its GPU that a slice may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Terms {
    /// The GPU's UUID.
    pub(crate) gpu: String,
    /// Bytes of memory, or none for all of the GPU's.
    pub(crate) memory: Option<u64>,
    /// Thousandths of the GPU's time.
    pub(crate) share_permille: u16,
    /// Policy, as a value of `GPU_CORE_POLICY`.
    pub(crate) policy: String,
    /// Weight, as a value of `GPU_CORE_WEIGHT`.
    pub(crate) weight: u16,
    /// Priority, as a value of `GPU_PRIORITY`.
    pub(crate) priority: String,
}

impl Terms {
    /// Returns the terms of an entry of the configuration, on the GPUs of the node. A size in bytes is not cut to the GPU's
    /// memory. So the terms are the same while NVML does not tell that memory.
    pub(super) fn of(wanted: &SliceConfig, gpus: &[Gpu]) -> Result<Self, String> {
        let (gpu, total) = gpu_of(&wanted.gpu, gpus)?;
        let memory = match (wanted.memory, total) {
            (None, _) => None,
            (Some(Quota::Size(bytes)), _) => Some(bytes.get()),
            (Some(quota), Some(total)) => bytes_of(quota, total),
            (Some(_), None) => {
                return Err("its memory is a percentage, and NVML does not say how much the GPU has; write a size like 4GiB".to_owned());
            }
        };
        Ok(Self {
            gpu,
            memory,
            share_permille: wanted.cores.get(),
            policy: wanted.policy.setting(),
            weight: wanted.weight.get(),
            priority: wanted.priority.setting(),
        })
    }

    /// Returns the terms with at most the memory of their GPU, if NVML tells it.
    pub(super) fn within(self, gpus: &[Gpu]) -> Self {
        let total = gpus.iter().find(|gpu| gpu.uuid == self.gpu).and_then(|gpu| gpu.memory_total);
        let memory = self.memory.map(|bytes| total.map_or(bytes, |total| bytes.min(total)));
        Self { memory, ..self }
    }

    /// Returns the terms as settings of the operator's file. They name the GPU by its UUID, because the same number means
    /// different GPUs in different containers.
    pub(crate) fn settings(&self) -> Vec<(&'static str, String)> {
        let gpu = &self.gpu;
        let memory = self.memory.map(|bytes| ("GPU_MEM_LIMIT", format!("{gpu}={bytes}")));
        let share = Permille::new(self.share_permille).unwrap_or(Permille::FULL);
        // The share is always written. Even a full share makes a program a member of the slice.
        let mut settings: Vec<_> = memory.into_iter().collect();
        settings.push(("GPU_CORE_PERCENT", format!("{gpu}={}", share.setting())));
        settings.push(("GPU_CORE_POLICY", self.policy.clone()));
        // The library warns of a weight that has no effect.
        if self.policy != CorePolicy::Fixed.setting() {
            settings.push(("GPU_CORE_WEIGHT", self.weight.to_string()));
        }
        settings.push(("GPU_PRIORITY", self.priority.clone()));
        settings
    }

    /// Returns the terms as limits of a region. Fields that terms do not have keep their values in `limits`.
    pub(crate) fn limits(&self, limits: Limits) -> Limits {
        Limits {
            memory: self.memory,
            cores_permille: self.share_permille.into(),
            sharing: Sharing {
                policy: self.policy.parse().unwrap_or_default(),
                weight: self.weight.into(),
                priority: self.priority.parse().unwrap_or_default(),
            },
            ..limits
        }
    }

    /// Returns `limits` lowered to these terms. Returns none if `limits` grants no more than the terms, for example because the
    /// tenant has lowered its own limits.
    pub(super) fn lowered(&self, limits: Limits) -> Option<Limits> {
        let ceiling = Ceiling {
            memory: self.memory.map(Bytes::new),
            cores: Permille::new(self.share_permille),
            policy: self.policy.parse().ok(),
            weight: self.weight.to_string().parse().ok(),
            priority: self.priority.parse().ok(),
            ..Ceiling::default()
        };
        limits.lowered(&ceiling)
    }
}

/// Returns the UUID of the GPU with this name, and its bytes of memory if NVML tells them.
fn gpu_of(name: &DeviceName, gpus: &[Gpu]) -> Result<(String, Option<u64>), String> {
    let is_meant = |gpu: &&Gpu| {
        let (ordinal, total) = (number_of(gpu, gpus), Bytes::new(gpu.memory_total.unwrap_or(0)));
        let identity = |uuid| DeviceIdentity { ordinal, bus: None, uuid, total };
        parse_uuid_text(&gpu.uuid).is_some_and(|uuid| name.matches(&identity(uuid)))
    };
    let meant: Vec<&Gpu> = gpus.iter().filter(is_meant).collect();
    let there = || {
        let names: Vec<String> = gpus.iter().map(|gpu| format!("{} ({})", gpu.index, gpu.uuid)).collect();
        if names.is_empty() {
            "NVML lists none".to_owned()
        } else {
            format!("there are {}", names.join(", "))
        }
    };
    match (meant.as_slice(), parse_uuid_text(&name.to_string())) {
        ([gpu], _) => Ok((gpu.uuid.clone(), gpu.memory_total)),
        // While NVML lists no GPU, a whole UUID is enough. An instance (MIG) is never in the list of GPUs.
        ([], Some(_)) if gpus.is_empty() || name.to_string().starts_with("MIG-") => {
            Ok((name.to_string(), None))
        }
        ([], _) => Err(format!("gpu = {name} is no GPU of this node; {}", there())),
        _ => Err(format!("gpu = {name} means several GPUs; write more of the UUID: {}", there())),
    }
}

/// Returns the number of a GPU. A GPU that NVML has lost has none, if NVML has given its number to another GPU.
fn number_of(gpu: &Gpu, gpus: &[Gpu]) -> Option<u32> {
    let is_given_again = |other: &Gpu| other.healthy && other.index == gpu.index;
    (gpu.healthy || !gpus.iter().any(is_given_again)).then_some(gpu.index)
}

/// Converts a quota to bytes, at most the bytes of the GPU.
fn bytes_of(quota: Quota, total: u64) -> Option<u64> {
    let mut config = Config::default();
    config.memory = PerDevice::everywhere(quota);
    let gpu = DeviceIdentity { ordinal: None, bus: None, uuid: [0; 16], total: Bytes::new(total) };
    config.limits_for(gpu).memory.map(Bytes::get)
}
