//! The multiprocessors. Kernels of one client overlap, and clients take turns by time slices.

use super::config::WHOLE_DEVICE;
use super::ids::Ticket;
use super::layout::EngineState;
use super::rows::{kind, phase};
use super::table::Link;

impl EngineState {
    /// Appends a stream to its client's list of kernels that could run.
    pub(super) fn push_kernel(&mut self, link: Link) {
        let stream = self.streams.at_mut(link);
        stream.phase = phase::READY;
        stream.next_ready = 0;
        let client_link = stream.client;
        let list = self.clients.at(client_link).ready;
        if list.tail == 0 {
            self.clients.at_mut(client_link).ready.head = link;
        } else {
            self.streams.at_mut(list.tail).next_ready = link;
        }
        self.clients.at_mut(client_link).ready.tail = link;
        self.ask_for_slice(client_link);
    }

    /// Puts a client into the list of clients that wait for a slice.
    pub(super) fn ask_for_slice(&mut self, link: Link) {
        if link == self.owner || self.clients.at(link).waits_for_slice != 0 {
            return;
        }
        let first = self.runnable.head == 0;
        self.wait_behind(self.owner, link);
        if first && self.owner_active != 0 {
            // While the client was alone, no event marked the ends of its slices. The present slice ends at a
            // multiple of the slice's length.
            let slice = self.config().slice_ns;
            let passed = self.clock.saturating_sub(self.slice_start) / slice;
            self.slice_end = self.slice_start.saturating_add((passed + 1).saturating_mul(slice));
        }
    }

    /// Inserts a client into the list of clients that wait for a slice. The list is in the order of the table of clients,
    /// beginning after `owner`. A real device also goes through its runlist in order, and skips clients without work.
    fn wait_behind(&mut self, owner: Link, link: Link) {
        let turns_until = |link: Link| link.wrapping_sub(owner).wrapping_sub(1);
        let (mut before, mut next) = (0, self.runnable.head);
        while next != 0 && turns_until(next) < turns_until(link) {
            (before, next) = (next, self.clients.at(next).next_runnable);
        }
        let client = self.clients.at_mut(link);
        (client.waits_for_slice, client.next_runnable) = (1, next);
        if before == 0 {
            self.runnable.head = link;
        } else {
            self.clients.at_mut(before).next_runnable = link;
        }
        if next == 0 {
            self.runnable.tail = link;
        }
    }

    /// Starts kernels on the multiprocessors. If the owner has no kernel to run, gives the
    /// multiprocessors to the next client first.
    pub(super) fn schedule(&mut self) {
        if self.owner != 0 && self.clients.at(self.owner).runnable() {
            if self.owner_active == 0 {
                self.owner_active = 1;
                self.slice_start = self.clock.max(self.resume_at);
                self.slice_end = self.slice_start.saturating_add(self.config().slice_ns);
            }
        } else {
            self.owner_active = 0;
            if self.runnable.head != 0 {
                self.hand_over();
            }
        }
        self.admit();
    }

    /// Gives the multiprocessors to the next client in the list. The list must not be empty.
    fn hand_over(&mut self) {
        let next = self.runnable.head;
        let config = *self.config();
        let client = self.clients.at_mut(next);
        client.waits_for_slice = 0;
        let serial = client.serial;
        self.runnable.head = core::mem::take(&mut client.next_runnable);
        if self.runnable.head == 0 {
            self.runnable.tail = 0;
        }
        let same = self.last_owner == 0 || self.last_owner == serial;
        self.owner = next;
        self.last_owner = serial;
        self.owner_active = 1;
        self.resume_at = if same { self.clock } else { self.clock.saturating_add(config.switch_ns) };
        self.slice_start = self.resume_at;
        self.slice_end = self.slice_start.saturating_add(config.slice_ns);
    }

    /// Ends the owner's slice, if the slice is over and another client waits.
    pub(super) fn end_slice(&mut self) {
        if self.runnable.head == 0 || self.owner_active == 0 || self.clock < self.slice_end {
            return;
        }
        let old = core::mem::take(&mut self.owner);
        self.owner_active = 0;
        if self.clients.at(old).runnable() {
            self.wait_behind(old, old);
        }
        self.hand_over();
    }

