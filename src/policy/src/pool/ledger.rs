//! The ledger of one pool: its charge, and the calls in flight.
//!
//! Several threads use a pool at once, and the driver's counters are read outside of any lock. Each method is one
//! step under the lock that guards the ledger. Between two steps other threads may do anything.

use super::holes::{FreeFor, Holes, POOL_GROWTH};
use super::overlap::OverlappingCalls;

/// The ledger of one pool.
#[derive(Debug, Default)]
pub struct PoolLedger {
    /// Bytes charged for the pool.
    charged: u64,
    /// Bytes that the pool held at the last reading of the driver's counter.
    held: u64,
    /// Number of readings. `last_reading` is the newest one that is included in `held`.
    readings: u64,
    last_reading: u64,
    /// True if an allocation has ended and no reading since has seen its growth.
    is_unread: bool,
    /// Number of changes. A reading that began before a change is not used after it.
    version: u64,
    /// Bytes of allocations that have not been freed. If a context has ended, the figure may be too low.
    live: u64,
    /// Bytes of allocations for which no free has ended. If a context has ended, the figure may be too high.
    owned: u64,
    /// Allocations in flight. They count before they ask for a reservation. Without a reservation they are not in flight
    /// any more.
    calls: u64,
    /// Allocations in flight with a reservation, and their reserved bytes.
    backed: u64,
    reserved: u64,
    /// Allocations in flight without a reservation. The pool surely had a hole for each of them.
    unbacked: u64,
    overlap: OverlappingCalls,
    /// Number of allocations that have begun. It numbers them.
    begun: u64,
    /// Number of allocations whose driver call has ended.
    finished: u64,
    /// Frees in flight. `frees_begun` counts all frees that have begun.
    frees: u64,
    frees_begun: u64,
    /// True if the driver has destroyed the pool. Then its counter cannot be read.
    ended: bool,
    /// Calls in flight in which the driver may release memory of the pool.
    releases: u64,
    /// Number of the newest allocation that had begun at the end of the last of these calls.
    doubted: u64,
    holes: Holes,
}

/// An allocation in the ledger, from before the driver call until after it.
#[derive(Debug, Clone, Copy)]
pub(super) struct LedgerEntry {
    /// Bytes that the allocation takes of the pool.
    bytes: u64,
    number: u64,
    /// Number of allocations whose driver call had ended before this one began.
    finished: u64,
}

/// A reading of the driver's counter in progress.
#[derive(Debug, Clone, Copy)]
pub(super) struct PoolReading {
    number: u64,
    version: u64,
}

/// A change of the charge. The caller applies it under the lock of the step that found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PoolChange {
    Charge(u64),
    Refund(u64),
}

/// Numbers of the allocations and frees that had begun at an instant at which none was in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Calm {
    begun: u64,
    frees_begun: u64,
}

/// A block that the driver is about to free.
#[derive(Debug)]
pub struct PendingFree {
    ticket: u64,
    bytes: u64,
}

impl PoolLedger {
    pub(super) fn begin(&mut self, bytes: u64) -> LedgerEntry {
        self.begun = self.begun.wrapping_add(1);
        self.calls = self.calls.saturating_add(1);
        LedgerEntry { bytes, number: self.begun, finished: self.finished }
    }

    /// Records the reservation of an allocation that began.
    pub(super) fn reserved(&mut self, entry: LedgerEntry, bytes: u64) {
        self.enter(entry.bytes);
        self.overlap.is_backed = true;
        self.backed = self.backed.saturating_add(1);
        self.reserved = self.reserved.saturating_add(bytes);
    }

    /// Records that an allocation is about to call the driver.
    fn enter(&mut self, bytes: u64) {
        if self.in_driver() == 0 {
            self.overlap = OverlappingCalls::new((!self.is_unread).then_some(self.held));
        }
        self.overlap.largest = self.overlap.largest.max(bytes);
    }

    /// Returns the number of allocations that call the driver.
    fn in_driver(&self) -> u64 {
        self.backed.saturating_add(self.unbacked)
    }

    /// Ends an allocation without a call of the driver. If it was the last one in flight in a destroyed pool, the charge
    /// falls.
    pub(super) fn abandon(&mut self) -> PoolChange {
        self.withdraw();
        self.settle(0, false)
    }

    /// Returns true if no other allocation was in flight while this one asked for room in vain. Another allocation may hold
    /// a reservation that ends, or may make a hole known when it ends.
    pub(super) fn was_alone(&self, entry: LedgerEntry) -> bool {
        self.calls == 0 && self.finished == entry.finished
    }

    fn withdraw(&mut self) {
        self.version = self.version.wrapping_add(1);
        self.calls = self.calls.saturating_sub(1);
    }

