//! The steps of an allocation from a pool and of a free, in the order of their calls around the driver.

use super::holes::{ALIGNMENT, FreeFor, largest_growth};
use super::ledger::{Calm, LedgerEntry, PendingFree, PoolChange, PoolLedger};

/// Number of times that a reading is repeated because another thread disturbed it.
const POOL_READINGS: u32 = 64;

/// Access of a pool's ledger to the driver and the quota. Sizes are in bytes.
pub trait PoolDriver {
    /// Runs a step under the lock that guards the pool's ledger.
    fn step<R>(&self, step: impl FnOnce(&mut PoolLedger) -> R) -> R;

    /// Returns the bytes that the pool holds of its device, by the driver's counter. `None`: the driver cannot be asked.
    fn held(&self) -> Option<u64>;

    /// Returns the bytes of the pool's allocations, by the driver's counter.
    fn used(&self) -> Option<u64>;

    /// Makes the driver release unused memory of the pool, down to `keep` bytes.
    fn trim(&self, keep: u64);

    /// Reserves bytes of the quota. Returns false if they do not fit.
    fn reserve(&self, bytes: u64) -> bool;

    /// Charges bytes without regard to the quota.
    fn charge(&self, bytes: u64);

    /// Refunds bytes.
    fn refund(&self, bytes: u64);

    /// Returns a series of waits for calls of other threads. Each wait is short, and returns false when the thread has
    /// waited enough.
    fn waits(&self) -> impl FnMut() -> bool;
}

/// An allocation in flight. The caller must [`finish`] it.
#[derive(Debug)]
#[must_use = "an allocation that is not finished keeps its reservation"]
pub struct PendingAllocation {
    entry: LedgerEntry,
    /// Largest growth of the pool. `None`: the pool has a hole.
    reserved: Option<u64>,
}

impl PendingAllocation {
    /// Returns the bytes of the pool that the allocation takes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.entry.bytes()
    }

    /// Returns the reserved bytes: the largest growth of the pool. `None`: the pool has a hole.
    #[must_use]
    pub fn reserved(&self) -> Option<u64> {
        self.reserved
    }
}

/// A pool that the driver is about to destroy.
#[derive(Debug, Clone, Copy)]
pub struct PendingEnd {
    calm: Option<Calm>,
    used: Option<u64>,
}

/// Begins an allocation: reserves the largest growth of the pool. `None`: the allocation does not fit.
///
/// If the reservation fails, the allocation can go on if the pool has a hole for it. Other allocations in flight may hold a
/// reservation that they will not use, or may make a hole known when they end. So without a hole the thread tries again
/// until it has tried alone. Then the pool releases its unused memory, as the driver does when the device is full, and the
/// thread tries the reservation once more.
///
/// Risk: between two steps another thread may use the hole or the memory. So each step checks the ledger again under its
/// lock.
pub fn begin(driver: &impl PoolDriver, bytes: u64, stream: usize) -> Option<PendingAllocation> {
    let most = largest_growth(bytes)?;
    let bytes = bytes.checked_next_multiple_of(ALIGNMENT)?;
    match reserve(driver, bytes, most) {
        Ok(pending) => Some(pending),
        Err(asked) => begin_without_room(driver, asked, most, stream),
    }
}

/// Reserves the largest growth of the pool for an allocation. If that fails, returns the allocation, which then is not in
/// flight.
fn reserve(driver: &impl PoolDriver, bytes: u64, most: u64) -> Result<PendingAllocation, LedgerEntry> {
    let entry = driver.step(|ledger| ledger.begin(bytes));
    if driver.reserve(most) {
        driver.step(|ledger| ledger.reserved(entry, most));
        return Ok(PendingAllocation { entry, reserved: Some(most) });
    }
    driver.step(|ledger| apply(driver, ledger.abandon()));
    Err(entry)
}

/// Begins an allocation for which the quota had no room.
#[cold]
fn begin_without_room(
    driver: &impl PoolDriver,
    mut asked: LedgerEntry,
    most: u64,
    stream: usize,
) -> Option<PendingAllocation> {
    let bytes = asked.bytes();
    let mut wait = driver.waits();
    loop {
        if take_hole(driver, asked, stream) {
            return Some(PendingAllocation { entry: asked, reserved: None });
        }
        if driver.step(|ledger| ledger.was_alone(asked)) || !wait() {
            break;
        }
        match reserve(driver, bytes, most) {
            Ok(pending) => return Some(pending),
            Err(again) => asked = again,
        }
    }
    let held = driver.held()?;
    releasing(driver, || driver.trim(held.saturating_sub(most)));
    reserve(driver, bytes, most).ok()
}

