//! Ledger of the cluster: the parts of GPUs that pods have. It follows from the apiserver's objects and from the bindings that
//! this process makes.
//!
//! Nothing is stored elsewhere: a restarted extender rebuilds the same ledger.

use crate::api::{Node, Pod};
use crate::objects::{ALLOC, Alloc, INVENTORY, Inventory, Part, Request};
use crate::placement::{Order, Room, Used, place, score, take};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Instant;

/// The ledger of a cluster.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    /// GPUs of each node, or the reason why they are not known.
    nodes: HashMap<String, Result<Inventory, String>>,
    /// Pods that count, by UID.
    pods: HashMap<String, Counted>,
    /// UIDs of the pods of each node.
    on: HashMap<String, Vec<String>>,
    /// Pods that this extender is binding, by UID, with the instant of the start.
    under_way: HashMap<String, (Counted, Instant)>,
    /// Parts of pods that this extender is resizing, by UID. Of each amount the larger one counts: the present or the new one.
    resized: HashMap<String, Vec<Part>>,
}

/// Parts of a pod on its node.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Counted {
    node: String,
    parts: Vec<Part>,
}

impl Ledger {
    /// Records the present state of a node.
    pub fn node(&mut self, node: &Node) {
        let missing = || Err(format!("it has no annotation {INVENTORY}: gpuslice-agent does not run there"));
        let inventory =
            node.metadata.annotations.get(INVENTORY).map_or_else(missing, |text| Inventory::parse(text));
        self.nodes.insert(node.metadata.name.clone(), inventory);
    }

    /// Forgets all nodes but `nodes`: a watch that ended may have missed their deletion.
    pub fn keep_nodes(&mut self, nodes: &[Node]) {
        let listed: HashSet<&str> = nodes.iter().map(|node| node.metadata.name.as_str()).collect();
        self.nodes.retain(|name, _| listed.contains(name.as_str()));
    }

    /// Forgets a node that is gone.
    pub fn node_gone(&mut self, name: &str) {
        self.nodes.remove(name);
    }

    /// Records the present state of a pod. A pod counts if its annotation names the node to which it is bound, until the pod has
    /// ended.
    pub fn pod(&mut self, pod: &Pod) {
        let uid = &pod.metadata.uid;
        let counted = pod.spec.node_name.as_ref().filter(|_| !pod.is_ended()).and_then(|node| {
            let alloc = Alloc::parse(pod.metadata.annotations.get(ALLOC)?).ok()?;
            let is_its = alloc.node == *node && alloc.uid == *uid;
            is_its.then(|| Counted { node: node.clone(), parts: alloc.parts().cloned().collect() })
        });
        self.forget(uid);
        // Older news of the pod may still arrive.
        if counted.as_ref().is_none_or(|counted| self.resized.get(uid) == Some(&counted.parts)) {
            self.resized.remove(uid);
        }
        if pod.spec.node_name.is_some() || pod.is_ended() {
            self.under_way.remove(uid);
        }
        if let Some(counted) = counted {
            self.on.entry(counted.node.clone()).or_default().push(uid.clone());
            self.pods.insert(uid.clone(), counted);
        }
    }

    /// Forgets a pod that is gone.
    pub fn pod_gone(&mut self, uid: &str) {
        self.under_way.remove(uid);
        self.resized.remove(uid);
        self.forget(uid);
    }

    /// Forgets all pods but `pods`. The list was requested at `asked`: a binding that began later stays.
    pub fn keep_only(&mut self, pods: &[Pod], asked: Instant) {
        let listed: HashSet<&str> = pods.iter().map(|pod| pod.metadata.uid.as_str()).collect();
        let is_there = |uid: &String| listed.contains(uid.as_str());
        self.under_way.retain(|uid, (_, since)| *since >= asked || is_there(uid));
        self.resized.retain(|uid, _| is_there(uid));
        let gone: Vec<String> = self.pods.keys().filter(|uid| !is_there(uid)).cloned().collect();
        gone.iter().for_each(|uid| self.forget(uid));
    }

    fn forget(&mut self, uid: &str) {
        if let Some(counted) = self.pods.remove(uid)
            && let Some(pods) = self.on.get_mut(&counted.node)
        {
            pods.retain(|known| known != uid);
        }
    }

