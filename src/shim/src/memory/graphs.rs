//! Memory of graphs.
//!
//! An executable is charged from the moment it is made for all memory that it can need. A launch may not fail, and takes memory
//! without a question. After its end the charge stays until the driver's own counter says that its graph pool holds less: after a
//! trim by the program, or by the library before a refusal. `gpuslice_policy::sizes::graph` has the sums and the reason why they
//! suffice.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use crate::driver_calls::graphs::{self, Allocation};
use crate::slice::device::SliceDevice;
use crate::slice::handle::Slice;
use core::sync::atomic::{AtomicBool, Ordering};
use gpuslice_driver::types::CUgraph;
use gpuslice_policy::sizes::graph::{GraphPool, pages};
use gpuslice_region::Device;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// How often the driver's counter is read again because an executable ended meanwhile.
const READINGS: u32 = 64;

/// The executables of this process that take memory, and what the driver has for them.
#[derive(Debug, Default)]
pub(crate) struct Graphs {
    any: AtomicBool,
    executables: Mutex<HashMap<usize, Executable>>,
    pools: Mutex<Vec<Arc<Pool>>>,
}

/// An executable that takes memory.
#[derive(Debug)]
pub(crate) struct Executable {
    /// The context that it was made in, and ends with.
    context: usize,
    needs: Vec<Need>,
}

/// What an executable can need of a device.
#[derive(Debug)]
struct Need {
    pool: Arc<Pool>,
    pages: u64,
}

/// The graph memory of a device.
#[derive(Debug)]
struct Pool {
    place: SliceDevice,
    books: Mutex<Books>,
}

#[derive(Debug, Default)]
struct Books {
    sums: GraphPool,
    /// What was charged.
    charged: u64,
}

/// Why an executable cannot be made.
#[derive(Debug)]
pub(crate) enum Obstacle {
    /// It allocates nothing, or the driver has its own objections: the call is the driver's affair.
    NotOurs,
    /// The driver does not say what it allocates.
    Untold,
    /// So many bytes do not fit on this device.
    Full(Device, u64),
}

impl Executable {
    /// What it can need of the first device that it takes memory of.
    pub(crate) fn first_need(&self) -> Option<(Device, u64)> {
        self.needs.first().map(|need| (need.pool.place.device, need.pages))
    }
}

impl Graphs {
    /// Reserves what an executable of a graph can need.
    pub(crate) fn reserve(
        &self,
        slice: &'static Slice,
        graph: CUgraph,
        context: usize,
    ) -> Result<Executable, Obstacle> {
        let allocations = graphs::allocations(graph).ok_or(Obstacle::Untold)?;
        if allocations.is_empty() {
            return Err(Obstacle::NotOurs);
        }
        let mut executable = Executable { context, needs: Vec::new() };
        for place in slice.places() {
            let pages = pages_on(place, &allocations);
            if pages == 0 {
                continue;
            }
            let pool = self.pool(place);
            if !pool.take(slice, pages) {
                self.cancel(slice, executable);
                return Err(Obstacle::Full(place.device, pages));
            }
            executable.needs.push(Need { pool, pages });
        }
        Ok(executable)
    }

    /// Gives back what was reserved for an executable that is not made, and for which nothing was taken.
    pub(crate) fn cancel(&self, slice: &Slice, executable: Executable) {
        for need in executable.needs {
            need.pool.cancel(slice, need.pages);
        }
    }

    /// The driver has made an executable.
    pub(crate) fn made(&self, slice: &Slice, handle: usize, executable: Executable) {
        let pools: Vec<_> = executable.needs.iter().map(|need| Arc::clone(&need.pool)).collect();
        // One whose end nobody saw: the driver uses its handle again.
        let earlier = self.executables.lock().insert(handle, executable);
        if let Some(earlier) = earlier {
            self.ended(slice, earlier);
        }
        pools.iter().for_each(|pool| pool.read(slice));
    }

