//! Executable graphs.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::iter::once;

use super::graphs::{Allocation, Graph, pages};
use crate::engine::{ClientId, EventId};

/// Flag of instantiation: a launch frees what the one before it left.
pub(crate) const AUTO_FREE: u64 = 1;

/// An executable.
#[derive(Debug)]
pub(crate) struct Exec {
    pub(crate) graph: Graph,
    /// The graphs of its child nodes, theirs as well, as they were when it was made.
    pub(crate) children: HashMap<u64, Graph>,
    /// The graph it was made of.
    pub(crate) source: u64,
    pub(crate) context: u64,
    pub(crate) flags: u64,
    pub(crate) disabled: HashSet<u64>,
    /// What says that its launches are done: on which device, whose they are, and the event.
    pub(crate) done: Option<(usize, ClientId, EventId)>,
}

impl Exec {
    fn graphs(&self) -> impl Iterator<Item = &Graph> {
        once(&self.graph).chain(self.children.values())
    }

    /// Whether it takes or frees memory.
    pub(crate) fn has_memory(&self) -> bool {
        self.graphs().any(Graph::has_memory)
    }

    /// What it allocates.
    pub(crate) fn allocations(&self) -> Vec<Allocation> {
        self.graphs().flat_map(Graph::allocations).collect()
    }

    /// Addresses that it frees, of its own and of others.
    pub(crate) fn frees(&self) -> Vec<u64> {
        self.graphs().flat_map(Graph::frees).collect()
    }

    /// What it allocates and does not free: at an address that is used again, the last allocation.
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

    /// Pages of its addresses on each device: more is never in use for it at a time.
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
