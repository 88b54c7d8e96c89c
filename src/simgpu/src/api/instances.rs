//! How are graphs put together, and how do they run?

use gpuslice_driver::types::*;

use crate::driver::{Driver, Outcome};
use crate::engine::Config;
use crate::graphs::{Exec, Graph, Node, Op, node_type};
use crate::host::Duty;
use crate::objects::{handle, pointer};
use crate::submit::On;
use crate::userobjects::Ended;

/// Flags of instantiation that are understood: free on launch, upload, on the device, by priority.
const FLAGS: u64 = 0xf;
/// An executable's work is brought to the device at once.
const UPLOAD: u64 = 2;

impl Driver {
    pub(super) fn add_node(
        &self,
        to: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
        op: Op,
    ) -> Outcome {
        let after = self.handles(dependencies, count)?;
        let mut local = self.simulation()?.local();
        let mut made = local.nodes_made;
        let found = local.graphs.get_mut(handle(graph))?;
        if to.is_null() || after.iter().any(|node| !found.nodes.contains_key(node)) {
            return Err(status::INVALID_VALUE);
        }
        let node = found.add(&mut made, op, after);
        local.nodes_made = made;
        self.write(to, pointer(node))
    }

    pub(super) fn end_graph(&self, graph: u64) -> Result<Ended, Status> {
        let mut local = self.simulation()?.local();
        if local.graphs.get(graph)?.owned {
            return Err(status::INVALID_VALUE);
        }
        let gone = local.graphs.remove(graph)?;
        for node in gone.nodes.values() {
            if let Op::Child(child) = node.op {
                let _ = local.graphs.remove(child);
            }
        }
        let mut ended = Ended::default();
        for (object, count) in gone.objects {
            ended = ended.and(local.drop_uses(object, count)?);
        }
        Ok(ended)
    }

    pub(super) fn instantiate(&self, to: *mut CUgraphExec, graph: CUgraph, flags: u64) -> Outcome {
        if to.is_null() || flags & !FLAGS != 0 {
            return Err(status::INVALID_VALUE);
        }
        let simulation = self.simulation()?;
        let mut local = simulation.local();
        let (context, device) = local.current().map(|(handle, context)| (handle, context.device))?;
        let source = handle(graph);
        local.check_single(source)?;
        let graph = local.graphs.get(source)?.clone();
        graph.ordered().ok_or(status::INVALID_VALUE)?;
        let device = graph.allocations().first().map_or(device, |(_, _, device)| *device);
        let exec = Exec {
            graph,
            source,
            context,
            device,
            flags,
            disabled: Default::default(),
            backed: 0,
            last: None,
        };
        let exec = local.execs.add(exec);
        if flags & UPLOAD != 0
            && let Err(why) = local.back_exec(simulation, exec)
        {
            let _ = local.execs.remove(exec);
            return Err(why);
        }
        self.write(to, pointer(exec))
    }

    /// As above, with a place for complaints that are never made.
    pub(super) fn instantiate_logged(
        &self,
        to: *mut CUgraphExec,
        graph: CUgraph,
        node: *mut CUgraphNode,
        log: *mut c_char,
        size: usize,
    ) -> Outcome {
        self.instantiate(to, graph, 0)?;
        self.offer(node, core::ptr::null_mut());
        if size > 0 { self.write_text(log, size, "") } else { Ok(()) }
    }

    pub(super) fn instantiate_with(
        &self,
        to: *mut CUgraphExec,
        graph: CUgraph,
        params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
    ) -> Outcome {
        // Flags, stream, node of an error, result: four words, of which the last is half used.
        const _: () = assert!(size_of::<CUDA_GRAPH_INSTANTIATE_PARAMS>() == 32);
        let mut words: [u64; 4] = self.read(params.cast())?;
        let [flags, _, node, result] = &mut words;
        let outcome = self.instantiate(to, graph, *flags);
        (*node, *result) = (0, u64::from(outcome.is_err()));
        self.write(params.cast(), words)?;
        outcome
    }

    pub(super) fn upload(&self, exec: CUgraphExec, on: On) -> Outcome {
        self.stream(on)?;
        let simulation = self.simulation()?;
        simulation.local().back_exec(simulation, handle(exec))
    }

    pub(super) fn launch_graph(&self, exec: CUgraphExec, on: On) -> Outcome {
        let simulation = self.simulation()?;
        let (stream, place) = self.stream(on)?;
        let exec = handle(exec);
        let mut local = simulation.local();
        local.refuse_implicit(stream)?;
        if local.capture_of(stream)?.is_some() {
            let copy = local.execs.get(exec)?.graph.clone();
            let child = local.graphs.add(Graph { owned: true, ..copy });
            return local.capture(stream, &Op::Child(child)).map(|_| ());
        }
        local.take_graph_blocks(simulation, exec)?;
        let found = local.execs.get(exec)?;
        let (graph, context) = (found.graph.clone(), local.streams.streams.get(stream)?.context);
        let config: Config = *simulation.shared.lock().engine(place.device).config();
        let plan = local.plan(simulation, &graph, &found.disabled, &config)?;
        let moves: Vec<_> = plan.moves.iter().map(|one| one.prepare(&local, simulation)).collect();
        let moves = moves.into_iter().collect::<Result<Vec<_>, _>>()?;
        drop(local);
        moves.iter().for_each(crate::movement::Prepared::perform);
        for event in &plan.waits {
            self.wait_event(On(stream, false), pointer(*event))?;
        }
        let ticket = simulation.enqueue(place, plan.work())?;
        for (function, data) in &plan.hosts {
            self.put_duty(simulation, context, place, Duty::Function(*function, *data))?;
        }
        for event in &plan.records {
            self.record(pointer(*event), On(stream, false))?;
        }
        let mut local = simulation.local();
        local.give_graph_blocks(simulation, &graph);
        if let Ok(exec) = local.execs.get_mut(exec) {
            exec.last = Some((place, ticket));
        }
        Ok(())
    }

