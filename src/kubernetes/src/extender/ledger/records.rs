//! Records of a pod in the ledger.

use crate::api::Pod;
use crate::objects::{ALLOC, Alloc, Labels, Part, Request, requests};

/// Parts of a pod on its node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) labels: Labels,
    pub(super) node: String,
    pub(super) parts: Vec<Part>,
    pub(super) priority: i32,
    pub(super) created: String,
    /// True if a client has requested the pod's deletion.
    pub(super) is_ending: bool,
    /// The pod's version.
    pub(super) version: String,
}

impl Counted {
    /// Returns the parts of a pod whose annotation names the node to which it is bound. None if the pod has ended.
    pub(super) fn of(pod: &Pod) -> Option<Self> {
        let node = pod.spec.node_name.as_ref().filter(|_| !pod.is_ended())?;
        let alloc = Alloc::parse(pod.metadata.annotations.get(ALLOC)?).ok()?;
        let is_its = alloc.node == *node && alloc.uid == pod.metadata.uid;
        is_its.then(|| Self {
            namespace: pod.metadata.namespace.clone(),
            name: pod.metadata.name.clone(),
            labels: pod.metadata.labels.clone(),
            node: node.clone(),
            parts: alloc.parts().cloned().collect(),
            priority: pod.spec.priority,
            created: pod.metadata.creation_timestamp.clone().unwrap_or_default(),
            is_ending: pod.metadata.deletion_timestamp.is_some(),
            version: pod.metadata.resource_version.clone(),
        })
    }
}

/// New parts of a pod that this extender is resizing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Resized {
    pub(super) parts: Vec<Part>,
    /// The pod's version that the write of the parts named. None unless the apiserver has failed to answer the write.
    pub(super) unanswered: Option<String>,
}

impl Resized {
    /// Returns true if the pod has the new parts, or if the apiserver refuses their write from now on.
    ///
    /// A change of the pod from before the resize may arrive during the write. Such a change does not end the resize.
    pub(super) fn is_over(&self, now: &Counted) -> bool {
        let is_late = self.unanswered.as_ref().is_some_and(|version| *version != now.version);
        is_late || self.parts == now.parts
    }
}

/// A pod that waits until other pods are evicted from a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Nominated {
    pub(super) node: String,
    pub(super) priority: i32,
    pub(super) requests: Vec<Request>,
}

impl Nominated {
    /// Returns the node on which the scheduler evicts other pods for this pod, and the slices that this pod needs there. None
    /// if the pod is bound, or if the scheduler evicts nothing for it.
    pub(super) fn of(pod: &Pod) -> Option<Self> {
        let node = pod.status.nominated_node_name.clone().filter(|node| !node.is_empty())?;
        let is_waiting = pod.spec.node_name.is_none() && !pod.is_ended();
        let requests = requests(pod).ok().filter(|requests| is_waiting && !requests.is_empty())?;
        Some(Self { node, priority: pod.spec.priority, requests })
    }
}
