//! Builds, instantiates and launches graphs.

use gpuslice_driver::types::*;

use super::submit::StreamArgument;
use crate::call::DriverCall;
use crate::engine::{DeviceConfig, EventId, Work};
use crate::model::executables::{AUTO_FREE, Exec};
use crate::model::graphs::{Graph, Node, Op, node_type};
use crate::model::objects::{handle, pointer};
use crate::model::streams::StreamPlace;
use crate::model::user_objects::EndedObjects;
use crate::process::host_queue::HostTask;
use crate::status::Outcome;

/// All flags of an instantiation: free on launch, upload, launch from the device, and use of node priority.
const INSTANTIATION_FLAGS: u64 = 0xf;
/// Flag: the executable is uploaded to the device at once.
const UPLOAD: u64 = 2;
/// Flag: the executable can be launched from the device.
const DEVICE_LAUNCH: u64 = 4;

impl DriverCall {
    pub(super) fn add_node(
        &self,
        to: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
        op: Op,
    ) -> Outcome {
        let after = self.handles(dependencies, count)?;
        let mut objects = self.simulation()?.objects();
        let mut made = objects.nodes_made;
        let found = objects.graphs.get_mut(handle(graph))?;
        if to.is_null() || after.iter().any(|node| !found.nodes.contains_key(node)) {
            return Err(status::INVALID_VALUE);
        }
        let node = found.add(&mut made, op, after);
        objects.nodes_made = made;
        self.write(to, pointer(node))
    }

    /// Adds an allocation node.
    pub(super) fn add_alloc(
        &self,
        to: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
        params: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
    ) -> Outcome {
        let op = self.alloc_op(params, handle(graph), &self.handles(dependencies, count)?)?;
        self.add_node(to, graph, dependencies, count, op)
    }

    /// Adds a node of any type.
    pub(super) fn add_any(
        &self,
        to: *mut CUgraphNode,
        graph: CUgraph,
        dependencies: *const CUgraphNode,
        count: usize,
        params: *mut CUgraphNodeParams,
    ) -> Outcome {
        let op = self.new_op(params, handle(graph), &self.handles(dependencies, count)?)?;
        self.add_node(to, graph, dependencies, count, op)
    }

    pub(super) fn end_graph(&self, graph: u64) -> Result<EndedObjects, Status> {
        let mut objects = self.simulation()?.objects();
        if objects.graphs.get(graph)?.owned {
            return Err(status::INVALID_VALUE);
        }
        let gone = objects.graphs.remove(graph)?;
        for child in objects.children_of(&gone).into_keys() {
            let _ = objects.graphs.remove(child);
        }
        let mut ended = EndedObjects::default();
        for (object, count) in gone.objects {
            ended = ended.and(objects.drop_uses(object, count)?);
        }
        Ok(ended)
    }

    /// Makes an executable from a copy of a graph, and writes its handle. With the flag for an upload, the executable gets its
    /// memory at once; if that fails, there is no executable.
    pub(super) fn instantiate(
        &self,
        to: *mut CUgraphExec,
        graph: CUgraph,
        flags: u64,
        upload: StreamArgument,
    ) -> Outcome {
        if to.is_null()
            || flags & !INSTANTIATION_FLAGS != 0
            || flags & (AUTO_FREE | DEVICE_LAUNCH) == AUTO_FREE | DEVICE_LAUNCH
        {
            return Err(status::INVALID_VALUE);
        }
        let simulation = self.simulation()?;
        let mut objects = simulation.objects();
        let (context, _) = objects.current()?;
        let source = handle(graph);
        objects.check_single(source)?;
        let graph = objects.graphs.get(source)?.clone();
        graph.ordered().ok_or(status::INVALID_VALUE)?;
        let children = objects.children_of(&graph);
        let exec = Exec { graph, children, source, context, flags, disabled: Default::default(), done: None };
        if exec.graph.owned {
            return Err(status::INVALID_VALUE);
        }
        if flags & DEVICE_LAUNCH != 0 && exec.has_memory() {
            return Err(status::NOT_SUPPORTED);
        }
        let exec = objects.execs.add(exec);
        drop(objects);
        if flags & UPLOAD != 0
            && let Err(why) = self.upload(pointer(exec), upload)
        {
            let _ = simulation.objects().end_exec(simulation, exec);
            return Err(why);
        }
        self.write(to, pointer(exec))
    }

