//! Functions that build, change and launch graphs.

use gpuslice_driver::types::*;

use super::Graphs;
use super::methods::methods;
use super::submit::StreamArgument;
use crate::call::DriverCall;
use crate::model::graphs::{Graph, Op, node_type};
use crate::model::objects::{handle, pointer};
use crate::model::user_objects::UserObject;
use crate::status::statuses;

impl Graphs for DriverCall {
    methods! { self;
        cuGraphCreate(ph_graph: *mut CUgraph, flags: c_uint) => {
            if flags != 0 {
                return Err(status::INVALID_VALUE);
            }
            self.write(ph_graph, pointer(self.simulation()?.objects().graphs.add(Graph::default())))
        };
        cuGraphDestroy(h_graph: CUgraph) => {
            self.end_graph(handle(h_graph))?.call();
            Ok(())
        };
        cuGraphClone(ph_graph_clone: *mut CUgraph, original_graph: CUgraph) =>
            self.clone_graph(ph_graph_clone, original_graph);

        cuGraphAddKernelNode(ph_graph_node: *mut CUgraphNode, h_graph: CUgraph, dependencies: *const CUgraphNode,
            num_dependencies: usize, node_params: *const CUDA_KERNEL_NODE_PARAMS_v1) =>
            self.add_node(ph_graph_node, h_graph, dependencies, num_dependencies, self.kernel_op_v1(node_params)?);
        cuGraphAddKernelNode_v2(ph_graph_node: *mut CUgraphNode, h_graph: CUgraph, dependencies: *const CUgraphNode,
            num_dependencies: usize, node_params: *const CUDA_KERNEL_NODE_PARAMS) =>
            self.add_node(ph_graph_node, h_graph, dependencies, num_dependencies, self.kernel_op(node_params)?);
        cuGraphAddMemcpyNode(ph_graph_node: *mut CUgraphNode, h_graph: CUgraph, dependencies: *const CUgraphNode,
            num_dependencies: usize, copy_params: *const CUDA_MEMCPY3D, _ctx: CUcontext) =>
            self.add_node(ph_graph_node, h_graph, dependencies, num_dependencies, self.copy_op(copy_params)?);
        cuGraphAddMemsetNode(ph_graph_node: *mut CUgraphNode, h_graph: CUgraph, dependencies: *const CUgraphNode,
            num_dependencies: usize, memset_params: *const CUDA_MEMSET_NODE_PARAMS, _ctx: CUcontext) =>
            self.add_node(ph_graph_node, h_graph, dependencies, num_dependencies, self.fill_op(memset_params)?);
        cuGraphAddHostNode(ph_graph_node: *mut CUgraphNode, h_graph: CUgraph, dependencies: *const CUgraphNode,
            num_dependencies: usize, node_params: *const CUDA_HOST_NODE_PARAMS) =>
            self.add_node(ph_graph_node, h_graph, dependencies, num_dependencies, self.host_op(node_params)?);
        cuGraphAddEmptyNode(ph_graph_node: *mut CUgraphNode, h_graph: CUgraph, dependencies: *const CUgraphNode,
            num_dependencies: usize) =>
            self.add_node(ph_graph_node, h_graph, dependencies, num_dependencies, Op::Empty);
        cuGraphAddChildGraphNode(ph_graph_node: *mut CUgraphNode, h_graph: CUgraph, dependencies: *const CUgraphNode,
            num_dependencies: usize, child_graph: CUgraph) =>
            self.add_node(ph_graph_node, h_graph, dependencies, num_dependencies, self.child_op(handle(child_graph), 0)?);
        cuGraphAddEventRecordNode(ph_graph_node: *mut CUgraphNode, h_graph: CUgraph, dependencies: *const CUgraphNode,
            num_dependencies: usize, event: CUevent) =>
            self.add_node(ph_graph_node, h_graph, dependencies, num_dependencies, Op::Record(handle(event)));
        cuGraphAddEventWaitNode(ph_graph_node: *mut CUgraphNode, h_graph: CUgraph, dependencies: *const CUgraphNode,
            num_dependencies: usize, event: CUevent) =>
            self.add_node(ph_graph_node, h_graph, dependencies, num_dependencies, Op::Wait(handle(event)));
        cuGraphAddMemAllocNode(ph_graph_node: *mut CUgraphNode, h_graph: CUgraph, dependencies: *const CUgraphNode,
            num_dependencies: usize, node_params: *mut CUDA_MEM_ALLOC_NODE_PARAMS) =>
            self.add_alloc(ph_graph_node, h_graph, dependencies, num_dependencies, node_params);
        cuGraphAddMemFreeNode(ph_graph_node: *mut CUgraphNode, h_graph: CUgraph, dependencies: *const CUgraphNode,
            num_dependencies: usize, dptr: CUdeviceptr) =>
            self.add_node(ph_graph_node, h_graph, dependencies, num_dependencies, self.free_op(dptr, handle(h_graph))?);
        cuGraphAddNode(ph_graph_node: *mut CUgraphNode, h_graph: CUgraph, dependencies: *const CUgraphNode,
            num_dependencies: usize, node_params: *mut CUgraphNodeParams) =>
            self.add_any(ph_graph_node, h_graph, dependencies, num_dependencies, node_params);
        cuGraphAddNode_v2(ph_graph_node: *mut CUgraphNode, h_graph: CUgraph, dependencies: *const CUgraphNode,
            _dependency_data: *const CUgraphEdgeData, num_dependencies: usize, node_params: *mut CUgraphNodeParams) =>
            self.add_any(ph_graph_node, h_graph, dependencies, num_dependencies, node_params);
        cuGraphAddNode_v3(ph_graph_node: *mut CUgraphNode, h_graph: CUgraph, dependencies: *const CUgraphNode,
            _dependency_data: *const CUgraphEdgeData, num_dependencies: usize, node_params: *mut CUgraphNodeParams) =>
            self.add_any(ph_graph_node, h_graph, dependencies, num_dependencies, node_params);
        cuGraphDestroyNode(h_node: CUgraphNode) => {
            let mut objects = self.simulation()?.objects();
            let graph = objects.graph_of(handle(h_node))?;
            let graph = objects.graphs.get_mut(graph)?;
            if graph.has_memory() {
                return Err(status::NOT_SUPPORTED);
            }
            graph.nodes.remove(&handle(h_node));
            graph.nodes.values_mut().for_each(|node| node.after.retain(|before| *before != handle(h_node)));
            Ok(())
        };

        cuGraphInstantiate(ph_graph_exec: *mut CUgraphExec, h_graph: CUgraph, ph_error_node: *mut CUgraphNode,
            log_buffer: *mut c_char, buffer_size: usize) =>
            self.instantiate_logged(ph_graph_exec, h_graph, ph_error_node, log_buffer, buffer_size);
        cuGraphInstantiate_v2(ph_graph_exec: *mut CUgraphExec, h_graph: CUgraph, ph_error_node: *mut CUgraphNode,
            log_buffer: *mut c_char, buffer_size: usize) =>
            self.instantiate_logged(ph_graph_exec, h_graph, ph_error_node, log_buffer, buffer_size);
        cuGraphInstantiateWithFlags(ph_graph_exec: *mut CUgraphExec, h_graph: CUgraph, flags: c_ulonglong) =>
            self.instantiate(ph_graph_exec, h_graph, flags, StreamArgument(0, false));
        cuGraphInstantiateWithParams(ph_graph_exec: *mut CUgraphExec, h_graph: CUgraph,
            instantiate_params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS) =>
            self.instantiate_with(ph_graph_exec, h_graph, instantiate_params, false);
        cuGraphInstantiateWithParams_ptsz(ph_graph_exec: *mut CUgraphExec, h_graph: CUgraph,
            instantiate_params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS) =>
            self.instantiate_with(ph_graph_exec, h_graph, instantiate_params, true);
        cuGraphExecDestroy(h_graph_exec: CUgraphExec) => {
            let simulation = self.simulation()?;
            simulation.objects().end_exec(simulation, handle(h_graph_exec))
        };
        cuGraphUpload(h_graph: CUgraphExec, h_stream: CUstream) => self.upload(h_graph, StreamArgument::legacy(h_stream));
        cuGraphUpload_ptsz(h_graph_exec: CUgraphExec, h_stream: CUstream) =>
            self.upload(h_graph_exec, StreamArgument::per_thread(h_stream));
        cuGraphLaunch(h_graph: CUgraphExec, h_stream: CUstream) => self.launch_graph(h_graph, StreamArgument::legacy(h_stream));
        cuGraphLaunch_ptsz(h_graph_exec: CUgraphExec, h_stream: CUstream) =>
            self.launch_graph(h_graph_exec, StreamArgument::per_thread(h_stream));
        cuGraphExecGetFlags(h_graph_exec: CUgraphExec, flags: *mut u64) =>
            self.write(flags, self.simulation()?.objects().execs.get(handle(h_graph_exec))?.flags);
        cuGraphExecUpdate(h_graph_exec: CUgraphExec, h_graph: CUgraph, h_error_node_out: *mut CUgraphNode,
            update_result_out: *mut CUgraphExecUpdateResult) => {
            let same = self.update(h_graph_exec, h_graph)?;
            self.offer(h_error_node_out, core::ptr::null_mut());
            self.offer(update_result_out.cast::<u32>(), if same { 0 } else { 2 });
            if same { Ok(()) } else { Err(statuses::GRAPH_EXEC_UPDATE_FAILURE) }
        };
        cuGraphExecUpdate_v2(h_graph_exec: CUgraphExec, h_graph: CUgraph, result_info: *mut CUgraphExecUpdateResultInfo) => {
            const _: () = assert!(size_of::<CUgraphExecUpdateResultInfo>() == 24);
            let same = self.update(h_graph_exec, h_graph)?;
            self.write(result_info.cast::<[u64; 3]>(), [if same { 0 } else { 2 }, 0, 0])?;
            if same { Ok(()) } else { Err(statuses::GRAPH_EXEC_UPDATE_FAILURE) }
        };
        cuGraphNodeSetEnabled(h_graph_exec: CUgraphExec, h_node: CUgraphNode, is_enabled: c_uint) => {
            let mut objects = self.simulation()?.objects();
            let exec = objects.execs.get_mut(handle(h_graph_exec))?;
            if !exec.graph.nodes.contains_key(&handle(h_node)) {
                return Err(statuses::INVALID_HANDLE);
            }
            if is_enabled == 0 {
                exec.disabled.insert(handle(h_node));
            } else {
                exec.disabled.remove(&handle(h_node));
            }
            Ok(())
        };
        cuGraphNodeGetEnabled(h_graph_exec: CUgraphExec, h_node: CUgraphNode, is_enabled: *mut c_uint) => {
            let objects = self.simulation()?.objects();
            let disabled = objects.execs.get(handle(h_graph_exec))?.disabled.contains(&handle(h_node));
            self.write(is_enabled, c_uint::from(!disabled))
        };

        cuGraphExecKernelNodeSetParams(h_graph_exec: CUgraphExec, h_node: CUgraphNode,
            node_params: *const CUDA_KERNEL_NODE_PARAMS_v1) =>
            self.change_exec(h_graph_exec, h_node, self.kernel_op_v1(node_params)?);
        cuGraphExecKernelNodeSetParams_v2(h_graph_exec: CUgraphExec, h_node: CUgraphNode,
            node_params: *const CUDA_KERNEL_NODE_PARAMS) =>
            self.change_exec(h_graph_exec, h_node, self.kernel_op(node_params)?);
        cuGraphExecMemcpyNodeSetParams(h_graph_exec: CUgraphExec, h_node: CUgraphNode,
            copy_params: *const CUDA_MEMCPY3D, _ctx: CUcontext) =>
            self.change_exec(h_graph_exec, h_node, self.copy_op(copy_params)?);
        cuGraphExecMemsetNodeSetParams(h_graph_exec: CUgraphExec, h_node: CUgraphNode,
            memset_params: *const CUDA_MEMSET_NODE_PARAMS, _ctx: CUcontext) =>
            self.change_exec(h_graph_exec, h_node, self.fill_op(memset_params)?);
        cuGraphExecHostNodeSetParams(h_graph_exec: CUgraphExec, h_node: CUgraphNode,
            node_params: *const CUDA_HOST_NODE_PARAMS) =>
            self.change_exec(h_graph_exec, h_node, self.host_op(node_params)?);
        cuGraphExecNodeSetParams(h_graph_exec: CUgraphExec, h_node: CUgraphNode, node_params: *mut CUgraphNodeParams) =>
            self.change_exec(h_graph_exec, h_node, self.any_op(node_params)?);
        cuGraphExecEventRecordNodeSetEvent(h_graph_exec: CUgraphExec, h_node: CUgraphNode, event: CUevent) =>
            self.change_exec(h_graph_exec, h_node, Op::Record(handle(event)));
        cuGraphExecEventWaitNodeSetEvent(h_graph_exec: CUgraphExec, h_node: CUgraphNode, event: CUevent) =>
            self.change_exec(h_graph_exec, h_node, Op::Wait(handle(event)));
        cuGraphExecChildGraphNodeSetParams(h_graph_exec: CUgraphExec, h_node: CUgraphNode, child_graph: CUgraph) =>
            self.change_exec(h_graph_exec, h_node, self.child_op(handle(child_graph), 0)?);
        cuGraphKernelNodeSetParams(h_node: CUgraphNode, node_params: *const CUDA_KERNEL_NODE_PARAMS_v1) =>
            self.change_node(h_node, self.kernel_op_v1(node_params)?);
        cuGraphKernelNodeSetParams_v2(h_node: CUgraphNode, node_params: *const CUDA_KERNEL_NODE_PARAMS) =>
            self.change_node(h_node, self.kernel_op(node_params)?);
        cuGraphMemcpyNodeSetParams(h_node: CUgraphNode, node_params: *const CUDA_MEMCPY3D) =>
            self.change_node(h_node, self.copy_op(node_params)?);
        cuGraphMemsetNodeSetParams(h_node: CUgraphNode, node_params: *const CUDA_MEMSET_NODE_PARAMS) =>
            self.change_node(h_node, self.fill_op(node_params)?);
        cuGraphHostNodeSetParams(h_node: CUgraphNode, node_params: *const CUDA_HOST_NODE_PARAMS) =>
            self.change_node(h_node, self.host_op(node_params)?);
        cuGraphNodeSetParams(h_node: CUgraphNode, node_params: *mut CUgraphNodeParams) =>
            self.change_node(h_node, self.any_op(node_params)?);
        cuGraphNodeSetParams_v2(h_node: CUgraphNode, node_params: *mut CUgraphNodeParams) =>
            self.change_node(h_node, self.any_op(node_params)?);
        cuGraphEventRecordNodeSetEvent(h_node: CUgraphNode, event: CUevent) =>
            self.change_node(h_node, Op::Record(handle(event)));
        cuGraphEventWaitNodeSetEvent(h_node: CUgraphNode, event: CUevent) =>
            self.change_node(h_node, Op::Wait(handle(event)));

        cuGraphKernelNodeGetParams(h_node: CUgraphNode, node_params: *mut CUDA_KERNEL_NODE_PARAMS_v1) =>
            self.tell_kernel_v1(h_node, node_params);
        cuGraphKernelNodeGetParams_v2(h_node: CUgraphNode, node_params: *mut CUDA_KERNEL_NODE_PARAMS) =>
            self.tell_kernel(h_node, node_params);
        cuGraphMemsetNodeGetParams(h_node: CUgraphNode, node_params: *mut CUDA_MEMSET_NODE_PARAMS) =>
            self.tell_fill(h_node, node_params);
        cuGraphHostNodeGetParams(h_node: CUgraphNode, node_params: *mut CUDA_HOST_NODE_PARAMS) =>
            self.tell_host(h_node, node_params);
        cuGraphMemAllocNodeGetParams(h_node: CUgraphNode, params_out: *mut CUDA_MEM_ALLOC_NODE_PARAMS) =>
            self.tell_alloc(h_node, params_out);
        cuGraphMemFreeNodeGetParams(h_node: CUgraphNode, dptr_out: *mut CUdeviceptr) =>
            self.tell_word(h_node, dptr_out);
        cuGraphEventRecordNodeGetEvent(h_node: CUgraphNode, event_out: *mut CUevent) =>
            self.tell_word(h_node, event_out.cast());
        cuGraphEventWaitNodeGetEvent(h_node: CUgraphNode, event_out: *mut CUevent) =>
            self.tell_word(h_node, event_out.cast());
        cuGraphChildGraphNodeGetGraph(h_node: CUgraphNode, ph_graph: *mut CUgraph) =>
            self.tell_word(h_node, ph_graph.cast());

        cuGraphGetNodes(h_graph: CUgraph, nodes: *mut CUgraphNode, num_nodes: *mut usize) =>
            self.list(&self.nodes_of(h_graph, |_| true)?, nodes, num_nodes);
        cuGraphGetRootNodes(h_graph: CUgraph, root_nodes: *mut CUgraphNode, num_root_nodes: *mut usize) =>
            self.list(&self.nodes_of(h_graph, |node| node.after.is_empty())?, root_nodes, num_root_nodes);
        cuGraphGetEdges(h_graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, num_edges: *mut usize) =>
            self.edges(h_graph, from, to, num_edges);
        cuGraphGetEdges_v2(h_graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode,
            _edge_data: *mut CUgraphEdgeData, num_edges: *mut usize) => self.edges(h_graph, from, to, num_edges);
        cuGraphNodeGetDependencies(h_node: CUgraphNode, dependencies: *mut CUgraphNode, num_dependencies: *mut usize) =>
            self.dependencies(h_node, dependencies, num_dependencies);
        cuGraphNodeGetDependencies_v2(h_node: CUgraphNode, dependencies: *mut CUgraphNode,
            _edge_data: *mut CUgraphEdgeData, num_dependencies: *mut usize) =>
            self.dependencies(h_node, dependencies, num_dependencies);
        cuGraphNodeGetDependentNodes(h_node: CUgraphNode, dependent_nodes: *mut CUgraphNode,
            num_dependent_nodes: *mut usize) => self.dependents(h_node, dependent_nodes, num_dependent_nodes);
        cuGraphNodeGetDependentNodes_v2(h_node: CUgraphNode, dependent_nodes: *mut CUgraphNode,
            _edge_data: *mut CUgraphEdgeData, num_dependent_nodes: *mut usize) =>
            self.dependents(h_node, dependent_nodes, num_dependent_nodes);
        cuGraphAddDependencies(h_graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode,
            num_dependencies: usize) => self.change_edges(h_graph, from, to, num_dependencies, true);
        cuGraphAddDependencies_v2(h_graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode,
            _edge_data: *const CUgraphEdgeData, num_dependencies: usize) =>
            self.change_edges(h_graph, from, to, num_dependencies, true);
        cuGraphRemoveDependencies(h_graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode,
            num_dependencies: usize) => self.change_edges(h_graph, from, to, num_dependencies, false);
        cuGraphRemoveDependencies_v2(h_graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode,
            _edge_data: *const CUgraphEdgeData, num_dependencies: usize) =>
            self.change_edges(h_graph, from, to, num_dependencies, false);
        cuGraphNodeGetType(h_node: CUgraphNode, kind: *mut CUgraphNodeType) =>
            self.write(kind.cast::<u32>(), node_type(&self.simulation()?.objects().node(handle(h_node))?.op));
        cuGraphNodeGetContainingGraph(h_node: CUgraphNode, ph_graph: *mut CUgraph) =>
            self.write(ph_graph, pointer(self.simulation()?.objects().graph_of(handle(h_node))?));
        cuGraphNodeFindInClone(ph_node: *mut CUgraphNode, h_original_node: CUgraphNode, h_cloned_graph: CUgraph) => {
            let objects = self.simulation()?.objects();
            let mut pairs = objects.graphs.get(handle(h_cloned_graph))?.originals.iter();
            let found = pairs.find(|(_, original)| **original == handle(h_original_node));
            self.write(ph_node, pointer(*found.ok_or(status::INVALID_VALUE)?.0))
        };
        cuGraphKernelNodeCopyAttributes(dst: CUgraphNode, src: CUgraphNode) => {
            let objects = self.simulation()?.objects();
            objects.node(handle(dst))?;
            objects.node(handle(src)).map(|_| ())
        };
        cuGraphKernelNodeSetAttribute(h_node: CUgraphNode, _attr: c_uint, _value: *const CUkernelNodeAttrValue) =>
            self.simulation()?.objects().node(handle(h_node)).map(|_| ());
        cuGraphKernelNodeGetAttribute(h_node: CUgraphNode, _attr: c_uint, value_out: *mut CUkernelNodeAttrValue) => {
            self.simulation()?.objects().node(handle(h_node))?;
            self.write(value_out.cast::<[u8; 64]>(), [0; 64])
        };

        cuDeviceGetGraphMemAttribute(device: CUdevice, attr: c_uint, value: *mut c_void) => {
            let simulation = self.simulation()?;
            let device = simulation.device(device)?;
            let answer = simulation.objects().graph_attribute(device, attr)?;
            self.write(value.cast::<u64>(), answer)
        };
        cuDeviceSetGraphMemAttribute(device: CUdevice, attr: c_uint, value: *mut c_void) => {
            let simulation = self.simulation()?;
            let device = simulation.device(device)?;
            let value = self.read(value.cast::<u64>())?;
            simulation.objects().reset_graph_attribute(device, attr, value)
        };
        cuDeviceGraphMemTrim(device: CUdevice) => {
            let simulation = self.simulation()?;
            let device = simulation.device(device)?;
            let mut objects = simulation.objects();
            objects.unsafe_call()?;
            objects.trim_graph_pool(simulation, device);
            Ok(())
        };

        cuUserObjectCreate(object_out: *mut CUuserObject, ptr: *mut c_void, destroy: CUhostFn,
            initial_refcount: c_uint, _flags: c_uint) => {
            let object = UserObject { data: ptr.expose_provenance(), end: destroy, uses: initial_refcount };
            self.write(object_out, pointer(self.simulation()?.objects().user_objects.add(object)))
        };
        cuUserObjectRetain(object: CUuserObject, count: c_uint) => {
            let mut objects = self.simulation()?.objects();
            let found = objects.user_objects.get_mut(handle(object)).map_err(|_| status::INVALID_VALUE)?;
            found.uses = found.uses.saturating_add(count);
            Ok(())
        };
        cuUserObjectRelease(object: CUuserObject, count: c_uint) => {
            let ended = self.simulation()?.objects().drop_uses(handle(object), count)?;
            ended.call();
            Ok(())
        };
        cuGraphRetainUserObject(graph: CUgraph, object: CUuserObject, count: c_uint, flags: c_uint) =>
            self.retain_object(graph, object, count, flags);
        cuGraphReleaseUserObject(graph: CUgraph, object: CUuserObject, count: c_uint) =>
            self.release_object(graph, object, count);
    }
}
