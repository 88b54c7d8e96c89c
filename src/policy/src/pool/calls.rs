//! The steps of an allocation from a pool and of a free, in the order of the calls around the driver.

use super::holes::{ALIGNMENT, FreeFor};
use super::ledger::{Books, Change, Entry, GROWTH, Leaving};

/// Repetitions of a reading that another thread disturbed.
const READINGS: u32 = 64;

/// Access of a pool's ledger to the driver and the quota. Sizes are in bytes.
pub trait Outside {
    /// Runs a step under the lock that guards the pool's ledger.
    fn step<R>(&self, step: impl FnOnce(&mut Books) -> R) -> R;

    /// Bytes that the pool holds of its device, by the driver's counter. `None`: the driver cannot be asked.
    fn held(&self) -> Option<u64>;

    /// Bytes of the pool's allocations, by the driver's counter.
    fn used(&self) -> Option<u64>;

    /// Makes the driver release unused memory of the pool, down to `keep` bytes.
    fn trim(&self, keep: u64);

    /// Reserves bytes of the quota. Returns false if they do not fit.
    fn reserve(&self, bytes: u64) -> bool;

    /// Charges bytes without regard to the quota.
    fn charge(&self, bytes: u64);

    /// Refunds bytes.
    fn refund(&self, bytes: u64);
}

/// An allocation in flight. It must [`land`].
#[derive(Debug)]
#[must_use = "an allocation that does not land keeps what it reserved"]
pub struct Flight {
    entry: Entry,
    /// Largest growth of the pool. `None`: the pool has a hole.
    reserved: Option<u64>,
}

impl Flight {
    /// Bytes of the pool that the allocation takes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.entry.bytes()
    }

    /// The reserved bytes: the largest growth of the pool. `None`: the pool has a hole.
    #[must_use]
    pub fn reserved(&self) -> Option<u64> {
        self.reserved
    }
}

/// Begins an allocation: reserves the largest growth of the pool. `None`: the allocation does not fit.
///
/// If the reservation fails, a hole in the pool suffices. Without a hole, the pool releases its unused memory, as the
/// driver does when the device is full. Then the reservation is tried once more.
///
/// What could go wrong: between two steps another thread may use the hole or the memory. Each step therefore checks
/// the ledger again under its lock.
pub fn begin(outside: &impl Outside, bytes: u64, stream: usize) -> Option<Flight> {
    let most = bytes.checked_next_multiple_of(GROWTH)?;
    let bytes = bytes.checked_next_multiple_of(ALIGNMENT)?;
    let entry = outside.step(|books| books.begin(bytes));
    let reserve = || {
        let is_granted = outside.reserve(most);
        if is_granted {
            outside.step(|books| books.reserved(most));
        }
        is_granted
    };
    if reserve() {
        return Some(Flight { entry, reserved: Some(most) });
    }
    if take_hole(outside, bytes, stream) {
        return Some(Flight { entry, reserved: None });
    }
    if let Some(held) = outside.held() {
        releasing(outside, || outside.trim(held.saturating_sub(most)));
        if reserve() {
            return Some(Flight { entry, reserved: Some(most) });
        }
    }
    outside.step(Books::withdraw);
    None
}

/// Ends an allocation after the driver call, and updates the charge. `address` is the allocation's address, if the
/// call succeeded.
pub fn land(outside: &impl Outside, flight: Flight, address: Option<u64>) {
    let Flight { entry, reserved } = flight;
    let reading = outside.step(Books::begin_reading);
    let held = outside.held();
    let is_current = outside.step(|books| {
        let is_current = books.is_current(reading, held);
        apply(outside, books.land(entry, reserved, address, reading, held.filter(|_| is_current)));
        is_current
    });
    if !is_current {
        reconcile(outside);
    }
}

/// Begins the free of a block.
pub fn leave(outside: &impl Outside, address: u64, bytes: u64) -> Leaving {
    outside.step(|books| books.leave(address, bytes))
}

/// Ends a free that the driver has done. `free` tells which streams may use the memory.
pub fn left(outside: &impl Outside, leaving: &Leaving, free: FreeFor) {
    outside.step(|books| books.left(leaving, free));
    reconcile(outside);
}

/// Ends a free that the driver has refused.
pub fn stay(outside: &impl Outside, leaving: &Leaving) {
    outside.step(|books| books.stay(leaving));
}

/// Encloses a call in which the driver may release memory of the pool: one that waits, or trims.
pub fn releasing<R>(outside: &impl Outside, call: impl FnOnce() -> R) -> R {
    begin_release(outside);
    let result = call();
    end_release(outside);
    result
}

/// Begins such a call.
pub fn begin_release(outside: &impl Outside) {
    outside.step(Books::begin_release);
}

/// Ends such a call.
pub fn end_release(outside: &impl Outside) {
    outside.step(Books::end_release);
    reconcile(outside);
}

/// Updates the charge to the bytes that the driver says the pool holds.
pub fn reconcile(outside: &impl Outside) {
    let read_once = || {
        let reading = outside.step(Books::begin_reading);
        let held = outside.held();
        outside.step(|books| {
            let is_current = books.is_current(reading, held);
            if is_current {
                apply(outside, books.end_reading(reading, held));
            }
            is_current
        })
    };
    let _was_read = (0..READINGS).any(|_| read_once());
}

/// Applies a change under the lock of the ledger. A refund must not overtake a charge that another thread has just
/// recorded.
fn apply(outside: &impl Outside, change: Change) {
    match change {
        Change::Charge(bytes) => outside.charge(bytes),
        Change::Refund(bytes) => outside.refund(bytes),
    }
}

fn take_hole(outside: &impl Outside, bytes: u64, stream: usize) -> bool {
    for _ in 0..READINGS {
        let version = outside.step(|books| books.version());
        let (Some(held), Some(used)) = (outside.held(), outside.used()) else { return false };
        if let Some(fits) = outside.step(|books| books.take_hole(version, (held, used), bytes, stream)) {
            return fits;
        }
    }
    false
}
