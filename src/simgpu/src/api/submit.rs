//! How does what a program puts into a stream get there?

use gpuslice_driver::types::{CUstream, Status};

use crate::call::Driver;
use crate::engine::{Target, Work};
use crate::model::graphs::Op;
use crate::model::objects::handle;
use crate::model::streams::Place;
use crate::process::host_queue::Duty;
use crate::process::host_thread;
use crate::process::meetings;
use crate::process::simulation::Simulation;
use crate::status::Outcome;

/// Whether the caller waits for what it submits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    Yes,
    No,
}

/// A stream as an argument: the handle, and what a null handle means.
#[derive(Debug, Clone, Copy)]
pub(crate) struct On(pub(crate) u64, pub(crate) bool);

impl On {
    /// The stream of a call whose null stream is the legacy default stream.
    pub(crate) fn legacy(stream: CUstream) -> Self {
        Self(handle(stream), false)
    }

    /// The stream of a call whose null stream is the thread's own.
    pub(crate) fn per_thread(stream: CUstream) -> Self {
        Self(handle(stream), true)
    }
}

impl Driver {
    /// The handle and the place of a stream.
    pub(crate) fn stream(&self, on: On) -> Result<(u64, Place), Status> {
        let simulation = self.simulation()?;
        let mut local = simulation.local();
        let stream = local.stream(simulation, on.0, on.1)?;
        let place = local.streams.streams.get(stream)?.place;
        Ok((stream, place))
    }

    /// Puts something into a stream, or into the graph that the stream captures.
    pub(crate) fn submit(&self, on: On, op: &Op, wait: Wait) -> Outcome {
        let simulation = self.simulation()?;
        let mut local = simulation.local();
        let stream = local.stream(simulation, on.0, on.1)?;
        if wait == Wait::Yes {
            local.refuse_capturing(stream)?;
        }
        local.refuse_implicit(stream)?;
        if local.capture(stream, op)?.is_some() {
            return Ok(());
        }
        let (place, context) =
            local.streams.streams.get(stream).map(|stream| (stream.place, stream.context))?;
        match op {
            Op::Move(movement) => {
                local.touch(simulation, movement);
                let prepared = movement.prepare(&local, simulation)?;
                drop(local);
                // What stays on devices is not waited for, whatever the call is called.
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
                drop(local);
                let ticket = simulation.enqueue(place, meetings::kernel(simulation, launch))?;
                if simulation.config.launches_block {
                    simulation.wait(place.device, Target::Ticket(ticket));
                }
            }
            Op::Host(function, data) => {
                drop(local);
                self.put_duty(simulation, context, place, Duty::Function(*function, *data))?;
            }
            _ => {
                drop(local);
                simulation.enqueue(place, Work::Marker)?;
            }
        }
        Ok(())
    }

    /// Puts something for the host to do into a stream.
    pub(crate) fn put_duty(
        &self,
        simulation: &Simulation,
        context: u64,
        place: Place,
        duty: Duty,
    ) -> Outcome {
        let client = simulation.local().contexts.get(context)?.client;
        let token = simulation.host.note(duty, host_thread::work)?;
        let ticket = simulation.enqueue(place, Work::Host { token })?;
        simulation.host.queued(place.device, client, ticket);
        Ok(())
    }
}
