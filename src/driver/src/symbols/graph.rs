//! Symbols that build, change and launch graphs.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_graph {
    ({ $next:ident $($files:ident)* } $then:tt $($rows:tt)*) => { $crate::$next! { { $($files)* } $then $($rows)*
    graph_launch: "Submits a whole graph" {
        gate cuGraphLaunch @10000(h_graph: CUgraphExec, h_stream: CUstream) by launch::graph;
        gate cuGraphLaunch_ptsz @10000(h_graph_exec: CUgraphExec, h_stream: CUstream) by launch::graph_per_thread;
    }
    graph_memory: "Graph allocations: backed by the device when an executable is made, uploaded or run" {
        pass cuDeviceGetGraphMemAttribute @11040(device: CUdevice, attr: c_uint, value: *mut c_void);
        release cuDeviceGraphMemTrim @11040(device: CUdevice) by graph::trim;
        pass cuDeviceSetGraphMemAttribute @11040(device: CUdevice, attr: c_uint, value: *mut c_void);
        watch cuGraphAddMemAllocNode @11040(ph_graph_node: *mut CUgraphNode, h_graph: CUgraph, dependencies: *const CUgraphNode, num_dependencies: usize, node_params: *mut CUDA_MEM_ALLOC_NODE_PARAMS);
        watch cuGraphAddMemFreeNode @11040(ph_graph_node: *mut CUgraphNode, h_graph: CUgraph, dependencies: *const CUgraphNode, num_dependencies: usize, dptr: CUdeviceptr);
        watch cuGraphAddNode @12020(ph_graph_node: *mut CUgraphNode, h_graph: CUgraph, dependencies: *const CUgraphNode, num_dependencies: usize, node_params: *mut CUgraphNodeParams);
        watch cuGraphAddNode_v2 @12030(ph_graph_node: *mut CUgraphNode, h_graph: CUgraph, dependencies: *const CUgraphNode, dependency_data: *const CUgraphEdgeData, num_dependencies: usize, node_params: *mut CUgraphNodeParams);
        watch cuGraphAddNode_v3 @13040(ph_graph_node: *mut CUgraphNode, h_graph: CUgraph, dependencies: *const CUgraphNode, dependency_data: *const CUgraphEdgeData, num_dependencies: usize, node_params: *mut CUgraphNodeParams);
        watch cuGraphDestroy @10000(h_graph: CUgraph);
        release cuGraphExecDestroy @10000(h_graph_exec: CUgraphExec) by graph::destroy;
        charge cuGraphInstantiate @10000(ph_graph_exec: *mut CUgraphExec, h_graph: CUgraph, ph_error_node: *mut CUgraphNode, log_buffer: *mut c_char, buffer_size: usize) by graph::instantiate;
        charge cuGraphInstantiateWithFlags @11040(ph_graph_exec: *mut CUgraphExec, h_graph: CUgraph, flags: c_ulonglong) by graph::instantiate_with_flags;
        charge cuGraphInstantiateWithParams @12000(ph_graph_exec: *mut CUgraphExec, h_graph: CUgraph, instantiate_params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS) by graph::instantiate_with_params;
        charge cuGraphInstantiateWithParams_ptsz @12000(ph_graph_exec: *mut CUgraphExec, h_graph: CUgraph, instantiate_params: *mut CUDA_GRAPH_INSTANTIATE_PARAMS) by graph::instantiate_with_params;
        charge cuGraphInstantiate_v2 @11000(ph_graph_exec: *mut CUgraphExec, h_graph: CUgraph, ph_error_node: *mut CUgraphNode, log_buffer: *mut c_char, buffer_size: usize) by graph::instantiate;
        pass cuGraphMemAllocNodeGetParams @11040(h_node: CUgraphNode, params_out: *mut CUDA_MEM_ALLOC_NODE_PARAMS);
        pass cuGraphMemFreeNodeGetParams @11040(h_node: CUgraphNode, dptr_out: *mut CUdeviceptr);
        watch cuGraphUpload @11010(h_graph: CUgraphExec, h_stream: CUstream) by graph::upload;
        watch cuGraphUpload_ptsz @11010(h_graph_exec: CUgraphExec, h_stream: CUstream) by graph::upload;
    }
    graph_update: "Changes the cost of the next launch of an executable" {
        pass cuGraphExecBatchMemOpNodeSetParams @11070(h_graph_exec: CUgraphExec, h_node: CUgraphNode, node_params: *const CUDA_BATCH_MEM_OP_NODE_PARAMS);
        watch cuGraphExecChildGraphNodeSetParams @11010(h_graph_exec: CUgraphExec, h_node: CUgraphNode, child_graph: CUgraph) by graph_cost::changed;
        pass cuGraphExecEventRecordNodeSetEvent @11010(h_graph_exec: CUgraphExec, h_node: CUgraphNode, event: CUevent);
        pass cuGraphExecEventWaitNodeSetEvent @11010(h_graph_exec: CUgraphExec, h_node: CUgraphNode, event: CUevent);
        pass cuGraphExecExternalSemaphoresSignalNodeSetParams @11020(h_graph_exec: CUgraphExec, h_node: CUgraphNode, node_params: *const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS);
        pass cuGraphExecExternalSemaphoresWaitNodeSetParams @11020(h_graph_exec: CUgraphExec, h_node: CUgraphNode, node_params: *const CUDA_EXT_SEM_WAIT_NODE_PARAMS);
        pass cuGraphExecHostNodeSetParams @10020(h_graph_exec: CUgraphExec, h_node: CUgraphNode, node_params: *const CUDA_HOST_NODE_PARAMS);
        watch cuGraphExecKernelNodeSetParams @10010(h_graph_exec: CUgraphExec, h_node: CUgraphNode, node_params: *const CUDA_KERNEL_NODE_PARAMS_v1) by graph_cost::changed;
        watch cuGraphExecKernelNodeSetParams_v2 @12000(h_graph_exec: CUgraphExec, h_node: CUgraphNode, node_params: *const CUDA_KERNEL_NODE_PARAMS) by graph_cost::changed;
        watch cuGraphExecMemcpyNodeSetParams @10020(h_graph_exec: CUgraphExec, h_node: CUgraphNode, copy_params: *const CUDA_MEMCPY3D, ctx: CUcontext) by graph_cost::changed_for;
        watch cuGraphExecMemsetNodeSetParams @10020(h_graph_exec: CUgraphExec, h_node: CUgraphNode, memset_params: *const CUDA_MEMSET_NODE_PARAMS, ctx: CUcontext) by graph_cost::changed_for;
        watch cuGraphExecNodeSetParams @12020(h_graph_exec: CUgraphExec, h_node: CUgraphNode, node_params: *mut CUgraphNodeParams) by graph_cost::changed;
        charge cuGraphExecUpdate @10020(h_graph_exec: CUgraphExec, h_graph: CUgraph, h_error_node_out: *mut CUgraphNode, update_result_out: *mut CUgraphExecUpdateResult) by graph::update;
        charge cuGraphExecUpdate_v2 @12000(h_graph_exec: CUgraphExec, h_graph: CUgraph, result_info: *mut CUgraphExecUpdateResultInfo) by graph::update_v2;
        watch cuGraphNodeSetEnabled @11060(h_graph_exec: CUgraphExec, h_node: CUgraphNode, is_enabled: c_uint) by graph_cost::changed;
    }
    graph_build: "Builds or reads a graph; nothing runs, nothing is allocated" {
        pass cuGraphAddBatchMemOpNode @11070(ph_graph_node: *mut CUgraphNode, h_graph: CUgraph, dependencies: *const CUgraphNode, num_dependencies: usize, node_params: *const CUDA_BATCH_MEM_OP_NODE_PARAMS);
        pass cuGraphAddChildGraphNode @10000(ph_graph_node: *mut CUgraphNode, h_graph: CUgraph, dependencies: *const CUgraphNode, num_dependencies: usize, child_graph: CUgraph);
        pass cuGraphAddDependencies @10000(h_graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, num_dependencies: usize);
        pass cuGraphAddDependencies_v2 @12030(h_graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, edge_data: *const CUgraphEdgeData, num_dependencies: usize);
        pass cuGraphAddEmptyNode @10000(ph_graph_node: *mut CUgraphNode, h_graph: CUgraph, dependencies: *const CUgraphNode, num_dependencies: usize);
        pass cuGraphAddEventRecordNode @11010(ph_graph_node: *mut CUgraphNode, h_graph: CUgraph, dependencies: *const CUgraphNode, num_dependencies: usize, event: CUevent);
        pass cuGraphAddEventWaitNode @11010(ph_graph_node: *mut CUgraphNode, h_graph: CUgraph, dependencies: *const CUgraphNode, num_dependencies: usize, event: CUevent);
        pass cuGraphAddExternalSemaphoresSignalNode @11020(ph_graph_node: *mut CUgraphNode, h_graph: CUgraph, dependencies: *const CUgraphNode, num_dependencies: usize, node_params: *const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS);
        pass cuGraphAddExternalSemaphoresWaitNode @11020(ph_graph_node: *mut CUgraphNode, h_graph: CUgraph, dependencies: *const CUgraphNode, num_dependencies: usize, node_params: *const CUDA_EXT_SEM_WAIT_NODE_PARAMS);
        pass cuGraphAddHostNode @10000(ph_graph_node: *mut CUgraphNode, h_graph: CUgraph, dependencies: *const CUgraphNode, num_dependencies: usize, node_params: *const CUDA_HOST_NODE_PARAMS);
        pass cuGraphAddKernelNode @10000(ph_graph_node: *mut CUgraphNode, h_graph: CUgraph, dependencies: *const CUgraphNode, num_dependencies: usize, node_params: *const CUDA_KERNEL_NODE_PARAMS_v1);
        pass cuGraphAddKernelNode_v2 @12000(ph_graph_node: *mut CUgraphNode, h_graph: CUgraph, dependencies: *const CUgraphNode, num_dependencies: usize, node_params: *const CUDA_KERNEL_NODE_PARAMS);
        pass cuGraphAddMemcpyNode @10000(ph_graph_node: *mut CUgraphNode, h_graph: CUgraph, dependencies: *const CUgraphNode, num_dependencies: usize, copy_params: *const CUDA_MEMCPY3D, ctx: CUcontext);
        pass cuGraphAddMemsetNode @10000(ph_graph_node: *mut CUgraphNode, h_graph: CUgraph, dependencies: *const CUgraphNode, num_dependencies: usize, memset_params: *const CUDA_MEMSET_NODE_PARAMS, ctx: CUcontext);
        pass cuGraphBatchMemOpNodeGetParams @11070(h_node: CUgraphNode, node_params_out: *mut CUDA_BATCH_MEM_OP_NODE_PARAMS);
        pass cuGraphBatchMemOpNodeSetParams @11070(h_node: CUgraphNode, node_params: *const CUDA_BATCH_MEM_OP_NODE_PARAMS);
        pass cuGraphChildGraphNodeGetGraph @10000(h_node: CUgraphNode, ph_graph: *mut CUgraph);
        pass cuGraphClone @10000(ph_graph_clone: *mut CUgraph, original_graph: CUgraph);
        pass cuGraphConditionalHandleCreate @12030(p_handle_out: *mut CUgraphConditionalHandle, h_graph: CUgraph, ctx: CUcontext, default_launch_value: c_uint, flags: c_uint);
        pass cuGraphCreate @10000(ph_graph: *mut CUgraph, flags: c_uint);
        pass cuGraphDebugDotPrint @11030(h_graph: CUgraph, path: *const c_char, flags: c_uint);
        pass cuGraphDestroyNode @10000(h_node: CUgraphNode);
        pass cuGraphEventRecordNodeGetEvent @11010(h_node: CUgraphNode, event_out: *mut CUevent);
        pass cuGraphEventRecordNodeSetEvent @11010(h_node: CUgraphNode, event: CUevent);
        pass cuGraphEventWaitNodeGetEvent @11010(h_node: CUgraphNode, event_out: *mut CUevent);
        pass cuGraphEventWaitNodeSetEvent @11010(h_node: CUgraphNode, event: CUevent);
        pass cuGraphExecGetFlags @12000(h_graph_exec: CUgraphExec, flags: *mut u64);
        pass cuGraphExecGetId @13010(h_graph_exec: CUgraphExec, graph_id: *mut c_uint);
        pass cuGraphExternalSemaphoresSignalNodeGetParams @11020(h_node: CUgraphNode, params_out: *mut CUDA_EXT_SEM_SIGNAL_NODE_PARAMS);
        pass cuGraphExternalSemaphoresSignalNodeSetParams @11020(h_node: CUgraphNode, node_params: *const CUDA_EXT_SEM_SIGNAL_NODE_PARAMS);
        pass cuGraphExternalSemaphoresWaitNodeGetParams @11020(h_node: CUgraphNode, params_out: *mut CUDA_EXT_SEM_WAIT_NODE_PARAMS);
        pass cuGraphExternalSemaphoresWaitNodeSetParams @11020(h_node: CUgraphNode, node_params: *const CUDA_EXT_SEM_WAIT_NODE_PARAMS);
        pass cuGraphGetEdges @10000(h_graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, num_edges: *mut usize);
        pass cuGraphGetEdges_v2 @12030(h_graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, edge_data: *mut CUgraphEdgeData, num_edges: *mut usize);
        pass cuGraphGetId @13010(h_graph: CUgraph, graph_id: *mut c_uint);
        pass cuGraphGetNodes @10000(h_graph: CUgraph, nodes: *mut CUgraphNode, num_nodes: *mut usize);
        pass cuGraphGetRootNodes @10000(h_graph: CUgraph, root_nodes: *mut CUgraphNode, num_root_nodes: *mut usize);
        pass cuGraphHostNodeGetParams @10000(h_node: CUgraphNode, node_params: *mut CUDA_HOST_NODE_PARAMS);
        pass cuGraphHostNodeSetParams @10000(h_node: CUgraphNode, node_params: *const CUDA_HOST_NODE_PARAMS);
        pass cuGraphKernelNodeCopyAttributes @11000(dst: CUgraphNode, src: CUgraphNode);
        pass cuGraphKernelNodeGetAttribute @11000(h_node: CUgraphNode, attr: c_uint, value_out: *mut CUkernelNodeAttrValue);
        pass cuGraphKernelNodeGetParams @10000(h_node: CUgraphNode, node_params: *mut CUDA_KERNEL_NODE_PARAMS_v1);
        pass cuGraphKernelNodeGetParams_v2 @12000(h_node: CUgraphNode, node_params: *mut CUDA_KERNEL_NODE_PARAMS);
        pass cuGraphKernelNodeSetAttribute @11000(h_node: CUgraphNode, attr: c_uint, value: *const CUkernelNodeAttrValue);
        pass cuGraphKernelNodeSetParams @10000(h_node: CUgraphNode, node_params: *const CUDA_KERNEL_NODE_PARAMS_v1);
        pass cuGraphKernelNodeSetParams_v2 @12000(h_node: CUgraphNode, node_params: *const CUDA_KERNEL_NODE_PARAMS);
        pass cuGraphMemcpyNodeGetParams @10000(h_node: CUgraphNode, node_params: *mut CUDA_MEMCPY3D);
        pass cuGraphMemcpyNodeSetParams @10000(h_node: CUgraphNode, node_params: *const CUDA_MEMCPY3D);
        pass cuGraphMemsetNodeGetParams @10000(h_node: CUgraphNode, node_params: *mut CUDA_MEMSET_NODE_PARAMS);
        pass cuGraphMemsetNodeSetParams @10000(h_node: CUgraphNode, node_params: *const CUDA_MEMSET_NODE_PARAMS);
        pass cuGraphNodeFindInClone @10000(ph_node: *mut CUgraphNode, h_original_node: CUgraphNode, h_cloned_graph: CUgraph);
        pass cuGraphNodeGetContainingGraph @13010(h_node: CUgraphNode, ph_graph: *mut CUgraph);
        pass cuGraphNodeGetDependencies @10000(h_node: CUgraphNode, dependencies: *mut CUgraphNode, num_dependencies: *mut usize);
        pass cuGraphNodeGetDependencies_v2 @12030(h_node: CUgraphNode, dependencies: *mut CUgraphNode, edge_data: *mut CUgraphEdgeData, num_dependencies: *mut usize);
        pass cuGraphNodeGetDependentNodes @10000(h_node: CUgraphNode, dependent_nodes: *mut CUgraphNode, num_dependent_nodes: *mut usize);
        pass cuGraphNodeGetDependentNodes_v2 @12030(h_node: CUgraphNode, dependent_nodes: *mut CUgraphNode, edge_data: *mut CUgraphEdgeData, num_dependent_nodes: *mut usize);
        pass cuGraphNodeGetEnabled @11060(h_graph_exec: CUgraphExec, h_node: CUgraphNode, is_enabled: *mut c_uint);
        pass cuGraphNodeGetLocalId @13010(h_node: CUgraphNode, node_id: *mut c_uint);
        pass cuGraphNodeGetParams @13020(h_node: CUgraphNode, node_params: *mut CUgraphNodeParams);
        pass cuGraphNodeGetToolsId @13010(h_node: CUgraphNode, tools_node_id: *mut c_ulonglong);
        pass cuGraphNodeGetType @10000(h_node: CUgraphNode, kind: *mut CUgraphNodeType);
        pass cuGraphNodeSetParams @12020(h_node: CUgraphNode, node_params: *mut CUgraphNodeParams);
        pass cuGraphNodeSetParams_v2 @13040(h_node: CUgraphNode, node_params: *mut CUgraphNodeParams);
        pass cuGraphReleaseUserObject @11030(graph: CUgraph, object: CUuserObject, count: c_uint);
        pass cuGraphRemoveDependencies @10000(h_graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, num_dependencies: usize);
        pass cuGraphRemoveDependencies_v2 @12030(h_graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, edge_data: *const CUgraphEdgeData, num_dependencies: usize);
        pass cuGraphRetainUserObject @11030(graph: CUgraph, object: CUuserObject, count: c_uint, flags: c_uint);
        pass cuUserObjectCreate @11030(object_out: *mut CUuserObject, ptr: *mut c_void, destroy: CUhostFn, initial_refcount: c_uint, flags: c_uint);
        pass cuUserObjectRelease @11030(object: CUuserObject, count: c_uint);
        pass cuUserObjectRetain @11030(object: CUuserObject, count: c_uint);
    }
    } };
}