    /// Ends an allocation after the driver call. It reserved `reserved` bytes, or none because the pool had a hole. If the
    /// call succeeded, the block is at `address`.
    pub(super) fn finish(
        &mut self,
        entry: LedgerEntry,
        reserved: Option<u64>,
        address: Option<u64>,
        reading: PoolReading,
        held: Option<u64>,
    ) -> PoolChange {
        self.unbacked = self.unbacked.saturating_sub(u64::from(reserved.is_none()));
        self.backed = self.backed.saturating_sub(u64::from(reserved.is_some()));
        self.reserved = self.reserved.saturating_sub(reserved.unwrap_or(0));
        self.finished = self.finished.wrapping_add(1);
        self.note_reading(reading, held);
        if self.last_reading < reading.number {
            // The readings that have begun may be older than the growth of the pool for this allocation.
            self.last_reading = self.readings;
            self.is_unread = true;
        }
        if let Some(address) = address {
            self.live = self.live.saturating_add(entry.bytes);
            self.owned = self.owned.saturating_add(entry.bytes);
            self.place(entry, address);
        }
        if self.in_driver() == 0 {
            self.learn();
        }
        self.withdraw();
        self.settle(reserved.unwrap_or(0), held.is_some())
    }

    /// Records the position of a block.
    fn place(&mut self, entry: LedgerEntry, address: u64) {
        // The pool may have released memory and taken other memory, so its size shows nothing. A block in a known hole is no
        // sign of that.
        let is_doubted = self.releases > 0 || entry.number <= self.doubted;
        if !self.holes.contain(address, entry.bytes) {
            if is_doubted {
                self.holes.forget();
            }
            self.overlap.place(address, entry.bytes, is_doubted);
        }
        self.holes.allocated(address, entry.bytes);
    }

    /// Learns from calls that overlapped, when no call is in flight any more.
    fn learn(&mut self) {
        let overlap = core::mem::take(&mut self.overlap);
        let growth = if self.is_unread { 0 } else { overlap.growth(self.held) };
        if growth == 0 {
            return;
        }
        if !overlap.is_backed {
            return self.holes.refute();
        }
        let unknown = self.held.checked_sub(self.live.saturating_add(self.holes.bytes()));
        overlap.learn(growth, unknown, &mut self.holes);
    }

    pub(super) fn begin_reading(&mut self) -> PoolReading {
        self.readings = self.readings.wrapping_add(1);
        PoolReading { number: self.readings, version: self.version }
    }

    /// Returns true if a reading may be included.
    ///
    /// The pool never holds more than the charged and reserved bytes. A larger figure is older than another reading that
    /// found less, and the difference may belong to another pool now. Only if nothing changed in between does such a figure
    /// show unpaid growth.
    pub(super) fn is_current(&self, reading: PoolReading, held: Option<u64>) -> bool {
        let covered = self.charged.saturating_add(self.reserved);
        self.ended || reading.version == self.version || held.is_none_or(|held| held <= covered)
    }

    /// Includes the driver's figure of the bytes that the pool holds.
    pub(super) fn end_reading(&mut self, reading: PoolReading, held: Option<u64>) -> PoolChange {
        self.note_reading(reading, held);
        self.settle(0, held.is_some())
    }

    /// Includes a reading, unless a later one is included. A later reading contains everything that this one could show.
    fn note_reading(&mut self, reading: PoolReading, held: Option<u64>) {
        let is_newer = !self.ended && reading.number > self.last_reading;
        if let Some(held) = held.filter(|_| is_newer) {
            self.last_reading = reading.number;
            self.is_unread = false;
            self.note_held(held);
        }
    }

    fn note_held(&mut self, held: u64) {
        self.version = self.version.wrapping_add(1);
        if held < self.held {
            self.holes.forget();
        }
        self.held = held;
    }

    /// Updates the charge to the bytes that the pool holds. `reserved` bytes were reserved for the growth. The rest of them
    /// is refunded.
    ///
    /// Allocations in flight pay for growth beyond these bytes, as far as they have reserved it. If this function charged
    /// the growth, it would count twice until they finish.
    ///
    /// While an allocation without a reservation is in flight, nothing is refunded. Another allocation may have taken its
    /// hole. Then the pool grows by the bytes that the other allocation reserved.
    fn settle(&mut self, reserved: u64, is_told: bool) -> PoolChange {
        let paid = self.charged.saturating_add(reserved);
        if self.ended {
            // An allocation in flight may still get memory of the pool, and keeps its reservation until then.
            return self.owe(paid, if self.calls > 0 { self.owned.max(paid) } else { self.owned });
        }
        let told = if is_told && !self.is_unread { self.held } else { paid };
        let owed = told.min(paid).max(told.saturating_sub(self.reserved));
        let owed = if self.unbacked > 0 { owed.max(paid) } else { owed };
        self.owe(paid, owed)
    }

