//! Executable graphs: graphs that the program has instantiated, so that it can launch them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::iter::once;

use super::graphs::{Allocation, Graph, pages};
use crate::engine::{ClientId, EventId};

/// A flag of instantiation: each launch first frees the memory that the launch before it did not free.
pub(crate) const AUTO_FREE: u64 = 1;

/// An executable graph.
#[derive(Debug)]
pub(crate) struct Exec {
    pub(crate) graph: Graph,
    /// The graphs of all child nodes, also of nested ones, as they were at instantiation.
    pub(crate) children: HashMap<u64, Graph>,
    /// The graph that the executable was made from.
    pub(crate) source: u64,
    pub(crate) context: u64,
    pub(crate) flags: u64,
    pub(crate) disabled: HashSet<u64>,
    /// The device, the client and the event that show when all launches of the executable are done.
    pub(crate) done: Option<(usize, ClientId, EventId)>,
}

impl Exec {
    fn graphs(&self) -> impl Iterator<Item = &Graph> {
        once(&self.graph).chain(self.children.values())
    }

    /// Returns true if the executable allocates or frees memory.
    pub(crate) fn has_memory(&self) -> bool {
        self.graphs().any(Graph::has_memory)
    }

    /// Returns all allocations that the executable makes.
    pub(crate) fn allocations(&self) -> Vec<Allocation> {
        self.graphs().flat_map(Graph::allocations).collect()
    }

    /// Returns the addresses that the executable frees. An address may be the allocation of another graph.
    pub(crate) fn frees(&self) -> Vec<u64> {
        self.graphs().flat_map(Graph::frees).collect()
    }

    /// Returns the allocations that the executable makes and does not free. If it uses an address several
    /// times, the last allocation counts.
    pub(crate) fn kept(&self) -> Vec<Allocation> {
        let mut left: BTreeMap<u64, Vec<Allocation>> = BTreeMap::new();
        for one in self.allocations() {
            left.entry(one.address).or_default().push(one);
        }
        for address in self.frees() {
            if let Some(there) = left.get_mut(&address).filter(|there| !there.is_empty()) {
                there.remove(0);
            }
        }
        left.into_values().flatten().collect()
    }

    /// Returns, for each device, the bytes of all addresses that the executable uses, in whole
    /// pages. At no time does it need more.
    pub(crate) fn needs(&self) -> BTreeMap<usize, u64> {
        let mut rooms: BTreeMap<(usize, u64), u64> = BTreeMap::new();
        for one in self.allocations() {
            let room = rooms.entry((one.device, one.address)).or_default();
            *room = pages(one.size).max(*room);
        }
        let mut needs = BTreeMap::new();
        for ((device, _), room) in rooms {
            *needs.entry(device).or_default() += room;
        }
        needs
    }
}
