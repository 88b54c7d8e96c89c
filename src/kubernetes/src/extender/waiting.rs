//! Pods that the extender has refused shortly before their nodes changed.

use super::ledger::{Ledger, Pending};
use super::refusal::Refusal;
use super::wire::Arguments;
use crate::api::{Metadata, Pod};
use crate::objects::{Request, requests};
use crate::placement::Order;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

/// Time before the extender wakes a pod. In this time the scheduler asks again by itself, if it learned of the change later
/// than the extender.
pub(super) const GRACE: Duration = Duration::from_secs(1);
/// Longest time by which the extender may learn of a change later than the scheduler. Guessed: a loaded machine needs a tenth
/// of this time.
const LAG: Duration = Duration::from_secs(3);
/// Most pods that one change wakes. Few of them get the room.
const MOST: usize = 10;

/// A pod for which no node has room.
#[derive(Debug, Clone)]
struct Refused {
    pod: Metadata,
    priority: i32,
    requests: Vec<Request>,
    at: Instant,
}

/// Pods that were refused a short time ago, and nodes that have changed since.
#[derive(Debug, Clone, Default)]
pub(super) struct Waiting {
    /// The refused pods, by UID.
    refused: HashMap<String, Refused>,
    /// Time of the last change of each node.
    changed: HashMap<String, Instant>,
}

impl Waiting {
    /// Records the answer to a request. A pod waits if all nodes of the request refuse it, and at least one would have room
    /// without other pods.
    pub(super) fn note(&mut self, said: &Arguments, failed: &BTreeMap<String, Refusal>) {
        self.refused.retain(|_, refused| refused.at.elapsed() < GRACE.saturating_add(LAG));
        let Pod { metadata, spec, .. } = &said.pod;
        // Most requests refuse no pod. For these, the names and requests are not read a second time.
        let is_refused = failed.values().any(|refusal| !refusal.is_final())
            && said.names().is_ok_and(|names| names.iter().all(|node| failed.contains_key(node)));
        match is_refused.then(|| requests(&said.pod)) {
            Some(Ok(requests)) => {
                let (pod, priority, at) = (metadata.clone(), spec.priority, Instant::now());
                self.refused.insert(metadata.uid.clone(), Refused { pod, priority, requests, at });
            }
            _ => drop(self.refused.remove(&metadata.uid)),
        }
    }

    /// Records that a node has changed. Returns true if any refused pod may have room now.
    pub(super) fn change(&mut self, node: &str) -> bool {
        if self.refused.is_empty() {
            return false;
        }
        self.changed.insert(node.to_owned(), Instant::now());
        true
    }

    /// Removes and returns the pods that were refused shortly before a change, and that have room since. The most important
    /// pods come first.
    pub(super) fn due(&mut self, ledger: &Ledger, order: Order) -> Vec<Metadata> {
        let changed = std::mem::take(&mut self.changed);
        let has_room = |uid: &str, refused: &Refused| {
            let pod = Pending { uid, priority: refused.priority, requests: &refused.requests };
            changed.iter().any(|(node, at)| {
                let is_since = at.checked_duration_since(refused.at).is_some_and(|lag| lag < LAG);
                is_since && ledger.place(node, pod, order).is_ok()
            })
        };
        let mut due: Vec<&Refused> =
            self.refused.iter().filter(|(uid, refused)| has_room(uid, refused)).map(|(_, one)| one).collect();
        due.sort_by_key(|refused| (Reverse(refused.priority), refused.at));
        let due: Vec<Metadata> = due.into_iter().take(MOST).map(|refused| refused.pod.clone()).collect();
        due.iter().for_each(|pod| drop(self.refused.remove(&pod.uid)));
        due
    }
}
