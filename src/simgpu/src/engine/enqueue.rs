//! Appends work to a queue. If the queue is full, returns the instant at which it may have room.

use super::collectives;
use super::compute::area;
use super::config::WHOLE_DEVICE;
use super::ids::{
    ClientId, Completion, EnqueueError, EventId, HostCall, StreamId, Target, Ticket, UnknownId, Work,
};
use super::layout::EngineState;
use super::rows::{Item, kind, ordering, phase, status};
use super::table::Link;

/// Nanoseconds until the next try if a full queue waits for a host function.
const HOST_POLL_NS: u64 = 1_000_000;

impl EngineState {
    /// Appends work to a stream at the instant `now_ns`. The work starts at once if nothing holds it.
    ///
    /// # Errors
    /// The stream or an event was removed. Or the queue is full; a real driver would block the caller then.
    pub(crate) fn enqueue(&mut self, id: StreamId, work: Work, now_ns: u64) -> Result<Ticket, EnqueueError> {
        self.advance(now_ns);
        let link = self.open_stream(id).ok_or(EnqueueError::NoStream)?;
        let item = self.item_of(work)?;
        let stream = self.streams.at(link);
        let config = self.config();
        let client = self.clients.at(stream.client);
        if stream.queued >= config.stream_depth || client.queued >= config.client_depth || self.items.full() {
            return Err(EnqueueError::WouldBlock { retry_at: self.room_at(link) });
        }
        let ticket = self.append(link, item);
        if let Work::Record(event) = work {
            self.expect_record(event, ticket);
        }
        self.mark(link);
        self.settle();
        Ok(ticket)
    }

    /// Returns the oldest due host function of a client. The caller runs the function and then calls
    /// [`EngineState::finish_host_call`]. Until then, the stream runs nothing.
    pub(crate) fn next_host_call(&mut self, id: ClientId, now_ns: u64) -> Option<HostCall> {
        self.advance(now_ns);
        let client_link = self.client_link(id)?;
        let client = self.clients.at_mut(client_link);
        let link = client.host.head;
        if link == 0 {
            return None;
        }
        let item = *self.items.at(self.streams.at(link).items.head);
        let stream = self.streams.at_mut(link);
        stream.phase = phase::ON_HOST;
        stream.phase_order = item.order;
        client.host.head = core::mem::take(&mut stream.next_ready);
        if client.host.head == 0 {
            client.host.tail = 0;
        }
        Some(HostCall { stream: self.stream_id(link), token: item.wanted })
    }

    /// Records that a host function has run.
    ///
    /// # Errors
    /// The engine has not handed out a host function of that stream.
    pub(crate) fn finish_host_call(&mut self, call: HostCall, now_ns: u64) -> Result<(), UnknownId> {
        self.advance(now_ns);
        let stream = self.streams.at(call.stream.link);
        if stream.generation != call.stream.generation || stream.phase != phase::ON_HOST {
            return Err(UnknownId);
        }
        self.complete(call.stream.link);
        self.settle();
        Ok(())
    }

    /// Appends a stream to its client's list of due host functions.
    pub(super) fn push_host(&mut self, link: Link) {
        let stream = self.streams.at_mut(link);
        stream.phase = phase::READY;
        stream.next_ready = 0;
        let client_link = stream.client;
        let tail = self.clients.at(client_link).host.tail;
        if tail == 0 {
            self.clients.at_mut(client_link).host.head = link;
        } else {
            self.streams.at_mut(tail).next_ready = link;
        }
        self.clients.at_mut(client_link).host.tail = link;
    }

    /// Returns the earliest instant at which a full queue may have room.
    fn room_at(&self, link: Link) -> u64 {
        let stream = self.streams.at(link);
        let head = *self.items.at(stream.items.head);
        if stream.queued < self.config().stream_depth {
            // Other streams of the client or of the device have taken all the room.
            let next = self.next_change();
            let poll = self.clock.saturating_add(HOST_POLL_NS);
            return if next == u64::MAX { poll } else { next.max(self.clock + 1) };
        }
        let first = Ticket { stream: self.stream_id(link), order: head.order, total: head.total };
        match self.foresee(Target::Ticket(first)) {
            Ok(Completion::NotBefore(instant)) => instant,
            _ => self.clock.saturating_add(HOST_POLL_NS),
        }
    }

