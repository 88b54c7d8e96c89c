//! Reads and writes the parameters of graph nodes.

use gpuslice_driver::types::*;

use crate::call::DriverCall;
use crate::config::version;
use crate::model::graphs::{Launch, Op};
use crate::model::movement::Movement;
use crate::model::objects::{handle, pointer};
use crate::status::{Outcome, statuses};

/// The fields with which all versions of `CUDA_KERNEL_NODE_PARAMS` begin.
#[repr(C)]
#[derive(Clone, Copy)]
struct KernelParams {
    function: usize,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    params: usize,
    extra: usize,
}

/// The fields that the second version adds.
#[repr(C)]
#[derive(Clone, Copy)]
struct KernelParams2 {
    first: KernelParams,
    kernel: usize,
    context: usize,
}

/// The fields with which all versions of `CUDA_MEMSET_NODE_PARAMS` begin.
#[repr(C)]
#[derive(Clone, Copy)]
struct FillParams {
    to: u64,
    pitch: usize,
    value: u32,
    element: u32,
    width: usize,
    height: usize,
}

/// The first fields of `CUgraphNodeParams`.
#[repr(C)]
#[derive(Clone, Copy)]
struct AnyParams {
    kind: u32,
    reserved: [u32; 3],
}

const _: () = assert!(size_of::<KernelParams>() == size_of::<CUDA_KERNEL_NODE_PARAMS_v1>());
const _: () = assert!(size_of::<KernelParams2>() == size_of::<CUDA_KERNEL_NODE_PARAMS>());
const _: () = assert!(size_of::<AnyParams>() == 16);

/// Offset of the copy in `CUDA_MEMCPY_NODE_PARAMS`.
const COPY_AT: usize = 16;

impl DriverCall {
    fn launch_of(&self, given: &KernelParams, kernel: usize) -> Result<Op, Status> {
        let function = if given.function == 0 { kernel } else { given.function };
        let function = pointer(function as u64);
        let extent = (given.grid, given.block, given.shared);
        self.launch(function, extent, given.params, given.extra).map(Op::Kernel)
    }

    pub(super) fn kernel_op_v1(&self, from: *const CUDA_KERNEL_NODE_PARAMS_v1) -> Result<Op, Status> {
        self.launch_of(&self.read(from.cast())?, 0)
    }

    pub(super) fn kernel_op(&self, from: *const CUDA_KERNEL_NODE_PARAMS) -> Result<Op, Status> {
        let given: KernelParams2 = self.read(from.cast())?;
        self.launch_of(&given.first, given.kernel)
    }

    pub(super) fn copy_op(&self, from: *const CUDA_MEMCPY3D) -> Result<Op, Status> {
        self.movement_3d(from).map(Op::Move)
    }

    pub(super) fn fill_op(&self, from: *const CUDA_MEMSET_NODE_PARAMS) -> Result<Op, Status> {
        let given: FillParams = self.read(from.cast())?;
        if !matches!(given.element, 1 | 2 | 4) {
            return Err(status::INVALID_VALUE);
        }
        let (pitch, element) = (given.pitch as u64, u64::from(given.element));
        let (width, height) = (given.width as u64, given.height as u64);
        Ok(Op::Move(Movement::Fill { to: given.to, pitch, value: given.value, element, width, height }))
    }

    pub(super) fn host_op(&self, from: *const CUDA_HOST_NODE_PARAMS) -> Result<Op, Status> {
        let given = self.read(from)?;
        if given.fn_.is_none() {
            return Err(status::INVALID_VALUE);
        }
        Ok(Op::Host(given.fn_, given.userData.expose_provenance()))
    }

