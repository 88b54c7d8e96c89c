//! Graphs with memory: it is reserved at instantiation.
//!
//! So launches and uploads need no hook: their memory is reserved. Frees need none either: the memory of an allocation node stays
//! its executable's, and the next launch takes it again.

use super::graph_cost;
use crate::hooks::protocol::{Decision, Granted, around, charge, refuse};
use crate::memory::device_full;
use crate::memory::graphs::{Executable, Obstacle};
use crate::memory::refusals::RefusedKind;
use crate::os::reentrancy::enter_or;
use crate::process::{self, Process};
use core::ffi::{c_char, c_ulonglong};
use gpuslice_driver::arguments::read_in;
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUdevice, CUgraph, CUgraphExec, CUgraphExecUpdateResult,
    CUgraphExecUpdateResultInfo, CUgraphNode, CUstream, Status, status,
};
use gpuslice_region::Device;

/// `CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD`.
const UPLOAD: u64 = 2;

/// `cuGraphInstantiate` in its first two forms.
pub(crate) unsafe fn instantiate(
    real: real::cuGraphInstantiate_v2,
    output: *mut CUgraphExec,
    graph: CUgraph,
    node: *mut CUgraphNode,
    log: *mut c_char,
    size: usize,
) -> Status {
    // SAFETY: `real` requires valid arguments; these are the caller's, for the same driver function.
    let call = || unsafe { real(output, graph, node, log, size) };
    // SAFETY: `instantiated` requires that `output` is null or valid, and so does the driver.
    unsafe { instantiated(output, graph, 0, call) }
}

/// `cuGraphInstantiateWithFlags`.
pub(crate) unsafe fn instantiate_with_flags(
    real: real::cuGraphInstantiateWithFlags,
    output: *mut CUgraphExec,
    graph: CUgraph,
    flags: c_ulonglong,
) -> Status {
    // SAFETY: `real` requires valid arguments; these are the caller's, for the same driver function.
    let call = || unsafe { real(output, graph, flags) };
    // SAFETY: `instantiated` requires that `output` is null or valid, and so does the driver.
    unsafe { instantiated(output, graph, flags, call) }
}

/// `cuGraphInstantiateWithParams` and its per-thread form.
pub(crate) unsafe fn instantiate_with_params(
    real: real::cuGraphInstantiateWithParams,
    output: *mut CUgraphExec,
    graph: CUgraph,
    parameters: *mut CUDA_GRAPH_INSTANTIATE_PARAMS,
) -> Status {
    // SAFETY: `read_in` requires null or eight readable bytes. The driver reads `parameters`, which begin with the flags.
    let flags = unsafe { read_in(parameters.cast::<u64>()) }.unwrap_or(0);
    // SAFETY: `real` requires valid arguments; these are the caller's, for the same driver function.
    let call = || unsafe { real(output, graph, parameters) };
    // SAFETY: `instantiated` requires that `output` is null or valid, and so does the driver.
    unsafe { instantiated(output, graph, flags, call) }
}

impl Granted for (&'static Process, Executable) {
    fn granted(&self) -> Option<(Device, u64)> {
        self.1.first_need()
    }
}

/// Makes a call that makes an executable graph, and charges the graph's memory.
///
/// # Safety
/// `output` is null or valid for reads.
unsafe fn instantiated(
    output: *mut CUgraphExec,
    graph: CUgraph,
    flags: u64,
    call: impl FnMut() -> Status,
) -> Status {
    charge(
        |process| reserve(process, graph),
        call,
        |(process, executable), code| {
            // SAFETY: by this function's contract `output` is null or valid.
            match unsafe { read_in(output) }.filter(|_| code == status::SUCCESS) {
                Some(made) => process.graphs.made(process, made.addr(), executable),
                // The driver has tried to upload, and may have taken memory.
                None if flags & UPLOAD != 0 => process.graphs.ended(process, executable),
                None => process.graphs.cancel(process, executable),
            }
            code
        },
    )
}

