//! Ledger of the cluster: the parts of GPUs that pods have.
//!
//! The extender computes the ledger from the apiserver's objects and from its own bindings under way. It stores nothing else.
//! So it has the same ledger again after a restart.

mod records;

use super::budgets::Budgets;
use super::refusal::Refusal;
use crate::api::{Node, Pod};
use crate::metrics::{NodeMemory, Rejection};
use crate::objects::{Budget, INVENTORY, Inventory, Part, Request};
use crate::placement::{Evictable, Order, Room, Used, evict, place, score, take};
use records::{Counted, Nominated, Resized};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Instant;

/// The ledger of a cluster.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    /// GPUs of each node, or the reason why the extender does not know them.
    nodes: HashMap<String, Result<Inventory, String>>,
    /// Pods that take room, by UID.
    pods: HashMap<String, Counted>,
    /// UIDs of the pods of each node.
    on: HashMap<String, Vec<String>>,
    /// Bindings that this extender has begun and not finished, by the pod's UID, each with its start. A pod has several
    /// bindings if the apiserver did not answer one, and the scheduler tried again.
    under_way: HashMap<String, Vec<(Counted, Instant)>>,
    /// New parts of pods that this extender is resizing, by UID. Until the apiserver shows the new parts, the pod may have the
    /// old ones or the new ones. So the larger of both amounts counts.
    resized: HashMap<String, Resized>,
    /// Pods for which the scheduler evicts other pods, by UID.
    nominated: HashMap<String, Nominated>,
    budgets: Budgets,
}

/// A pod that needs room.
#[derive(Debug, Clone, Copy)]
pub struct Pending<'a> {
    /// UID.
    pub uid: &'a str,
    /// Priority; a larger number is more important.
    pub priority: i32,
    /// Slices that the pod needs.
    pub requests: &'a [Request],
}

/// The pods to evict from a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evictions {
    /// UIDs of the pods that the scheduler has chosen, and of added pods.
    pub uids: Vec<String>,
    /// Number of added pods that a disruption budget protects. Pods that the scheduler has chosen do not count.
    pub violations: i64,
}

impl Ledger {
    /// Records the present state of a node.
    pub fn node(&mut self, node: &Node) {
        let missing = || Err(format!("it has no annotation {INVENTORY}: gpuslice-agent does not run there"));
        let inventory =
            node.metadata.annotations.get(INVENTORY).map_or_else(missing, |text| Inventory::parse(text));
        self.nodes.insert(node.metadata.name.clone(), inventory);
    }

    /// Forgets all nodes that are not in `nodes`. A watch that ended may have missed their deletion.
    pub fn keep_nodes(&mut self, nodes: &[Node]) {
        let listed: HashSet<&str> = nodes.iter().map(|node| node.metadata.name.as_str()).collect();
        self.nodes.retain(|name, _| listed.contains(name.as_str()));
    }

    /// Records the present state of a disruption budget.
    pub fn budget(&mut self, budget: &Budget) {
        self.budgets.put(budget);
    }

    /// Forgets a deleted budget.
    pub fn budget_gone(&mut self, budget: &Budget) {
        self.budgets.gone(budget);
    }

    /// Forgets all budgets that are not in `budgets`.
    pub fn keep_budgets(&mut self, budgets: &[Budget]) {
        self.budgets.keep_only(budgets);
    }

    /// Forgets a deleted node.
    pub fn node_gone(&mut self, name: &str) {
        self.nodes.remove(name);
    }