    /// Instantiates a graph, and writes an empty log.
    pub(super) fn instantiate_logged(
        &self,
        to: *mut CUgraphExec,
        graph: CUgraph,
        node: *mut CUgraphNode,
        log: *mut c_char,
        size: usize,
    ) -> Outcome {
        self.instantiate(to, graph, 0, StreamArgument(0, false))?;
        self.offer(node, core::ptr::null_mut());
        if size > 0 { self.write_text(log, size, "") } else { Ok(()) }
    }

    pub(super) fn instantiate_with(
        &self,
        to: *mut CUgraphExec,
        graph: CUgraph,
        params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
        per_thread: bool,
    ) -> Outcome {
        // The four words are flags, stream, error node and result. Only half of the last one is used.
        const _: () = assert!(size_of::<CUDA_GRAPH_INSTANTIATE_PARAMS>() == 32);
        let mut words: [u64; 4] = self.read(params.cast())?;
        let [flags, stream, node, result] = &mut words;
        let outcome = self.instantiate(to, graph, *flags, StreamArgument(*stream, per_thread));
        (*node, *result) = (0, u64::from(outcome.is_err()));
        self.write(params.cast(), words)?;
        outcome
    }

    pub(super) fn upload(&self, exec: CUgraphExec, on: StreamArgument) -> Outcome {
        let (_, place) = self.stream(on)?;
        let simulation = self.simulation()?;
        let mut objects = simulation.objects();
        objects.back_exec(simulation, handle(exec), place)?;
        objects.note_launch(handle(exec), None);
        Ok(())
    }

    pub(super) fn launch_graph(&self, exec: CUgraphExec, on: StreamArgument) -> Outcome {
        let simulation = self.simulation()?;
        let (stream, place) = self.stream(on)?;
        let exec = handle(exec);
        let mut objects = simulation.objects();
        objects.refuse_implicit(stream)?;
        if objects.capture_of(stream)?.is_some() {
            let found = objects.execs.get(exec)?;
            if found.has_memory() {
                return Err(status::NOT_SUPPORTED);
            }
            let copy = found.graph.clone();
            let child = objects.graphs.add(Graph { owned: true, ..copy });
            return objects.capture(stream, &Op::Child(child)).map(|_| ());
        }
        objects.take_graph_blocks(simulation, exec, place)?;
        drop(objects);
        let outcome = self.run_graph(exec, stream, place);
        if outcome.is_err() {
            let mut objects = simulation.objects();
            objects.note_launch(exec, None);
            for one in objects.execs.get(exec)?.allocations() {
                let _ = objects.free_graph_block(one.address);
            }
        }
        outcome
    }

    /// Queues the work of an executable on a stream. Before that, the memory of the executable is provided.
    fn run_graph(&self, exec: u64, stream: u64, place: StreamPlace) -> Outcome {
        let simulation = self.simulation()?;
        let objects = simulation.objects();
        let found = objects.execs.get(exec)?;
        let context = objects.streams.streams.get(stream)?.context;
        let config: DeviceConfig = *simulation.shared.lock().engine(place.device).config();
        let plan = objects.plan(simulation, (&found.graph, &found.children), &found.disabled, &config)?;
        let moves: Vec<_> = plan.moves.iter().map(|one| one.prepare(&objects, simulation)).collect();
        let moves = moves.into_iter().collect::<Result<Vec<_>, _>>()?;
        drop(objects);
        moves.iter().for_each(crate::process::movement::Prepared::perform);
        for event in &plan.waits {
            self.wait_event(StreamArgument(stream, false), pointer(*event))?;
        }
        // Launches of one executable run one after the other, even on different streams.
        let done = self.done(exec, context, place.device)?;
        simulation.enqueue(place, Work::Wait(done))?;
        let ticket = simulation.enqueue(place, plan.work())?;
        for (function, data) in &plan.hosts {
            self.queue_host_task(simulation, context, place, HostTask::Function(*function, *data))?;
        }
        for event in &plan.records {
            self.record(pointer(*event), StreamArgument(stream, false))?;
        }
        simulation.enqueue(place, Work::Record(done))?;
        let mut objects = simulation.objects();
        objects.note_launch(exec, Some(ticket));
        objects.give_graph_blocks(exec)
    }

