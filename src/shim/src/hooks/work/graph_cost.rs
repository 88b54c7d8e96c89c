//! Calls that change the cost of a launch of an executable graph.
//!
//! Such a call gives one of the graph's nodes other work, or switches a node on or off. Others replace all nodes by those of
//! another graph, or end the executable (`graph`). Events and host functions in a graph do not matter to its GPU time.

use crate::hooks::gpu_time;
use gpuslice_driver::types::{CUcontext, CUgraphExec, CUgraphNode, Status};
use gpuslice_policy::compute::cost::estimate::Key;

/// Makes a call that changes a node of an executable.
pub(crate) unsafe fn changed<T>(
    real: unsafe extern "C-unwind" fn(CUgraphExec, CUgraphNode, T) -> Status,
    executable: CUgraphExec,
    node: CUgraphNode,
    work: T,
) -> Status {
    // SAFETY: `real` requires valid arguments; these are the caller's, for the same driver function.
    let code = unsafe { real(executable, node, work) };
    forget(executable);
    code
}

/// Makes a call that changes a node of an executable, with the context of the node's work.
pub(crate) unsafe fn changed_for<T>(
    real: unsafe extern "C-unwind" fn(CUgraphExec, CUgraphNode, T, CUcontext) -> Status,
    executable: CUgraphExec,
    node: CUgraphNode,
    work: T,
    context: CUcontext,
) -> Status {
    // SAFETY: `real` requires valid arguments; these are the caller's, for the same driver function.
    let code = unsafe { real(executable, node, work, context) };
    forget(executable);
    code
}

/// Forgets the estimate of an executable whose work has changed. A call that failed may have changed a part of it.
pub(crate) fn forget(executable: CUgraphExec) {
    gpu_time::forget(&Key::graph(executable.addr() as u64));
}
