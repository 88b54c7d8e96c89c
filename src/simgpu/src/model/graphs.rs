//! Graphs and their nodes.

use std::collections::{BTreeMap, HashMap, HashSet};

use gpuslice_driver::types::CUhostFn;

use super::movement::Movement;
use super::objects::Tag;

/// A kernel with the arguments of its launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Launch {
    pub(crate) function: u64,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    /// The program's parameter arrays, for later queries.
    pub(crate) params: usize,
    pub(crate) extra: usize,
    pub(crate) ns: u64,
    /// True if it is part of a collective.
    pub(crate) is_collective: bool,
    pub(crate) occupancy: u16,
}

/// The operation of a node.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    Empty,
    Kernel(Launch),
    Move(Movement),
    Host(CUhostFn, usize),
    Record(u64),
    Wait(u64),
    /// An allocation from the graph pool of a device.
    Alloc {
        address: u64,
        size: u64,
        device: usize,
    },
    Free(u64),
    /// A copy of another graph.
    Child(u64),
}

/// A node.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) op: Op,
    /// The nodes that must run before it.
    pub(crate) after: Vec<u64>,
}

/// A graph.
#[derive(Debug, Clone, Default)]
pub(crate) struct Graph {
    pub(crate) nodes: BTreeMap<u64, Node>,
    /// True if it belongs to a node. Such a graph cannot be destroyed by itself.
    pub(crate) owned: bool,
    /// For a copy: the original of each of its nodes.
    pub(crate) originals: HashMap<u64, u64>,
    /// User objects that it holds, with their counts.
    pub(crate) objects: Vec<(u64, u32)>,
}

/// An allocation of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allocation {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) device: usize,
}

/// Unit of addresses, in bytes. No two allocations share a page.
pub(crate) const GRAPH_GRANULE_BYTES: u64 = 2 << 20;

/// Returns the bytes rounded up to whole pages.
pub(crate) fn pages(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(GRAPH_GRANULE_BYTES).unwrap_or(u64::MAX)
}

/// Returns the `CUgraphNodeType` of an operation.
pub(crate) fn node_type(op: &Op) -> u32 {
    match op {
        Op::Kernel(_) => 0,
        Op::Move(Movement::Copy { .. }) => 1,
        Op::Move(Movement::Fill { .. }) => 2,
        Op::Host(..) => 3,
        Op::Child(_) => 4,
        Op::Empty => 5,
        Op::Wait(_) => 6,
        Op::Record(_) => 7,
        Op::Alloc { .. } => 10,
        Op::Free(_) => 11,
    }
}

impl Graph {
    /// Adds a node. `made` counts the nodes of all graphs.
    pub(crate) fn add(&mut self, made: &mut u64, op: Op, after: Vec<u64>) -> u64 {
        *made += 1;
        let handle = (0x0100_0000_0000 * Tag::Node as u64) | (*made << 4);
        self.nodes.insert(handle, Node { op, after });
        handle
    }

    /// Returns the nodes `of`, and all nodes before them.
    pub(crate) fn ancestors(&self, of: &[u64]) -> HashSet<u64> {
        let mut found = HashSet::new();
        let mut open = of.to_vec();
        while let Some(node) = open.pop() {
            if found.insert(node)
                && let Some(node) = self.nodes.get(&node)
            {
                open.extend(&node.after);
            }
        }
        found
    }

    /// Returns all nodes in an order of execution. `None`: they depend on each other in a circle.
    pub(crate) fn ordered(&self) -> Option<Vec<u64>> {
        let mut missing: BTreeMap<u64, usize> =
            self.nodes.iter().map(|(n, node)| (*n, node.after.len())).collect();
        let mut dependents: HashMap<u64, Vec<u64>> = HashMap::new();
        for (handle, node) in &self.nodes {
            node.after.iter().for_each(|before| dependents.entry(*before).or_default().push(*handle));
        }
        let mut ready: Vec<u64> =
            missing.iter().filter(|(_, left)| **left == 0).map(|(n, _)| *n).rev().collect();
        let mut order = Vec::new();
        while let Some(node) = ready.pop() {
            order.push(node);
            for next in dependents.get(&node).into_iter().flatten() {
                if let Some(left) = missing.get_mut(next) {
                    *left -= 1;
                    if *left == 0 {
                        ready.push(*next);
                    }
                }
            }
        }
        (order.len() == self.nodes.len()).then_some(order)
    }

    /// Returns true if it allocates or frees memory itself.
    pub(crate) fn has_memory(&self) -> bool {
        self.nodes.values().any(|node| matches!(node.op, Op::Alloc { .. } | Op::Free(_)))
    }

    /// Returns the graphs of its child nodes.
    pub(crate) fn children(&self) -> impl Iterator<Item = u64> {
        self.nodes.values().filter_map(|node| if let Op::Child(child) = node.op { Some(child) } else { None })
    }

    /// Returns its allocations, in an order of execution.
    pub(crate) fn allocations(&self) -> Vec<Allocation> {
        let allocation = |handle: &u64| match self.nodes.get(handle)?.op {
            Op::Alloc { address, size, device } => Some(Allocation { address, size, device }),
            _ => None,
        };
        self.ordered().unwrap_or_default().iter().filter_map(allocation).collect()
    }

    /// Returns the addresses that it frees.
    pub(crate) fn frees(&self) -> Vec<u64> {
        let freed = |node: &Node| if let Op::Free(address) = node.op { Some(address) } else { None };
        self.nodes.values().filter_map(freed).collect()
    }

    /// Returns an address with room for an allocation that the nodes `after` have freed.
    pub(crate) fn free_address(&self, after: &[u64], size: u64, device: usize) -> Option<u64> {
        let before = self.ancestors(after);
        let mut taken: BTreeMap<u64, (u64, usize)> = BTreeMap::new();
        let mut uses: HashMap<u64, (u32, u32)> = HashMap::new();
        for (handle, node) in &self.nodes {
            match node.op {
                Op::Alloc { address, size, device } => {
                    let room = taken.entry(address).or_insert((size, device));
                    room.0 = room.0.max(size);
                    uses.entry(address).or_default().0 += 1;
                }
                // Memory that another branch frees may still be in use when the new node runs.
                Op::Free(address) if before.contains(handle) => uses.entry(address).or_default().1 += 1,
                _ => {}
            }
        }
        let fits = |(address, (room, of)): (&u64, &(u64, usize))| {
            let is_free = uses.get(address).is_some_and(|(allocated, freed)| allocated == freed);
            (is_free && *of == device && pages(*room) >= pages(size)).then_some(*address)
        };
        taken.iter().find_map(fits)
    }

    /// Returns true if it allocates at an address and has not freed it.
    pub(crate) fn has_unfreed(&self, address: u64) -> bool {
        let allocated = self.allocations().iter().filter(|one| one.address == address).count();
        allocated > self.frees().iter().filter(|freed| **freed == address).count()
    }
}
