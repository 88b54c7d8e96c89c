//! The cluster that the node belongs to.

use super::file::{Entry, Kubernetes};
use super::reading::Reading;
use super::slices::SliceConfig;
use crate::arguments::below;
use gpuslice_kubernetes::plugin::SLOTS_PER_GPU;
use std::path::{Path, PathBuf};
use toml::Spanned;

/// The variable with the node's name, which counts if the configuration has no name. In a pod the downward API can set it.
const NODE: &str = "NODE_NAME";
/// Most slots of one GPU.
const MOST_SLOTS: u32 = 256;

/// The interface by which the kubelet gets GPUs. A node has only one of the two, because each of them gives away whole GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Mode {
    /// Device plugin, with the extender of a scheduler.
    #[default]
    DevicePlugin,
    /// Dynamic resource allocation.
    Dra,
}

/// The settings of the device plugin, or of the driver of dynamic resources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cluster {
    /// The interface by which the kubelet gets GPUs.
    pub(crate) mode: Mode,
    /// The node's name in the apiserver.
    pub(crate) node: String,
    /// The address of the apiserver. `None`: the apiserver of the cluster in which the agent runs as a pod.
    pub(crate) apiserver: Option<String>,
    /// The kubelet's folder.
    pub(crate) kubelet: PathBuf,
    /// Number of slots of each GPU.
    pub(crate) slots_per_gpu: u32,
    /// True if the agent places containers that no extender has placed.
    pub(crate) auto_alloc: bool,
    /// True if changed annotations of a pod change the limits of its running containers.
    pub(crate) resize: bool,
}

/// Reads the settings of the cluster. `reading` gathers the mistakes. Returns `None` if the node has no name, which is a
/// mistake too.
pub(super) fn cluster(reading: &mut Reading<'_>, said: &Kubernetes, root: &Path) -> Option<Cluster> {
    let mode = reading.value("kubernetes.mode", said.mode.as_ref(), |text| match text {
        "device-plugin" => Ok(Mode::DevicePlugin),
        "dra" => Ok(Mode::Dra),
        _ => Err("write device-plugin or dra".to_owned()),
    });
    let mode = mode.unwrap_or_default();
    let keys = [
        ("slots_per_gpu", said.slots_per_gpu.as_ref().map(|value| value.span().start)),
        ("auto_alloc", said.auto_alloc.as_ref().map(|value| value.span().start)),
        ("resize", said.resize.as_ref().map(|value| value.span().start)),
    ];
    for (key, start) in keys.into_iter().filter(|_| mode == Mode::Dra) {
        if let Some(start) = start {
            reading
                .wrong(start, format!("kubernetes.{key}: belongs to the mode device-plugin; leave it out"));
        }
    }
    let node = reading.value("kubernetes.node", said.node.as_ref(), |text| match text {
        "" => Err(format!("write the node's name, or leave the key out for that of {NODE}")),
        name => Ok(name.to_owned()),
    });
    let named = || std::env::var(NODE).ok().filter(|name| !name.is_empty());
    let node = node.or_else(named);
    if node.is_none() && said.node.is_none() {
        reading.wrong(0, format!("kubernetes.node: write the node's name here, or set {NODE}"));
    }
    let apiserver = reading.value("kubernetes.apiserver", said.apiserver.as_ref(), |text| {
        let is_plain = text.starts_with("http://");
        is_plain.then(|| text.to_owned()).ok_or_else(|| "write an address such as that of kubectl proxy, http://127.0.0.1:8001, or leave the key out in a pod".to_owned())
    });
    let kubelet = reading.path("kubernetes.kubelet", said.kubelet.as_ref());
    let slots = reading.number("kubernetes.slots_per_gpu", said.slots_per_gpu.as_ref(), MOST_SLOTS);
    Some(Cluster {
        mode,
        node: node?,
        apiserver,
        kubelet: below(root, &kubelet.unwrap_or_else(|| "/var/lib/kubelet".into())),
        slots_per_gpu: slots.unwrap_or(SLOTS_PER_GPU),
        auto_alloc: said.auto_alloc.as_ref().is_some_and(|value| *value.get_ref()),
        resize: said.resize.as_ref().is_some_and(|value| *value.get_ref()),
    })
}

/// Adds a mistake for each slice whose name looks like that of a kubelet's slice. The agent would remove the slice, because no
/// pod has it.
pub(super) fn refuse_slots(reading: &mut Reading<'_>, said: &[Spanned<Entry>], slices: &[SliceConfig]) {
    let is_one =
        |name: &str| slices.iter().any(|slice| slice.name.as_str() == name && slice.name.is_of_kubelet());
    for (number, entry) in said.iter().enumerate() {
        let name = &entry.get_ref().name;
        if is_one(name.get_ref()) {
            let what = format!(
                "slices[{number}].name = {:?}: the kubelet's slots and claims have such names; choose another",
                name.get_ref()
            );
            reading.wrong(name.span().start, what);
        }
    }
}
