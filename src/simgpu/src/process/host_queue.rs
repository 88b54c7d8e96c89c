//! Tasks for the host thread: host functions, callbacks, frees in stream order, and waits for events of other devices.

use std::collections::HashMap;

use gpuslice_driver::types::{CUhostFn, CUstreamCallback, Status, status};
use parking_lot::{Condvar, Mutex};

use crate::engine::{ClientId, EventId, HostCall, Ticket};
use crate::os::threads;

/// The task of the host thread when a stream reaches this place of its queue.
#[derive(Debug, Clone, Copy)]
pub(crate) enum HostTask {
    /// Call a function, for `cuLaunchHostFunc`.
    Function(CUhostFn, usize),
    /// Call a function, for `cuStreamAddCallback`. The handle is that of the stream, as the program gave it.
    Callback(CUstreamCallback, u64, usize),
    /// Hold the stream until an event of another device is complete.
    Event(usize, EventId),
    /// Free memory that belongs to no pool, for `cuMemFreeAsync`. The parts are its address and the number of its region.
    Free(u64, u64),
}

/// A task that is in a stream's queue: its device, its client, and its ticket.
#[derive(Debug)]
pub(crate) struct QueuedTask {
    pub(crate) device: usize,
    pub(crate) client: ClientId,
    pub(crate) ticket: Ticket,
}

/// All tasks of the host thread.
#[derive(Debug, Default)]
pub(crate) struct HostTasks {
    pub(crate) running: bool,
    pub(crate) last: u64,
    pub(crate) tasks_by_token: HashMap<u64, HostTask>,
    pub(crate) due: Vec<QueuedTask>,
    pub(crate) waiting: Vec<(usize, HostCall, usize, EventId)>,
}

/// The tasks of the host thread, and the means to wake it.
#[derive(Debug, Default)]
pub(crate) struct HostQueue {
    pub(crate) tasks: Mutex<HostTasks>,
    pub(crate) changed: Condvar,
}

impl HostQueue {
    /// Adds a task, and returns a token by which the stream's queue refers to it. The first task starts the host
    /// thread, which then runs `body`.
    pub(crate) fn note(&self, task: HostTask, body: fn()) -> Result<u64, Status> {
        let mut tasks = self.tasks.lock();
        if !tasks.running {
            threads::start("simgpu-host", body).ok_or(status::OUT_OF_MEMORY)?;
            tasks.running = true;
        }
        tasks.last += 1;
        let token = tasks.last;
        tasks.tasks_by_token.insert(token, task);
        Ok(token)
    }

    /// Records the ticket of a task's place in the stream, so that the host thread looks for it.
    pub(crate) fn queued(&self, device: usize, client: ClientId, ticket: Ticket) {
        self.tasks.lock().due.push(QueuedTask { device, client, ticket });
        self.changed.notify_one();
    }
}
