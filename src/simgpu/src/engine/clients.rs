//! The clients of a device, with their streams and events.

use super::config::DeviceConfig;
use super::ids::{ClientId, EventId, Refused, StreamId, StreamKind, UnknownId};
use super::layout::EngineState;
use super::rows::{Client, EventRow, life, ordering, phase, status};
use super::table::{Link, List};

impl EngineState {
    /// Returns the device's properties.
    #[must_use]
    pub(crate) fn config(&self) -> &DeviceConfig {
        const DEFAULT: &DeviceConfig = &DeviceConfig::DEFAULT;
        if self.configured == 0 { DEFAULT } else { &self.config }
    }

    /// Changes the device's properties. Numbers out of range are clamped.
    ///
    /// Queued work keeps its duration and its copy engine. The present slice keeps its end. A new utilisation window begins.
    pub(crate) fn set_config(&mut self, config: DeviceConfig, now_ns: u64) {
        self.advance(now_ns);
        self.config = config.checked();
        self.configured = 1;
        self.forget_window();
    }

    /// Registers a client, which is a context of the process `pid`. Time slices are between clients, and NVML samples are by PID.
    ///
    /// # Errors
    /// [`Refused::Full`]: the table of clients or the table of streams is full.
    pub(crate) fn add_client(&mut self, pid: u32, now_ns: u64) -> Result<ClientId, Refused> {
        self.advance(now_ns);
        if self.streams.full() {
            return Err(Refused::Full);
        }
        let link = self.clients.take().ok_or(Refused::Full)?;
        self.last_serial = self.last_serial.checked_add(1).unwrap_or(1);
        let serial = self.last_serial;
        *self.clients.at_mut(link) = Client { serial, pid, added_ns: self.clock, ..Client::NONE };
        let legacy = self.new_stream(link, ordering::LEGACY).ok_or(Refused::Full)?;
        self.clients.at_mut(link).legacy = legacy;
        Ok(ClientId { link, serial })
    }

    /// Removes a client, with its queues, its running work, its streams and its events. Streams of other clients that
    /// waited for the client continue.
    ///
    /// # Errors
    /// The client does not exist, or was removed.
    pub(crate) fn remove_client(&mut self, id: ClientId, now_ns: u64) -> Result<(), UnknownId> {
        self.advance(now_ns);
        let link = self.client_link(id).ok_or(UnknownId)?;
        self.retire(link);
        let mut stream = self.clients.at(link).streams;
        while stream != 0 {
            self.drop_work(stream);
            stream = self.streams.at(stream).next_of_client;
        }
        // The streams are freed last. A stream that wakes at the end of another stream must still exist.
        while self.clients.at(link).streams != 0 {
            self.free_stream(self.clients.at(link).streams);
        }
        for event in self.events.links() {
            if self.events.at(event).status != 0 && self.events.at(event).client == link {
                self.events.give(event);
            } else {
                self.close_record(event);
            }
        }
        self.leave_slices(link);
        self.clients.give(link);
        self.settle();
        Ok(())
    }

    /// Makes a stream.
    ///
    /// # Errors
    /// The client was removed, or the table of streams is full.
    pub(crate) fn add_stream(&mut self, id: ClientId, kind: StreamKind) -> Result<StreamId, Refused> {
        let client = self.client_link(id).ok_or(Refused::Gone)?;
        let rule = match kind {
            StreamKind::Blocking => ordering::BLOCKING,
            StreamKind::NonBlocking => ordering::NON_BLOCKING,
        };
        let link = self.new_stream(client, rule).ok_or(Refused::Full)?;
        Ok(self.stream_id(link))
    }

    /// Returns the legacy default stream of a client.
    ///
    /// # Errors
    /// The client was removed.
    pub(crate) fn legacy_stream(&self, id: ClientId) -> Result<StreamId, UnknownId> {
        let client = self.client_link(id).ok_or(UnknownId)?;
        Ok(self.stream_id(self.clients.at(client).legacy))
    }

    /// Destroys a stream. Its queued work is still done.
    ///
    /// # Errors
    /// The stream does not exist, or was removed, or is a legacy default stream.
    pub(crate) fn remove_stream(&mut self, id: StreamId, now_ns: u64) -> Result<(), UnknownId> {
        self.advance(now_ns);
        let link = self.open_stream(id).ok_or(UnknownId)?;
        let stream = self.streams.at_mut(link);
        if stream.ordering == ordering::LEGACY {
            return Err(UnknownId);
        }
        stream.life = life::CLOSING;
        self.mark(link);
        self.settle();
        Ok(())
    }

    /// Makes an event.
    ///
    /// # Errors
    /// The client was removed, or the table of events is full.
    pub(crate) fn add_event(&mut self, id: ClientId) -> Result<EventId, Refused> {
        let client = self.client_link(id).ok_or(Refused::Gone)?;
        let link = self.events.take().ok_or(Refused::Full)?;
        let event = self.events.at_mut(link);
        event.generation = event.generation.max(1);
        event.client = client;
        super::write_order::written();
        event.status = status::FRESH;
        Ok(EventId { link, generation: event.generation })
    }

    /// Destroys an event. Streams that already wait for it still wait.
    ///
    /// # Errors
    /// The event does not exist, or was removed.
    pub(crate) fn remove_event(&mut self, id: EventId) -> Result<(), UnknownId> {
        let link = self.event_link(id).ok_or(UnknownId)?;
        self.events.give(link);
        Ok(())
    }

