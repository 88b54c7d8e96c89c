//! Tells whether work is complete, and otherwise the earliest instant at which it can be.

use super::ids::{Completion, ElapsedError, EventId, EventStatus, Target, Ticket, UnknownId};
use super::layout::EngineState;
use super::rows::{StreamRow, kind, ordering, phase, status};
use super::table::Link;

/// Largest number of streams in a chain that the engine follows. Each stream of the chain waits for the next one. Beyond this
/// number, the returned instant is earlier than it could be.
const FOLLOWED: usize = 16;

impl EngineState {
    /// Tells whether the target is complete at `now_ns`, and otherwise how long the caller sleeps before it asks again.
    ///
    /// Suppose that no caller adds or removes anything. Then the target completes at the returned instant or later. For
    /// a single stream without a neighbour, the instant is exact. Kernels of collectives are an exception: they end
    /// after all others have started.
    ///
    /// # Errors
    /// The target does not exist, or was removed. For a ticket of a destroyed stream, the result is [`Completion::Done`].
    pub(crate) fn completion(&mut self, target: Target, now_ns: u64) -> Result<Completion, UnknownId> {
        self.advance(now_ns);
        if let Target::Event(id) = target {
            self.close_record(id.link);
        }
        self.foresee(target)
    }

    /// Returns the state of an event at `now_ns`.
    ///
    /// # Errors
    /// The event does not exist, or was removed.
    pub(crate) fn event_status(&mut self, id: EventId, now_ns: u64) -> Result<EventStatus, UnknownId> {
        self.advance(now_ns);
        self.close_record(id.link);
        let event = self.events.at(self.event_link(id).ok_or(UnknownId)?);
        Ok(match event.status {
            status::FRESH => EventStatus::Fresh,
            status::DONE => EventStatus::Done { time_ns: self.config().event_time(event.time) },
            _ => EventStatus::Pending,
        })
    }

    /// Returns the time from one event to another in nanoseconds. It is negative if they completed in the other order.
    ///
    /// # Errors
    /// An event was removed, was never recorded, or is not complete.
    pub(crate) fn elapsed_ns(
        &mut self,
        from: EventId,
        to: EventId,
        now_ns: u64,
    ) -> Result<i64, ElapsedError> {
        let ends = [self.event_status(from, now_ns), self.event_status(to, now_ns)];
        let mut times = [0i64; 2];
        let mut ready = true;
        for (end, time) in ends.into_iter().zip(&mut times) {
            match end {
                Err(UnknownId) => return Err(ElapsedError::NoEvent),
                Ok(EventStatus::Fresh) => return Err(ElapsedError::NotRecorded),
                Ok(EventStatus::Pending) => ready = false,
                Ok(EventStatus::Done { time_ns }) => *time = i64::try_from(time_ns).unwrap_or(i64::MAX),
            }
        }
        let [from, to] = times;
        if ready { Ok(to.saturating_sub(from)) } else { Err(ElapsedError::NotReady) }
    }

    /// Returns [`EngineState::completion`] at the clock's instant.
    ///
    /// Each target has a lower bound for the instant of its completion. The device's next change is another lower bound, because
    /// nothing completes before it. If the device has no next change, the work can only wait for the host.
    pub(super) fn foresee(&self, target: Target) -> Result<Completion, UnknownId> {
        let bound = match target {
            Target::Ticket(ticket) => self.bound_of_ticket(ticket),
            Target::Stream(id) => {
                let link = self.open_stream(id).ok_or(UnknownId)?;
                let stream = self.streams.at(link);
                if stream.ordering == ordering::LEGACY {
                    self.bound_of_streams(stream.client, |s| s.ordering != ordering::NON_BLOCKING)
                } else {
                    self.bound_of_stream(link)
                }
            }
            Target::Event(id) => {
                let event = self.events.at(self.event_link(id).ok_or(UnknownId)?);
                if event.status == status::PENDING {
                    self.bound(event.stream, event.order, event.total)
                } else {
                    CompletionBound::Done
                }
            }
            Target::Client(id) => {
                let link = self.client_link(id).ok_or(UnknownId)?;
                self.bound_of_streams(link, |_| true).later(self.bound_of_area(link))
            }
        };
        let next = self.next_change();
        Ok(match bound {
            CompletionBound::Done => Completion::Done,
            CompletionBound::Host => Completion::NeedsHost,
            // Nothing completes before the device's next change.
            CompletionBound::At(instant) if next != u64::MAX => {
                Completion::NotBefore(instant.max(next).max(self.clock + 1))
            }
            CompletionBound::At(_) => Completion::NeedsHost,
        })
    }

    fn bound_of_ticket(&self, ticket: Ticket) -> CompletionBound {
        if self.is_over(ticket) {
            return CompletionBound::Done;
        }
        self.bound(ticket.stream.link, ticket.order, ticket.total)
    }

    fn bound_of_stream(&self, link: Link) -> CompletionBound {
        let stream = self.streams.at(link);
        if stream.items.head == 0 {
            return CompletionBound::Done;
        }
        self.bound(link, stream.last_order, stream.last_total)
    }

    fn bound_of_streams(&self, client: Link, wanted: impl Fn(&StreamRow) -> bool) -> CompletionBound {
        let mut bound = CompletionBound::Done;
        let mut link = self.clients.at(client).streams;
        while link != 0 {
            let stream = self.streams.at(link);
            if wanted(stream) {
                bound = bound.later(self.bound_of_stream(link));
            }
            link = stream.next_of_client;
        }
        bound
    }

