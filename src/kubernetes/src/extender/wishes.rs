//! The pods whose users want other amounts than the pods have.

use crate::api::{Metadata, Pod};
use crate::objects::{ALLOC, Alloc, RESIZE, Resize};
use std::collections::{HashMap, HashSet};

/// A pod that is to have other amounts.
#[derive(Debug, Clone)]
pub(super) struct Wish {
    pub(super) pod: Metadata,
    pub(super) node: String,
    pub(super) alloc: Alloc,
    /// The reason that its user was told why it does not have them.
    pub(super) told: Option<String>,
}

/// The pods that are to have other amounts than they have, by UID.
#[derive(Debug, Clone, Default)]
pub(super) struct Wishes(HashMap<String, Wish>);

impl Wishes {
    /// Takes a pod as it is now. True if there is something new to do.
    pub(super) fn pod(&mut self, pod: &Pod) -> bool {
        let before = self.0.remove(&pod.metadata.uid);
        // One that has ended makes room for others.
        let Some(mut wish) = wish(pod) else { return pod.is_ended() && !self.0.is_empty() };
        let is_same = |before: &Wish| {
            let text = |wish: &Wish| wish.pod.annotations.get(RESIZE).cloned();
            (text(before), &before.alloc) == (text(&wish), &wish.alloc)
        };
        let before = before.filter(is_same);
        let is_new = before.is_none();
        wish.told = before.and_then(|before| before.told);
        self.0.insert(pod.metadata.uid.clone(), wish);
        is_new
    }

    /// All others than these are gone.
    pub(super) fn keep_only(&mut self, pods: &[Pod]) {
        let listed: HashSet<&str> = pods.iter().map(|pod| pod.metadata.uid.as_str()).collect();
        self.0.retain(|uid, _| listed.contains(uid.as_str()));
    }

    /// All of them.
    pub(super) fn all(&self) -> Vec<Wish> {
        self.0.values().cloned().collect()
    }

    /// The user of a pod was told why it does not have what it wants.
    pub(super) fn tell(&mut self, uid: &str, why: String) {
        if let Some(known) = self.0.get_mut(uid) {
            known.told = Some(why);
        }
    }

    /// A pod is gone. True if another one may have its room.
    pub(super) fn pod_gone(&mut self, uid: &str) -> bool {
        self.0.remove(uid);
        !self.0.is_empty()
    }
}

/// The wish of a pod; none where it has what it wants.
fn wish(pod: &Pod) -> Option<Wish> {
    let Metadata { uid, annotations, .. } = &pod.metadata;
    let (node, text) = (pod.spec.node_name.clone()?, annotations.get(RESIZE)?);
    let alloc = Alloc::parse(annotations.get(ALLOC)?).ok()?;
    let is_its = alloc.node == node && alloc.uid == *uid && !pod.is_ended();
    // An annotation that cannot be read is a wish too: its user is told.
    let has_it =
        Resize::parse(text).and_then(|resize| resize.parts(&alloc)).is_ok_and(|parts| parts == alloc.c);
    (is_its && !has_it).then(|| Wish { pod: pod.metadata.clone(), node, alloc, told: None })
}