    /// Reads `CUDA_MEM_ALLOC_NODE_PARAMS`, and writes the address of the allocation into it. The address is one that earlier
    /// nodes have freed, or else a new one.
    pub(super) fn alloc_op(
        &self,
        params: *mut CUDA_MEM_ALLOC_NODE_PARAMS,
        graph: u64,
        after: &[u64],
    ) -> Result<Op, Status> {
        let simulation = self.simulation()?;
        let mut given = self.read(params)?;
        let properties: PoolProperties = self.read((&raw const given.poolProps).cast())?;
        if properties.location.kind != 1 {
            return Err(status::INVALID_VALUE);
        }
        let device = simulation.device(properties.location.id)?;
        let size = given.bytesize as u64;
        let objects = simulation.objects();
        let graph = objects.graphs.get(graph)?;
        if graph.owned {
            return Err(status::INVALID_VALUE);
        }
        let reused = graph.free_address(after, size, device).filter(|_| size > 0);
        let address = reused.map_or_else(|| objects.graph_address(simulation, size), Ok)?;
        drop(objects);
        given.dptr = address;
        self.write(params, given)?;
        Ok(Op::Alloc { address, size, device })
    }

    /// Returns the operation that frees an allocation of a graph.
    pub(super) fn free_op(&self, address: u64, graph: u64) -> Result<Op, Status> {
        let objects = self.simulation()?.objects();
        objects.check_free(graph, address)?;
        if objects.graphs.get(graph)?.owned { Err(status::INVALID_VALUE) } else { Ok(Op::Free(address)) }
    }

    /// Returns the operation with parameters of any type, for a new node of a graph.
    pub(super) fn new_op(
        &self,
        params: *mut CUgraphNodeParams,
        graph: u64,
        after: &[u64],
    ) -> Result<Op, Status> {
        let head: AnyParams = self.read(params.cast())?;
        let body = params.cast::<AnyParams>().wrapping_add(1);
        match head.kind {
            10 => self.alloc_op(body.cast(), graph, after),
            11 => self.free_op(self.read(body.cast())?, graph),
            _ => self.any_op(params),
        }
    }

    /// Returns the operation with parameters of any type.
    pub(super) fn any_op(&self, params: *mut CUgraphNodeParams) -> Result<Op, Status> {
        let head: AnyParams = self.read(params.cast())?;
        let body = params.cast::<AnyParams>().wrapping_add(1);
        match head.kind {
            0 => self.kernel_op(body.cast()),
            1 => self.copy_op(body.wrapping_byte_add(COPY_AT).cast()),
            2 => self.fill_op(body.cast()),
            3 => self.host_op(body.cast()),
            5 => Ok(Op::Empty),
            4 | 6 | 7 => {
                let word: u64 = self.read(body.cast())?;
                Ok(match head.kind {
                    4 => self.child_op(word, self.read(body.cast::<u32>().wrapping_add(2))?)?,
                    6 => Op::Wait(word),
                    _ => Op::Record(word),
                })
            }
            // The driver API cannot change the parameters of memory nodes.
            _ => Err(status::NOT_SUPPORTED),
        }
    }

    /// Returns the operation of a child node. The node has a copy of the graph. Since CUDA 12.9, it can also take over the graph
    /// itself, and only then the graph may have memory nodes.
    pub(super) fn child_op(&self, graph: u64, ownership: u32) -> Result<Op, Status> {
        const MOVED: u32 = 1;
        let mut objects = self.simulation()?.objects();
        let found = objects.graphs.get(graph)?;
        if ownership == MOVED && version() >= 12_090 {
            if found.owned {
                return Err(status::INVALID_VALUE);
            }
            objects.graphs.get_mut(graph)?.owned = true;
            return Ok(Op::Child(graph));
        }
        if objects.has_memory(found) {
            return Err(status::NOT_SUPPORTED);
        }
        let mut copy = objects.copy_graph(graph)?;
        copy.owned = true;
        Ok(Op::Child(objects.graphs.add(copy)))
    }

    fn launch_at(&self, node: CUgraphNode) -> Result<Launch, Status> {
        match self.simulation()?.objects().node(handle(node))?.op {
            Op::Kernel(launch) => Ok(launch),
            _ => Err(status::INVALID_VALUE),
        }
    }

    fn told(launch: &Launch) -> KernelParams {
        KernelParams {
            function: launch.function as usize,
            grid: launch.grid,
            block: launch.block,
            shared: launch.shared,
            params: launch.params,
            extra: launch.extra,
        }
    }

    pub(super) fn tell_kernel_v1(&self, node: CUgraphNode, to: *mut CUDA_KERNEL_NODE_PARAMS_v1) -> Outcome {
        self.write(to.cast(), Self::told(&self.launch_at(node)?))
    }

