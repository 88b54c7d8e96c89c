//! The host thread: it runs the host functions of the program's streams.
//!
//! The first task starts it. It also holds streams that wait for an event of another device, until that event is
//! complete.

use core::ffi::c_void;
use std::time::Duration;

use gpuslice_driver::types::{CUstream, Status, status};

use super::host_queue::HostTask;
use super::simulation::{self, Simulation};
use super::thread_state;
use crate::engine::{ClientId, Completion, EventStatus, HostCall, Target, Ticket};
use crate::model::objects::pointer;
use crate::os::clock;

/// A stream callback.
type Callback = Option<unsafe extern "C" fn(CUstream, Status, *mut c_void)>;

/// Runs the host thread.
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
            // The round did something, so there may be more to do.
            None => {}
            Some(_) if idle => simulation.host.changed.wait(&mut tasks),
            Some(instant) => {
                let pause = Duration::from_nanos(instant.saturating_sub(clock::now()));
                simulation.host.changed.wait_for(&mut tasks, pause);
            }
        }
    }
}

/// Nanoseconds between two rounds while the end of a wait cannot be predicted.
const ROUND_NS: u64 = 100_000;

/// Does the due tasks. Returns the instant of the next round. `None`: it did something.
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

/// Runs one host function, or adds a wait.
fn fulfil(simulation: &Simulation, device: usize, call: HostCall) {
    let task = simulation.host.tasks.lock().tasks_by_token.remove(&call.token);
    match task {
        Some(HostTask::Function(Some(function), data)) => {
            let data: *mut c_void = core::ptr::with_exposed_provenance_mut(data);
            // SAFETY: the program gave the function and its argument, to be called like this.
            thread_state::call_back(|| unsafe { function(data) });
        }
        Some(HostTask::Callback(function, stream, data)) => {
            // SAFETY: the program gave the function and its argument, to be called like this. The status is an integer.
            let function: Callback = unsafe { core::mem::transmute(function) };
            let (stream, data): (CUstream, *mut c_void) =
                (pointer(stream), core::ptr::with_exposed_provenance_mut(data));
            if let Some(function) = function {
                // SAFETY: `function` needs the stream and the argument that the program gave with it. The work before
                // it succeeded.
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

/// Lets streams continue whose events of other devices are complete.
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
