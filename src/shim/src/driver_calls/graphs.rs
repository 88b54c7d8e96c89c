//! Graphs: their allocation nodes, and the memory that the driver holds for them.

use super::capture_mode::with_relaxed_capture_mode;
use super::locations::device_of;
use core::ffi::{c_int, c_uint};
use core::mem::MaybeUninit;
use core::ptr;
use gpuslice_driver::Symbol;
use gpuslice_driver::functions as real;
use gpuslice_driver::slot;
use gpuslice_driver::types::{AllocationNode, CUdevice, CUgraph, CUgraphNode, status};

/// `CU_GRAPH_NODE_TYPE_GRAPH`.
const CHILD: c_uint = 4;
/// `CU_GRAPH_NODE_TYPE_MEM_ALLOC`.
const ALLOCATION: c_uint = 10;
/// `CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT`.
const GRAPH_RESERVED_CURRENT: c_uint = 2;

/// An allocation node of a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GraphAllocation {
    /// CUDA's handle of the device whose memory the node takes.
    pub(crate) device: c_int,
    /// The address of the allocation, which the driver chooses when the node is made.
    pub(crate) address: u64,
    /// Bytes of the allocation.
    pub(crate) bytes: u64,
}

/// Returns the allocations of device memory in a graph and its child graphs. The list is empty for a handle that is no graph.
/// `None`: the driver does not report them.
///
/// The function does not search the bodies of conditional nodes, because the driver allows no allocations in them.
pub(crate) fn allocations(graph: CUgraph) -> Option<Vec<GraphAllocation>> {
    let mut found = Vec::new();
    // A driver without this function has no graphs with memory.
    if slot::address(Symbol::cuGraphMemAllocNodeGetParams).is_none() {
        return Some(found);
    }
    let Some(mut open) = nodes(graph) else { return Some(found) };
    while let Some(node) = open.pop() {
        match kind(node)? {
            CHILD => open.extend(nodes(child(node)?)?),
            ALLOCATION => found.extend(allocation(node)?),
            _ => {}
        }
    }
    Some(found)
}

fn nodes(graph: CUgraph) -> Option<Vec<CUgraphNode>> {
    let list = slot::real::<real::cuGraphGetNodes>(Symbol::cuGraphGetNodes)?;
    let mut count = 0_usize;
    // SAFETY: `list` requires room for the nodes, unless the pointer to them is null. Then it writes only their number, to the
    // local `count`. The driver checks the handle.
    if unsafe { list(graph, ptr::null_mut(), &raw mut count) } != status::SUCCESS {
        return None;
    }
    let mut nodes: Vec<CUgraphNode> = vec![ptr::null_mut(); count];
    if count == 0 {
        return Some(nodes);
    }
    // SAFETY: the function needs room for `count` nodes: `nodes` has as many.
    if unsafe { list(graph, nodes.as_mut_ptr(), &raw mut count) } != status::SUCCESS {
        return None;
    }
    nodes.truncate(count);
    Some(nodes)
}

fn kind(node: CUgraphNode) -> Option<c_uint> {
    let ask = slot::real::<real::cuGraphNodeGetType>(Symbol::cuGraphNodeGetType)?;
    let mut kind: c_uint = 0;
    // SAFETY: the function needs a living node, and an output of the size of an enumeration. The driver gave the node out, and
    // `kind` is an integer of that size.
    let code = unsafe { ask(node, (&raw mut kind).cast()) };
    (code == status::SUCCESS).then_some(kind)
}

fn child(node: CUgraphNode) -> Option<CUgraph> {
    let ask = slot::real::<real::cuGraphChildGraphNodeGetGraph>(Symbol::cuGraphChildGraphNodeGetGraph)?;
    let mut graph: CUgraph = ptr::null_mut();
    // SAFETY: the function needs a living node, and an output that is valid for writes. The driver gave the node out, and `graph`
    // is on this stack.
    let code = unsafe { ask(node, &raw mut graph) };
    (code == status::SUCCESS && !graph.is_null()).then_some(graph)
}

/// Returns the allocation of a node. `Some(None)`: its memory is the host's. `None`: the driver does not report it.
fn allocation(node: CUgraphNode) -> Option<Option<GraphAllocation>> {
    let ask = slot::real::<real::cuGraphMemAllocNodeGetParams>(Symbol::cuGraphMemAllocNodeGetParams)?;
    let mut told = MaybeUninit::<AllocationNode>::zeroed();
    // SAFETY: the function requires an existing node, and an output that is valid for writes. The driver gave the node out, and
    // the output is the local `told`.
    let code = unsafe { ask(node, told.as_mut_ptr().cast()) };
    // SAFETY: `assume_init` requires initialised bytes: they were zeroed first, and the type is plain data.
    let told = unsafe { told.assume_init() };
    if code != status::SUCCESS {
        return None;
    }
    let (address, bytes) = (told.address, told.bytes as u64);
    Some(device_of(told.properties.location).map(|device| GraphAllocation { device, address, bytes }))
}

/// Returns the bytes of a device's memory that the driver holds for the graphs of this process.
pub(crate) fn reserved(device: CUdevice) -> Option<u64> {
    let ask = slot::real::<real::cuDeviceGetGraphMemAttribute>(Symbol::cuDeviceGetGraphMemAttribute)?;
    let mut value = 0_u64;
    // SAFETY: the function needs an output as wide as the attribute: `value` is 64 bits wide, as the attribute is. The driver
    // checks the device.
    let code =
        with_relaxed_capture_mode(|| unsafe { ask(device, GRAPH_RESERVED_CURRENT, (&raw mut value).cast()) });
    (code == status::SUCCESS).then_some(value)
}

/// Makes the driver release the memory that it holds for graphs and that no graph uses.
pub(crate) fn trim(device: CUdevice) {
    let Some(function) = slot::real::<real::cuDeviceGraphMemTrim>(Symbol::cuDeviceGraphMemTrim) else {
        return;
    };
    // SAFETY: the function needs a device: the driver checks it. The function writes no memory of this process.
    with_relaxed_capture_mode(|| unsafe { function(device) });
}
