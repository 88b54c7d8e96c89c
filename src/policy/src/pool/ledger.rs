//! What is known of a pool, and of the calls that are on their way to it?
//!
//! Several threads use a pool at once, and the driver's counters are read outside of any lock. Each method is one
//! step under the lock that guards the books; between two steps anything can have happened.

use super::holes::{FreeFor, Holes};

/// By what a pool grows at least: drivers of the 12 and 13 series take 32 MiB at a time from the device.
pub const GROWTH: u64 = 32 << 20;

/// The books of one pool.
#[derive(Debug, Default)]
pub struct Books {
    /// What was charged for it.
    charged: u64,
    /// What it held when the driver was asked last.
    held: u64,
    /// How often the driver was asked, and which of these answers is in `held`.
    readings: u64,
    last_reading: u64,
    /// Counts changes, so that a reading of the driver's counters that began before another change is not used
    /// after it.
    version: u64,
    /// Bytes of allocations that have not been freed.
    live: u64,
    /// Allocations on their way, and the largest of them since there was none.
    calls: u64,
    largest: u64,
    /// Those among them that reserved nothing, because the pool surely had a hole for them.
    unbacked: u64,
    /// What the others have reserved together.
    reserved: u64,
    /// Allocations that ever began; the number of one is the count with it.
    begun: u64,
    /// Calls on their way in which the driver may take memory out of the pool.
    releases: u64,
    /// The last allocation that had begun when such a call came back.
    doubted: u64,
    holes: Holes,
}

/// An allocation's place in the books, from before the driver is called until it has answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    /// What it takes of the pool.
    bytes: u64,
    number: u64,
    /// No other was on its way when it began.
    began_alone: bool,
}

/// A reading of the driver's counter on its way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading {
    number: u64,
    version: u64,
}

/// What has to be done to the ledger, under the lock in which it was found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Charge(u64),
    Refund(u64),
}

/// A block that the driver is about to free.
#[derive(Debug)]
pub struct Leaving {
    ticket: u64,
    bytes: u64,
}

impl Books {
    pub(super) fn begin(&mut self, bytes: u64) -> Entry {
        self.begun = self.begun.wrapping_add(1);
        self.calls = self.calls.saturating_add(1);
        self.largest = self.largest.max(bytes);
        Entry { bytes, number: self.begun, began_alone: self.calls == 1 }
    }

    /// An allocation that began has reserved so much.
    pub(super) fn reserved(&mut self, bytes: u64) {
        self.reserved = self.reserved.saturating_add(bytes);
    }

    /// An allocation ended without the driver having been called.
    pub(super) fn withdraw(&mut self) {
        self.version = self.version.wrapping_add(1);
        self.calls = self.calls.saturating_sub(1);
        if self.calls == 0 {
            self.largest = 0;
        }
    }

    /// The driver has answered an allocation that reserved `reserved` bytes, or nothing because of a hole. Unless it
    /// failed, its block is at `address`.
    pub(super) fn land(
        &mut self,
        entry: Entry,
        reserved: Option<u64>,
        address: Option<u64>,
        reading: Reading,
        held: Option<u64>,
    ) -> Change {
        self.unbacked = self.unbacked.saturating_sub(u64::from(reserved.is_none()));
        self.reserved = self.reserved.saturating_sub(reserved.unwrap_or(0));
        let growth = self.note_reading(reading, held);
        let was_alone = entry.began_alone && entry.number == self.begun;
        if let Some(address) = address {
            self.live = self.live.saturating_add(entry.bytes);
            self.place(entry, address, if was_alone { growth } else { 0 });
        }
        if growth > 0 && was_alone && reserved.is_none() {
            self.holes.refute();
        }
        self.withdraw();
        self.settle(reserved.unwrap_or(0), held.is_some())
    }

    /// Takes down where a block was laid.
    fn place(&mut self, entry: Entry, address: u64, growth: u64) {
        // Memory may have been taken out of the pool and put into it again elsewhere, so that its size does not
        // tell. A block in a hole that was known shows nothing of the kind.
        let is_doubted = self.releases > 0 || entry.number <= self.doubted;
        if is_doubted && !self.holes.contain(address, entry.bytes) {
            self.holes.forget();
        }
        self.holes.allocated(address, entry.bytes, growth);
    }

    pub(super) fn begin_reading(&mut self) -> Reading {
        self.readings = self.readings.wrapping_add(1);
        Reading { number: self.readings, version: self.version }
    }

