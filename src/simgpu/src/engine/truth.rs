//! The ground truth: the busy time of each client in each millisecond. Tests check a limiter with it.

use super::ids::{ClientId, UnknownId};
use super::layout::{BusySpan, ClientTruth, EngineState, RETIRED, SPANS};
use super::sample::{newest, place};
use crate::os::clock::MS;

/// The figures of the device since its first use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceTruth {
    /// The instant up to which the figures count.
    pub(crate) clock_ns: u64,
    /// Time in which a kernel, graph or fill ran. It is the sum over all clients, also removed ones.
    pub(crate) busy_ns: u64,
    /// The part of `busy_ns` that belongs to removed clients.
    pub(crate) retired_busy_ns: u64,
    /// Time during which a copy or a fill ran.
    pub(crate) memory_busy_ns: u64,
}

impl EngineState {
    /// Returns the figures of a client up to `now_ns`.
    ///
    /// # Errors
    /// The client does not exist, or was removed.
    pub(crate) fn client_truth(&mut self, id: ClientId, now_ns: u64) -> Result<ClientTruth, UnknownId> {
        self.advance(now_ns);
        let link = self.client_link(id).ok_or(UnknownId)?;
        Ok(self.truth_of(link))
    }

    /// Passes on the figures of every client up to `now_ns`.
    pub(crate) fn each_client(&mut self, now_ns: u64, mut give: impl FnMut(ClientTruth)) {
        self.advance(now_ns);
        for link in self.clients.links().filter(|&link| self.clients.at(link).serial != 0) {
            give(self.truth_of(link));
        }
    }

    /// Passes on the figures that removed clients had at their removal, the oldest first. The state keeps the newest 1024.
    pub(crate) fn each_removed(&self, give: impl FnMut(ClientTruth)) {
        let places = newest(self.retired_count, RETIRED);
        places.filter_map(|place| self.retired.get(place)).copied().for_each(give);
    }

    /// Stores the figures of a client that is about to be removed.
    pub(super) fn retire(&mut self, link: u32) {
        let truth = ClientTruth { removed_ns: self.clock, ..self.truth_of(link) };
        self.retired_busy_ns = self.retired_busy_ns.saturating_add(truth.busy_ns);
        if let Some(slot) = self.retired.get_mut(place(self.retired_count, RETIRED)) {
            *slot = truth;
        }
        self.retired_count = self.retired_count.wrapping_add(1);
    }

    /// Returns the figures of the device up to `now_ns`.
    pub(crate) fn device_truth(&mut self, now_ns: u64) -> DeviceTruth {
        self.advance(now_ns);
        DeviceTruth {
            clock_ns: self.clock,
            busy_ns: self.busy_ns,
            retired_busy_ns: self.retired_busy_ns,
            memory_busy_ns: self.memory_busy_ns,
        }
    }

    /// Returns the busy time of one client, or of all clients, from `from_ns` to `to_ns`. Both are rounded down to
    /// milliseconds. Removed clients count too.
    ///
    /// `None`: the start is more than about a minute ago, or the end is in the future.
    #[must_use]
    pub(crate) fn busy_between(&self, id: Option<ClientId>, from_ns: u64, to_ns: u64) -> Option<u64> {
        let (from, to) = (from_ns / MS, to_ns / MS);
        if to > self.clock / MS || from < self.spans_from() {
            return None;
        }
        let mut sum = 0u64;
        for place in newest(self.span_count, SPANS).rev() {
            let Some(span) = self.spans.get(place) else { break };
            if span.ms < from {
                break;
            }
            if span.ms < to && id.is_none_or(|id| id.serial == span.serial) {
                sum += u64::from(span.busy_ns);
            }
        }
        Some(sum)
    }

    /// Passes on the busy time of each client, by its serial, in each past millisecond from `from` on, the latest first. Leaves
    /// out milliseconds without busy time. Returns the first millisecond that is not over.
    pub(crate) fn each_span(&self, from: u64, mut give: impl FnMut(u32, u64, u32)) -> u64 {
        let end = self.clock / MS;
        for place in newest(self.span_count, SPANS).rev() {
            let Some(span) = self.spans.get(place) else { break };
            if span.ms < from {
                break;
            }
            if span.ms < end {
                give(span.serial, span.ms, span.busy_ns);
            }
        }
        end
    }

    /// Returns the first millisecond whose entries are all kept.
    fn spans_from(&self) -> u64 {
        let overwritten = self.span_count.checked_sub(SPANS as u64);
        let oldest = overwritten.and_then(|n| self.spans.get(place(n, SPANS)));
        oldest.map_or(0, |span| span.ms + 1)
    }

    /// Records that a client was busy from `from` to `to`. The time must come after all times recorded before.
    pub(super) fn note_busy(&mut self, serial: u32, from: u64, to: u64) {
        // Entries that would be overwritten at once are not written.
        let mut at = from.max(to.saturating_sub(SPANS as u64 * MS));
        while at < to {
            let ms = at / MS;
            let end = (ms + 1).saturating_mul(MS).min(to);
            self.note_within(serial, ms, u32::try_from(end - at).unwrap_or(0));
            at = end;
        }
    }

    fn note_within(&mut self, serial: u32, ms: u64, busy_ns: u32) {
        for place in newest(self.span_count, SPANS).rev() {
            let Some(span) = self.spans.get_mut(place) else { break };
            if span.ms != ms {
                break;
            }
            if span.serial == serial {
                span.busy_ns = span.busy_ns.saturating_add(busy_ns);
                return;
            }
        }
        if let Some(span) = self.spans.get_mut(place(self.span_count, SPANS)) {
            *span = BusySpan { ms, serial, busy_ns };
        }
        self.span_count = self.span_count.wrapping_add(1);
    }

    fn truth_of(&self, link: u32) -> ClientTruth {
        let client = self.clients.at(link);
        ClientTruth {
            id: ClientId { link, serial: client.serial },
            added_ns: client.added_ns,
            removed_ns: 0,
            pid: client.pid,
            busy_ns: client.busy_ns,
            kernel_busy_ns: client.kernel_busy_ns,
            memory_busy_ns: client.memory_busy_ns,
            kernel_ns: client.kernel_ns,
            launches: client.launches,
            queued: client.queued,
        }
    }
}