    /// Converts a piece of work to a queue item, still without its place and its order.
    ///
    /// A kernel of a collective gets the longest possible duration. Its real duration is in `wanted_total`, and counts once the
    /// collective is released. A wait for a complete event becomes a marker, which takes no time.
    fn item_of(&self, work: Work) -> Result<Item, EnqueueError> {
        let config = self.config();
        let mut item = Item { kind: kind::MARKER, ..Item::default() };
        match work {
            Work::Kernel { ns, occupancy } => {
                item = Item { kind: kind::KERNEL, duration: ns, occupancy, launches: 1, ..item };
            }
            Work::Collective { collective, ns, nodes, occupancy } => {
                let (unmet, wanted) = (collective.kernels, collective.key);
                let wanted_total = config.graph_ns(ns, nodes).max(1);
                let kind = if nodes > 1 { kind::GRAPH } else { kind::KERNEL };
                let waiting = Item { unmet, wanted, wanted_total, ..item };
                item = Item { kind, duration: collectives::LONGEST, occupancy, launches: nodes, ..waiting };
            }
            Work::Graph { kernels_ns, nodes, occupancy } => {
                let duration = config.graph_ns(kernels_ns, nodes);
                item = Item { kind: kind::GRAPH, duration, occupancy, launches: nodes, ..item };
            }
            Work::Fill { bytes } => {
                let duration = config.fill_ns(bytes);
                item = Item { kind: kind::FILL, duration, occupancy: WHOLE_DEVICE, ..item };
            }
            Work::Copy { direction, bytes } => {
                let (duration, engine) = (config.copy_ns(direction, bytes), config.engine(direction));
                item = Item { kind: kind::COPY, duration, engine, ..item };
            }
            Work::Record(event) => {
                let target = self.event_link(event).ok_or(EnqueueError::NoEvent)?;
                item = Item { kind: kind::RECORD, target, target_generation: event.generation, ..item };
            }
            Work::Wait(event) => {
                let link = self.event_link(event).ok_or(EnqueueError::NoEvent)?;
                let event = self.events.at(link);
                if event.status == status::PENDING {
                    let (stream, generation) = (event.stream, event.stream_generation);
                    item = waiting(stream, generation, event.order, event.total);
                }
            }
            Work::After(ticket) => {
                item = waiting(ticket.stream.link, ticket.stream.generation, ticket.order, ticket.total);
            }
            Work::Host { token } => item = Item { kind: kind::HOST, wanted: token, ..item },
            Work::Marker => {}
        }
        item.occupancy = item.occupancy.clamp(1, WHOLE_DEVICE);
        item.duration = item.duration.min(super::advance::END_OF_TIME);
        Ok(item)
    }

    /// Appends an item to a stream. The table of items must have room.
    fn append(&mut self, link: Link, mut item: Item) -> Ticket {
        let Some(place) = self.items.take() else {
            return Ticket { stream: self.stream_id(link), order: 0, total: 0 };
        };
        self.last_order += 1;
        let order = self.last_order;
        let stream = self.streams.at_mut(link);
        stream.last_total = stream.last_total.saturating_add(item.foreseen());
        stream.last_order = order;
        item.total = stream.last_total;
        item.stream = link;
        let ticket_total = item.total;
        *self.items.at_mut(place) = item;
        super::write_order::written();
        self.items.at_mut(place).order = order;

        let tail = core::mem::replace(&mut stream.items.tail, place);
        if tail == 0 {
            stream.items.head = place;
        } else {
            self.items.at_mut(tail).next = place;
        }
        self.count(link, &item);
        Ticket { stream: self.stream_id(link), order, total: ticket_total }
    }

    /// Adds an appended item to the counts of its stream and client.
    pub(super) fn count(&mut self, link: Link, item: &Item) {
        self.unmet += u32::from(item.unmet != 0);
        let stream = self.streams.at_mut(link);
        stream.queued += 1;
        let client = self.clients.at_mut(stream.client);
        client.queued += 1;
        client.queued_blocking += u32::from(stream.ordering == ordering::BLOCKING);
        if kind::computes(item.kind) {
            client.area = client.area.saturating_add(area(item.duration, item.occupancy));
        } else {
            stream.detours += 1;
        }
    }

    /// Makes a record the newest one of its event.
    fn expect_record(&mut self, id: EventId, ticket: Ticket) {
        let event = self.events.at_mut(id.link);
        event.status = status::PENDING;
        event.stream = ticket.stream.link;
        event.stream_generation = ticket.stream.generation;
        event.order = ticket.order;
        event.total = ticket.total;
        let recorded = *event;
        if recorded.shared != 0 {
            self.tell_sharers(&recorded);
        }
    }
}

fn waiting(target: Link, target_generation: u32, wanted: u64, wanted_total: u64) -> Item {
    Item { kind: kind::WAIT, target, target_generation, wanted, wanted_total, ..Item::default() }
}
