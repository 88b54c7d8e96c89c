//! What the host thread has to do when streams get there.

use std::collections::HashMap;

use gpuslice_driver::types::{CUhostFn, CUstreamCallback, Status, status};
use parking_lot::{Condvar, Mutex};

use crate::engine::{ClientId, EventId, HostCall, Ticket};
use crate::os::threads;

/// What is to be done when a stream gets there.
#[derive(Debug, Clone, Copy)]
pub(crate) enum HostTask {
    /// `cuLaunchHostFunc`.
    Function(CUhostFn, usize),
    /// `cuStreamAddCallback`, with the stream as the program named it.
    Callback(CUstreamCallback, u64, usize),
    /// Wait for an event of another device.
    Event(usize, EventId),
}

/// A task in a queue.
#[derive(Debug)]
pub(crate) struct QueuedTask {
    pub(crate) device: usize,
    pub(crate) client: ClientId,
    pub(crate) ticket: Ticket,
}

/// What the thread has to do.
#[derive(Debug, Default)]
pub(crate) struct HostTasks {
    pub(crate) running: bool,
    pub(crate) last: u64,
    pub(crate) tasks_by_token: HashMap<u64, HostTask>,
    pub(crate) due: Vec<QueuedTask>,
    pub(crate) waiting: Vec<(usize, HostCall, usize, EventId)>,
}

/// The thread's desk.
#[derive(Debug, Default)]
pub(crate) struct HostQueue {
    pub(crate) tasks: Mutex<HostTasks>,
    pub(crate) changed: Condvar,
}

impl HostQueue {
    /// Notes a task; its token goes into the queue. The first one starts the thread, which runs `body`.
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

    /// Tells where the task was queued.
    pub(crate) fn queued(&self, device: usize, client: ClientId, ticket: Ticket) {
        self.tasks.lock().due.push(QueuedTask { device, client, ticket });
        self.changed.notify_one();
    }
}
