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
use gpuslice_policy::holes::{ALIGNMENT, FreeFor, Holes};
use gpuslice_region::Device;
use parking_lot::Mutex;
use std::sync::Arc;

/// By what a pool grows at least: drivers of the 12 and 13 series take 32 MiB at a time from the device.
const GROWTH: u64 = 32 << 20;

/// How often a reading of the driver's counters is repeated because another thread came between.
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
    holes: Holes,
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
        for pool in known {
            pool.reconcile(slice, 0);
        }
    }

    /// A context ended, and perhaps allocations of pools with it: what is in use is not known any more.
    pub(crate) fn distrust(&self) {
        for pool in self.known.lock().iter() {
            let mut books = pool.books.lock();
            books.live = 0;
            books.holes.forget();
        }
    }

    /// An allocation of a pool is about to be freed. Counted before the driver counts it, so that what is live here
    /// is never more than the driver uses: a block that is still in use elsewhere would pass for free.
    pub(crate) fn freeing(&self, number: u64, bytes: u64) {
        if let Some(pool) = self.known.lock().iter().find(|pool| pool.number == number) {
            let mut books = pool.books.lock();
            books.live = books.live.saturating_sub(bytes);
        }
    }

    /// The driver did not free it.
    pub(crate) fn kept(&self, number: u64, bytes: u64) {
        if let Some(pool) = self.known.lock().iter().find(|pool| pool.number == number) {
            let mut books = pool.books.lock();
            books.live = books.live.saturating_add(bytes);
        }
    }

    /// An allocation of a pool was freed.
    pub(crate) fn freed(&self, slice: &Slice, number: u64, address: u64, bytes: u64, free: FreeFor) {
        let known = self.known.lock().iter().find(|pool| pool.number == number).cloned();
        if let Some(pool) = known {
            pool.books.lock().holes.add(address, bytes, free);
            pool.reconcile(slice, 0);
            return;
        }
        let orphan = self.orphaned.lock().iter().find(|pool| pool.number == number).cloned();
        if let Some(pool) = orphan {
            pool.shrink(slice, bytes);
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
    fn begin(&mut self, bytes: u64) {
        self.calls = self.calls.saturating_add(1);
        self.largest = self.largest.max(bytes);
    }

    fn end(&mut self) {
        self.version = self.version.wrapping_add(1);
        self.calls = self.calls.saturating_sub(1);
        if self.calls == 0 {
            self.largest = 0;
        }
    }

    fn begin_reading(&mut self) -> u64 {
        self.readings = self.readings.wrapping_add(1);
        self.readings
    }

    /// Takes down a reading of what the pool holds, unless one that began later has been: that one has seen all
    /// that this one could see. Returns by how much the pool grew.
    fn end_reading(&mut self, reading: u64, held: Option<u64>) -> u64 {
        match held {
            Some(held) if reading > self.last_reading => {
                self.last_reading = reading;
                self.note_held(held)
            }
            _ => 0,
        }
    }

    /// Takes down what the driver says the pool holds; returns by how much it grew.
    fn note_held(&mut self, held: u64) -> u64 {
        self.version = self.version.wrapping_add(1);
        if held < self.held {
            self.holes.forget();
        }
        let growth = held.saturating_sub(self.held);
        self.held = held;
        growth
    }

    /// Whether the pool surely has a hole for each request that is on its way, this one among them. A request is at
    /// most one piece: should a later call take its hole, the growth that this causes is one that the later call
    /// has reserved (see [`Pool::reconcile`]).
    fn has_hole(&mut self, used: u64, bytes: u64, stream: usize) -> bool {
        if used <= self.live {
            self.holes.settle();
        }
        bytes <= GROWTH && self.holes.room(self.largest, stream) >= self.calls
    }
}

/// An allocation on its way to a pool.
#[derive(Debug)]
pub(crate) struct Flight {
    slice: &'static Slice,
    pool: Arc<Pool>,
    /// What the allocation takes of the pool.
    bytes: u64,
    backing: Backing,
}

/// What makes sure that an allocation stays within the quota.
#[derive(Debug)]
enum Backing {
    /// The most that the pool may grow by was reserved.
    Reserved(Reservation),
    /// The pool has a hole for it.
    Hole,
}

impl Flight {
    /// Reserves the most that an allocation may make the pool grow by. Where that does not fit, a hole in the pool
    /// will do; where there is none, the pool is made to give back what it holds unused, as the driver itself would
    /// when the device is full.
    pub(crate) fn begin(slice: &'static Slice, pool: Arc<Pool>, bytes: u64, stream: usize) -> Option<Self> {
        let most = bytes.checked_next_multiple_of(GROWTH)?;
        let bytes = bytes.checked_next_multiple_of(ALIGNMENT)?;
        let reserve = || slice.reserve(pool.device, most).map(Backing::Reserved);
        let trim = || {
            let held = driver::pool_reserved(pool.handle)?;
            driver::trim_pool(pool.handle, held.saturating_sub(most));
            slice.pools.reconcile_all(slice);
            reserve()
        };
        pool.books.lock().begin(bytes);
        let backing =
            reserve().or_else(|| pool.take_hole(bytes, stream).then_some(Backing::Hole)).or_else(trim);
        let Some(backing) = backing else {
            pool.books.lock().end();
            return None;
        };
        Some(Self { slice, pool, bytes, backing })
    }

    /// The driver has answered: brings the charge up to date.
    pub(crate) fn land(self, address: Option<u64>) {
        let Self { slice, pool, bytes, backing } = self;
        let is_unbacked = matches!(backing, Backing::Hole);
        let paid = backing.keep();
        let was_alone = {
            let mut books = pool.books.lock();
            books.unbacked = books.unbacked.saturating_sub(u64::from(is_unbacked));
            books.calls == 1
        };
        let growth = pool.reconcile(slice, paid);
        let mut books = pool.books.lock();
        if let Some(address) = address {
            books.live = books.live.saturating_add(bytes);
            books.holes.allocated(address, bytes, if was_alone { growth } else { 0 });
            if growth > 0 && was_alone && is_unbacked {
                books.holes.refute();
            }
        }
        books.end();
        drop(books);
        if let Some(address) = address {
            let charge = Charge { device: pool.device, bytes, owner: Owner::Pool(pool.number) };
            slice.addresses.insert(address, charge);
        }
    }
}

impl Backing {
    /// Bytes of the quota that now belong to whoever keeps them.
    fn keep(self) -> u64 {
        let Self::Reserved(reservation) = self else { return 0 };
        let bytes = reservation.bytes();
        reservation.keep();
        bytes
    }
}

impl Pool {
    /// Brings the charge to what the driver says the pool holds. `reserved` bytes were taken of the quota for
    /// this change; what it does not need goes back.
    ///
    /// While an allocation is on its way that reserved nothing, nothing goes back: should another have taken its
    /// hole, the pool grows by what that other one reserved. Returns by how much the pool has grown.
    pub(crate) fn reconcile(&self, slice: &Slice, reserved: u64) -> u64 {
        let reading = self.books.lock().begin_reading();
        let held = driver::pool_reserved(self.handle);
        let mut books = self.books.lock();
        let growth = books.end_reading(reading, held);
        let paid = books.charged.saturating_add(reserved);
        let told = if held.is_some() { books.held } else { paid };
        let owed = if books.unbacked > 0 { told.max(paid) } else { told };
        books.charged = owed;
        // Still under the lock: a refund must not overtake the charge that another thread has just written down.
        if owed > paid {
            slice.charge(self.device, owed.saturating_sub(paid));
        } else {
            slice.refund(self.device, paid.saturating_sub(owed));
        }
        growth
    }

    /// Lets a request that is on its way go unbacked, if the pool surely has a hole for it.
    fn take_hole(&self, bytes: u64, stream: usize) -> bool {
        for _ in 0..READINGS {
            let version = self.books.lock().version;
            let (held, used) = (driver::pool_reserved(self.handle), driver::pool_used(self.handle));
            let (Some(held), Some(used)) = (held, used) else { return false };
            let mut books = self.books.lock();
            if books.version == version {
                let known = books.held;
                books.note_held(held.min(known));
                let fits = books.has_hole(used, bytes, stream);
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
        slice.refund(self.device, given);
    }
}
