//! Records events, waits for them, and queries them.

use gpuslice_driver::types::*;

use super::submit::StreamArgument;
use crate::call::DriverCall;
use crate::engine::{ElapsedError, Work};
use crate::model::objects::handle;
use crate::model::streams::DISABLE_TIMING;
use crate::process::host_queue::HostTask;
use crate::status::{Outcome, statuses};

impl DriverCall {
    pub(super) fn destroy_event(&self, event: CUevent) -> Outcome {
        let simulation = self.simulation()?;
        let event = simulation.objects().streams.events.remove(handle(event))?;
        let removed = simulation.shared.lock().engine(event.device).remove_event(event.id);
        removed.map_err(|_| statuses::INVALID_HANDLE)
    }

    pub(super) fn record(&self, event: CUevent, on: StreamArgument) -> Outcome {
        let simulation = self.simulation()?;
        simulation.event_contention.delay(simulation.config.event_contention_ns);
        let mut objects = simulation.objects();
        let event = handle(event);
        let owner = objects.streams.events.get(event)?.context;
        let stream = objects.stream(simulation, on.0, on.1)?;
        objects.refuse_implicit(stream)?;
        let found = objects.streams.streams.get(stream)?;
        let (context, place) = (found.context, found.place);
        if context != owner {
            return Err(statuses::INVALID_HANDLE);
        }
        if objects.capture_record(stream, event)? {
            return Ok(());
        }
        let id = objects.streams.events.get(event)?.id;
        drop(objects);
        simulation.enqueue(place, Work::Record(id)).map(|_| ())
    }

    pub(super) fn wait_event(&self, on: StreamArgument, event: CUevent) -> Outcome {
        let simulation = self.simulation()?;
        let mut objects = simulation.objects();
        let event = handle(event);
        let stream = objects.stream(simulation, on.0, on.1)?;
        if objects.capture_wait(stream, event)? {
            return Ok(());
        }
        let found = objects.streams.streams.get(stream)?;
        let (context, place) = (found.context, found.place);
        let (device, id) = objects.streams.events.get(event).map(|event| (event.device, event.id))?;
        drop(objects);
        if device == place.device {
            return simulation.enqueue(place, Work::Wait(id)).map(|_| ());
        }
        self.queue_host_task(simulation, context, place, HostTask::Event(device, id))
    }

    /// Returns the device and the engine's name of an event. Fails if the event belongs to a capture.
    pub(super) fn event(&self, event: CUevent) -> Result<(usize, crate::engine::EventId), Status> {
        let simulation = self.simulation()?;
        let mut objects = simulation.objects();
        let event = handle(event);
        let found = objects.streams.events.get(event)?;
        let (device, id) = (found.device, found.id);
        if let Some(capture) = found.captured.as_ref().map(|membership| membership.capture) {
            if let Some(capture) = objects.captures.get_mut(&capture) {
                capture.invalid = true;
            }
            return Err(statuses::CAPTURED_EVENT);
        }
        objects.unsafe_call()?;
        Ok((device, id))
    }

    #[allow(clippy::float_arithmetic, reason = "the interface tells time as a float of milliseconds")]
    pub(super) fn elapsed(&self, to: *mut f32, start: CUevent, end: CUevent) -> Outcome {
        let simulation = self.simulation()?;
        let events = [start, end].map(|event| {
            let objects = simulation.objects();
            let found = objects.streams.events.get(handle(event))?;
            let timed = found.flags & DISABLE_TIMING == 0;
            if timed { Ok((found.device, found.id)) } else { Err(statuses::INVALID_HANDLE) }
        });
        let [Ok((device, start)), Ok((other, end))] = events else { return Err(statuses::INVALID_HANDLE) };
        if device != other {
            return Err(statuses::INVALID_HANDLE);
        }
        let elapsed = simulation.shared.lock().engine(device).elapsed_ns(start, end, crate::os::clock::now());
        match elapsed {
            Ok(ns) => self.write(to, (ns as f64 / 1e6) as f32),
            Err(ElapsedError::NotReady) => Err(statuses::NOT_READY),
            Err(ElapsedError::NotRecorded | ElapsedError::NoEvent) => Err(statuses::INVALID_HANDLE),
        }
    }
}