    /// Returns the event that marks the end of an executable's launches on a device.
    fn done(&self, exec: u64, context: u64, device: usize) -> Result<EventId, Status> {
        let simulation = self.simulation()?;
        let mut objects = simulation.objects();
        let client = objects.contexts.get(context)?.client;
        let exec = objects.execs.get_mut(exec)?;
        if let Some((_, _, event)) = exec.done.filter(|(_, its, _)| *its == client) {
            return Ok(event);
        }
        let made =
            simulation.shared.lock().engine(device).add_event(client).map_err(|_| status::OUT_OF_MEMORY)?;
        exec.done = Some((device, client, made));
        Ok(made)
    }

    /// Replaces an executable's nodes by those of a graph. Both must have the same types of nodes in the same order.
    pub(super) fn update(&self, exec: CUgraphExec, graph: CUgraph) -> Result<bool, Status> {
        let mut objects = self.simulation()?.objects();
        let new = objects.graphs.get(handle(graph))?.clone();
        let (children, has_memory) = (objects.children_of(&new), objects.has_memory(&new));
        if new.owned {
            return Err(status::INVALID_VALUE);
        }
        let exec = objects.execs.get_mut(handle(exec))?;
        let types =
            |graph: &Graph| -> Vec<u32> { graph.nodes.values().map(|node| node_type(&node.op)).collect() };
        let same = types(&new) == types(&exec.graph) && !has_memory;
        if same {
            (exec.graph, exec.children) = (new, children);
        }
        Ok(same)
    }

    /// Writes handles, as many as there is room for. Sets the count to the number of handles, or of written handles.
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
        let objects = self.simulation()?.objects();
        let nodes = objects.graphs.get(handle(graph))?.nodes.iter();
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
        for (node, found) in &self.simulation()?.objects().graphs.get(handle(graph))?.nodes {
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
        let graph = self.simulation()?.objects().graph_of(node)?;
        let nodes = self.nodes_of(pointer(graph), |other| other.after.contains(&node))?;
        self.list(&nodes, to, count)
    }

    pub(super) fn dependencies(&self, node: CUgraphNode, to: *mut CUgraphNode, count: *mut usize) -> Outcome {
        let after = self.simulation()?.objects().node(handle(node))?.after.clone();
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
        let mut objects = self.simulation()?.objects();
        let graph = objects.graphs.get_mut(handle(graph))?;
        if !add && graph.has_memory() {
            return Err(status::NOT_SUPPORTED);
        }
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
        let mut objects = self.simulation()?.objects();
        if objects.has_memory(objects.graphs.get(handle(graph))?) {
            return Err(status::NOT_SUPPORTED);
        }
        let copy = objects.copy_graph(handle(graph))?;
        self.write(to, pointer(objects.graphs.add(copy)))
    }

    pub(super) fn retain_object(
        &self,
        graph: CUgraph,
        object: CUuserObject,
        count: c_uint,
        flags: c_uint,
    ) -> Outcome {
        let mut objects = self.simulation()?.objects();
        let object = handle(object);
        let found = objects.user_objects.get_mut(object).map_err(|_| status::INVALID_VALUE)?;
        // The caller may transfer uses that it already has.
        if flags & 1 == 0 {
            found.uses = found.uses.saturating_add(count);
        }
        objects.graphs.get_mut(handle(graph))?.objects.push((object, count));
        Ok(())
    }

    pub(super) fn release_object(&self, graph: CUgraph, object: CUuserObject, count: c_uint) -> Outcome {
        let mut objects = self.simulation()?.objects();
        let object = handle(object);
        let held = &mut objects.graphs.get_mut(handle(graph))?.objects;
        let held = held.iter_mut().find(|(other, uses)| *other == object && *uses >= count);
        held.ok_or(status::INVALID_VALUE)?.1 -= count;
        let ended = objects.drop_uses(object, count)?;
        drop(objects);
        ended.call();
        Ok(())
    }
}
