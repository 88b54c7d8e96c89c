//! Queues work on streams.

use gpuslice_driver::types::{CUstream, Status};

use crate::call::DriverCall;
use crate::engine::{Target, Work};
use crate::model::graphs::Op;
use crate::model::objects::handle;
use crate::model::streams::StreamPlace;
use crate::process::collectives;
use crate::process::host_queue::HostTask;
use crate::process::host_thread;
use crate::process::simulation::Simulation;
use crate::status::Outcome;

/// Tells whether the caller waits for the end of its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    Yes,
    No,
}

/// A stream argument: its handle, and true if a null handle means the thread's own default stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamArgument(pub(crate) u64, pub(crate) bool);

impl StreamArgument {
    /// Returns the argument of a call for which a null stream is the legacy default stream.
    pub(crate) fn legacy(stream: CUstream) -> Self {
        Self(handle(stream), false)
    }

    /// Returns the argument of a call for which a null stream is the thread's own default stream.
    pub(crate) fn per_thread(stream: CUstream) -> Self {
        Self(handle(stream), true)
    }
}

impl DriverCall {
    /// Returns the handle of a stream, and its place in the engine.
    pub(crate) fn stream(&self, on: StreamArgument) -> Result<(u64, StreamPlace), Status> {
        let simulation = self.simulation()?;
        let mut objects = simulation.objects();
        let stream = objects.stream(simulation, on.0, on.1)?;
        let place = objects.streams.streams.get(stream)?.place;
        Ok((stream, place))
    }

    /// Queues an operation on a stream. If the stream captures, adds the operation to its graph instead.
    ///
    /// The bytes of an asynchronous copy move at once, before its work is queued. Those of a synchronous copy move when its work
    /// is done. No lock is held while the call waits for room in the queue or for the end of the work.
    pub(crate) fn submit(&self, on: StreamArgument, op: &Op, wait: Wait) -> Outcome {
        let simulation = self.simulation()?;
        let mut objects = simulation.objects();
        let stream = objects.stream(simulation, on.0, on.1)?;
        if wait == Wait::Yes {
            objects.refuse_capturing(stream)?;
        }
        objects.refuse_implicit(stream)?;
        if objects.capture(stream, op)?.is_some() {
            return Ok(());
        }
        let (place, context) =
            objects.streams.streams.get(stream).map(|stream| (stream.place, stream.context))?;
        match op {
            Op::Move(movement) => {
                objects.touch(simulation, movement);
                let prepared = movement.prepare(&objects, simulation)?;
                drop(objects);
                // A copy within devices never waits, even if its function is synchronous.
                let wait = if prepared.stays_on_devices() { Wait::No } else { wait };
                if wait == Wait::No {
                    prepared.perform();
                }
                let ticket = simulation.enqueue(place, prepared.work)?;
                if wait == Wait::Yes {
                    simulation.wait(place.device, Target::Ticket(ticket));
                    prepared.perform();
                }
            }
            Op::Kernel(launch) => {
                drop(objects);
                let ticket = simulation.enqueue(place, collectives::work_of(simulation, launch))?;
                if simulation.config.launches_block {
                    simulation.wait(place.device, Target::Ticket(ticket));
                }
            }
            Op::Host(function, data) => {
                drop(objects);
                self.queue_host_task(simulation, context, place, HostTask::Function(*function, *data))?;
            }
            _ => {
                drop(objects);
                simulation.enqueue(place, Work::Marker)?;
            }
        }
        Ok(())
    }

    /// Queues on a stream a task for the host thread.
    pub(crate) fn queue_host_task(
        &self,
        simulation: &Simulation,
        context: u64,
        place: StreamPlace,
        task: HostTask,
    ) -> Outcome {
        let client = simulation.objects().contexts.get(context)?.client;
        let token = simulation.host.note(task, host_thread::work)?;
        let ticket = simulation.enqueue(place, Work::Host { token })?;
        simulation.host.queued(place.device, client, ticket);
        Ok(())
    }
}