    /// Returns the number by which other clients can open an event.
    ///
    /// # Errors
    /// The event does not exist, or was removed.
    pub(crate) fn share_event(&mut self, id: EventId) -> Result<u32, UnknownId> {
        let link = self.event_link(id).ok_or(UnknownId)?;
        if self.events.at(link).shared == 0 {
            self.last_serial = self.last_serial.checked_add(1).unwrap_or(1);
            self.events.at_mut(link).shared = self.last_serial;
        }
        Ok(self.events.at(link).shared)
    }

    /// Returns a client's own name for an event that another client shares. A record under either name is visible under both.
    /// Each name stays valid if the other client destroys its own.
    ///
    /// # Errors
    /// The client or the event was removed, the event does not have that number, or the table of events is full.
    pub(crate) fn import_event(
        &mut self,
        id: ClientId,
        from: EventId,
        shared: u32,
    ) -> Result<EventId, Refused> {
        let found = self.event_link(from).map(|link| *self.events.at(link));
        let origin = found.filter(|event| shared != 0 && event.shared == shared).ok_or(Refused::Gone)?;
        let made = self.add_event(id)?;
        let event = self.events.at_mut(made.link);
        *event = EventRow { generation: event.generation, client: event.client, ..origin };
        Ok(made)
    }

    /// Makes the record of a shared event the newest one under all its names. Each name finds out at a query
    /// whether the record is complete.
    pub(super) fn tell_sharers(&mut self, recorded: &EventRow) {
        for link in self.events.links() {
            let event = self.events.at_mut(link);
            if event.shared == recorded.shared && event.status != 0 {
                *event = EventRow { generation: event.generation, client: event.client, ..*recorded };
            }
        }
    }

    pub(super) fn client_link(&self, id: ClientId) -> Option<Link> {
        let found = id.serial != 0 && id.link != 0 && self.clients.at(id.link).serial == id.serial;
        found.then_some(id.link)
    }

    /// Returns a stream, unless its owner has destroyed it.
    pub(super) fn open_stream(&self, id: StreamId) -> Option<Link> {
        let stream = self.streams.at(id.link);
        let found = id.link != 0 && stream.life == life::OPEN && stream.generation == id.generation;
        found.then_some(id.link)
    }

    pub(super) fn event_link(&self, id: EventId) -> Option<Link> {
        let event = self.events.at(id.link);
        let found = id.link != 0 && event.status != 0 && event.generation == id.generation;
        found.then_some(id.link)
    }

    pub(super) fn stream_id(&self, link: Link) -> StreamId {
        StreamId { link, generation: self.streams.at(link).generation }
    }

    fn new_stream(&mut self, client_link: Link, rule: u8) -> Option<Link> {
        let link = self.streams.take()?;
        let client = self.clients.at_mut(client_link);
        let next = core::mem::replace(&mut client.streams, link);
        let stream = self.streams.at_mut(link);
        // No name has the generation 0.
        stream.generation = stream.generation.max(1);
        stream.client = client_link;
        stream.ordering = rule;
        stream.next_of_client = next;
        super::write_order::written();
        stream.life = life::OPEN;
        Some(link)
    }

    /// Frees a stream without work.
    pub(super) fn free_stream(&mut self, link: Link) {
        self.wake_waiters(link, u64::MAX);
        let stream = *self.streams.at(link);
        let client = self.clients.at_mut(stream.client);
        if client.streams == link {
            client.streams = stream.next_of_client;
        } else {
            let mut other = client.streams;
            while other != 0 && self.streams.at(other).next_of_client != link {
                other = self.streams.at(other).next_of_client;
            }
            self.streams.at_mut(other).next_of_client = stream.next_of_client;
        }
        self.streams.give(link);
    }

    /// Removes all work of a stream from all lists and engines.
    fn drop_work(&mut self, link: Link) {
        let stream = *self.streams.at(link);
        match stream.phase {
            phase::READY | phase::RUNNING => {
                self.leave_running(stream.client, link);
                self.leave_engines(link);
            }
            phase::WAITING => self.leave_waiters(link),
            _ => {}
        }
        let mut item = stream.items.head;
        while item != 0 {
            let row = *self.items.at(item);
            self.forget_collective(&row);
            self.items.give(item);
            item = row.next;
        }
        let row = self.streams.at_mut(link);
        row.items = List::default();
        row.phase = phase::IDLE;
    }

    /// Completes an event at the clock's instant, if its record is done or was lost with its stream.
    pub(super) fn close_record(&mut self, link: Link) {
        let event = *self.events.at(link);
        if event.status != status::PENDING
            || !self.reached(event.stream, event.stream_generation, event.order)
        {
            return;
        }
        let row = self.events.at_mut(link);
        row.time = self.clock;
        row.status = status::DONE;
    }

    fn leave_waiters(&mut self, link: Link) {
        let target = self.items.at(self.streams.at(link).items.head).target;
        let mut waiter = core::mem::take(&mut self.streams.at_mut(target).waiters);
        while waiter != 0 {
            let next = self.streams.at(waiter).next_waiter;
            if waiter != link {
                let kept = core::mem::replace(&mut self.streams.at_mut(target).waiters, waiter);
                self.streams.at_mut(waiter).next_waiter = kept;
            }
            waiter = next;
        }
    }

    /// Removes a client from the rotation of slices.
    fn leave_slices(&mut self, link: Link) {
        if self.owner == link {
            self.owner = 0;
            self.owner_active = 0;
        }
        let waiting = core::mem::take(&mut self.runnable);
        let mut next = waiting.head;
        while next != 0 {
            let client = self.clients.at_mut(next);
            let other = next;
            next = core::mem::take(&mut client.next_runnable);
            client.waits_for_slice = 0;
            if other != link {
                let end = self.slice_end;
                self.ask_for_slice(other);
                self.slice_end = end;
            }
        }
    }
}