    /// Starts kernels of the owner, oldest first, as long as the sum of their occupancies fits the device.
    ///
    /// The first kernel that does not fit stops the loop, so it delays all kernels after it. The end of a kernel and
    /// its order are written before its phase. So a repair after the death of this process finds either a complete
    /// running kernel or a ready one.
    fn admit(&mut self) {
        let (limit, begins) = (self.config().concurrent, self.clock.max(self.resume_at));
        loop {
            let client = self.clients.at(self.owner);
            let (link, busy_ns) = (client.ready.head, client.busy_ns);
            if self.owner == 0 || link == 0 || client.running_count >= limit {
                return;
            }
            let stream = *self.streams.at(link);
            let item = *self.items.at(stream.items.head);
            let occupancy = u32::from(item.occupancy);
            if client.running_count != 0 && client.occupancy + occupancy > u32::from(WHOLE_DEVICE) {
                return;
            }
            let row = self.streams.at_mut(link);
            let waits = row.passes.saturating_sub(begins);
            row.ends = busy_ns.saturating_add(item.duration).saturating_add(waits);
            row.phase_order = item.order;
            super::write_order::written();
            row.phase = phase::RUNNING;
            row.next_ready = 0;
            let client = self.clients.at_mut(self.owner);
            client.ready.head = stream.next_ready;
            if client.ready.head == 0 {
                client.ready.tail = 0;
            }
            client.area = client.area.saturating_sub(area(item.duration, item.occupancy));
            client.occupancy += occupancy;
            client.running_fills += u32::from(item.kind == kind::FILL);
            if let Some(place) = client.running.get_mut(client.running_count as usize) {
                *place = link;
                client.running_count += 1;
            }
        }
    }

    /// Removes a stream from its client's running set. Its oldest item stays in the queue.
    pub(super) fn leave_running(&mut self, client_link: Link, link: Link) {
        let item = *self.items.at(self.streams.at(link).items.head);
        let client = self.clients.at_mut(client_link);
        let count = client.running_count as usize;
        let Some(place) = client.running().iter().position(|&l| l == link) else { return };
        if let Some(tail) = client.running.get_mut(place..count) {
            tail.rotate_left(1);
        }
        client.running_count -= 1;
        client.occupancy = client.occupancy.saturating_sub(u32::from(item.occupancy));
        client.running_fills = client.running_fills.saturating_sub(u32::from(item.kind == kind::FILL));
    }

    /// Completes the owner's kernels that have run for their whole duration.
    pub(super) fn finish_kernels(&mut self) {
        if self.clock < self.resume_at {
            return;
        }
        let owner = self.owner;
        loop {
            let client = self.clients.at(owner);
            let over = client.running().iter().find(|&&l| self.streams.at(l).ends <= client.busy_ns);
            let Some(&link) = over else { return };
            self.leave_running(owner, link);
            self.complete(link);
        }
    }

    /// Returns true if a piece of work is complete, or can never complete.
    pub(super) fn is_over(&self, ticket: Ticket) -> bool {
        self.reached(ticket.stream.link, ticket.stream.generation, ticket.order)
    }

    /// Returns the instant at which the next kernel or the present slice ends.
    pub(super) fn next_compute(&self) -> u64 {
        let client = self.clients.at(self.owner);
        let left =
            client.running().iter().map(|&l| self.streams.at(l).ends.saturating_sub(client.busy_ns)).min();
        let Some(left) = left else { return u64::MAX };
        let end = self.clock.max(self.resume_at).saturating_add(left);
        if self.runnable.head != 0 { end.min(self.slice_end) } else { end }
    }
}

/// Returns duration times occupancy, which is the part of the device's capacity that a kernel needs.
pub(super) fn area(duration: u64, occupancy: u16) -> u64 {
    duration.saturating_mul(u64::from(occupancy))
}
