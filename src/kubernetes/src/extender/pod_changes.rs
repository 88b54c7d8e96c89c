//! Wishes of pods. A pod has a wish if its user wants other amounts than it has.

use crate::api::{Metadata, Pod};
use crate::objects::{ALLOC, Alloc, RESIZE, Resize};
use std::collections::{HashMap, HashSet};

/// A pod whose user wants other amounts.
#[derive(Debug, Clone)]
pub(super) struct PodChange {
    pub(super) pod: Metadata,
    pub(super) node: String,
    pub(super) alloc: Alloc,
    /// The reason of a refusal that the pod's user has already got as an event; none if there is no such event.
    pub(super) told: Option<String>,
}

/// Wishes of pods, by UID.
#[derive(Debug, Clone, Default)]
pub(super) struct PodChanges(HashMap<String, PodChange>);

impl PodChanges {
    /// Records the present state of a pod. Returns true if the extender has something new to do.
    pub(super) fn pod(&mut self, pod: &Pod) -> bool {
        let before = self.0.remove(&pod.metadata.uid);
        // A pod that has ended frees room, so the wishes of other pods may be fulfilled.
        let Some(mut wish) = wish(pod) else { return pod.is_ended() && !self.0.is_empty() };
        let is_same = |before: &PodChange| {
            let text = |wish: &PodChange| wish.pod.annotations.get(RESIZE).cloned();
            (text(before), &before.alloc) == (text(&wish), &wish.alloc)
        };
        let before = before.filter(is_same);
        let is_new = before.is_none();
        wish.told = before.and_then(|before| before.told);
        self.0.insert(pod.metadata.uid.clone(), wish);
        is_new
    }

    /// Forgets all pods that are not in `pods`.
    pub(super) fn keep_only(&mut self, pods: &[Pod]) {
        let listed: HashSet<&str> = pods.iter().map(|pod| pod.metadata.uid.as_str()).collect();
        self.0.retain(|uid, _| listed.contains(uid.as_str()));
    }

    /// Returns all wishes.
    pub(super) fn all(&self) -> Vec<PodChange> {
        self.0.values().cloned().collect()
    }

    /// Records that the pod's user has got the reason of a refusal as an event.
    pub(super) fn tell(&mut self, uid: &str, why: String) {
        if let Some(known) = self.0.get_mut(uid) {
            known.told = Some(why);
        }
    }

    /// Forgets a deleted pod. Returns true if another pod has a wish, because it may get the room.
    pub(super) fn pod_gone(&mut self, uid: &str) -> bool {
        self.0.remove(uid);
        !self.0.is_empty()
    }
}

/// Returns the wish of a pod; none if the pod has the wanted amounts.
fn wish(pod: &Pod) -> Option<PodChange> {
    let Metadata { uid, annotations, .. } = &pod.metadata;
    let (node, text) = (pod.spec.node_name.clone()?, annotations.get(RESIZE)?);
    let alloc = Alloc::parse(annotations.get(ALLOC)?).ok()?;
    let is_its = alloc.node == node && alloc.uid == *uid && !pod.is_ended();
    // An unreadable annotation is a wish too. The extender refuses it, so the user gets the reason.
    let has_it =
        Resize::parse(text).and_then(|resize| resize.parts(&alloc)).is_ok_and(|parts| parts == alloc.c);
    (is_its && !has_it).then(|| PodChange { pod: pod.metadata.clone(), node, alloc, told: None })
}
