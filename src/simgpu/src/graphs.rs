//! What is in a graph, and what does launching it come to?

use std::collections::{BTreeMap, HashMap, HashSet};

use gpuslice_driver::types::{CUhostFn, Status};

use crate::driver::statuses;
use crate::engine::{Config, Ticket, WHOLE_DEVICE, Work};
use crate::local::Local;
use crate::movement::Movement;
use crate::objects::Tag;
use crate::simulation::Simulation;
use crate::streams::Place;

/// A kernel with everything that its launch needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Launch {
    pub(crate) function: u64,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    /// The program's parameter arrays, to be told again when it asks.
    pub(crate) params: usize,
    pub(crate) extra: usize,
    pub(crate) ns: u64,
    pub(crate) occupancy: u16,
}

/// What a node does.
#[derive(Debug, Clone)]
pub(crate) enum Op {
    Empty,
    Kernel(Launch),
    Move(Movement),
    Host(CUhostFn, usize),
    Record(u64),
    Wait(u64),
    /// Memory from the graph pool of a device: address and size.
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
    /// The nodes it comes after.
    pub(crate) after: Vec<u64>,
}

/// A graph.
#[derive(Debug, Clone, Default)]
pub(crate) struct Graph {
    pub(crate) nodes: BTreeMap<u64, Node>,
    /// Whether it belongs to a node, and so cannot be destroyed by itself.
    pub(crate) owned: bool,
    /// The nodes of the graph it was copied from, by its own.
    pub(crate) originals: HashMap<u64, u64>,
    /// User objects that it holds, with counts.
    pub(crate) objects: Vec<(u64, u32)>,
}

/// An executable.
#[derive(Debug)]
pub(crate) struct Exec {
    pub(crate) graph: Graph,
    /// The graph it was made of.
    pub(crate) source: u64,
    pub(crate) context: u64,
    pub(crate) device: usize,
    pub(crate) flags: u64,
    pub(crate) disabled: HashSet<u64>,
    /// Memory that is set aside for it in the graph pool.
    pub(crate) backed: u64,
    /// The newest launch.
    pub(crate) last: Option<(Place, Ticket)>,
}

/// Flag of instantiation: a launch frees what the one before it left.
pub(crate) const AUTO_FREE: u64 = 1;

/// `CUgraphNodeType`.
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

    /// The nodes given and all that come before them.
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

    /// All nodes, each after those it depends on. None where they depend on each other in a circle.
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

    /// Whether it takes or frees memory.
    pub(crate) fn has_memory(&self) -> bool {
        self.nodes.values().any(|node| matches!(node.op, Op::Alloc { .. } | Op::Free(_)))
    }

    /// The most that its allocations hold at a time.
    pub(crate) fn footprint(&self) -> u64 {
        let (mut held, mut most) = (0_u64, 0_u64);
        let mut sizes = HashMap::new();
        for handle in self.ordered().unwrap_or_default() {
            match self.nodes.get(&handle).map(|node| &node.op) {
                Some(Op::Alloc { address, size, .. }) => {
                    sizes.insert(*address, *size);
                    held = held.saturating_add(*size);
                    most = most.max(held);
                }
                Some(Op::Free(address)) => held = held.saturating_sub(sizes.remove(address).unwrap_or(0)),
                _ => {}
            }
        }
        most
    }

    /// Addresses and sizes of its allocations.
    pub(crate) fn allocations(&self) -> Vec<(u64, u64, usize)> {
        let allocation = |node: &Node| match node.op {
            Op::Alloc { address, size, device } => Some((address, size, device)),
            _ => None,
        };
        self.nodes.values().filter_map(allocation).collect()
    }

    /// Addresses that it frees.
    pub(crate) fn frees(&self) -> Vec<u64> {
        let freed = |node: &Node| if let Op::Free(address) = node.op { Some(address) } else { None };
        self.nodes.values().filter_map(freed).collect()
    }
}

/// What a launch of a graph does, put together.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Time along the longest path.
    ns: u64,
    nodes: u32,
    occupancy: u16,
    pub(crate) moves: Vec<Movement>,
    pub(crate) hosts: Vec<(CUhostFn, usize)>,
    pub(crate) records: Vec<u64>,
    pub(crate) waits: Vec<u64>,
}