    /// Puts a graph's nodes in the place of an executable's, if they are of the same types in the same order.
    pub(super) fn update(&self, exec: CUgraphExec, graph: CUgraph) -> Result<bool, Status> {
        let mut local = self.simulation()?.local();
        let new = local.graphs.get(handle(graph))?.clone();
        let exec = local.execs.get_mut(handle(exec))?;
        let types =
            |graph: &Graph| -> Vec<u32> { graph.nodes.values().map(|node| node_type(&node.op)).collect() };
        let same = types(&new) == types(&exec.graph) && !new.has_memory();
        if same {
            exec.graph = new;
        }
        Ok(same)
    }

    /// Writes handles as far as there is room; the count becomes how many there are, or were written.
    pub(super) fn list(&self, nodes: &[u64], to: *mut CUgraphNode, count: *mut usize) -> Outcome {
        if to.is_null() {
            return self.write(count, nodes.len());
        }
        let room = self.read(count)?;
        for index in 0..room {
            let node = nodes.get(index).copied().unwrap_or(0);
            self.write_at(to, index, pointer(node))?;
        }
        self.write(count, nodes.len().min(room))
    }

    pub(super) fn nodes_of(&self, graph: CUgraph, fits: impl Fn(&Node) -> bool) -> Result<Vec<u64>, Status> {
        let local = self.simulation()?.local();
        let nodes = local.graphs.get(handle(graph))?.nodes.iter();
        Ok(nodes.filter(|(_, node)| fits(node)).map(|(handle, _)| *handle).collect())
    }

    pub(super) fn edges(
        &self,
        graph: CUgraph,
        from: *mut CUgraphNode,
        to: *mut CUgraphNode,
        count: *mut usize,
    ) -> Outcome {
        let mut pairs = Vec::new();
        for (node, found) in &self.simulation()?.local().graphs.get(handle(graph))?.nodes {
            pairs.extend(found.after.iter().map(|before| (*before, *node)));
        }
        let (before, after): (Vec<u64>, Vec<u64>) = pairs.into_iter().unzip();
        if from.is_null() != to.is_null() {
            return Err(status::INVALID_VALUE);
        }
        let room = if from.is_null() { 0 } else { self.read(count)? };
        self.list(&before, from, count)?;
        if !from.is_null() {
            self.write(count, room)?;
        }
        self.list(&after, to, count)
    }

    pub(super) fn dependents(&self, node: CUgraphNode, to: *mut CUgraphNode, count: *mut usize) -> Outcome {
        let node = handle(node);
        let graph = self.simulation()?.local().graph_of(node)?;
        let nodes = self.nodes_of(pointer(graph), |other| other.after.contains(&node))?;
        self.list(&nodes, to, count)
    }

    pub(super) fn dependencies(&self, node: CUgraphNode, to: *mut CUgraphNode, count: *mut usize) -> Outcome {
        let after = self.simulation()?.local().node(handle(node))?.after.clone();
        self.list(&after, to, count)
    }

    pub(super) fn change_edges(
        &self,
        graph: CUgraph,
        from: *const CUgraphNode,
        to: *const CUgraphNode,
        count: usize,
        add: bool,
    ) -> Outcome {
        let pairs: Vec<_> = self.handles(from, count)?.into_iter().zip(self.handles(to, count)?).collect();
        let mut local = self.simulation()?.local();
        let graph = local.graphs.get_mut(handle(graph))?;
        for (before, node) in pairs {
            let there = graph.nodes.contains_key(&before);
            let node = graph.nodes.get_mut(&node).filter(|_| there).ok_or(status::INVALID_VALUE)?;
            match (add, node.after.contains(&before)) {
                (true, false) => node.after.push(before),
                (false, true) => node.after.retain(|other| *other != before),
                _ => return Err(status::INVALID_VALUE),
            }
        }
        Ok(())
    }

    pub(super) fn clone_graph(&self, to: *mut CUgraph, graph: CUgraph) -> Outcome {
        let mut local = self.simulation()?.local();
        if local.graphs.get(handle(graph))?.has_memory() {
            return Err(status::NOT_SUPPORTED);
        }
        let copy = local.copy_graph(handle(graph))?;
        self.write(to, pointer(local.graphs.add(copy)))
    }

    pub(super) fn retain_object(
        &self,
        graph: CUgraph,
        object: CUuserObject,
        count: c_uint,
        flags: c_uint,
    ) -> Outcome {
        let mut local = self.simulation()?.local();
        let object = handle(object);
        let found = local.user_objects.get_mut(object).map_err(|_| status::INVALID_VALUE)?;
        // The caller may hand its own uses over.
        if flags & 1 == 0 {
            found.uses = found.uses.saturating_add(count);
        }
        local.graphs.get_mut(handle(graph))?.objects.push((object, count));
        Ok(())
    }

    pub(super) fn release_object(&self, graph: CUgraph, object: CUuserObject, count: c_uint) -> Outcome {
        let mut local = self.simulation()?.local();
        let object = handle(object);
        let held = &mut local.graphs.get_mut(handle(graph))?.objects;
        let held = held.iter_mut().find(|(other, uses)| *other == object && *uses >= count);
        held.ok_or(status::INVALID_VALUE)?.1 -= count;
        let ended = local.drop_uses(object, count)?;
        drop(local);
        ended.call();
        Ok(())
    }
}
