//! What does stream-ordered memory cost? What a pool holds of its device, not what is allocated from it.
//!
//! A pool keeps what is freed and gives it back at moments of its own. The driver counts what it holds; that
//! counter is read after every call that may move it, without waiting for the device. Before an allocation the
//! most that the pool may grow by is reserved; afterwards the charge is brought to the counter.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use crate::driver;
use crate::ledger::{Charge, Owner, Reservation};
use crate::slice::Slice;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use gpuslice_region::Device;
use parking_lot::Mutex;
use std::sync::Arc;

/// By what a pool grows at least: drivers of the 12 and 13 series take 32 MiB at a time from the device.
const GROWTH: u64 = 32 << 20;

/// What a pool aligns its allocations to, at least.
const ALIGNMENT: u64 = 512;

/// How often a reading of the driver's counter is repeated because another thread came between.
const READINGS: u32 = 64;

/// A pool that this process allocates from.
#[derive(Debug)]
pub(crate) struct Pool {
    /// Our number for it: the driver may use a handle's value again.
    number: u64,
    handle: usize,
    /// The device whose memory it holds.
    pub(crate) device: Device,
    books: Mutex<Books>,
}

/// What is known of a pool and of the calls that are on their way to it.
#[derive(Debug, Default)]
struct Books {
    /// What was charged for it.
    charged: u64,
    /// Counts changes, so that a reading of the driver's counters that began before another change is not used
    /// after it.
    version: u64,
    /// Allocations that have not been freed.
    live: u64,
    /// Allocations on their way, and the bytes that they ask for.
    calls: u64,
    asked: u64,
    /// Those among them that reserved nothing, because the pool surely had a hole for them.
    unbacked: u64,
}

/// The pools of this process.
#[derive(Debug, Default)]
pub(crate) struct Pools {
    any: AtomicBool,
    next: AtomicU64,
    known: Mutex<Vec<Arc<Pool>>>,
    /// Pools that were destroyed while allocations from them live: the memory ends with each of those.
    orphaned: Mutex<Vec<Arc<Pool>>>,
    /// Pools whose memory is the host's.
    host: Mutex<Vec<usize>>,
}

/// A pool that was taken out of the list.
#[derive(Debug)]
pub(crate) enum Taken {
    /// One whose memory is a device's.
    OfDevice(Arc<Pool>),
    /// One whose memory is the host's.
    OfHost(usize),
    /// One that nobody knows.
    Unknown,
}

impl Pools {
    /// Whether any pool has been used. Cheap.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Brings the charge of every pool to what the driver says it holds.
    pub(crate) fn reconcile_all(&self, slice: &Slice) {
        if !self.any() {
            return;
        }
        let known = self.known.lock().clone();
        known.iter().for_each(|pool| pool.reconcile(slice, 0));
    }

    /// An allocation of a pool was freed.
    pub(crate) fn freed(&self, slice: &Slice, number: u64, charge: Charge) {
        let known = self.known.lock().iter().find(|pool| pool.number == number).cloned();
        if let Some(pool) = known {
            pool.books.lock().release_one();
            pool.reconcile(slice, 0);
            return;
        }
        let orphan = self.orphaned.lock().iter().find(|pool| pool.number == number).cloned();
        if let Some(pool) = orphan {
            pool.shrink(slice, charge.bytes);
        }
    }

    /// A pool that is known by this handle.
    pub(crate) fn find(&self, handle: usize) -> Option<Arc<Pool>> {
        self.known.lock().iter().find(|pool| pool.handle == handle).cloned()
    }

    /// The pool of this handle, whose memory is a device's.
    pub(crate) fn find_or_add(&self, handle: usize, device: Device) -> Arc<Pool> {
        let mut known = self.known.lock();
        if let Some(pool) = known.iter().find(|pool| pool.handle == handle) {
            return Arc::clone(pool);
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let pool = Arc::new(Pool { number, handle, device, books: Mutex::default() });
        known.push(Arc::clone(&pool));
        self.any.store(true, Ordering::Relaxed);
        pool
    }

    /// Takes out the pool of this handle while the driver ends it.
    pub(crate) fn take(&self, handle: usize) -> Taken {
        let position = |pools: &[Arc<Pool>]| pools.iter().position(|pool| pool.handle == handle);
        let mut known = self.known.lock();
        if let Some(place) = position(&known) {
            return Taken::OfDevice(known.swap_remove(place));
        }
        let mut host = self.host.lock();
        let place = host.iter().position(|known| *known == handle);
        place.map_or(Taken::Unknown, |place| Taken::OfHost(host.swap_remove(place)))
    }

    /// Puts a pool back that lives on.
    pub(crate) fn put_back(&self, taken: Taken) {
        match taken {
            Taken::OfDevice(pool) => self.known.lock().push(pool),
            Taken::OfHost(handle) => self.host.lock().push(handle),
            Taken::Unknown => {}
        }
    }

    /// Ends a pool: what allocations still hold of it goes back with them.
    pub(crate) fn end(&self, slice: &Slice, taken: Taken) {
        let Taken::OfDevice(pool) = taken else { return };
        let live = slice.addresses.owned(Owner::Pool(pool.number));
        let charged = pool.books.lock().charged;
        pool.shrink(slice, charged.saturating_sub(live));
        if live > 0 {
            self.orphaned.lock().push(pool);
        }
    }

    /// Remembers a pool whose memory is the host's.
    pub(crate) fn add_host(&self, handle: usize) {
        self.host.lock().push(handle);
    }

    /// Whether a pool's memory is the host's.
    pub(crate) fn is_host(&self, handle: usize) -> bool {
        self.host.lock().contains(&handle)
    }
}

impl Books {
    fn release_one(&mut self) {
        self.live = self.live.saturating_sub(1);
    }

