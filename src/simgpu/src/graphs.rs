//! What is in a graph, and what does launching it come to?

use std::collections::{BTreeMap, HashMap, HashSet};

use gpuslice_driver::types::{CUhostFn, Status};

use crate::engine::{ClientId, Config, EventId, Meeting, WHOLE_DEVICE, Work};
use crate::graph_memory::GRANULE;
use crate::local::Local;
use crate::meetings;
use crate::movement::Movement;
use crate::objects::Tag;
use crate::simulation::Simulation;
use crate::status::statuses;

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
    /// Whether it waits for others while it runs.
    pub(crate) meets: bool,
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

/// An allocation of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Allocation {
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) device: usize,
}

/// Bytes in whole pages.
pub(crate) fn pages(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(GRANULE).unwrap_or(u64::MAX)
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

    /// Whether it takes or frees memory itself.
    pub(crate) fn has_memory(&self) -> bool {
        self.nodes.values().any(|node| matches!(node.op, Op::Alloc { .. } | Op::Free(_)))
    }

    /// The graphs of its child nodes.
    pub(crate) fn children(&self) -> impl Iterator<Item = u64> {
        self.nodes.values().filter_map(|node| if let Op::Child(child) = node.op { Some(child) } else { None })
    }

    /// What it allocates, in the order in which it does.
    pub(crate) fn allocations(&self) -> Vec<Allocation> {
        let allocation = |handle: &u64| match self.nodes.get(handle)?.op {
            Op::Alloc { address, size, device } => Some(Allocation { address, size, device }),
            _ => None,
        };
        self.ordered().unwrap_or_default().iter().filter_map(allocation).collect()
    }

    /// Addresses that it frees.
    pub(crate) fn frees(&self) -> Vec<u64> {
        let freed = |node: &Node| if let Op::Free(address) = node.op { Some(address) } else { None };
        self.nodes.values().filter_map(freed).collect()
    }

    /// An address that the nodes given have let go of, and that has room for an allocation behind them.
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
                // What is freed elsewhere may still be in use when the new node is reached.
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

    /// Whether it allocates at an address and has not freed that yet.
    pub(crate) fn has_unfreed(&self, address: u64) -> bool {
        let allocated = self.allocations().iter().filter(|one| one.address == address).count();
        allocated > self.frees().iter().filter(|freed| **freed == address).count()
    }
}

/// What a launch of a graph does, put together.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Time along the longest path.
    ns: u64,
    nodes: u32,
    occupancy: u16,
    /// Whom its collectives wait for.
    meeting: Option<Meeting>,
    pub(crate) moves: Vec<Movement>,
    pub(crate) hosts: Vec<(CUhostFn, usize)>,
    pub(crate) records: Vec<u64>,
    pub(crate) waits: Vec<u64>,
}

impl Plan {
    /// What goes into the queue; nothing where nothing takes time.
    pub(crate) fn work(&self) -> Work {
        let Self { ns, nodes, .. } = *self;
        let occupancy = self.occupancy.max(1);
        match self.meeting {
            Some(meeting) => Work::Meet { meeting, ns, nodes, occupancy },
            None if nodes == 0 => Work::Marker,
            None => Work::Graph { kernels_ns: ns, nodes, occupancy },
        }
    }
}

impl Local {
    /// Puts together what a launch of a graph does.
    pub(crate) fn plan(
        &self,
        simulation: &Simulation,
        (graph, children): (&Graph, &HashMap<u64, Graph>),
        disabled: &HashSet<u64>,
        config: &Config,
    ) -> Result<Plan, Status> {
        let mut plan = Plan::default();
        let mut ends: HashMap<u64, u64> = HashMap::new();
        for handle in graph.ordered().ok_or(statuses::ILLEGAL_STATE)? {
            let Some(node) = graph.nodes.get(&handle) else { continue };
            let start = node.after.iter().filter_map(|before| ends.get(before)).max().copied().unwrap_or(0);
            let skipped = disabled.contains(&handle);
            let ns = if skipped {
                0
            } else {
                self.add_to_plan(simulation, &mut plan, (&node.op, children), config)?
            };
            ends.insert(handle, start.saturating_add(ns));
        }
        plan.ns = ends.values().max().copied().unwrap_or(0);
        Ok(plan)
    }

    fn add_to_plan(
        &self,
        simulation: &Simulation,
        plan: &mut Plan,
        (op, children): (&Op, &HashMap<u64, Graph>),
        config: &Config,
    ) -> Result<u64, Status> {
        match op {
            Op::Kernel(launch) => {
                plan.nodes += 1;
                plan.occupancy = plan.occupancy.max(launch.occupancy);
                plan.meeting = plan.meeting.or_else(|| meetings::of(simulation, launch));
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
                let child = children.get(child).ok_or(statuses::INVALID_HANDLE)?;
                let child = self.plan(simulation, (child, children), &HashSet::new(), config)?;
                plan.nodes += child.nodes;
                plan.occupancy = plan.occupancy.max(child.occupancy);
                plan.meeting = plan.meeting.or(child.meeting);
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

    /// Copies of the graphs of a graph's child nodes, and of theirs.
    pub(crate) fn children_of(&self, graph: &Graph) -> HashMap<u64, Graph> {
        let mut found = HashMap::new();
        let mut open: Vec<u64> = graph.children().collect();
        while let Some(child) = open.pop() {
            if let Ok(graph) = self.graphs.get(child) {
                open.extend(graph.children());
                found.insert(child, graph.clone());
            }
        }
        found
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