fn reserve(process: &'static Process, graph: CUgraph) -> Decision<(&'static Process, Executable)> {
    let Some(context) = process.owner_of_current() else { return Decision::Forward };
    let reserve = || process.graphs.reserve(process, graph, context);
    let reserved = reserve().or_else(|obstacle| match obstacle {
        Obstacle::Full(device, bytes) => {
            let unless_full = || Some(reserve()).filter(|result| !matches!(result, Err(Obstacle::Full(..))));
            process.repeat_with_room(device, bytes, unless_full).unwrap_or(Err(obstacle))
        }
        obstacle => Err(obstacle),
    });
    match reserved {
        Ok(executable) => Decision::Go((process, executable)),
        Err(Obstacle::NotOurs) => Decision::Forward,
        Err(Obstacle::Untold) => Decision::Refuse(status::OUT_OF_MEMORY),
        Err(Obstacle::Full(device, bytes)) => refuse(process, device, RefusedKind::Allocation, bytes),
    }
}

/// `cuGraphExecUpdate`.
pub(crate) unsafe fn update(
    real: real::cuGraphExecUpdate,
    executable: CUgraphExec,
    graph: CUgraph,
    node: *mut CUgraphNode,
    result: *mut CUgraphExecUpdateResult,
) -> Status {
    // SAFETY: `real` requires valid arguments; these are the caller's, for the same driver function.
    updated(executable, graph, || unsafe { real(executable, graph, node, result) })
}

/// `cuGraphExecUpdate_v2`.
pub(crate) unsafe fn update_v2(
    real: real::cuGraphExecUpdate_v2,
    executable: CUgraphExec,
    graph: CUgraph,
    result: *mut CUgraphExecUpdateResultInfo,
) -> Status {
    // SAFETY: `real` requires valid arguments; these are the caller's, for the same driver function.
    updated(executable, graph, || unsafe { real(executable, graph, result) })
}

/// Makes a call that gives an executable the nodes of another graph. If the driver accepts the nodes, the old executable counts
/// as ended and a new one as made. Memory that the old one left alive stays charged beside the memory of the new one.
fn updated(executable: CUgraphExec, graph: CUgraph, call: impl FnMut() -> Status) -> Status {
    let code = charge(
        |process| reserve(process, graph),
        call,
        |(process, renewed), code| {
            if code == status::SUCCESS {
                process.graphs.made(process, executable.addr(), renewed);
            } else {
                process.graphs.cancel(process, renewed);
            }
            code
        },
    );
    graph_cost::forget(executable);
    code
}

/// `cuGraphExecDestroy`.
pub(crate) unsafe fn destroy(real: real::cuGraphExecDestroy, executable: CUgraphExec) -> Status {
    // The library forgets before the driver can give the handle to another executable.
    graph_cost::forget(executable);
    // SAFETY: `real` requires a valid argument; this one is the caller's, for the same driver function.
    let call = || unsafe { real(executable) };
    around(
        |process| process.take_executable(executable.addr()),
        call,
        |process, taken, code| {
            let Some(taken) = taken else { return };
            if code == status::SUCCESS {
                process.graphs.ended(process, taken);
            } else {
                process.graphs.put_back(executable.addr(), taken);
            }
        },
    )
}

/// Notes a device denial if a launch or upload of `executable` found no memory for the reserved bytes. Returns `code`.
#[inline]
pub(crate) fn launched(executable: CUgraphExec, code: Status) -> Status {
    if code == status::OUT_OF_MEMORY {
        enter_or(|| note_device_full(executable), ());
    }
    code
}

#[cold]
fn note_device_full(executable: CUgraphExec) {
    let Some(process) = process::joined() else { return };
    if let Some((device, bytes)) = process.graphs.need_of(executable.addr()) {
        device_full::note(&process.device_full_messages, process, device, bytes);
    }
}

/// `cuGraphUpload` in both forms.
pub(crate) unsafe fn upload(real: real::cuGraphUpload, executable: CUgraphExec, stream: CUstream) -> Status {
    // SAFETY: `real` requires valid arguments; these are the caller's, for the same driver function.
    launched(executable, unsafe { real(executable, stream) })
}

/// `cuDeviceGraphMemTrim`.
pub(crate) unsafe fn trim(real: real::cuDeviceGraphMemTrim, device: CUdevice) -> Status {
    // SAFETY: `real` requires a valid argument; this one is the caller's, for the same driver function.
    let call = || unsafe { real(device) };
    around(
        |process| process.place(device),
        call,
        |process, place, _| {
            if let Some(place) = place {
                process.graphs.trimmed(process, place.device);
            }
        },
    )
}