    /// Counts a pod from now on that is being bound.
    pub fn begin<'a, P: IntoIterator<Item = &'a Part>>(&mut self, uid: &str, node: &str, parts: P) {
        let parts = parts.into_iter().cloned().collect();
        let counted = Counted { node: node.to_owned(), parts };
        self.under_way.insert(uid.to_owned(), (counted, Instant::now()));
    }

    /// Forgets the binding of a pod that was not bound.
    pub fn give_up(&mut self, uid: &str) {
        self.under_way.remove(uid);
    }

    /// Counts a pod with `parts` from now on, on the GPUs that it has.
    ///
    /// # Errors
    /// A GPU has no room for them; the message tells how much is left.
    pub fn resize<'a, P: IntoIterator<Item = &'a Part>>(
        &mut self,
        node: &str,
        uid: &str,
        parts: P,
    ) -> Result<(), String> {
        let mut left = self.left(node, uid)?;
        let parts: Vec<Part> = parts.into_iter().cloned().collect();
        for part in &parts {
            let Part { uuid, mem_mib, core } = part;
            take(&mut left, part).map_err(|room| match room {
                None => format!("{uuid} is no GPU of {node} that works"),
                Some(Room { mem_mib: memory, core: time, .. }) => format!(
                    "{uuid} has {memory} MiB and {time} % of time for it, and {mem_mib} MiB and {core} % are wanted"
                ),
            })?;
        }
        self.resized.insert(uid.to_owned(), parts);
        Ok(())
    }

    /// Forgets the new parts of a pod that was not resized.
    pub fn keep_size(&mut self, uid: &str) {
        self.resized.remove(uid);
    }

    /// Returns the parts of a pod that count.
    fn parts(&self, uid: &str, counted: &Counted) -> Vec<Part> {
        let Some(resized) = self.resized.get(uid) else { return counted.parts.clone() };
        let larger = |(has, gets): (&Part, &Part)| Part {
            uuid: has.uuid.clone(),
            mem_mib: has.mem_mib.max(gets.mem_mib),
            core: has.core.max(gets.core),
        };
        counted.parts.iter().zip(resized).map(larger).collect()
    }

    /// Returns the number of pods that are counted.
    #[must_use]
    pub fn count(&self) -> usize {
        self.pods.len().saturating_add(self.under_way.len())
    }

    /// Returns the room that the GPUs of a node have for a pod.
    ///
    /// # Errors
    /// The GPUs of the node are not known; the message tells why.
    pub fn left(&self, node: &str, uid: &str) -> Result<Vec<Room>, String> {
        let unknown = || "the node is not known".to_owned();
        let inventory = self.nodes.get(node).ok_or_else(unknown)?.as_ref().map_err(Clone::clone)?;
        let mut used = Used::default();
        let bound = self.on.get(node).into_iter().flatten();
        let bound = bound.filter(|known| known.as_str() != uid);
        for (known, counted) in bound.filter_map(|known| Some((known, self.pods.get(known)?))) {
            if self.resized.is_empty() {
                used.add(&counted.parts);
            } else {
                used.add(&self.parts(known, counted));
            }
        }
        let under_way = self.under_way.iter().filter(|(known, (counted, _))| {
            counted.node == node && known.as_str() != uid && !self.pods.contains_key(known.as_str())
        });
        for (_, (counted, _)) in under_way {
            used.add(&counted.parts);
        }
        Ok(used.left(inventory))
    }

    /// Chooses the parts that a pod gets on a node.
    ///
    /// # Errors
    /// The node has no room for the pod; the message tells how much is left.
    pub fn place(
        &self,
        node: &str,
        uid: &str,
        requests: &[Request],
        order: Order,
    ) -> Result<BTreeMap<String, Vec<Part>>, String> {
        place(&mut self.left(node, uid)?, requests, order)
    }

    /// Returns the score of a node for a pod; 0 if the node has no room.
    #[must_use]
    pub fn score(&self, node: &str, uid: &str, requests: &[Request], order: Order) -> u64 {
        let scored = self.left(node, uid).and_then(|mut left| {
            place(&mut left, requests, order)?;
            Ok(score(&left, order))
        });
        scored.unwrap_or(0)
    }
}