    /// What an executable can need; none where it takes no memory.
    pub(crate) fn need_of(&self, handle: usize) -> Option<(Device, u64)> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        self.executables.lock().get(&handle)?.first_need()
    }

    /// Takes out an executable while the driver ends it.
    pub(crate) fn take(&self, handle: usize) -> Option<Executable> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        self.executables.lock().remove(&handle)
    }

    /// Puts one back that lives on.
    pub(crate) fn put_back(&self, handle: usize, executable: Executable) {
        self.executables.lock().insert(handle, executable);
    }

    /// An executable has ended: its memory may be in the driver's pool.
    pub(crate) fn ended(&self, slice: &Slice, executable: Executable) {
        for need in executable.needs {
            need.pool.end(slice, need.pages);
        }
    }

    /// Takes out the executables of a context while the driver ends it.
    pub(crate) fn take_of(&self, context: usize) -> Vec<(usize, Executable)> {
        if !self.any.load(Ordering::Relaxed) {
            return Vec::new();
        }
        self.executables.lock().extract_if(|_, one| one.context == context).collect()
    }

    /// A context has ended and its executables with it.
    pub(crate) fn context_ended(&self, slice: &Slice, executables: impl Iterator<Item = Executable>) {
        executables.for_each(|executable| self.ended(slice, executable));
        if self.any.load(Ordering::Relaxed) {
            // What earlier executables left alive in it has ended as well.
            self.all().iter().for_each(|pool| pool.read(slice));
        }
    }

    /// The driver's pool of a device may hold less than before.
    pub(crate) fn trimmed(&self, slice: &Slice, device: Device) {
        for pool in self.all().iter().filter(|pool| pool.place.device == device) {
            pool.read(slice);
        }
    }

    /// Makes the driver give back what executables that are gone have left in its pool of a device, and none uses, and
    /// looks by how much that pool grows. The next launch has to map memory anew, so this is done only before something
    /// is refused. False: there are no graphs with memory.
    pub(crate) fn reclaim(&self, slice: &Slice, device: Device) -> bool {
        if !self.any.load(Ordering::Relaxed) {
            return false;
        }
        for pool in self.all().iter().filter(|pool| pool.place.device == device) {
            if pool.books.lock().sums.left_behind() > 0 {
                graphs::trim(pool.place.handle);
            }
            pool.read(slice);
        }
        true
    }

    /// Bytes of a device that are charged for graphs and that the driver has not taken yet.
    pub(crate) fn ahead(&self, device: Device) -> u64 {
        if !self.any.load(Ordering::Relaxed) {
            return 0;
        }
        let pools = self.all();
        let ahead = |pool: &Arc<Pool>| {
            let charged = pool.books.lock().charged;
            charged.saturating_sub(graphs::reserved(pool.place.handle).unwrap_or(charged))
        };
        pools.iter().filter(|pool| pool.place.device == device).map(ahead).sum()
    }

    fn all(&self) -> Vec<Arc<Pool>> {
        self.pools.lock().clone()
    }

    fn pool(&self, place: &SliceDevice) -> Arc<Pool> {
        let mut pools = self.pools.lock();
        if let Some(pool) = pools.iter().find(|pool| pool.place.device == place.device) {
            return Arc::clone(pool);
        }
        let pool = Arc::new(Pool { place: *place, books: Mutex::default() });
        pools.push(Arc::clone(&pool));
        self.any.store(true, Ordering::Relaxed);
        pool
    }
}

/// What allocations need of a device.
fn pages_on(place: &SliceDevice, allocations: &[Allocation]) -> u64 {
    let of_it = allocations.iter().filter(|one| one.device == place.handle);
    let ranges: Vec<(u64, u64)> = of_it.map(|one| (one.address, one.bytes)).collect();
    pages(&ranges)
}

impl Pool {
    /// Reserves for an executable; false if there is no room.
    fn take(&self, slice: &'static Slice, pages: u64) -> bool {
        let mut books = self.books.lock();
        books.sums.begin(pages);
        let owed = books.sums.owed();
        let Some(reservation) = slice.reserve(self.place.device, owed.saturating_sub(books.charged)) else {
            books.sums.cancel(pages);
            return false;
        };
        reservation.keep();
        books.charged = owed;
        true
    }

    /// Gives back what was reserved for an executable that the driver was not asked for.
    fn cancel(&self, slice: &Slice, pages: u64) {
        let mut books = self.books.lock();
        books.sums.cancel(pages);
        self.settle(slice, &mut books);
    }

    /// An executable has ended.
    fn end(&self, slice: &Slice, pages: u64) {
        self.books.lock().sums.end(pages);
        self.read(slice);
    }

    /// Brings the charge to what the driver's counter proves. Where it says nothing, everything stays charged.
    fn read(&self, slice: &Slice) {
        for _ in 0..READINGS {
            let reading = self.books.lock().sums.begin_reading();
            let Some(reserved) = graphs::reserved(self.place.handle) else { return };
            let mut books = self.books.lock();
            if books.sums.end_reading(&reading, reserved) {
                self.settle(slice, &mut books);
                return;
            }
        }
    }

    /// Charges what is owed. Under the lock: a refund must not overtake the charge that another thread has just
    /// written down.
    fn settle(&self, slice: &Slice, books: &mut Books) {
        let (owed, charged) = (books.sums.owed(), books.charged);
        books.charged = owed;
        if owed > charged {
            slice.charge(self.place.device, owed.saturating_sub(charged));
        } else {
            slice.refund(self.place.device, charged.saturating_sub(owed));
        }
    }
}
