//! Parts of pods and nodes that the other modules use, in the form of the apiserver.

use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::SystemTime;

/// Resources by name. A quantity is a text such as `5k`.
pub type Resources = BTreeMap<String, String>;

/// Name, labels and annotations of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Metadata {
    /// Name.
    pub name: String,
    /// Namespace; empty for a node.
    pub namespace: String,
    /// Identifier that no other object ever has.
    pub uid: String,
    /// Version of the object. A change can name it, and fails for another version.
    pub resource_version: String,
    /// Labels: texts by name.
    pub labels: BTreeMap<String, String>,
    /// Annotations: texts by name.
    pub annotations: BTreeMap<String, String>,
    /// Time at which the object was created, in the form of RFC 3339.
    pub creation_timestamp: Option<String>,
    /// Time at which a client requested the object's deletion; none before that.
    pub deletion_timestamp: Option<String>,
}

impl Metadata {
    /// Makes the metadata of a patch. The apiserver refuses the patch if the object is another one, or has another version.
    pub(crate) fn guarded(&self, annotations: &Value) -> Value {
        json!({"uid": self.uid, "resourceVersion": self.resource_version, "annotations": annotations})
    }
}

/// Returns the present time in the form of the apiserver.
pub(crate) fn timestamp() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

/// A pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Pod {
    /// Name and annotations.
    pub metadata: Metadata,
    /// Containers for which the user asks.
    pub spec: PodSpec,
    /// Status.
    pub status: PodStatus,
}

/// Containers for which the user of a pod asks, and the node of the pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// Node of the pod, once the pod is bound.
    pub node_name: Option<String>,
    /// Containers.
    pub containers: Vec<Container>,
    /// Containers that run before the others. If one of them always restarts, it goes on running while the others run.
    pub init_containers: Vec<Container>,
    /// Priority; a larger number is more important.
    pub priority: i32,
}

/// A container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// Name.
    pub name: String,
    /// `Always` for a sidecar.
    pub restart_policy: Option<String>,
    /// Resources that the container may use.
    pub resources: ContainerResources,
}

/// Resources that a container may use.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ContainerResources {
    /// Limit of each resource.
    pub limits: Resources,
}

/// Status of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed` or `Unknown`.
    pub phase: String,
    /// Node on which the scheduler evicts other pods to make room for this pod; none or empty otherwise.
    pub nominated_node_name: Option<String>,
}

impl Pod {
    /// Returns true if the pod has ended, so that none of its containers runs or will run.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        matches!(self.status.phase.as_str(), "Succeeded" | "Failed")
    }
}

/// A node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Node {
    /// Name and annotations.
    pub metadata: Metadata,
    /// Status.
    pub status: NodeStatus,
}

/// Status of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    /// All resources of the node.
    pub capacity: Resources,
    /// Resources that pods can have.
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
    /// Metadata of the list itself.
    #[serde(default)]
    pub metadata: ListMetadata,
    /// The objects.
    pub items: Vec<T>,
}

/// Version of a list, and the name of its next page.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListMetadata {
    /// Version from which a client can follow changes.
    pub resource_version: String,
    /// Name of the next page; none or empty on the last one. A query may contain it unescaped.
    #[serde(rename = "continue")]
    pub next: Option<String>,
}

/// A change of an object.
#[derive(Debug, Clone, Deserialize)]
pub struct Change<T> {
    /// `ADDED`, `MODIFIED` or `DELETED`. The other values `ERROR` and `BOOKMARK` come with an object of another kind.
    #[serde(rename = "type")]
    pub kind: String,
    /// The new object, or the last state of a deleted object.
    pub object: T,
}