    /// Records the present state of a pod. A pod takes room if its annotation names the node to which it is bound. It takes
    /// room until it has ended.
    pub fn pod(&mut self, pod: &Pod) {
        let uid = &pod.metadata.uid;
        match Nominated::of(pod) {
            Some(nominated) => drop(self.nominated.insert(uid.clone(), nominated)),
            None => drop(self.nominated.remove(uid)),
        }
        let counted = Counted::of(pod);
        self.forget(uid);
        let is_over = |now: &Counted| self.resized.get(uid).is_some_and(|resized| resized.is_over(now));
        if counted.as_ref().is_none_or(is_over) {
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

    /// Forgets a deleted pod.
    pub fn pod_gone(&mut self, uid: &str) {
        self.under_way.remove(uid);
        self.resized.remove(uid);
        self.nominated.remove(uid);
        self.forget(uid);
    }

    /// Forgets all pods that are not in `pods`. The list was requested at `asked`. A pod whose binding began later stays,
    /// because it may be missing in the list.
    pub fn keep_only(&mut self, pods: &[Pod], asked: Instant) {
        let listed: HashSet<&str> = pods.iter().map(|pod| pod.metadata.uid.as_str()).collect();
        let is_there = |uid: &String| listed.contains(uid.as_str());
        self.under_way.retain(|uid, begun| is_there(uid) || begun.iter().any(|(_, since)| *since >= asked));
        self.resized.retain(|uid, _| is_there(uid));
        self.nominated.retain(|uid, _| is_there(uid));
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

    /// Counts a pod from the start of its binding. Returns that instant, which identifies the binding.
    pub fn begin<'a, P: IntoIterator<Item = &'a Part>>(
        &mut self,
        uid: &str,
        node: &str,
        parts: P,
    ) -> Instant {
        let (parts, begun) = (parts.into_iter().cloned().collect(), Instant::now());
        let counted = Counted { node: node.to_owned(), parts, ..Counted::default() };
        self.under_way.entry(uid.to_owned()).or_default().push((counted, begun));
        begun
    }

    /// Forgets a binding that has not bound its pod.
    pub fn give_up(&mut self, uid: &str, begun: Instant) {
        self.keep_begun(uid, |since| since != begun);
    }

    /// Forgets all bindings of a pod, except for the one that began at `begun`. That binding has changed the pod, so the others
    /// cannot bind it any more.
    pub fn give_up_others(&mut self, uid: &str, begun: Instant) {
        self.keep_begun(uid, |since| since == begun);
    }

    fn keep_begun(&mut self, uid: &str, is_kept: impl Fn(Instant) -> bool) {
        if let Some(all) = self.under_way.get_mut(uid) {
            all.retain(|(_, since)| is_kept(*since));
            if all.is_empty() {
                self.under_way.remove(uid);
            }
        }
    }

    /// Counts a pod with new `parts`, on the GPUs that it already has.
    ///
    /// # Errors
    /// A GPU has no room for the parts; the message says how much room is left.
    pub fn resize<'a, P: IntoIterator<Item = &'a Part>>(
        &mut self,
        node: &str,
        uid: &str,
        parts: P,
    ) -> Result<(), String> {
        let mut left = self.left(node, |known, _| known != uid)?;
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
        self.resized.insert(uid.to_owned(), Resized { parts, unanswered: None });
        Ok(())
    }

    /// Forgets the new parts of a pod, because the pod keeps its old parts.
    pub fn keep_size(&mut self, uid: &str) {
        self.resized.remove(uid);
    }

    /// Records that the apiserver has not answered the write of a pod's new parts. The write named the pod's `version`. The new
    /// parts count until the pod has another version, because from then on the apiserver refuses the write.
    pub fn unanswered(&mut self, uid: &str, version: &str) {
        if self.pods.get(uid).is_some_and(|counted| counted.version != version) {
            self.resized.remove(uid);
        } else if let Some(resized) = self.resized.get_mut(uid) {
            resized.unanswered = Some(version.to_owned());
        }
    }

    /// Returns the parts with which a pod counts.
    fn parts(&self, uid: &str, counted: &Counted) -> Vec<Part> {
        let Some(resized) = self.resized.get(uid) else { return counted.parts.clone() };
        let larger = |(has, gets): (&Part, &Part)| Part {
            uuid: has.uuid.clone(),
            mem_mib: has.mem_mib.max(gets.mem_mib),
            core: has.core.max(gets.core),
        };
        counted.parts.iter().zip(&resized.parts).map(larger).collect()
    }

    /// Returns the number of pods that are counted.
    #[must_use]
    pub fn count(&self) -> usize {
        self.pods.len().saturating_add(self.under_way.len())
    }

    /// Returns the GPUs of a node.
    ///
    /// # Errors
    /// The extender does not know them; the message says why.
    fn inventory(&self, node: &str) -> Result<&Inventory, String> {
        let unknown = || "the node is not known".to_owned();
        self.nodes.get(node).ok_or_else(unknown)?.as_ref().map_err(Clone::clone)
    }

    /// Returns the room on the GPUs of a node, less the parts of the pods that stay. `stays` gets a UID and a pod.
    ///
    /// # Errors
    /// The extender does not know the GPUs of the node; the message says why.
    fn left(&self, node: &str, stays: impl Fn(&str, &Counted) -> bool) -> Result<Vec<Room<'_>>, String> {
        Ok(self.used(node, stays).left(self.inventory(node)?))
    }

    /// Returns the sum of the parts of the pods on a node for which `stays` is true.
    fn used(&self, node: &str, stays: impl Fn(&str, &Counted) -> bool) -> Used {
        let mut used = Used::default();
        for (known, counted) in self.bound(node).filter(|(known, counted)| stays(known, counted)) {
            if self.resized.is_empty() {
                used.add(&counted.parts);
            } else {
                used.add(&self.parts(known, counted));
            }
        }
        for (known, begun) in
            self.under_way.iter().filter(|(known, _)| !self.pods.contains_key(known.as_str()))
        {
            let here = begun.iter().map(|(counted, _)| counted).filter(|counted| counted.node == node);
            here.filter(|counted| stays(known, counted)).for_each(|counted| used.add(&counted.parts));
        }
        used
    }

    /// Returns the pods that are bound to a node.
    fn bound(&self, node: &str) -> impl Iterator<Item = (&str, &Counted)> {
        let uids = self.on.get(node).into_iter().flatten();
        uids.filter_map(|uid| Some((uid.as_str(), self.pods.get(uid)?)))
    }

    /// Returns the room that a node has for a pod, less the room for which other pods wait.
    ///
    /// Example: the scheduler evicts a pod from GPU 0 to make room for pod A. Before A is bound, pod B needs room. Without this
    /// rule, B would take the room on GPU 0, and the scheduler would evict again for A. So the pods that wait for evictions on
    /// this node come first, if their priority is at least that of B.
    fn room(&self, node: &str, pod: Pending<'_>) -> Result<Vec<Room<'_>>, String> {
        let mut left = self.left(node, |known, _| known != pod.uid)?;
        let waits = |uid: &String| uid != pod.uid && !self.under_way.contains_key(uid);
        let waiting = self.nominated.iter().filter(|(uid, _)| waits(uid)).map(|(_, nominated)| nominated);
        let is_first = |other: &&Nominated| other.node == node && other.priority >= pod.priority;
        let mut first: Vec<&Nominated> = waiting.filter(is_first).collect();
        if first.is_empty() {
            return Ok(left);
        }
        first.sort_by_key(|nominated| Reverse(nominated.priority));
        // The room after the ending pods are gone and the waiting pods are placed.
        let mut later = self.left(node, |known, counted| known != pod.uid && !counted.is_ending)?;
        for nominated in first {
            let _fits = place(&mut later, &nominated.requests, Order::default());
        }
        left.iter_mut().zip(&later).for_each(|(now, later)| now.cut(later));
        Ok(left)
    }

    /// Chooses the parts that a pod gets on a node.
    ///
    /// # Errors
    /// The node has no room for the pod; the message says how much room is left.
    pub fn place(
        &self,
        node: &str,
        pod: Pending<'_>,
        order: Order,
    ) -> Result<BTreeMap<String, Vec<Part>>, Refusal> {
        let placed = self.room(node, pod).and_then(|mut left| place(&mut left, pod.requests, order));
        placed.map_err(|why| {
            let fits = |inventory| place(&mut Used::default().left(inventory), pod.requests, order).is_ok();
            let reason = match self.inventory(node).map(fits) {
                Err(_) => Rejection::Node,
                Ok(false) => Rejection::Unsuitable,
                Ok(true) => Rejection::Full,
            };
            Refusal { why, reason }
        })
    }

    /// Returns the memory of each node with known GPUs.
    #[must_use]
    pub fn memory(&self) -> Vec<NodeMemory> {
        let memory = |(node, inventory): (&String, &Result<Inventory, String>)| {
            let (capacity, _) = inventory.as_ref().ok()?.sums();
            Some(NodeMemory {
                node: node.clone(),
                capacity,
                allocated: self.used(node, |_, _| true).memory(),
            })
        };
        self.nodes.iter().filter_map(memory).collect()
    }

    /// Chooses the pods to evict from a node to make room for a pod. Returns none if the pod has no room even without all of
    /// them.
    ///
    /// The scheduler has chosen the `victims`. If they are not enough, the function adds pods of lower priority. It adds as few
    /// as possible of those that a disruption budget protects. The scheduler knows only the sums of a node, so its choice may
    /// free room on several GPUs, and none of them has enough.
    #[must_use]
    pub fn evict(&self, node: &str, pod: Pending<'_>, victims: &[String], order: Order) -> Option<Evictions> {
        let chosen: HashSet<&str> = victims.iter().map(String::as_str).collect();
        let more = self
            .bound(node)
            .filter(|(uid, counted)| counted.priority < pod.priority && !chosen.contains(uid));
        let more = more.map(|(uid, counted)| Evictable {
            uid,
            priority: counted.priority,
            created: &counted.created,
            parts: &counted.parts,
            is_protected: false,
        });
        let fits = |gone: &[Evictable<'_>]| {
            let gone: HashSet<&str> = gone.iter().map(|pod| pod.uid).collect();
            let stays =
                |uid: &str, _: &Counted| uid != pod.uid && !chosen.contains(uid) && !gone.contains(uid);
            self.left(node, stays).and_then(|mut left| place(&mut left, pod.requests, order)).is_ok()
        };
        // The scheduler has counted the violations of its own choice. Here the victims only use up the budgets.
        let mut left = self.budgets.left();
        let mut protect = |uid: &str| {
            let counted = self.pods.get(uid);
            counted.is_some_and(|pod| left.take(&pod.namespace, &pod.name, &pod.labels))
        };
        for uid in victims {
            protect(uid);
        }
        let more = evict(more.collect(), |pod| protect(pod.uid), fits)?;
        let violations = more.iter().filter(|pod| pod.is_protected).count();
        Some(Evictions {
            uids: victims.iter().cloned().chain(more.iter().map(|pod| pod.uid.to_owned())).collect(),
            violations: i64::try_from(violations).unwrap_or(i64::MAX),
        })
    }

    /// Returns the score of a node for a pod. The score is 0 if the node has no room.
    #[must_use]
    pub fn score(&self, node: &str, pod: Pending<'_>, order: Order) -> u64 {
        let scored = self.room(node, pod).and_then(|mut left| {
            place(&mut left, pod.requests, order)?;
            Ok(score(&left, order))
        });
        scored.unwrap_or(0)
    }
}
