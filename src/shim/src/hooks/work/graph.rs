//! Graphs with memory: it is reserved at instantiation.
//!
//! So launches and uploads reserve nothing. Frees need no hook: the memory of an allocation node stays with its executable, and
//! the next launch takes it again.

use super::graph_cost;
use crate::hooks::hooked_call::HookedCall;
use crate::hooks::protocol::{Decision, Granted, around, charge, refuse};
use crate::memory::device_full;
use crate::memory::graphs::{Executable, Obstacle};
use crate::memory::refusals::RefusedKind;
use crate::os::reentrancy::enter_or;
use crate::process::{self, Process};
use gpuslice_driver::arguments::read_in;
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{CUgraph, CUgraphExec, Status, status};
use gpuslice_region::Device;

/// `CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD`.
const UPLOAD: u64 = 2;

/// `cuGraphInstantiate` in its first two forms.
pub(crate) fn instantiate(call: &HookedCall<real::cuGraphInstantiate_v2>) -> Status {
    let (output, graph, ..) = call.arguments();
    // SAFETY: `instantiated` requires that `output` is null or valid, and so does the driver.
    unsafe { instantiated(output, graph, 0, || call.forward()) }
}

/// `cuGraphInstantiateWithFlags`.
pub(crate) fn instantiate_with_flags(call: &HookedCall<real::cuGraphInstantiateWithFlags>) -> Status {
    let (output, graph, flags) = call.arguments();
    // SAFETY: `instantiated` requires that `output` is null or valid, and so does the driver.
    unsafe { instantiated(output, graph, flags, || call.forward()) }
}

/// `cuGraphInstantiateWithParams` and its per-thread form.
pub(crate) fn instantiate_with_params(call: &HookedCall<real::cuGraphInstantiateWithParams>) -> Status {
    let (output, graph, parameters) = call.arguments();
    // SAFETY: `read_in` requires null or eight readable bytes. The driver reads `parameters`, which begin with the flags.
    let flags = unsafe { read_in(parameters.cast::<u64>()) }.unwrap_or(0);
    // SAFETY: `instantiated` requires that `output` is null or valid, and so does the driver.
    unsafe { instantiated(output, graph, flags, || call.forward()) }
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
            // Room on this device does not help if another device of the graph is full.
            let again = || match reserve() {
                Err(Obstacle::Full(full, _)) if full == device => None,
                result => Some(result),
            };
            process.repeat_with_room(device, bytes, again).unwrap_or(Err(obstacle))
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
pub(crate) fn update(call: &HookedCall<real::cuGraphExecUpdate>) -> Status {
    let (executable, graph, ..) = call.arguments();
    updated(executable, graph, || call.forward())
}

/// `cuGraphExecUpdate_v2`.
pub(crate) fn update_v2(call: &HookedCall<real::cuGraphExecUpdate_v2>) -> Status {
    let (executable, graph, _) = call.arguments();
    updated(executable, graph, || call.forward())
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
pub(crate) fn destroy(call: &HookedCall<real::cuGraphExecDestroy>) -> Status {
    let (executable,) = call.arguments();
    // The library forgets before the driver can give the handle to another executable.
    graph_cost::forget(executable);
    around(
        |process| process.take_executable(executable.addr()),
        || call.forward(),
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
pub(crate) fn upload(call: &HookedCall<real::cuGraphUpload>) -> Status {
    let (executable, _) = call.arguments();
    launched(executable, call.forward())
}

/// `cuDeviceGraphMemTrim`.
pub(crate) fn trim(call: &HookedCall<real::cuDeviceGraphMemTrim>) -> Status {
    let (device,) = call.arguments();
    around(
        |process| process.place(device),
        || call.forward(),
        |process, place, _| {
            if let Some(place) = place {
                process.graphs.trimmed(process, place.device);
            }
        },
    )
}
