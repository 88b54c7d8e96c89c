//! The steps of an allocation from a pool and of a free, in the order of the calls around the driver.

use super::holes::{ALIGNMENT, FreeFor};
use super::ledger::{Books, Change, Entry, GROWTH, Leaving};

/// How often a reading of the driver's counters is repeated because another thread came between.
const READINGS: u32 = 64;

/// What a pool's books need of the world. Sizes are in bytes.
pub trait Outside {
    /// Runs a step under the lock that guards the pool's books.
    fn step<R>(&self, step: impl FnOnce(&mut Books) -> R) -> R;

    /// What the driver says that the pool holds of its device; none where it cannot be asked.
    fn held(&self) -> Option<u64>;

    /// What the driver says that allocations use of the pool.
    fn used(&self) -> Option<u64>;

    /// Makes the driver take unused memory out of the pool, down to `keep` bytes.
    fn trim(&self, keep: u64);

    /// Takes bytes of the quota; false if they do not fit.
    fn reserve(&self, bytes: u64) -> bool;

    /// Takes bytes whatever the quota says.
    fn charge(&self, bytes: u64);

    /// Gives bytes back to the quota.
    fn refund(&self, bytes: u64);
}

/// An allocation on its way to the driver. Must [`land`].
#[derive(Debug)]
#[must_use = "an allocation that does not land keeps what it reserved"]
pub struct Flight {
    entry: Entry,
    /// The most that the pool may grow by; none where the pool has a hole.
    reserved: Option<u64>,
}

impl Flight {
    /// What the allocation takes of the pool, in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.entry.bytes()
    }

    /// The most that the pool may grow by, which is reserved; none where the pool has a hole.
    #[must_use]
    pub fn reserved(&self) -> Option<u64> {
        self.reserved
    }
}

/// Reserves the most that an allocation may make the pool grow by. Where that does not fit, a hole in the pool will
/// do; where there is none, the pool is made to give back what it holds unused, as the driver itself would when the
/// device is full. None: it does not fit.
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

/// The driver has answered: brings the charge up to date. `address` is where the allocation is, if it is anywhere.
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

/// A block is about to be freed by the driver.
pub fn leave(outside: &impl Outside, address: u64, bytes: u64) -> Leaving {
    outside.step(|books| books.leave(address, bytes))
}

/// The driver has freed it; `free` says for whom.
pub fn left(outside: &impl Outside, leaving: &Leaving, free: FreeFor) {
    outside.step(|books| books.left(leaving, free));
    reconcile(outside);
}

/// The driver has not freed it.
pub fn stay(outside: &impl Outside, leaving: &Leaving) {
    outside.step(|books| books.stay(leaving));
}

/// Around a call in which the driver may take memory out of the pool: one that waits, or trims.
pub fn releasing<R>(outside: &impl Outside, call: impl FnOnce() -> R) -> R {
    begin_release(outside);
    let result = call();
    end_release(outside);
    result
}

/// Before such a call.
pub fn begin_release(outside: &impl Outside) {
    outside.step(Books::begin_release);
}

/// After it.
pub fn end_release(outside: &impl Outside) {
    outside.step(Books::end_release);
    reconcile(outside);
}

/// Brings the charge to what the driver says that the pool holds.
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

/// Done under the lock of the books: a refund must not overtake the charge that another thread has just written
/// down.
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
