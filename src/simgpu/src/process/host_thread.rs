//! The host thread: calls the program's functions that are queued in streams.
//!
//! The first task starts this thread. A stream may wait for an event of another device. Then this thread also finds out when the
//! event is complete, and lets the stream continue.

use core::ffi::c_void;
use std::time::Duration;

use gpuslice_driver::types::{CUstream, Status, status};

use super::host_queue::HostTask;
use super::simulation::{self, Simulation};
use super::thread_state;
use crate::engine::{ClientId, Completion, EventStatus, HostCall, Target, Ticket};
use crate::model::objects::pointer;
use crate::os::clock;

/// The function of a stream callback.
type Callback = Option<unsafe extern "C" fn(CUstream, Status, *mut c_void)>;

/// Does tasks for ever. This is what the host thread runs.
pub(crate) fn work() {
    loop {
        let Some(simulation) = simulation::get() else {
            std::thread::yield_now();
            continue;
        };
        let next = round(simulation);
        let mut tasks = simulation.host.tasks.lock();
        let idle = tasks.due.is_empty() && tasks.waiting.is_empty();
        match next {
            // This round did something, so another round may find more to do.
            None => {}
            Some(_) if idle => simulation.host.changed.wait(&mut tasks),
            Some(instant) => {
                let pause = Duration::from_nanos(instant.saturating_sub(clock::now()));
                simulation.host.changed.wait_for(&mut tasks, pause);
            }
        }
    }
}

/// Time between two rounds, in nanoseconds, while nobody can predict when a wait ends.
const ROUND_NS: u64 = 100_000;

/// Looks at every task once, and does those that their streams have reached. Returns the instant of the next round.
/// Returns `None` if it did something.
fn round(simulation: &Simulation) -> Option<u64> {
    let mut next = clock::now() + 1_000_000_000;
    let looked: Vec<(usize, ClientId, Ticket)> =
        simulation.host.tasks.lock().due.iter().map(|due| (due.device, due.client, due.ticket)).collect();
    let mut busy = finish_waits(simulation, &mut next);
    for (device, client, ticket) in looked {
        match simulation.completion(device, Target::Ticket(ticket)) {
            Completion::Done => {
                let mut tasks = simulation.host.tasks.lock();
                tasks.due.retain(|due| due.ticket != ticket || due.device != device);
                busy = true;
            }
            Completion::NotBefore(instant) => next = next.min(instant),
            Completion::NeedsHost => {
                next = next.min(clock::now() + ROUND_NS);
                let call = simulation.shared.lock().engine(device).next_host_call(client, clock::now());
                if let Some(call) = call {
                    fulfil(simulation, device, call);
                    busy = true;
                }
            }
        }
    }
    if busy { None } else { Some(next) }
}

/// Does one task. The stream continues afterwards, except for a wait: that only begins here.
fn fulfil(simulation: &Simulation, device: usize, call: HostCall) {
    let task = simulation.host.tasks.lock().tasks_by_token.remove(&call.token);
    match task {
        Some(HostTask::Function(Some(function), data)) => {
            let data: *mut c_void = core::ptr::with_exposed_provenance_mut(data);
            // SAFETY: `function` needs the argument that the program gave with it: `data` is that argument.
            thread_state::call_back(|| unsafe { function(data) });
        }
        Some(HostTask::Callback(function, stream, data)) => {
            // SAFETY: the program gave a function of this type to `cuStreamAddCallback`. A status is an integer in both types.
            let function: Callback = unsafe { core::mem::transmute(function) };
            let (stream, data): (CUstream, *mut c_void) =
                (pointer(stream), core::ptr::with_exposed_provenance_mut(data));
            if let Some(function) = function {
                // SAFETY: `function` needs the stream and the argument that the program gave with it: these are the two. The
                // status is a valid one: the work before it succeeded.
                thread_state::call_back(|| unsafe { function(stream, status::SUCCESS, data) });
            }
        }
        Some(HostTask::Event(other, event)) => {
            simulation.host.tasks.lock().waiting.push((device, call, other, event));
            return;
        }
        Some(HostTask::Free(address, region)) => {
            simulation.objects().free_region(simulation, address, region);
        }
        _ => {}
    }
    let _ = simulation.shared.lock().engine(device).finish_host_call(call, clock::now());
}

/// Lets those streams continue whose events of other devices are complete. Returns true if there was one. Makes `next`
/// earlier if a stream still waits.
fn finish_waits(simulation: &Simulation, next: &mut u64) -> bool {
    let waiting = core::mem::take(&mut simulation.host.tasks.lock().waiting);
    let mut busy = false;
    for (device, call, other, event) in waiting {
        let mut state = simulation.shared.lock();
        if state.engine(other).event_status(event, clock::now()) == Ok(EventStatus::Pending) {
            drop(state);
            simulation.host.tasks.lock().waiting.push((device, call, other, event));
            *next = (*next).min(clock::now() + ROUND_NS);
        } else {
            let _ = state.engine(device).finish_host_call(call, clock::now());
            busy = true;
        }
    }
    busy
}
