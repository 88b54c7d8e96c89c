//! The parts of pods and nodes that are used here, as the apiserver writes them.

use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::SystemTime;

/// Resources by name. A quantity is a text such as `5k`.
pub type Resources = BTreeMap<String, String>;

/// The name of an object, and what is written on it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    /// Its name.
    pub name: String,
    /// Its namespace; empty for a node.
    pub namespace: String,
    /// No other object ever has it.
    pub uid: String,
    /// The version that a change can be bound to.
    pub resource_version: String,
    /// Texts by name.
    pub annotations: BTreeMap<String, String>,
}

impl Metadata {
    /// The part of a patch by which the apiserver refuses it once the object is another one, or another version.
    pub(crate) fn guarded(&self, annotations: &Value) -> Value {
        json!({"uid": self.uid, "resourceVersion": self.resource_version, "annotations": annotations})
    }
}

/// The present, as the apiserver writes it.
pub(crate) fn timestamp() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

/// A pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Pod {
    /// Its name.
    pub metadata: Metadata,
    /// The containers that its user asks for.
    pub spec: PodSpec,
    /// How it is.
    pub status: PodStatus,
}

/// The containers that the user of a pod asks for, and its node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// Its node, once it is bound.
    pub node_name: Option<String>,
    /// Its containers.
    pub containers: Vec<Container>,
    /// Containers that come before them; one that always restarts goes on beside them.
    pub init_containers: Vec<Container>,
}

/// A container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// Its name.
    pub name: String,
    /// `Always` for a sidecar.
    pub restart_policy: Option<String>,
    /// The resources that it may use.
    pub resources: ContainerResources,
}

/// The resources that a container may use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ContainerResources {
    /// At the most.
    pub limits: Resources,
}

/// How a pod is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    pub phase: String,
}

impl Pod {
    /// True if no container runs any more, or will.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }
}

/// A node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Node {
    /// Its name.
    pub metadata: Metadata,
    /// How it is.
    pub status: NodeStatus,
}

/// How a node is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// Everything that it has.
    pub capacity: Resources,
    /// The part of it that pods can have.
    pub allocatable: Resources,
}

/// An object of any kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Named {
    pub(super) metadata: Metadata,
}

/// A list of objects.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct List<T> {
    /// About the list itself.
    #[serde(default)]
    pub metadata: ListMetadata,
    /// The objects.
    pub items: Vec<T>,
}

/// The version of a list, and whether it is whole.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListMetadata {
    /// The version from which changes can be followed.
    pub resource_version: String,
    /// The name of the next page; none or empty on the last one. It may stand in a query as it is.
    #[serde(rename = "continue")]
    pub next: Option<String>,
}

/// A change of an object.
#[derive(Debug, Clone, Deserialize)]
pub struct Change<T> {
    /// `ADDED`, `MODIFIED` or `DELETED`; `ERROR` and `BOOKMARK` have no object of the kind.
    #[serde(rename = "type")]
    pub kind: String,
    /// The object as it is now, or was at last.
    pub object: T,
}
