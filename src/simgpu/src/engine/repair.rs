//! Repairs the state after a process was killed in the middle of a change.
//!
//! The repair trusts only a few words: the rows in use, the order of items, the progress of each stream, and the ends of running
//! work. It rebuilds all lists and counts from them.

use super::compute::area;
use super::layout::EngineState;
use super::rows::{Client, kind, phase};
use super::table::{Link, List};

impl EngineState {
    /// Repairs the state. A process calls this function if it takes the lock and finds that the last holder has died.
    ///
    /// Work of living clients stays. Two results may differ from an undisturbed run: the order in which ready kernels of
    /// different streams start, and the time since the last completed step.
    pub(crate) fn repair(&mut self, now_ns: u64) {
        self.repair_clients();
        self.repair_streams();
        self.repair_items();
        self.repair_phases();
        for link in self.events.links() {
            let event = self.events.at(link);
            if event.order > self.streams.at(event.stream).last_order {
                // The record was announced but not enqueued, so nothing will ever complete it.
                self.events.at_mut(link).order = 0;
            }
            self.close_record(link);
        }
        self.clients.rebuild();
        self.streams.rebuild();
        self.events.rebuild();
        self.items.rebuild();
        self.advance(now_ns);
    }

    /// Keeps clients that have a legacy stream. Resets all lists and counts of the clients, because later steps rebuild them.
    fn repair_clients(&mut self) {
        self.runnable = List::default();
        self.marked = List::default();
        self.unmet = 0;
        for link in self.clients.links() {
            let client = *self.clients.at(link);
            let legacy = self.streams.at(client.legacy);
            let whole = client.serial != 0 && legacy.life != 0 && legacy.client == link;
            let row = self.clients.at_mut(link);
            *row = Client {
                ready: List::default(),
                host: List::default(),
                streams: 0,
                next_runnable: 0,
                waits_for_slice: 0,
                running_count: 0,
                running_fills: 0,
                occupancy: 0,
                queued: 0,
                queued_blocking: 0,
                held: 0,
                area: 0,
                ..client
            };
            if !whole {
                if client.serial != 0 {
                    self.retire(link);
                }
                *self.clients.at_mut(link) = Client::NONE;
            }
        }
        if self.clients.at(self.owner).serial == 0 {
            self.owner = 0;
            self.owner_active = 0;
        }
    }

    /// Keeps the streams of living clients. Empties their lists.
    fn repair_streams(&mut self) {
        for link in self.streams.links() {
            let row = self.streams.at_mut(link);
            row.marked = 0;
            row.items = List::default();
            row.queued = 0;
            row.detours = 0;
            row.waiters = 0;
            row.next_waiter = 0;
            row.next_marked = 0;
            row.next_ready = 0;
            let client = self.clients.at_mut(row.client);
            if row.life == 0 || client.serial == 0 {
                row.life = 0;
                continue;
            }
            row.next_of_client = core::mem::replace(&mut client.streams, link);
        }
    }

    /// Queues again all items that are not done, in their order.
    ///
    /// An item without an order was never appended completely, so it is dropped. The total of done work is computed from the
    /// first item of each queue, because the killed process may have stopped between `done_order` and `done_total`.
    fn repair_items(&mut self) {
        let mut found: Vec<(u64, Link)> = Vec::new();
        for link in self.items.links() {
            let item = *self.items.at(link);
            let stream = self.streams.at(item.stream);
            self.last_order = self.last_order.max(item.order);
            if item.order != 0 && stream.life != 0 && item.order > stream.done_order {
                found.push((item.order, link));
            } else {
                self.items.at_mut(link).order = 0;
            }
        }
        found.sort_unstable();
        for (order, link) in found {
            let row = self.items.at_mut(link);
            row.next = 0;
            let item = *row;
            let stream = self.streams.at_mut(item.stream);
            let tail = core::mem::replace(&mut stream.items.tail, link);
            if tail == 0 {
                stream.items.head = link;
                stream.done_total = item.total.saturating_sub(item.foreseen());
            }
            stream.last_order = order;
            stream.last_total = item.total;
            if tail != 0 {
                self.items.at_mut(tail).next = link;
            }
            self.count(item.stream, &item);
        }
    }

    /// Keeps running work running, and marks all other streams to be looked at.
    ///
    /// A stream's phase counts only if `phase_order` is the order of its oldest item. Otherwise the killed process had changed
    /// only one of the two. A copy counts as running only if an engine has it.
    fn repair_phases(&mut self) {
        for link in self.streams.links() {
            let stream = *self.streams.at(link);
            if stream.life == 0 {
                continue;
            }
            let item = *self.items.at(stream.items.head);
            if stream.items.head == 0 {
                let row = self.streams.at_mut(link);
                row.done_total = row.last_total;
            }
            let same = stream.items.head != 0 && stream.phase_order == item.order;
            let kept = match stream.phase {
                phase::RUNNING if !same => false,
                phase::RUNNING if kind::computes(item.kind) => self.run_again(link),
                phase::RUNNING => self.engines.iter().any(|engine| engine.current == link),
                phase::ON_HOST => same,
                _ => false,
            };
            if !kept {
                self.streams.at_mut(link).phase = phase::IDLE;
                self.mark(link);
            }
        }
        for index in 0..self.engines.len() {
            let Some(engine) = self.engines.get_mut(index) else { return };
            engine.waiting = List::default();
            let stream = self.streams.at(engine.current);
            let copies = self.items.at(stream.items.head).kind == kind::COPY;
            if stream.life == 0 || stream.phase != phase::RUNNING || !copies {
                engine.current = 0;
            }
        }
        for link in self.clients.links() {
            if self.clients.at(link).running_count != 0 {
                self.ask_for_slice(link);
            }
        }
    }

    /// Puts a kernel back into its client's running set. Returns false if the set is full.
    fn run_again(&mut self, link: Link) -> bool {
        let stream = self.streams.at_mut(link);
        let item = *self.items.at(stream.items.head);
        let client = self.clients.at_mut(stream.client);
        if item.is_released() {
            stream.ends = stream.ends.min(client.busy_ns.saturating_add(item.wanted_total));
        }
        let Some(place) = client.running.get_mut(client.running_count as usize) else { return false };
        *place = link;
        client.running_count += 1;
        client.running_fills += u32::from(item.kind == kind::FILL);
        client.occupancy += u32::from(item.occupancy);
        client.area = client.area.saturating_sub(area(item.duration, item.occupancy));
        true
    }
}
