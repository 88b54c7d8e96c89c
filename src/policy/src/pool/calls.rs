//! The steps of an allocation from a pool and of a free, in the order of the calls around the driver.

use super::holes::{ALIGNMENT, FreeFor};
use super::ledger::{Calm, LedgerEntry, POOL_GROWTH, PendingFree, PoolChange, PoolLedger};

/// Repetitions of a reading that another thread disturbed.
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
}

/// An allocation in flight. It must [`finish`].
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
/// If the reservation fails, a hole in the pool suffices. Without a hole, the pool releases its unused memory, as the
/// driver does when the device is full. Then the reservation is tried once more.
///
/// Risk: between two steps another thread may use the hole or the memory. Each step therefore checks
/// the ledger again under its lock.
pub fn begin(driver: &impl PoolDriver, bytes: u64, stream: usize) -> Option<PendingAllocation> {
    let most = bytes.checked_next_multiple_of(POOL_GROWTH)?;
    let bytes = bytes.checked_next_multiple_of(ALIGNMENT)?;
    let entry = driver.step(|ledger| ledger.begin(bytes));
    let reserve = || {
        let is_granted = driver.reserve(most);
        if is_granted {
            driver.step(|ledger| ledger.reserved(most));
        }
        is_granted
    };
    if reserve() {
        return Some(PendingAllocation { entry, reserved: Some(most) });
    }
    if take_hole(driver, bytes, stream) {
        return Some(PendingAllocation { entry, reserved: None });
    }
    if let Some(held) = driver.held() {
        releasing(driver, || driver.trim(held.saturating_sub(most)));
        if reserve() {
            return Some(PendingAllocation { entry, reserved: Some(most) });
        }
    }
    driver.step(|ledger| apply(driver, ledger.abandon()));
    None
}

/// Ends an allocation after the driver call, and updates the charge. `address` is the allocation's address, if the
/// call succeeded.
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

/// Ends a free that the driver has done. `free` tells which streams may use the memory.
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

/// Encloses a call in which the driver may release memory of the pool: one that waits, or trims.
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
pub fn end_release(driver: &impl PoolDriver) {
    driver.step(PoolLedger::end_release);
    reconcile(driver);
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

/// Applies a change under the lock of the ledger. A refund must not overtake a charge that another thread has just
/// recorded.
fn apply(driver: &impl PoolDriver, change: PoolChange) {
    match change {
        PoolChange::Charge(bytes) => driver.charge(bytes),
        PoolChange::Refund(bytes) => driver.refund(bytes),
    }
}

fn take_hole(driver: &impl PoolDriver, bytes: u64, stream: usize) -> bool {
    for _ in 0..POOL_READINGS {
        let version = driver.step(|ledger| ledger.version());
        let (Some(held), Some(used)) = (driver.held(), driver.used()) else { return false };
        if let Some(fits) = driver.step(|ledger| ledger.take_hole(version, (held, used), bytes, stream)) {
            return fits;
        }
    }
    false
}
