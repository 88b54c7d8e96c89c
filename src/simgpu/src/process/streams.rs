//! Makes and ends streams and events, queues work, and waits for it.

use gpuslice_driver::types::{Status, status};

use super::collectives;
use super::objects::ProcessObjects;
use super::simulation::Simulation;
use crate::engine::{Completion, EnqueueError, EventId, Refused, StreamKind, Target, Ticket, Work};
use crate::model::ipc_handles::{self, Label, Purpose};
use crate::model::streams::{DISABLE_TIMING, Event, INTERPROCESS, NON_BLOCKING, Stream, StreamPlace};
use crate::os::clock;
use crate::os::threads;
use crate::status::{Outcome, statuses};

impl ProcessObjects {
    /// Makes a stream in a context.
    pub(crate) fn make_stream(
        &mut self,
        simulation: &Simulation,
        context: u64,
        flags: u32,
        priority: i32,
    ) -> Result<u64, Status> {
        let (device, client) = self.contexts.get(context).map(|context| (context.device, context.client))?;
        let kind = if flags & NON_BLOCKING == 0 { StreamKind::Blocking } else { StreamKind::NonBlocking };
        let made = simulation.shared.lock().engine(device).add_stream(client, kind);
        let id = made.map_err(|_| status::OUT_OF_MEMORY)?;
        Ok(self.note_stream(context, StreamPlace { device, id }, flags, priority, false))
    }

    fn note_stream(
        &mut self,
        context: u64,
        place: StreamPlace,
        flags: u32,
        priority: i32,
        legacy: bool,
    ) -> u64 {
        self.streams.made += 1;
        let number = self.streams.made;
        let (green, capture) = (None, None);
        self.streams.streams.add(Stream { context, place, flags, priority, number, legacy, green, capture })
    }

    /// Returns the stream that an argument means: a stream of the program, or a default stream of the current context.
    /// `per_thread` tells which default stream a null argument means.
    pub(crate) fn stream(
        &mut self,
        simulation: &Simulation,
        given: u64,
        per_thread: bool,
    ) -> Result<u64, Status> {
        match (given, per_thread) {
            (0, true) | (2, _) => self.per_thread_stream(simulation),
            (0, false) | (1, _) => {
                let context = self.current()?.0;
                self.legacy_stream(simulation, context)
            }
            _ => self.streams.streams.get(given).map(|_| given),
        }
    }

    /// Returns the legacy default stream of a context. Makes it first if there is none.
    pub(crate) fn legacy_stream(&mut self, simulation: &Simulation, context: u64) -> Result<u64, Status> {
        if let Some(stream) = self.streams.legacy.get(&context) {
            return Ok(*stream);
        }
        let (device, client) = self.contexts.get(context).map(|context| (context.device, context.client))?;
        let id = simulation.shared.lock().engine(device).legacy_stream(client);
        let place = StreamPlace { device, id: id.map_err(|_| status::INVALID_CONTEXT)? };
        let stream = self.note_stream(context, place, 0, 0, true);
        self.streams.legacy.insert(context, stream);
        Ok(stream)
    }

    fn per_thread_stream(&mut self, simulation: &Simulation) -> Result<u64, Status> {
        let key = (self.current()?.0, threads::number());
        if let Some(stream) = self.streams.per_thread.get(&key) {
            return Ok(*stream);
        }
        let stream = self.make_stream(simulation, key.0, 0, 0)?;
        self.streams.per_thread.insert(key, stream);
        Ok(stream)
    }

    /// Ends a stream. Work that is queued in it is still done.
    pub(crate) fn end_stream(&mut self, simulation: &Simulation, handle: u64) -> Outcome {
        let stream = self.streams.streams.get(handle)?;
        if stream.legacy || self.streams.per_thread.values().any(|other| *other == handle) {
            return Err(statuses::INVALID_HANDLE);
        }
        let place = stream.place;
        self.streams.streams.remove(handle)?;
        let removed = simulation.shared.lock().engine(place.device).remove_stream(place.id, clock::now());
        removed.map_err(|_| statuses::INVALID_HANDLE)
    }

    /// Forgets the streams and events of a context. The engine has removed them with the context.
    pub(crate) fn end_streams_of(&mut self, context: u64) {
        self.streams.per_thread.retain(|(owner, _), _| *owner != context);
        self.streams.legacy.remove(&context);
        for stream in self.streams.streams.matching(|stream| stream.context == context) {
            let _ = self.streams.streams.remove(stream);
        }
        for event in self.streams.events.matching(|event| event.context == context) {
            let _ = self.streams.events.remove(event);
        }
    }

    /// Makes an event in the current context.
    pub(crate) fn make_event(&mut self, simulation: &Simulation, flags: u32) -> Result<u64, Status> {
        let (context, device, client) = self.current().map(|(handle, c)| (handle, c.device, c.client))?;
        let made = simulation.shared.lock().engine(device).add_event(client);
        let id = made.map_err(|_| status::OUT_OF_MEMORY)?;
        Ok(self.streams.events.add(Event { context, device, flags, id, captured: None }))
    }

