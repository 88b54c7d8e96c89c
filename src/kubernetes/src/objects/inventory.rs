//! Annotation of a node with its GPUs.

use super::annotation;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Name of the annotation.
pub const INVENTORY: &str = "gpuslice.dev/inventory";

/// A GPU of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// UUID, in NVML's form.
    pub uuid: String,
    /// Name of the product.
    pub model: String,
    /// Mebibytes of memory that slices can get.
    #[serde(rename = "memMiB")]
    pub mem_mib: u64,
    /// Percent of time that slices can get: 100.
    pub core: u32,
    /// True if NVML answers for the GPU, and slices can share it.
    pub healthy: bool,
    /// Reason why slices cannot share the GPU; none if they can, or if NVML does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// Number of the GPU's NUMA node; none if the machine does not tell it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa: Option<u32>,
    /// GPUs to which this GPU has NVLink, by their positions in the list of the node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nvlink: Vec<usize>,
}

/// The GPUs of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inventory {
    /// [`ANNOTATION_VERSION`](annotation::ANNOTATION_VERSION).
    pub v: u32,
    /// Version of the driver; empty if NVML does not tell it.
    pub driver: String,
    /// All GPUs, including those that NVML has lost, and those that slices cannot share.
    pub gpus: Vec<Gpu>,
}

impl Inventory {
    /// Reads the annotation.
    ///
    /// # Errors
    /// The errors of [`Alloc::parse`](super::Alloc::parse).
    pub fn parse(text: &str) -> Result<Self, String> {
        annotation::parse(INVENTORY, text, |inventory: &Self| inventory.v)
    }

    pub(crate) fn uuids(&self) -> BTreeSet<String> {
        self.gpus.iter().map(|gpu| gpu.uuid.clone()).collect()
    }

    /// Returns the sums over all working GPUs: mebibytes of memory, and percent of time.
    #[must_use]
    pub fn sums(&self) -> (u64, u64) {
        let healthy = || self.gpus.iter().filter(|gpu| gpu.healthy);
        let memory = healthy().map(|gpu| gpu.mem_mib).fold(0, u64::saturating_add);
        (memory, healthy().map(|gpu| u64::from(gpu.core)).fold(0, u64::saturating_add))
    }
}