    /// Returns the earliest instant at which a client's kernels can be complete, by their sum of duration times occupancy. Even
    /// if they fill the device all the time, they need that sum divided by the device's capacity.
    fn bound_of_area(&self, link: Link) -> CompletionBound {
        let client = self.clients.at(link);
        let whole = u64::from(super::config::WHOLE_DEVICE);
        let running = client.running().iter().map(|&stream| {
            let row = self.streams.at(stream);
            let item = self.items.at(row.items.head);
            super::compute::area(row.ends.saturating_sub(client.busy_ns), item.occupancy)
        });
        let area = running.fold(client.area, u64::saturating_add);
        if area == 0 {
            return CompletionBound::Done;
        }
        CompletionBound::At(self.client_runs_at(link).saturating_add(area / whole))
    }

    /// Returns the earliest instant at which the work of a stream up to `order` can be complete.
    ///
    /// The function follows the chain of streams that wait for each other, and sums the durations that must still pass on each.
    /// The start of the last stream in the chain ends the chain.
    fn bound(&self, link: Link, order: u64, total: u64) -> CompletionBound {
        let (mut link, mut order, mut total, mut after) = (link, order, total, 0u64);
        for _ in 0..FOLLOWED {
            let stream = self.streams.at(link);
            if stream.items.head == 0 || stream.done_order >= order {
                return CompletionBound::At(self.clock.saturating_add(after));
            }
            let item = self.items.at(stream.items.head);
            after = after.saturating_add(total.saturating_sub(stream.done_total));
            match stream.phase {
                phase::ON_HOST => return CompletionBound::Host,
                phase::READY if item.kind == kind::HOST => return CompletionBound::Host,
                phase::WAITING => (link, order, total) = (item.target, item.wanted, item.wanted_total),
                phase::HELD => {
                    let holder = self.holder(stream, item.order);
                    (link, (order, total)) = (holder, self.last_before(holder, item.order));
                }
                _ => return CompletionBound::At(self.oldest_runs_at(stream).saturating_add(after)),
            }
        }
        CompletionBound::At(self.clock.saturating_add(after))
    }

    /// Returns the instant at which the oldest item would have started if it had run without an interruption until its end.
    fn oldest_runs_at(&self, stream: &StreamRow) -> u64 {
        let item = self.items.at(stream.items.head);
        let client = self.clients.at(stream.client);
        let running = stream.phase == phase::RUNNING;
        if !kind::computes(item.kind) {
            return if running { stream.ends.saturating_sub(item.duration) } else { self.clock };
        }
        let start = self.client_runs_at(stream.client);
        if !running {
            return start;
        }
        let left = stream.ends.saturating_sub(client.busy_ns);
        start.saturating_sub(item.foreseen().saturating_sub(left))
    }

    /// Returns the earliest instant at which a client's kernels can run. If another client has the device, its slice
    /// ends first, or its kernels do.
    fn client_runs_at(&self, link: Link) -> u64 {
        let now = self.clock.max(self.resume_at);
        if self.owner == link || self.owner == 0 {
            return if self.owner == link { now } else { self.clock };
        }
        let owner = self.clients.at(self.owner);
        let busy = owner.running().iter().map(|&other| {
            let stream = self.streams.at(other);
            let item = self.items.at(stream.items.head);
            let left = stream.ends.saturating_sub(owner.busy_ns);
            let rest = stream.last_total.saturating_sub(stream.done_total).saturating_sub(item.foreseen());
            if self.computes_to_its_end(stream) { left.saturating_add(rest) } else { left }
        });
        let dry = now.saturating_add(busy.max().unwrap_or(0));
        dry.min(self.slice_end).saturating_add(self.config().switch_ns)
    }

    /// Returns true if a stream keeps its client busy until it is empty. Such a stream has only kernels, and nothing holds them.
    fn computes_to_its_end(&self, stream: &StreamRow) -> bool {
        let client = self.clients.at(stream.client);
        let unheld = match stream.ordering {
            ordering::LEGACY => client.queued_blocking == 0,
            ordering::BLOCKING => self.streams.at(client.legacy).queued == 0,
            _ => true,
        };
        stream.detours == 0 && unheld
    }

    /// Returns the order and total of the newest item of a stream before `order`.
    fn last_before(&self, link: Link, order: u64) -> (u64, u64) {
        let mut place = self.streams.at(link).items.head;
        let mut last = (0, 0);
        while place != 0 && self.items.at(place).order < order {
            let item = self.items.at(place);
            last = (item.order, item.total);
            place = item.next;
        }
        last
    }
}

/// The earliest possible completion.
#[derive(Clone, Copy, Debug)]
enum CompletionBound {
    Done,
    At(u64),
    Host,
}

impl CompletionBound {
    /// Returns the later of two completions that must both happen. A known instant comes first, so the caller
    /// sleeps before it asks the host.
    fn later(self, other: Self) -> Self {
        match (self, other) {
            (Self::At(a), Self::At(b)) => Self::At(a.max(b)),
            (Self::At(a), _) | (_, Self::At(a)) => Self::At(a),
            (Self::Host, _) | (_, Self::Host) => Self::Host,
            (Self::Done, Self::Done) => Self::Done,
        }
    }
}