    /// Returns the handle by which another process can open an event.
    pub(crate) fn event_ticket(&self, simulation: &Simulation, event: u64) -> Result<[u8; 64], Status> {
        self.current()?;
        let event = self.streams.events.get(event)?;
        if event.flags & INTERPROCESS == 0 {
            return Err(statuses::INVALID_HANDLE);
        }
        let shared = simulation.shared.lock().engine(event.device).share_event(event.id);
        let number = u64::from(shared.map_err(|_| statuses::INVALID_HANDLE)?);
        let (pid, serial) = (u64::from(std::process::id()), simulation.serial);
        let label = Label { number, device: event.device as u64, size: 0 };
        ipc_handles::IpcHandle { pid, serial, descriptor: event.id.to_bits(), offset: 0, label }
            .bytes(Purpose::Event)
    }

    /// Opens an event of another process. It belongs to the current context if that is on the event's device, and otherwise to
    /// another context on that device.
    pub(crate) fn open_event(&mut self, simulation: &Simulation, ticket: &[u8; 64]) -> Result<u64, Status> {
        let current = self.current()?.0;
        let ticket = ipc_handles::IpcHandle::read(ticket, Purpose::Event)?;
        if ticket.serial == simulation.serial {
            return Err(status::INVALID_CONTEXT);
        }
        let device = usize::try_from(ticket.label.device).map_err(|_| status::INVALID_VALUE)?;
        let fitting = self.contexts.matching(|context| context.device == device);
        let context = fitting.iter().find(|context| **context == current).or_else(|| fitting.first());
        let context = *context.ok_or(status::INVALID_CONTEXT)?;
        let client = self.contexts.get(context)?.client;
        let origin = EventId::from_bits(ticket.descriptor);
        let number = u32::try_from(ticket.label.number).map_err(|_| status::INVALID_VALUE)?;
        let made = simulation.shared.lock().engine(device).import_event(client, origin, number);
        let id = made.map_err(|why| match why {
            Refused::Gone => statuses::MAP_FAILED,
            Refused::Full => status::OUT_OF_MEMORY,
        })?;
        let flags = DISABLE_TIMING;
        Ok(self.streams.events.add(Event { context, device, flags, id, captured: None }))
    }
}

impl Simulation {
    /// Puts work into a queue, and returns its ticket. Waits while the queue is full. The caller may hold no lock.
    pub(crate) fn enqueue(&self, place: StreamPlace, work: Work) -> Result<Ticket, Status> {
        loop {
            let now = clock::now();
            let mut state = self.shared.lock();
            state.reap_if_due(self.slot, now);
            collectives::release_complete(&mut state, now);
            match state.engine(place.device).enqueue(place.id, work, now) {
                Ok(ticket) => return Ok(ticket),
                Err(EnqueueError::WouldBlock { retry_at }) => {
                    let retry_at = collectives::ask_again_at(&mut state, place.device, retry_at, now);
                    drop(state);
                    clock::sleep_until(retry_at);
                }
                Err(EnqueueError::NoStream | EnqueueError::NoEvent) => return Err(statuses::INVALID_HANDLE),
            }
        }
    }

    /// Returns whether a target is complete, or when to ask again. A target that does not exist any more is complete.
    pub(crate) fn completion(&self, device: usize, target: Target) -> Completion {
        let now = clock::now();
        let mut state = self.shared.lock();
        state.reap_if_due(self.slot, now);
        collectives::release_complete(&mut state, now);
        match state.engine(device).completion(target, now).unwrap_or(Completion::Done) {
            Completion::NotBefore(instant) => {
                Completion::NotBefore(collectives::ask_again_at(&mut state, device, instant, now))
            }
            completion => completion,
        }
    }

    /// Waits until a target is complete. The caller may hold no lock.
    pub(crate) fn wait(&self, device: usize, target: Target) {
        /// Time between two checks, in nanoseconds, while a host function runs on another thread.
        /// Nobody can predict when that ends.
        const HOST_POLL_NS: u64 = 20_000;
        /// Longest sleep, in nanoseconds. A prediction becomes wrong when other clients come or go.
        const LONGEST_NS: u64 = 50_000_000;
        loop {
            let now = clock::now();
            match self.completion(device, target) {
                Completion::Done => return,
                Completion::NotBefore(instant) => clock::sleep_until(instant.min(now + LONGEST_NS)),
                Completion::NeedsHost => clock::sleep_until(now + HOST_POLL_NS),
            }
        }
    }

    /// Waits for all queued work of a context. The caller may hold no lock.
    pub(crate) fn wait_for_context(&self, context: u64) -> Outcome {
        let found = self.objects().contexts.get(context).map(|context| (context.device, context.client));
        if let Ok((device, client)) = found {
            self.wait(device, Target::Client(client));
        }
        Ok(())
    }
}
