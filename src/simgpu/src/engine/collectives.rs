//! Kernels of collectives that wait for each other on the device.
//!
//! A device knows only its own kernels. The caller looks at all devices and tells each when a collective is complete.

use super::ids::Collective;
use super::layout::EngineState;
use super::rows::Item;
use super::table::Link;

/// Longest wait of a kernel for others, in nanoseconds.
pub(super) const LONGEST: u64 = 60_000_000_000;

impl EngineState {
    /// Returns the number of queued or running kernels that have others to wait for.
    pub(crate) fn unmet(&self) -> u32 {
        self.unmet
    }

    /// Returns the collectives of kernels that run or have run in part, and wait. A collective appears once for each of its
    /// kernels here.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = Collective> {
        let clients = self.clients.links().map(|link| self.clients.at(link));
        let items = clients.flat_map(|client| client.running()).map(|link| self.oldest(*link));
        items.filter(|item| item.unmet != 0).map(|item| Collective { key: item.wanted, kernels: item.unmet })
    }

    /// Releases a collective: all its kernels run. Those on this device end when their clients have run for their
    /// duration from now on.
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

    /// Removes the count of work that ends or is dropped.
    pub(super) fn forget_collective(&mut self, item: &Item) {
        self.unmet = self.unmet.saturating_sub(u32::from(item.unmet != 0));
    }

    fn oldest(&self, stream: Link) -> &Item {
        self.items.at(self.streams.at(stream).items.head)
    }

    /// Lets the running kernel end when its client has run for `ns` nanoseconds more.
    fn end_after(&mut self, link: Link, ns: u64) {
        let stream = *self.streams.at(link);
        let ends = self.clients.at(stream.client).busy_ns.saturating_add(ns);
        let item = self.items.at_mut(stream.items.head);
        item.unmet = 0;
        // From here on a repair knows when the kernel ends.
        super::write_order::written();
        item.duration = item.duration.saturating_sub(stream.ends.saturating_sub(ends));
        self.unmet = self.unmet.saturating_sub(1);
        self.streams.at_mut(link).ends = ends;
    }
}