    pub(super) fn tell_kernel(&self, node: CUgraphNode, to: *mut CUDA_KERNEL_NODE_PARAMS) -> Outcome {
        let launch = self.launch_at(node)?;
        let context = self.simulation()?.objects().code.functions.get(launch.function)?.context as usize;
        self.write(to.cast(), KernelParams2 { first: Self::told(&launch), kernel: 0, context })
    }

    pub(super) fn tell_fill(&self, node: CUgraphNode, to: *mut CUDA_MEMSET_NODE_PARAMS) -> Outcome {
        let found = self.simulation()?.objects().node(handle(node))?.op.clone();
        let Op::Move(Movement::Fill { to: address, pitch, value, element, width, height }) = found else {
            return Err(status::INVALID_VALUE);
        };
        let (pitch, element) = (pitch as usize, element as u32);
        let (width, height) = (width as usize, height as usize);
        self.write(to.cast(), FillParams { to: address, pitch, value, element, width, height })
    }

    pub(super) fn tell_host(&self, node: CUgraphNode, to: *mut CUDA_HOST_NODE_PARAMS) -> Outcome {
        let found = self.simulation()?.objects().node(handle(node))?.op.clone();
        let Op::Host(function, data) = found else { return Err(status::INVALID_VALUE) };
        let user_data = core::ptr::with_exposed_provenance_mut(data);
        self.write(to, CUDA_HOST_NODE_PARAMS { fn_: function, userData: user_data })
    }

    pub(super) fn tell_alloc(&self, node: CUgraphNode, to: *mut CUDA_MEM_ALLOC_NODE_PARAMS) -> Outcome {
        let simulation = self.simulation()?;
        let found = simulation.objects().node(handle(node))?.op.clone();
        let Op::Alloc { address, size, device } = found else { return Err(status::INVALID_VALUE) };
        let location = CUmemLocation { kind: 1, id: simulation.ordinal(device) };
        let security = core::ptr::null_mut();
        let properties =
            PoolProperties { kind: 1, handle_types: 0, location, security, max_size: 0, rest: [0; 56] };
        let mut given = self.read(to)?;
        (given.dptr, given.bytesize) = (address, size as usize);
        (given.accessDescs, given.accessDescCount) = (core::ptr::null(), 0);
        self.write(to, given)?;
        // The structure begins with the same properties.
        self.write(to.cast(), properties)
    }

    pub(super) fn tell_word(&self, node: CUgraphNode, to: *mut u64) -> Outcome {
        let word = match self.simulation()?.objects().node(handle(node))?.op {
            Op::Free(word) | Op::Record(word) | Op::Wait(word) | Op::Child(word) => word,
            _ => return Err(status::INVALID_VALUE),
        };
        self.write(to, word)
    }

    /// Replaces the operation of a node. The new operation must have the same type.
    pub(super) fn change_node(&self, node: CUgraphNode, op: Op) -> Outcome {
        let mut objects = self.simulation()?.objects();
        let node = objects.node_mut(handle(node))?;
        if crate::model::graphs::node_type(&node.op) != crate::model::graphs::node_type(&op) {
            return Err(status::INVALID_VALUE);
        }
        node.op = op;
        Ok(())
    }

    /// Replaces an operation in an executable. The node belongs to the graph from which the executable was made.
    pub(super) fn change_exec(&self, exec: CUgraphExec, node: CUgraphNode, op: Op) -> Outcome {
        let mut objects = self.simulation()?.objects();
        let mut children = std::collections::HashMap::new();
        if let Op::Child(child) = op {
            let graph = objects.graphs.get(child)?.clone();
            children = objects.children_of(&graph);
            children.insert(child, graph);
        }
        let exec = objects.execs.get_mut(handle(exec))?;
        let node = exec.graph.nodes.get_mut(&handle(node)).ok_or(statuses::INVALID_HANDLE)?;
        if crate::model::graphs::node_type(&node.op) != crate::model::graphs::node_type(&op) {
            return Err(status::INVALID_VALUE);
        }
        node.op = op;
        exec.children.extend(children);
        Ok(())
    }
}