impl Plan {
    /// What goes into the queue; nothing where nothing takes time.
    pub(crate) fn work(&self) -> Work {
        match self.nodes {
            0 => Work::Marker,
            nodes => Work::Graph { kernels_ns: self.ns, nodes, occupancy: self.occupancy.max(1) },
        }
    }
}

impl Local {
    /// Puts together what a launch of a graph does.
    pub(crate) fn plan(
        &self,
        simulation: &Simulation,
        graph: &Graph,
        disabled: &HashSet<u64>,
        config: &Config,
    ) -> Result<Plan, Status> {
        let mut plan = Plan::default();
        let mut ends: HashMap<u64, u64> = HashMap::new();
        for handle in graph.ordered().ok_or(statuses::ILLEGAL_STATE)? {
            let Some(node) = graph.nodes.get(&handle) else { continue };
            let start = node.after.iter().filter_map(|before| ends.get(before)).max().copied().unwrap_or(0);
            let skipped = disabled.contains(&handle);
            let ns = if skipped { 0 } else { self.add_to_plan(simulation, &mut plan, &node.op, config)? };
            ends.insert(handle, start.saturating_add(ns));
        }
        plan.ns = ends.values().max().copied().unwrap_or(0);
        Ok(plan)
    }

    fn add_to_plan(
        &self,
        simulation: &Simulation,
        plan: &mut Plan,
        op: &Op,
        config: &Config,
    ) -> Result<u64, Status> {
        match op {
            Op::Kernel(launch) => {
                plan.nodes += 1;
                plan.occupancy = plan.occupancy.max(launch.occupancy);
                return Ok(launch.ns);
            }
            Op::Move(movement) => {
                plan.moves.push(*movement);
                let (ns, occupancy) = match movement.prepare(self, simulation).map(|prepared| prepared.work) {
                    Ok(Work::Fill { bytes }) => (config.fill_ns(bytes), WHOLE_DEVICE),
                    Ok(Work::Copy { direction, bytes }) => (config.copy_ns(direction, bytes), 1),
                    _ => return Ok(0),
                };
                plan.nodes += 1;
                plan.occupancy = plan.occupancy.max(occupancy);
                return Ok(ns);
            }
            Op::Child(child) => {
                let child = self.plan(simulation, self.graphs.get(*child)?, &HashSet::new(), config)?;
                plan.nodes += child.nodes;
                plan.occupancy = plan.occupancy.max(child.occupancy);
                plan.moves.extend(child.moves);
                plan.hosts.extend(child.hosts);
                plan.records.extend(child.records);
                plan.waits.extend(child.waits);
                return Ok(child.ns);
            }
            Op::Host(function, data) => plan.hosts.push((*function, *data)),
            Op::Record(event) => plan.records.push(*event),
            Op::Wait(event) => plan.waits.push(*event),
            Op::Empty | Op::Alloc { .. } | Op::Free(_) => {}
        }
        Ok(0)
    }

    /// The graph that a node is in.
    pub(crate) fn graph_of(&self, node: u64) -> Result<u64, Status> {
        let mut graphs = self.graphs.iter();
        let found = graphs.find(|(_, graph)| graph.nodes.contains_key(&node));
        found.map(|(handle, _)| handle).ok_or(statuses::INVALID_HANDLE)
    }

    /// A node.
    pub(crate) fn node(&self, node: u64) -> Result<&Node, Status> {
        self.graphs.get(self.graph_of(node)?)?.nodes.get(&node).ok_or(statuses::INVALID_HANDLE)
    }

    /// A node, to change.
    pub(crate) fn node_mut(&mut self, node: u64) -> Result<&mut Node, Status> {
        let graph = self.graph_of(node)?;
        self.graphs.get_mut(graph)?.nodes.get_mut(&node).ok_or(statuses::INVALID_HANDLE)
    }

    /// A copy of a graph with nodes of its own.
    pub(crate) fn copy_graph(&mut self, handle: u64) -> Result<Graph, Status> {
        let original = self.graphs.get(handle)?.clone();
        let mut copy = Graph::default();
        let mut new = HashMap::new();
        for old in original.ordered().ok_or(statuses::ILLEGAL_STATE)? {
            let Some(node) = original.nodes.get(&old) else { continue };
            let after = node.after.iter().filter_map(|before| new.get(before)).copied().collect();
            let made = copy.add(&mut self.nodes_made, node.op.clone(), after);
            new.insert(old, made);
            copy.originals.insert(made, old);
        }
        Ok(copy)
    }
}
