//! Tasks of the host thread: host functions, callbacks, frees in stream order, and waits for events of other devices.

use std::collections::HashMap;

use gpuslice_driver::types::{CUhostFn, CUstreamCallback, Status, status};
use parking_lot::{Condvar, Mutex};

use crate::engine::{ClientId, EventId, HostCall, Ticket};
use crate::os::threads;

/// A task for the moment when a stream reaches it.
#[derive(Debug, Clone, Copy)]
pub(crate) enum HostTask {
    /// `cuLaunchHostFunc`.
    Function(CUhostFn, usize),
    /// `cuStreamAddCallback`, with the handle of the stream as the program gave it.
    Callback(CUstreamCallback, u64, usize),
    /// A wait for an event of another device.
    Event(usize, EventId),
    /// `cuMemFreeAsync` of memory that is of no pool: its address, and the number of its region.
    Free(u64, u64),
}

/// A task in a stream's queue.
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

/// The queue of the host thread.
#[derive(Debug, Default)]
pub(crate) struct HostQueue {
    pub(crate) tasks: Mutex<HostTasks>,
    pub(crate) changed: Condvar,
}

impl HostQueue {
    /// Adds a task, and returns its token for the stream's queue. The first task starts the thread, which runs
    /// `body`.
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

    /// Records the ticket of the task in its stream.
    pub(crate) fn queued(&self, device: usize, client: ClientId, ticket: Ticket) {
        self.tasks.lock().due.push(QueuedTask { device, client, ticket });
        self.changed.notify_one();
    }
}
