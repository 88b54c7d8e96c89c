//! Calls that change the cost of a launch of an executable graph.
//!
//! Such a call gives one of the graph's nodes other work, or switches a node on or off. Others replace all nodes by those of
//! another graph, or end the executable (`graph`). Events and host functions in a graph do not matter to its GPU time.

use crate::hooks::gpu_time;
use crate::hooks::hooked_call::HookedCall;
use gpuslice_driver::types::{CUcontext, CUgraphExec, CUgraphNode, Status};
use gpuslice_policy::compute::cost::estimate::Key;

/// Makes a call that changes a node of an executable.
pub(crate) fn changed<T: Copy>(
    call: &HookedCall<unsafe extern "C-unwind" fn(CUgraphExec, CUgraphNode, T) -> Status>,
) -> Status {
    let (executable, ..) = call.arguments();
    let code = call.forward();
    forget(executable);
    code
}

/// Makes a call that changes a node of an executable, with the context of the node's work.
pub(crate) fn changed_for<T: Copy>(
    call: &HookedCall<unsafe extern "C-unwind" fn(CUgraphExec, CUgraphNode, T, CUcontext) -> Status>,
) -> Status {
    let (executable, ..) = call.arguments();
    let code = call.forward();
    forget(executable);
    code
}

/// Forgets the estimate of an executable whose work has changed. A call that failed may have changed a part of it.
pub(crate) fn forget(executable: CUgraphExec) {
    gpu_time::forget(&Key::graph(executable.addr() as u64));
}
