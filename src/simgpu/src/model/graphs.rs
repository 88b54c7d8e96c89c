//! Graphs and their nodes.

use std::collections::{BTreeMap, HashMap, HashSet};

use gpuslice_driver::types::CUhostFn;

use super::movement::Movement;
use super::objects::Tag;

/// A launch of a kernel, with its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Launch {
    pub(crate) function: u64,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    /// The program's own arrays of parameters, which later queries of the node return.
    pub(crate) params: usize,
    pub(crate) extra: usize,
    pub(crate) ns: u64,
    /// True if the kernel is part of a collective.
    pub(crate) is_collective: bool,
    pub(crate) occupancy: u16,
}

/// The work of a node.
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
    /// A run of another graph, which is a copy that the node owns.
    Child(u64),
}

/// A node of a graph.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) op: Op,
    /// The nodes that must be done before this one starts.
    pub(crate) after: Vec<u64>,
}

/// A graph: nodes, and the order that they need.
#[derive(Debug, Clone, Default)]
pub(crate) struct Graph {
    pub(crate) nodes: BTreeMap<u64, Node>,
    /// True if the graph belongs to a node. The program cannot destroy such a graph by itself.
    pub(crate) owned: bool,
    /// For a graph that is a copy of another one: for each of its nodes, the node that it is a copy of.
    pub(crate) originals: HashMap<u64, u64>,
    /// User objects that the graph keeps alive, each with the number of uses that the graph holds.
    pub(crate) objects: Vec<(u64, u32)>,
}

/// An allocation that a node of a graph makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allocation {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) device: usize,
}

/// Addresses of graph allocations are multiples of this number of bytes, a page. No two allocations share a page.
pub(crate) const GRAPH_GRANULE_BYTES: u64 = 2 << 20;

/// Returns a number of bytes rounded up to whole pages.
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
    /// Adds a node, and returns its handle. `made` counts the nodes of all graphs, so no handle is used twice.
    pub(crate) fn add(&mut self, made: &mut u64, op: Op, after: Vec<u64>) -> u64 {
        *made += 1;
        let handle = (0x0100_0000_0000 * Tag::Node as u64) | (*made << 4);
        self.nodes.insert(handle, Node { op, after });
        handle
    }

    /// Returns the nodes `of`, and all nodes that must be done before any of them.
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

    /// Returns all nodes in an order in which they can run. Returns `None` if they wait for each other in a circle.
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

    /// Returns true if a node of this graph itself allocates or frees memory. Child graphs do not count.
    pub(crate) fn has_memory(&self) -> bool {
        self.nodes.values().any(|node| matches!(node.op, Op::Alloc { .. } | Op::Free(_)))
    }

    /// Returns the graphs of its child nodes.
    pub(crate) fn children(&self) -> impl Iterator<Item = u64> {
        self.nodes.values().filter_map(|node| if let Op::Child(child) = node.op { Some(child) } else { None })
    }

    /// Returns the allocations of the graph, in an order in which they can run.
    pub(crate) fn allocations(&self) -> Vec<Allocation> {
        let allocation = |handle: &u64| match self.nodes.get(handle)?.op {
            Op::Alloc { address, size, device } => Some(Allocation { address, size, device }),
            _ => None,
        };
        self.ordered().unwrap_or_default().iter().filter_map(allocation).collect()
    }

    /// Returns the addresses that the graph frees.
    pub(crate) fn frees(&self) -> Vec<u64> {
        let freed = |node: &Node| if let Op::Free(address) = node.op { Some(address) } else { None };
        self.nodes.values().filter_map(freed).collect()
    }

    /// Finds an address for a new allocation of `size` bytes that will wait for the nodes `after`. It is the address of an
    /// earlier allocation that is large enough, and that the nodes `after` or nodes before them have freed each time. So it is
    /// certainly free when the new node runs.
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
                // Memory that is freed on another branch may still be in use when the new node runs.
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

    /// Returns true if the graph allocates at an address more often than it frees the address.
    pub(crate) fn has_unfreed(&self, address: u64) -> bool {
        let allocated = self.allocations().iter().filter(|one| one.address == address).count();
        allocated > self.frees().iter().filter(|freed| **freed == address).count()
    }
}