    fn owe(&mut self, paid: u64, owed: u64) -> PoolChange {
        self.charged = owed;
        match owed.checked_sub(paid) {
            Some(more) => PoolChange::Charge(more),
            None => PoolChange::Refund(paid.saturating_sub(owed)),
        }
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Admits an allocation without a reservation if the pool surely has a hole for each driver call in flight, this call
    /// included. `None`: the readings are out of date.
    ///
    /// A request is at most one piece. If a later call takes the hole of this one, the pool grows by an amount that the
    /// later call has reserved (see `settle`).
    pub(super) fn take_hole(
        &mut self,
        version: u64,
        (held, used): (u64, u64),
        asked: LedgerEntry,
        stream: usize,
    ) -> Option<bool> {
        if self.version != version {
            return None;
        }
        self.note_held(held.min(self.held));
        if used <= self.live {
            self.holes.settle();
        }
        let (bytes, others) = (asked.bytes, self.in_driver());
        let largest = if others > 0 { self.overlap.largest.max(bytes) } else { bytes };
        // An allocation of another stream may take the only hole that this stream can use. So the pool must have room for
        // all of them in holes that any of them can use.
        let stream = Some(stream).filter(|stream| self.unbacked == 0 || self.overlap.stream == Some(*stream));
        if bytes > POOL_GROWTH || self.holes.room(largest, stream) <= others {
            return Some(false);
        }
        // The allocation keeps its number: a release may have ended between the readings and this step.
        let _counted = self.begin(bytes);
        self.enter(bytes);
        self.overlap.stream = stream;
        self.unbacked = self.unbacked.saturating_add(1);
        Some(true)
    }

    /// Begins a free. The free counts here before the driver counts it, so `live` is never more than the driver's figure.
    /// Otherwise a block that is still in use elsewhere would pass for free.
    pub(super) fn begin_free(&mut self, address: u64, bytes: u64) -> PendingFree {
        self.frees = self.frees.saturating_add(1);
        self.frees_begun = self.frees_begun.wrapping_add(1);
        self.live = self.live.saturating_sub(bytes);
        PendingFree { ticket: self.holes.begin_free(address, bytes), bytes }
    }

    /// Ends a free that failed.
    pub(super) fn cancel_free(&mut self, pending: &PendingFree) {
        self.frees = self.frees.saturating_sub(1);
        self.live = self.live.saturating_add(pending.bytes);
        self.holes.cancel_free(pending.ticket);
    }

    /// Ends a free that succeeded.
    pub(super) fn finish_free(&mut self, pending: &PendingFree, free: FreeFor) {
        self.frees = self.frees.saturating_sub(1);
        self.owned = self.owned.saturating_sub(pending.bytes);
        self.holes.finish_free(pending.ticket, free);
    }

    pub(super) fn begin_release(&mut self) {
        self.releases = self.releases.saturating_add(1);
    }

    pub(super) fn end_release(&mut self) {
        self.releases = self.releases.saturating_sub(1);
        self.doubted = self.begun;
    }

    /// Forgets the use of the pool, because a context ended, and perhaps allocations of the pool with it.
    pub fn distrust(&mut self) {
        self.live = 0;
        self.holes.forget();
    }

    /// Returns the numbers of allocations and frees that began, if none is in flight.
    pub(super) fn calm(&self) -> Option<Calm> {
        let Self { begun, frees_begun, .. } = *self;
        (self.calls == 0 && self.frees == 0).then_some(Calm { begun, frees_begun })
    }

    /// Ends the pool. From now on its allocations are charged, each until it is freed. `used` has the bytes of its
    /// allocations by the driver's counter, read after `calm`. The counter leaves out allocations that ended with a
    /// context. It is used only if no allocation and no free has begun since.
    pub(super) fn end(&mut self, calm: Option<Calm>, used: Option<u64>) -> PoolChange {
        self.ended = true;
        self.holes.refute();
        if let Some(used) = used
            && calm.is_some()
            && calm == self.calm()
        {
            self.owned = self.owned.min(used);
        }
        self.settle(0, false)
    }

    /// Returns true if the driver has destroyed the pool, and the pool has no charge and no call left.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.ended && self.charged == 0 && self.calls == 0
    }
}

impl LedgerEntry {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocation_does_not_take_the_only_hole_of_another_stream_in_flight() {
        const BYTES: u64 = 1 << 20;
        let mut ledger = PoolLedger::default();
        for (address, free) in [(0, FreeFor::All), (1 << 40, FreeFor::Stream(1))] {
            let pending = ledger.begin_free(address, BYTES);
            ledger.finish_free(&pending, free);
        }
        let mut fits = |stream| {
            let asked = ledger.begin(BYTES);
            let _refund = ledger.abandon();
            ledger.take_hole(ledger.version(), (0, u64::MAX), asked, stream)
        };
        // The second allocation could be placed in the hole that is free for both.
        assert_eq!([fits(2), fits(1)], [Some(true), Some(false)]);
    }
}