    /// Whether a reading can be taken down. The pool holds no more than what is charged and reserved: a figure beyond
    /// that is of an instant before another reading found less, and what that one gave back may be another's by now.
    /// Only where nothing came between does it show growth that nobody has paid for.
    pub(super) fn is_current(&self, reading: Reading, held: Option<u64>) -> bool {
        let covered = self.charged.saturating_add(self.reserved);
        reading.version == self.version || held.is_none_or(|held| held <= covered)
    }

    /// Takes down what the driver said that the pool holds.
    pub(super) fn end_reading(&mut self, reading: Reading, held: Option<u64>) -> Change {
        self.note_reading(reading, held);
        self.settle(0, held.is_some())
    }

    /// Takes down a reading, unless one that began later has been: that one has seen all that this one could see.
    /// Returns by how much the pool grew.
    fn note_reading(&mut self, reading: Reading, held: Option<u64>) -> u64 {
        let Some(held) = held.filter(|_| reading.number > self.last_reading) else { return 0 };
        self.last_reading = reading.number;
        self.note_held(held)
    }

    fn note_held(&mut self, held: u64) -> u64 {
        self.version = self.version.wrapping_add(1);
        if held < self.held {
            self.holes.forget();
        }
        let growth = held.saturating_sub(self.held);
        self.held = held;
        growth
    }

    /// Brings the charge to what the pool holds. `reserved` bytes were taken of the quota for this; what is not
    /// needed goes back.
    ///
    /// Growth that is beyond these bytes is paid for by allocations that are on their way, as far as they have reserved
    /// it: to charge it here would make the ledger say more than the pool will ever hold, until they land.
    ///
    /// While an allocation is on its way that reserved nothing, nothing goes back: should another have taken its
    /// hole, the pool grows by what that other one reserved.
    fn settle(&mut self, reserved: u64, is_told: bool) -> Change {
        let paid = self.charged.saturating_add(reserved);
        let told = if is_told { self.held } else { paid };
        let owed = told.min(paid).max(told.saturating_sub(self.reserved));
        let owed = if self.unbacked > 0 { owed.max(paid) } else { owed };
        self.charged = owed;
        match owed.checked_sub(paid) {
            Some(more) => Change::Charge(more),
            None => Change::Refund(paid.saturating_sub(owed)),
        }
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    /// Lets an allocation go without a reservation if the pool surely has a hole for each request that is on its
    /// way, this one among them. A request is at most one piece: should a later call take its hole, the growth that
    /// this causes is one that the later call has reserved (see [`Books::settle`]). None: what was read is no longer
    /// true.
    pub(super) fn take_hole(
        &mut self,
        version: u64,
        (held, used): (u64, u64),
        bytes: u64,
        stream: usize,
    ) -> Option<bool> {
        if self.version != version {
            return None;
        }
        self.note_held(held.min(self.held));
        if used <= self.live {
            self.holes.settle();
        }
        let fits = bytes <= GROWTH && self.holes.room(self.largest, stream) >= self.calls;
        self.unbacked = self.unbacked.saturating_add(u64::from(fits));
        Some(fits)
    }

    /// A block is about to be freed. Counted before the driver counts it, so that what is live here is never more
    /// than the driver uses: a block that is still in use elsewhere would pass for free.
    pub(super) fn leave(&mut self, address: u64, bytes: u64) -> Leaving {
        self.live = self.live.saturating_sub(bytes);
        Leaving { ticket: self.holes.leave(address, bytes), bytes }
    }

    /// The driver did not free it.
    pub(super) fn stay(&mut self, leaving: &Leaving) {
        self.live = self.live.saturating_add(leaving.bytes);
        self.holes.stay(leaving.ticket);
    }

    /// The driver freed it.
    pub(super) fn left(&mut self, leaving: &Leaving, free: FreeFor) {
        self.holes.left(leaving.ticket, free);
    }

    pub(super) fn begin_release(&mut self) {
        self.releases = self.releases.saturating_add(1);
    }

    pub(super) fn end_release(&mut self) {
        self.releases = self.releases.saturating_sub(1);
        self.doubted = self.begun;
    }

    /// A context ended, and perhaps allocations of the pool with it: what is in use is not known any more.
    pub fn distrust(&mut self) {
        self.live = 0;
        self.holes.forget();
    }

    /// Lowers the charge of a pool that nobody can ask any more; returns by how much.
    pub fn shrink(&mut self, bytes: u64) -> u64 {
        let given = self.charged.min(bytes);
        self.charged = self.charged.saturating_sub(given);
        given
    }

    /// Bytes that were charged for the pool.
    #[must_use]
    pub fn charged(&self) -> u64 {
        self.charged
    }
}

impl Entry {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}
