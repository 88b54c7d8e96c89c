//! The order of work: within a stream, between streams, and around the legacy default stream.

use super::layout::EngineState;
use super::rows::{StreamRow, kind, life, ordering, phase, status};
use super::table::Link;

impl EngineState {
    /// Puts a stream into the list of streams to look at, because its situation has changed.
    pub(super) fn mark(&mut self, link: Link) {
        let stream = self.streams.at_mut(link);
        if link == 0 || stream.marked != 0 {
            return;
        }
        stream.marked = 1;
        stream.next_marked = 0;
        let tail = self.marked.tail;
        if tail == 0 {
            self.marked.head = link;
        } else {
            self.streams.at_mut(tail).next_marked = link;
        }
        self.marked.tail = link;
    }

    /// Looks at all streams in that list, until no more work can start.
    pub(super) fn look_at_marked(&mut self) {
        while self.marked.head != 0 {
            let link = self.marked.head;
            let stream = self.streams.at_mut(link);
            stream.marked = 0;
            self.marked.head = core::mem::take(&mut stream.next_marked);
            if self.marked.head == 0 {
                self.marked.tail = 0;
            }
            self.start_oldest(link);
        }
    }

    /// Starts the oldest item of a stream, or records what it waits for.
    ///
    /// Kernels, copies and host functions go to the list of the engine that runs them. An item that the rules of the
    /// legacy stream hold gets the phase held. An item that waits for another stream enters that stream's list of
    /// waiters. Other items complete at once.
    fn start_oldest(&mut self, link: Link) {
        let stream = *self.streams.at(link);
        if stream.phase == phase::HELD {
            let client = self.clients.at_mut(stream.client);
            client.held = client.held.saturating_sub(1);
            self.streams.at_mut(link).phase = phase::IDLE;
        } else if stream.phase != phase::IDLE {
            return;
        }
        if stream.items.head == 0 {
            if stream.life == life::CLOSING {
                self.free_stream(link);
            }
            return;
        }
        let item = *self.items.at(stream.items.head);
        if self.holder(&stream, item.order) != 0 {
            self.clients.at_mut(stream.client).held += 1;
            self.streams.at_mut(link).phase = phase::HELD;
            return;
        }
        match item.kind {
            kind::KERNEL | kind::GRAPH | kind::FILL => self.push_kernel(link),
            kind::COPY => self.push_copy(link, item.engine),
            kind::HOST => self.push_host(link),
            kind::WAIT if !self.reached(item.target, item.target_generation, item.wanted) => {
                let target = self.streams.at_mut(item.target);
                let next = core::mem::replace(&mut target.waiters, link);
                let waiter = self.streams.at_mut(link);
                waiter.next_waiter = next;
                waiter.phase = phase::WAITING;
            }
            _ => self.complete(link),
        }
    }

    /// Returns true if everything up to `order` on a stream is done. This is also true for a stream that was freed.
    pub(super) fn reached(&self, link: Link, generation: u32, order: u64) -> bool {
        let stream = self.streams.at(link);
        stream.life == 0 || stream.generation != generation || stream.done_order >= order
    }

    /// Returns the stream that holds an item of `stream` by the rules of the legacy default stream; 0 for none. Work
    /// of blocking streams waits for earlier work of the legacy stream, and work of the legacy stream waits for
    /// earlier work of blocking streams.
    pub(super) fn holder(&self, stream: &StreamRow, order: u64) -> Link {
        let client = self.clients.at(stream.client);
        match stream.ordering {
            ordering::BLOCKING if self.oldest_before(client.legacy, order) => client.legacy,
            ordering::LEGACY if client.queued_blocking != 0 => {
                let mut other = client.streams;
                while other != 0 {
                    let row = self.streams.at(other);
                    if row.ordering == ordering::BLOCKING && self.oldest_before(other, order) {
                        return other;
                    }
                    other = row.next_of_client;
                }
                0
            }
            _ => 0,
        }
    }

    fn oldest_before(&self, link: Link, order: u64) -> bool {
        let head = self.streams.at(link).items.head;
        head != 0 && self.items.at(head).order < order
    }

    /// Completes the oldest item of a stream at the clock's instant, and marks all streams that waited for it.
    ///
    /// `done_order` is written first. If this process dies after that, a repair knows that the item is done, and rebuilds all
    /// lists and counts. If it dies before that, the repair runs the item's completion again.
    pub(super) fn complete(&mut self, link: Link) {
        let head = self.streams.at(link).items.head;
        let item = *self.items.at(head);
        if head == 0 {
            return;
        }
        let stream = self.streams.at_mut(link);
        stream.done_order = item.order;
        // After this line, a repair knows that the item is done, even if this process dies.
        super::write_order::written();
        stream.done_total = item.total;
        stream.phase = phase::IDLE;
        stream.items.head = item.next;
        if item.next == 0 {
            stream.items.tail = 0;
        }
        stream.queued = stream.queued.saturating_sub(1);
        if !kind::computes(item.kind) {
            stream.detours = stream.detours.saturating_sub(1);
        }
        let (client_link, rule) = (stream.client, stream.ordering);
        self.forget_collective(&item);
        let client = self.clients.at_mut(client_link);
        client.queued = client.queued.saturating_sub(1);
        if rule == ordering::BLOCKING {
            client.queued_blocking = client.queued_blocking.saturating_sub(1);
        }
        if matches!(item.kind, kind::KERNEL | kind::GRAPH) {
            client.launches = client.launches.saturating_add(u64::from(item.launches));
            client.kernel_ns = client.kernel_ns.saturating_add(item.duration);
        }
        if item.kind == kind::RECORD {
            let (clock, event_ns) = (self.clock, u64::from(self.config().event_ns));
            let row = self.streams.at_mut(link);
            let time = clock.max(row.passes);
            row.passes = time.saturating_add(event_ns);
            let event = self.events.at_mut(item.target);
            // This condition is false if a newer record has replaced this one.
            if event.generation == item.target_generation && event.order == item.order {
                event.time = time;
                event.status = status::DONE;
            }
        }
        self.items.give(head);
        self.mark(link);
        self.wake_waiters(link, item.order);
        self.wake_held(client_link, rule);
    }

    /// Marks the streams that waited for an item of this stream up to `order`.
    pub(super) fn wake_waiters(&mut self, link: Link, order: u64) {
        let mut waiter = core::mem::take(&mut self.streams.at_mut(link).waiters);
        while waiter != 0 {
            let row = *self.streams.at(waiter);
            if self.items.at(row.items.head).wanted <= order {
                let woken = self.streams.at_mut(waiter);
                woken.next_waiter = 0;
                woken.phase = phase::IDLE;
                self.mark(waiter);
            } else {
                let kept = core::mem::replace(&mut self.streams.at_mut(link).waiters, waiter);
                self.streams.at_mut(waiter).next_waiter = kept;
            }
            waiter = row.next_waiter;
        }
    }

    /// Marks streams that the rules of the legacy stream may hold because of an item of the other kind of stream.
    fn wake_held(&mut self, client_link: Link, rule: u8) {
        let client = self.clients.at(client_link);
        if client.held == 0 || rule == ordering::NON_BLOCKING {
            return;
        }
        if rule == ordering::BLOCKING {
            let legacy = client.legacy;
            if self.streams.at(legacy).phase == phase::HELD {
                self.mark(legacy);
            }
            return;
        }
        let mut link = client.streams;
        while link != 0 {
            let row = *self.streams.at(link);
            if row.phase == phase::HELD {
                self.mark(link);
            }
            link = row.next_of_client;
        }
    }
}
