//! Plans the launches of graphs, finds graphs and nodes, and copies graphs.

use std::collections::{HashMap, HashSet};

use gpuslice_driver::types::{CUhostFn, Status};

use super::collectives;
use super::objects::ProcessObjects;
use super::simulation::Simulation;
use crate::engine::{Collective, DeviceConfig, WHOLE_DEVICE, Work};
use crate::model::graphs::{Graph, Node, Op};
use crate::model::movement::Movement;
use crate::status::statuses;

/// The work of a launch of a graph.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// The duration of the longest path through the graph, in nanoseconds.
    ns: u64,
    nodes: u32,
    occupancy: u16,
    /// The collective that a kernel of the graph is part of.
    collective: Option<Collective>,
    pub(crate) moves: Vec<Movement>,
    pub(crate) hosts: Vec<(CUhostFn, usize)>,
    pub(crate) records: Vec<u64>,
    pub(crate) waits: Vec<u64>,
}

impl Plan {
    /// Returns the work for the stream's queue. If nothing in the graph takes time, it is a marker.
    pub(crate) fn work(&self) -> Work {
        let Self { ns, nodes, .. } = *self;
        let occupancy = self.occupancy.max(1);
        match self.collective {
            Some(collective) => Work::Collective { collective, ns, nodes, occupancy },
            None if nodes == 0 => Work::Marker,
            None => Work::Graph { kernels_ns: ns, nodes, occupancy },
        }
    }
}

impl ProcessObjects {
    /// Collects what a launch of a graph does, and computes how long it takes. Nodes in `disabled` do nothing.
    pub(crate) fn plan(
        &self,
        simulation: &Simulation,
        (graph, children): (&Graph, &HashMap<u64, Graph>),
        disabled: &HashSet<u64>,
        config: &DeviceConfig,
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

    /// Adds one node's operation to a plan, and returns how long the node takes, in nanoseconds. The graph of a child node is
    /// planned in the same way. A movement that cannot be prepared takes no time.
    fn add_to_plan(
        &self,
        simulation: &Simulation,
        plan: &mut Plan,
        (op, children): (&Op, &HashMap<u64, Graph>),
        config: &DeviceConfig,
    ) -> Result<u64, Status> {
        match op {
            Op::Kernel(launch) => {
                plan.nodes += 1;
                plan.occupancy = plan.occupancy.max(launch.occupancy);
                plan.collective = plan.collective.or_else(|| collectives::of_launch(simulation, launch));
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
                plan.collective = plan.collective.or(child.collective);
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

    /// Returns copies of the graphs of all child nodes, also of nested ones.
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

    /// Returns the graph that a node belongs to.
    pub(crate) fn graph_of(&self, node: u64) -> Result<u64, Status> {
        let mut graphs = self.graphs.iter();
        let found = graphs.find(|(_, graph)| graph.nodes.contains_key(&node));
        found.map(|(handle, _)| handle).ok_or(statuses::INVALID_HANDLE)
    }

    /// Returns the node that a handle stands for.
    pub(crate) fn node(&self, node: u64) -> Result<&Node, Status> {
        self.graphs.get(self.graph_of(node)?)?.nodes.get(&node).ok_or(statuses::INVALID_HANDLE)
    }

    /// Returns the node that a handle stands for, so that the caller can change it.
    pub(crate) fn node_mut(&mut self, node: u64) -> Result<&mut Node, Status> {
        let graph = self.graph_of(node)?;
        self.graphs.get_mut(graph)?.nodes.get_mut(&node).ok_or(statuses::INVALID_HANDLE)
    }

    /// Returns a copy of a graph. The copy has nodes of its own.
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
