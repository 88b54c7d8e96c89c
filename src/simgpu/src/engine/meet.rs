//! Which kernels wait for each other, and what happens to those that do?
//!
//! A device knows only its own. Whoever can look at all devices says when a meeting is complete.

use super::ids::Meeting;
use super::layout::EngineState;
use super::rows::Item;
use super::table::Link;

/// The longest that a kernel waits for others, in nanoseconds.
pub(super) const LONGEST: u64 = 60_000_000_000;

impl EngineState {
    /// How many kernels that are queued or run have others to wait for.
    pub(crate) fn unmet(&self) -> u32 {
        self.unmet
    }

    /// The meetings of those that run, or have run for part of their time, and wait: each as often as it has kernels here.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = Meeting> {
        let clients = self.clients.links().map(|link| self.clients.at(link));
        let items = clients.flat_map(|client| client.running()).map(|link| self.oldest(*link));
        items.filter(|item| item.unmet != 0).map(|item| Meeting { key: item.wanted, kernels: item.unmet })
    }

    /// All of a meeting run: those that are here end when their clients have run for their time from now on.
    pub(crate) fn meet(&mut self, meeting: Meeting) {
        for client in self.clients.links() {
            for place in 0..self.clients.at(client).running().len() {
                let Some(&link) = self.clients.at(client).running().get(place) else { continue };
                let item = self.oldest(link);
                if item.unmet == meeting.kernels && item.wanted == meeting.key {
                    self.end_after(link, item.wanted_total);
                }
            }
        }
    }

    /// A piece of work will not be there any more.
    pub(super) fn forget_meeting(&mut self, item: &Item) {
        self.unmet = self.unmet.saturating_sub(u32::from(item.unmet != 0));
    }

    fn oldest(&self, stream: Link) -> &Item {
        self.items.at(self.streams.at(stream).items.head)
    }

    /// The kernel that runs ends when its client has run for so much longer.
    fn end_after(&mut self, link: Link, ns: u64) {
        let stream = *self.streams.at(link);
        let ends = self.clients.at(stream.client).busy_ns.saturating_add(ns);
        let item = self.items.at_mut(stream.items.head);
        item.unmet = 0;
        // From here on a repair knows when it ends.
        super::write_order::written();
        item.duration = item.duration.saturating_sub(stream.ends.saturating_sub(ends));
        self.unmet = self.unmet.saturating_sub(1);
        self.streams.at_mut(link).ends = ends;
    }
}
