//! Memory of graphs.
//!
//! The driver takes memory for a graph at its launch, and a launch must not fail. So the library charges all memory that an
//! executable can need when the executable is made. After the executable's end the charge stays until the driver's counter shows
//! that its graph pool holds less. The pool shrinks when the program trims it, or when the library trims it before a refusal.
//! `gpuslice_policy::sizes::graph` has the sums and the reason why they suffice.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use crate::driver_calls::graphs::{self, GraphAllocation};
use crate::slice::device::SliceDevice;
use crate::slice::handle::Slice;
use core::sync::atomic::{AtomicBool, Ordering};
use gpuslice_driver::types::CUgraph;
use gpuslice_policy::sizes::graph::{GraphPool, pages};
use gpuslice_region::Device;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Largest number of readings of the driver's counter in a row. A thread repeats a reading if an executable ended meanwhile.
const COUNTER_READINGS: u32 = 64;

/// Executables of this process that take memory, and the driver's pools for them.
#[derive(Debug, Default)]
pub(crate) struct Graphs {
    any: AtomicBool,
    executables: Mutex<HashMap<usize, Executable>>,
    pools: Mutex<Vec<Arc<GraphMemory>>>,
}

/// Executable that takes memory.
#[derive(Debug)]
pub(crate) struct Executable {
    /// Context that the executable was made in, and ends with.
    context: usize,
    needs: Vec<GraphNeed>,
}

/// Memory that an executable can need of a device.
#[derive(Debug)]
struct GraphNeed {
    pool: Arc<GraphMemory>,
    pages: u64,
}

/// Graph memory of a device.
#[derive(Debug)]
struct GraphMemory {
    place: SliceDevice,
    ledger: Mutex<GraphLedger>,
}

#[derive(Debug, Default)]
struct GraphLedger {
    sums: GraphPool,
    /// Bytes that were charged.
    charged: u64,
}

/// Reason why nothing is reserved for an executable.
#[derive(Debug)]
pub(crate) enum Obstacle {
    /// The executable allocates nothing, or the driver has an error of its own to report. The program gets the driver's answer.
    NotOurs,
    /// The driver does not report the allocations of the graph.
    Untold,
    /// The quota of this device has no room for this number of bytes.
    Full(Device, u64),
}

impl Executable {
    /// Returns the first device on which the executable takes memory, and the bytes that it can need there.
    pub(crate) fn first_need(&self) -> Option<(Device, u64)> {
        self.needs.first().map(|need| (need.pool.place.device, need.pages))
    }
}

impl Graphs {
    /// Reserves the memory that an executable of `graph` can need.
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
            executable.needs.push(GraphNeed { pool, pages });
        }
        Ok(executable)
    }

    /// Gives back the reservation for an executable that is not made, and for which the driver took nothing.
    pub(crate) fn cancel(&self, slice: &Slice, executable: Executable) {
        for need in executable.needs {
            need.pool.cancel(slice, need.pages);
        }
    }

    /// Records an executable that the driver has made or updated.
    pub(crate) fn made(&self, slice: &Slice, handle: usize, executable: Executable) {
        let pools: Vec<_> = executable.needs.iter().map(|need| Arc::clone(&need.pool)).collect();
        // There is an earlier entry in two cases. The driver has updated the executable. Or the library has not seen the end of
        // an earlier executable, and the driver uses its handle again.
        let earlier = self.executables.lock().insert(handle, executable);
        if let Some(earlier) = earlier {
            self.ended(slice, earlier);
        }
        pools.iter().for_each(|pool| pool.read(slice));
    }

    /// Returns the first device on which an executable takes memory, and the bytes. `None`: it takes no memory.
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

    /// Puts back an executable that the driver has not ended.
    pub(crate) fn put_back(&self, handle: usize, executable: Executable) {
        self.executables.lock().insert(handle, executable);
    }

    /// Ends the charge of an executable as far as the driver's counter allows: its memory may still be in the driver's pool.
    pub(crate) fn ended(&self, slice: &Slice, executable: Executable) {
        for need in executable.needs {
            need.pool.end(slice, need.pages);
        }
    }

    /// Takes out the executables of a context while the driver ends the context.
    pub(crate) fn take_of(&self, context: usize) -> Vec<(usize, Executable)> {
        if !self.any.load(Ordering::Relaxed) {
            return Vec::new();
        }
        self.executables.lock().extract_if(|_, one| one.context == context).collect()
    }

    /// Ends the charge of a context's executables, which have ended with it.
    pub(crate) fn context_ended(&self, slice: &Slice, executables: impl Iterator<Item = Executable>) {
        executables.for_each(|executable| self.ended(slice, executable));
        if self.any.load(Ordering::Relaxed) {
            // Earlier executables may have left allocations in the context. These have ended with it.
            self.all().iter().for_each(|pool| pool.read(slice));
        }
    }

    /// Reads the driver's counter after the program has trimmed the graph pool of a device. The pool may hold less than before.
    pub(crate) fn trimmed(&self, slice: &Slice, device: Device) {
        for pool in self.all().iter().filter(|pool| pool.place.device == device) {
            pool.read(slice);
        }
    }

    /// Makes the driver release memory of its graph pool of a device. Ended executables have left that memory, and no executable
    /// uses it. Then sets the charge by the driver's counter. The next launch has to map memory again, so the library does this
    /// only before it refuses a request. Returns false if there are no graphs with memory.
    pub(crate) fn reclaim(&self, slice: &Slice, device: Device) -> bool {
        if !self.any.load(Ordering::Relaxed) {
            return false;
        }
        for pool in self.all().iter().filter(|pool| pool.place.device == device) {
            if pool.ledger.lock().sums.left_behind() > 0 {
                graphs::trim(pool.place.handle);
            }
            pool.read(slice);
        }
        true
    }

    /// Returns the bytes of a device that are charged for graphs and that the driver has not taken yet.
    pub(crate) fn charged_in_advance(&self, device: Device) -> u64 {
        if !self.any.load(Ordering::Relaxed) {
            return 0;
        }
        let pools = self.all();
        let in_advance = |pool: &Arc<GraphMemory>| {
            let charged = pool.ledger.lock().charged;
            charged.saturating_sub(graphs::reserved(pool.place.handle).unwrap_or(charged))
        };
        pools.iter().filter(|pool| pool.place.device == device).map(in_advance).sum()
    }

    fn all(&self) -> Vec<Arc<GraphMemory>> {
        self.pools.lock().clone()
    }

    fn pool(&self, place: &SliceDevice) -> Arc<GraphMemory> {
        let mut pools = self.pools.lock();
        if let Some(pool) = pools.iter().find(|pool| pool.place.device == place.device) {
            return Arc::clone(pool);
        }
        let pool = Arc::new(GraphMemory { place: *place, ledger: Mutex::default() });
        pools.push(Arc::clone(&pool));
        self.any.store(true, Ordering::Relaxed);
        pool
    }
}

