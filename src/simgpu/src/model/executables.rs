//! Executable graphs.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::iter::once;

use super::graphs::{Allocation, Graph, pages};
use crate::engine::{ClientId, EventId};

/// Flag of instantiation: a launch frees the memory that the launch before it left.
pub(crate) const AUTO_FREE: u64 = 1;

/// An executable graph.
#[derive(Debug)]
pub(crate) struct Exec {
    pub(crate) graph: Graph,
    /// The graphs of its child nodes, nested ones included, as they were at instantiation.
    pub(crate) children: HashMap<u64, Graph>,
    /// The graph that it was made from.
    pub(crate) source: u64,
    pub(crate) context: u64,
    pub(crate) flags: u64,
    pub(crate) disabled: HashSet<u64>,
    /// The device, client and event that tell when its launches are done.
    pub(crate) done: Option<(usize, ClientId, EventId)>,
}

impl Exec {
    fn graphs(&self) -> impl Iterator<Item = &Graph> {
        once(&self.graph).chain(self.children.values())
    }

    /// Returns true if it takes or frees memory.
    pub(crate) fn has_memory(&self) -> bool {
        self.graphs().any(Graph::has_memory)
    }

    /// Returns its allocations.
    pub(crate) fn allocations(&self) -> Vec<Allocation> {
        self.graphs().flat_map(Graph::allocations).collect()
    }

    /// Returns the addresses that it frees. They may belong to other graphs.
    pub(crate) fn frees(&self) -> Vec<u64> {
        self.graphs().flat_map(Graph::frees).collect()
    }

    /// Returns the allocations that it does not free. For an address that is used again, it is the last allocation.
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

    /// Returns the bytes of its addresses on each device, in whole pages. It never uses more at once.
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
