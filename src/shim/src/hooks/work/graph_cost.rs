//! Calls that change the cost of a launch of an executable graph.
//!
//! These give one of its nodes other work, switch a node on or off, give it the nodes of another graph, or end it (`graph`).
//! Events and host functions in a graph do not matter to its GPU time.

use crate::hooks::gpu_time;
use gpuslice_driver::types::{CUcontext, CUgraphExec, CUgraphNode, Status};
use gpuslice_policy::compute::cost::estimate::Key;

/// A call that changes a node of an executable.
pub(crate) unsafe fn changed<T>(
    real: unsafe extern "C-unwind" fn(CUgraphExec, CUgraphNode, T) -> Status,
    executable: CUgraphExec,
    node: CUgraphNode,
    work: T,
) -> Status {
    // SAFETY: the caller's own arguments.
    let code = unsafe { real(executable, node, work) };
    forget(executable);
    code
}

/// A call that changes a node of an executable, with the context that its work is for.
pub(crate) unsafe fn changed_for<T>(
    real: unsafe extern "C-unwind" fn(CUgraphExec, CUgraphNode, T, CUcontext) -> Status,
    executable: CUgraphExec,
    node: CUgraphNode,
    work: T,
    context: CUcontext,
) -> Status {
    // SAFETY: the caller's own arguments.
    let code = unsafe { real(executable, node, work, context) };
    forget(executable);
    code
}

/// An executable is another one now, as far as its cost goes. A call that failed may have changed a part.
pub(crate) fn forget(executable: CUgraphExec) {
    gpu_time::forget(&Key::graph(executable.addr() as u64));
}
