//! Free memory of a device, read together with the ledgers of the same instant.
//!
//! The region of each slice in the folder has the bytes that the slice's processes hold. The *room* of the device is its free
//! memory plus the bytes that all these processes hold. If a slice takes memory, free memory falls and held bytes grow by the
//! same bytes, so the room stays the same. The room changes when a program takes memory that no ledger has, and while the device
//! does not have the memory of dead processes back.

use super::nvml_baseline::difference;
use crate::driver_calls::nvml::memory::Session;
use crate::driver_calls::{contexts, devices};
use crate::slice::device::SliceDevice;
use crate::slice::handle::Slice;
use crate::slice::other_slices;
use gpuslice_region::{Calls, Reaped, Region, Uuid};

/// Largest number of readings in a row. A thread repeats a reading if a ledger changed meanwhile.
const LEDGER_READINGS: u32 = 3;

/// Figures of a device at an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Free bytes of the device.
    free: u64,
    ledgers: Ledgers,
}

/// Ledgers of this slice and of the slices beside it, as far as they concern a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ledgers {
    /// Bytes that living processes of other slices hold.
    beside: u64,
    /// Bytes that living processes of this slice hold.
    own: u64,
    /// True if any of the slices has memory of dead processes that the device may not have back.
    leaves: bool,
    /// Calls of other processes that make contexts.
    makings: Calls,
    /// Memory calls of all processes.
    calls: Calls,
}

/// Source of a device's free memory.
#[derive(Debug)]
enum Gauge {
    Nvml(Session),
    Driver,
}

impl Ledgers {
    /// Reads the ledgers. `reserved` bytes are reserved by this process and not held yet. Returns `None` if there are more slices
    /// than the library reads, or if another process is reaping a dead process at that moment.
    fn read(slice: &Slice, place: SliceDevice, reserved: u64) -> Option<Self> {
        let (region, device) = (slice.region(), place.device);
        if !is_cleared(region) {
            return None;
        }
        let mut ledgers = Self {
            beside: 0,
            own: region.held(device).saturating_sub(reserved),
            leaves: region.leaving(device) > 0,
            makings: region.context_creations(Some(slice.member().slot())),
            // The calls are read after the held bytes. So if the held bytes contain a call's reservation, the count has the call.
            calls: region.all_memory_calls(),
        };
        for other in other_slices::beside(region.path())? {
            // A slice without living processes has no member that reaps its dead processes, so this thread does it.
            if !is_cleared(&other) {
                return None;
            }
            if let Some(device) = other.device(&Uuid(place.uuid)) {
                ledgers.beside = ledgers.beside.saturating_add(other.held(device));
                ledgers.leaves |= other.leaving(device) > 0;
            }
            ledgers.makings = ledgers.makings.plus(other.context_creations(None));
            ledgers.calls = ledgers.calls.plus(other.all_memory_calls());
        }
        Some(ledgers)
    }
}

/// Reaps the dead processes of a slice. Returns false if another process is doing that at this moment. Until it has finished, the
/// bytes of a dead process may count twice, and the device may have them back.
fn is_cleared(region: &Region) -> bool {
    !matches!(region.reap(), Ok(Reaped::UnderWay))
}

impl Reading {
    /// Reads free memory between two equal readings of the ledgers. So free memory belongs to these ledgers, although no lock
    /// stops other processes. `reserved`: bytes that are in this process's ledger and that the driver has not given yet. Returns
    /// `None` if free memory cannot be read or is the host's, or if the ledgers changed during each reading.
    pub(crate) fn take(slice: &Slice, place: SliceDevice, reserved: u64) -> Option<Self> {
        let gauge = Gauge::of(place)?;
        let mut before = Ledgers::read(slice, place, reserved)?;
        for _ in 0..LEDGER_READINGS {
            let free = gauge.free()?;
            let ledgers = Ledgers::read(slice, place, reserved)?;
            if ledgers == before {
                return Some(Self { free, ledgers });
            }
            before = ledgers;
        }
        None
    }

    /// Returns true if the ledgers and the device agreed at the instant of the reading. They did if no memory calls were under
    /// way but the `own` calls of the caller.
    pub(crate) fn is_exact(&self, own: u64) -> bool {
        self.ledgers.calls.under_way <= own
    }

    /// Returns the room of the device: free bytes, and bytes that living processes of the folder's slices hold.
    pub(crate) fn room(&self) -> u64 {
        self.free.saturating_add(self.ledgers.beside).saturating_add(self.ledgers.own)
    }

    /// Notes the room in the region if the reading is [exact](Self::is_exact) and no memory of dead processes leaves the device.
    /// `more`: bytes that the driver has given to the caller and that no ledger has.
    pub(crate) fn note_room(&self, slice: &Slice, place: SliceDevice, more: u64, own: u64) {
        if !self.ledgers.leaves && self.is_exact(own) {
            slice.member().note_available(place.device, self.room().saturating_add(more));
        }
    }

    /// Returns the bytes that the device lost until the reading `now`, beyond the bytes that the ledgers explain. `None`: another
    /// process made a context meanwhile, and its ledger may not have the size of that context.
    pub(crate) fn lost(&self, now: &Self) -> Option<i64> {
        let is_alone = now.ledgers.makings.is_still_since(self.ledgers.makings, 0);
        let held = |ledgers: &Ledgers| ledgers.beside.saturating_add(ledgers.own);
        let explained = difference(held(&self.ledgers), held(&now.ledgers));
        is_alone.then(|| difference(now.free, self.free).saturating_sub(explained))
    }
}

impl Gauge {
    /// Chooses the source. NVML comes first, because it needs no context. The driver is the source if there are no figures of NVML
    /// and a context of the device is current. Returns `None` if there is no source, or if the device shares the host's memory.
    fn of(place: SliceDevice) -> Option<Self> {
        if place.shares_host_memory {
            return None;
        }
        let is_current = || contexts::current_device() == Some(place.handle);
        Session::open(&place.uuid).map(Self::Nvml).or_else(|| is_current().then_some(Self::Driver))
    }

    fn free(&self) -> Option<u64> {
        match self {
            Self::Nvml(nvml) => nvml.free(),
            Self::Driver => devices::device_free(),
        }
    }
}