/// Returns the bytes that `allocations` need of a device.
fn pages_on(place: &SliceDevice, allocations: &[GraphAllocation]) -> u64 {
    let of_it = allocations.iter().filter(|one| one.device == place.handle);
    let ranges: Vec<(u64, u64)> = of_it.map(|one| (one.address, one.bytes)).collect();
    pages(&ranges)
}

impl GraphMemory {
    /// Reserves the memory of a new executable. Returns false if the quota has no room.
    fn take(&self, slice: &'static Slice, pages: u64) -> bool {
        let mut ledger = self.ledger.lock();
        ledger.sums.begin(pages);
        let owed = ledger.sums.owed();
        let Some(reservation) = slice.reserve(self.place.device, owed.saturating_sub(ledger.charged)) else {
            ledger.sums.cancel(pages);
            return false;
        };
        reservation.keep();
        ledger.charged = owed;
        true
    }

    /// Gives back the reservation for an executable for which the driver took nothing.
    fn cancel(&self, slice: &Slice, pages: u64) {
        let mut ledger = self.ledger.lock();
        ledger.sums.cancel(pages);
        self.settle(slice, &mut ledger);
    }

    /// Notes that an executable has ended, and reads the driver's counter.
    fn end(&self, slice: &Slice, pages: u64) {
        self.ledger.lock().sums.end(pages);
        self.read(slice);
    }

    /// Sets the charge by the driver's counter. If the counter cannot be read, everything stays charged.
    ///
    /// The thread reads the counter without the lock, because no lock is held across a call of the driver. An executable that
    /// ends between the lock and the reading would make the figure ambiguous, so the thread then repeats the reading.
    fn read(&self, slice: &Slice) {
        for _ in 0..COUNTER_READINGS {
            let reading = self.ledger.lock().sums.begin_reading();
            let Some(reserved) = graphs::reserved(self.place.handle) else { return };
            let mut ledger = self.ledger.lock();
            if ledger.sums.end_reading(&reading, reserved) {
                self.settle(slice, &mut ledger);
                return;
            }
        }
    }

    /// Changes the slice's charge to the owed bytes. The caller holds the ledger's lock. Otherwise a refund by this thread could
    /// reach the region before the charge that another thread has just recorded in the ledger.
    fn settle(&self, slice: &Slice, ledger: &mut GraphLedger) {
        let (owed, charged) = (ledger.sums.owed(), ledger.charged);
        ledger.charged = owed;
        if owed > charged {
            slice.charge(self.place.device, owed.saturating_sub(charged));
        } else {
            slice.refund(self.place.device, charged.saturating_sub(owed));
        }
    }
}