    fn begin(&mut self, bytes: u64) {
        self.calls = self.calls.saturating_add(1);
        self.asked = self.asked.saturating_add(bytes);
    }

    fn end(&mut self, bytes: u64, is_backed: bool) {
        self.version = self.version.wrapping_add(1);
        self.calls = self.calls.saturating_sub(1);
        self.asked = self.asked.saturating_sub(bytes);
        self.unbacked = self.unbacked.saturating_sub(u64::from(!is_backed));
    }

    /// Whether a pool that holds `unused` bytes, of `held`, surely has a hole for a request that is on its way.
    ///
    /// What is unused lies in at most one hole behind each allocation and one at the start of each piece that the
    /// pool took from the device, so the largest hole has at least the average size; the others on their way may be
    /// served before. A request is at most one piece: should a later call take the hole, the growth that this
    /// causes is one that the later call has reserved (see [`Pool::reconcile`]).
    fn has_hole(&self, unused: u64, held: u64, bytes: u64) -> bool {
        let others = self.asked.saturating_sub(bytes);
        let holes = self.live.saturating_add(self.calls).saturating_add(held.div_ceil(GROWTH));
        let room = bytes.checked_next_multiple_of(ALIGNMENT).and_then(|bytes| bytes.checked_mul(holes));
        bytes <= GROWTH && room.is_some_and(|room| room <= unused.saturating_sub(others))
    }
}

/// An allocation on its way to a pool. Nothing is on its way any more once this is dropped.
#[derive(Debug)]
pub(crate) struct Flight {
    slice: &'static Slice,
    pool: Arc<Pool>,
    bytes: u64,
    /// What was reserved for the pool's growth; none where it surely has a hole.
    reserved: Option<Reservation>,
}

impl Flight {
    /// Reserves the most that an allocation may make the pool grow by. Where that does not fit, the pool is made
    /// to give back what it holds unused, as the driver itself would when the device is full.
    pub(crate) fn begin(slice: &'static Slice, pool: Arc<Pool>, bytes: u64) -> Option<Self> {
        let most = bytes.checked_next_multiple_of(GROWTH)?;
        pool.books.lock().begin(bytes);
        let mut flight = Self { slice, pool, bytes, reserved: None };
        let device = flight.pool.device;
        flight.reserved = slice.reserve(device, most).or_else(|| {
            let held = driver::pool_reserved(flight.pool.handle)?;
            driver::trim_pool(flight.pool.handle, held.saturating_sub(most));
            slice.pools.reconcile_all(slice);
            slice.reserve(device, most)
        });
        if flight.reserved.is_some() || flight.pool.take_hole(bytes) {
            return Some(flight);
        }
        // Counted as backed so far: leave the books as they were found.
        flight.leave(true);
        None
    }

    /// The driver has answered: brings the charge up to date.
    pub(crate) fn land(mut self, address: Option<u64>) {
        let reserved = self.reserved.take();
        let (bytes, is_backed) = (reserved.as_ref().map_or(0, Reservation::bytes), reserved.is_some());
        if let Some(reservation) = reserved {
            reservation.keep();
        }
        if let Some(address) = address {
            let charge =
                Charge { device: self.pool.device, bytes: self.bytes, owner: Owner::Pool(self.pool.number) };
            self.slice.addresses.insert(address, charge);
            let mut books = self.pool.books.lock();
            books.live = books.live.saturating_add(1);
        }
        self.leave(is_backed);
        self.pool.reconcile(self.slice, bytes);
    }

    fn leave(&mut self, is_backed: bool) {
        self.pool.books.lock().end(self.bytes, is_backed);
    }
}

impl Pool {
    /// Brings the charge to what the driver says the pool holds. `reserved` bytes were taken of the quota for
    /// this change; what it does not need goes back.
    ///
    /// While an allocation is on its way that reserved nothing, nothing goes back: should another have taken its
    /// hole, the pool grows by what that other one reserved.
    pub(crate) fn reconcile(&self, slice: &Slice, reserved: u64) {
        let mut paid = reserved;
        let mut owed = 0;
        for _ in 0..READINGS {
            let version = self.books.lock().version;
            let Some(held) = driver::pool_reserved(self.handle) else { break };
            let mut books = self.books.lock();
            if books.version == version {
                books.version = version.wrapping_add(1);
                paid = books.charged.saturating_add(reserved);
                owed = if books.unbacked > 0 { held.max(paid) } else { held };
                books.charged = owed;
                break;
            }
        }
        if owed > paid {
            slice.charge(self.device, owed.saturating_sub(paid));
        } else {
            slice.refund(self.device, paid.saturating_sub(owed));
        }
    }

    /// Lets a request that is on its way go unbacked, if the pool surely has a hole for it.
    fn take_hole(&self, bytes: u64) -> bool {
        for _ in 0..READINGS {
            let version = self.books.lock().version;
            let (held, used) = (driver::pool_reserved(self.handle), driver::pool_used(self.handle));
            let (Some(held), Some(used)) = (held, used) else { return false };
            let mut books = self.books.lock();
            if books.version == version {
                let fits = books.has_hole(held.saturating_sub(used), held, bytes);
                books.unbacked = books.unbacked.saturating_add(u64::from(fits));
                return fits;
            }
        }
        false
    }

    /// Lowers the charge of a pool whose counter cannot be read any more.
    fn shrink(&self, slice: &Slice, bytes: u64) {
        let mut books = self.books.lock();
        let given = books.charged.min(bytes);
        books.charged = books.charged.saturating_sub(given);
        drop(books);
        slice.refund(self.device, given);
    }
}