/// Ends an allocation after the driver call, and updates the charge. `address` is the allocation's address. `None`: the
/// call failed.
pub fn finish(driver: &impl PoolDriver, pending: PendingAllocation, address: Option<u64>) {
    let PendingAllocation { entry, reserved } = pending;
    let reading = driver.step(PoolLedger::begin_reading);
    let held = driver.held();
    let is_current = driver.step(|ledger| {
        let is_current = ledger.is_current(reading, held);
        apply(driver, ledger.finish(entry, reserved, address, reading, held.filter(|_| is_current)));
        is_current
    });
    if !is_current {
        reconcile(driver);
    }
}

/// Begins the free of a block.
pub fn begin_free(driver: &impl PoolDriver, address: u64, bytes: u64) -> PendingFree {
    driver.step(|ledger| ledger.begin_free(address, bytes))
}

/// Ends a free that the driver has done. `free` has the streams that may use the memory.
pub fn finish_free(driver: &impl PoolDriver, pending: &PendingFree, free: FreeFor) {
    driver.step(|ledger| ledger.finish_free(pending, free));
    reconcile(driver);
}

/// Ends a free that the driver has refused.
pub fn cancel_free(driver: &impl PoolDriver, pending: &PendingFree) {
    driver.step(|ledger| ledger.cancel_free(pending));
}

/// Begins the end of a pool, before the driver destroys it.
pub fn begin_end(driver: &impl PoolDriver) -> PendingEnd {
    let calm = driver.step(|ledger| ledger.calm());
    PendingEnd { calm, used: driver.used() }
}

/// Ends a pool that the driver has destroyed. The charge of its allocations falls with each free.
pub fn end(driver: &impl PoolDriver, pending: PendingEnd) {
    driver.step(|ledger| apply(driver, ledger.end(pending.calm, pending.used)));
}

/// Encloses a call in which the driver may release memory of the pool: a call that waits or trims.
pub fn releasing<R>(driver: &impl PoolDriver, call: impl FnOnce() -> R) -> R {
    begin_release(driver);
    let result = call();
    end_release(driver);
    result
}

/// Begins a call in which the driver may release memory of the pool.
pub fn begin_release(driver: &impl PoolDriver) {
    driver.step(PoolLedger::begin_release);
}

/// Ends a call in which the driver may release memory of the pool.
///
/// The reading comes first, because an allocation that begins after the end must not find holes in released memory. If the
/// pool grew meanwhile, its size alone would not show the release.
pub fn end_release(driver: &impl PoolDriver) {
    reconcile(driver);
    driver.step(PoolLedger::end_release);
}

/// Updates the charge to the bytes that the driver says the pool holds.
pub fn reconcile(driver: &impl PoolDriver) {
    let read_once = || {
        let reading = driver.step(PoolLedger::begin_reading);
        let held = driver.held();
        driver.step(|ledger| {
            let is_current = ledger.is_current(reading, held);
            if is_current {
                apply(driver, ledger.end_reading(reading, held));
            }
            is_current
        })
    };
    let _was_read = (0..POOL_READINGS).any(|_| read_once());
}

/// Applies a change under the lock of the ledger. Otherwise a refund could overtake a charge that another thread has just
/// recorded.
fn apply(driver: &impl PoolDriver, change: PoolChange) {
    match change {
        PoolChange::Charge(bytes) => driver.charge(bytes),
        PoolChange::Refund(bytes) => driver.refund(bytes),
    }
}

fn take_hole(driver: &impl PoolDriver, asked: LedgerEntry, stream: usize) -> bool {
    for _ in 0..POOL_READINGS {
        let version = driver.step(|ledger| ledger.version());
        let (Some(held), Some(used)) = (driver.held(), driver.used()) else { return false };
        if let Some(fits) = driver.step(|ledger| ledger.take_hole(version, (held, used), asked, stream)) {
            return fits;
        }
    }
    false
}
