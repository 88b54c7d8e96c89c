//! Kernels of collectives, which wait for each other while they run.
//!
//! A device knows only its own kernels. The caller looks at all devices, and tells each device when a collective is complete.

use super::ids::Collective;
use super::layout::EngineState;
use super::rows::Item;
use super::table::Link;

/// Longest time for which a kernel waits for the other kernels of its collective, in nanoseconds.
pub(super) const LONGEST: u64 = 60_000_000_000;

impl EngineState {
    /// Returns the number of queued or running kernels whose collectives are not complete.
    pub(crate) fn unmet(&self) -> u32 {
        self.unmet
    }

    /// Returns the collectives of kernels that have started and wait for others. A collective appears once for each
    /// of its kernels on this device.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = Collective> {
        let clients = self.clients.links().map(|link| self.clients.at(link));
        let items = clients.flat_map(|client| client.running()).map(|link| self.oldest(*link));
        items.filter(|item| item.unmet != 0).map(|item| Collective { key: item.wanted, kernels: item.unmet })
    }

    /// Releases a collective, because all its kernels run. From this instant on, each of its kernels on this device runs
    /// for its duration and then ends.
    pub(crate) fn release_collective(&mut self, collective: Collective) {
        for client in self.clients.links() {
            for place in 0..self.clients.at(client).running().len() {
                let Some(&link) = self.clients.at(client).running().get(place) else { continue };
                let item = self.oldest(link);
                if item.unmet == collective.kernels && item.wanted == collective.key {
                    self.end_after(link, item.wanted_total);
                }
            }
        }
    }

    /// Corrects the count of waiting kernels after an item has ended or was dropped.
    pub(super) fn forget_collective(&mut self, item: &Item) {
        self.unmet = self.unmet.saturating_sub(u32::from(item.unmet != 0));
    }

    fn oldest(&self, stream: Link) -> &Item {
        self.items.at(self.streams.at(stream).items.head)
    }

    /// Makes the running kernel of a stream end once its client has run for `ns` more nanoseconds.
    fn end_after(&mut self, link: Link, ns: u64) {
        let stream = *self.streams.at(link);
        let ends = self.clients.at(stream.client).busy_ns.saturating_add(ns);
        let item = self.items.at_mut(stream.items.head);
        item.unmet = 0;
        // After this line, a repair knows when the kernel ends.
        super::write_order::written();
        item.duration = item.duration.saturating_sub(stream.ends.saturating_sub(ends));
        self.unmet = self.unmet.saturating_sub(1);
        self.streams.at_mut(link).ends = ends;
    }
}
