//! Free memory of a device, read together with the ledgers of the same instant.
//!
//! Each slice in the folder tells in its region how much its processes hold. Free memory and the bytes that all of them hold are
//! the *room* of the device. A slice that takes or gives back memory moves both by the same bytes, so the room stays. It changes
//! where the device takes memory that no ledger has, and while memory of dead processes is not back yet.

use super::nvml_baseline::difference;
use crate::driver_calls::nvml::memory::Session;
use crate::driver_calls::{contexts, devices};
use crate::slice::device::SliceDevice;
use crate::slice::handle::Slice;
use crate::slice::other_slices;
use gpuslice_driver::types::nvmlDevice_t;
use gpuslice_region::{Calls, Reaped, Region, Uuid};

/// Most readings of the ledgers in a row. One is repeated if a ledger moved meanwhile.
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
    /// True if memory of dead processes leaves the device, in any of the slices.
    leaves: bool,
    /// Contexts that other processes make.
    makings: Calls,
    /// Memory calls of all processes.
    calls: Calls,
}

/// Source of a device's free memory.
#[derive(Debug)]
enum Gauge {
    Nvml(Session, nvmlDevice_t),
    Driver,
}

impl Ledgers {
    /// Reads the ledgers. `reserved` bytes are this process's and not held yet. Returns `None` if there are more slices than can
    /// be read, or if a dead process is being cleared.
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
            // The calls are read after the held bytes: a call whose bytes were seen is seen too.
            calls: region.all_memory_calls(),
        };
        for other in other_slices::beside(region.path())? {
            // A slice without living processes has no member that notices deaths.
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

/// Returns true if no dead process of the slice is being cleared. Its bytes count twice meanwhile, and the device may
/// have them back.
fn is_cleared(region: &Region) -> bool {
    !matches!(region.reap(), Ok(Reaped::UnderWay))
}

impl Reading {
    /// Reads free memory between two equal readings of the ledgers. `reserved`: bytes that this process has in its ledger and
    /// that the driver has not given yet. Returns `None` if free memory cannot be read, is the host's, or if the ledgers move all
    /// the time.
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

    /// Returns true if the ledgers and the device agreed at that instant: only `own` memory calls of the caller were under way.
    pub(crate) fn is_exact(&self, own: u64) -> bool {
        self.ledgers.calls.under_way <= own
    }

    /// Returns the room of the device: free bytes, and bytes that living processes of the folder's slices hold.
    pub(crate) fn room(&self) -> u64 {
        self.free.saturating_add(self.ledgers.beside).saturating_add(self.ledgers.own)
    }

    /// Notes the room in the region, unless memory leaves the device or the reading is not [exact](Self::is_exact). `more`: bytes
    /// that the driver has given the caller and that no ledger has.
    pub(crate) fn note_room(&self, slice: &Slice, place: SliceDevice, more: u64, own: u64) {
        if !self.ledgers.leaves && self.is_exact(own) {
            slice.member().note_available(place.device, self.room().saturating_add(more));
        }
    }

    /// Returns the bytes that the device lost until the reading `now`, beyond the bytes that the ledgers explain. `None`: another
    /// process made a context meanwhile.
    pub(crate) fn lost(&self, now: &Self) -> Option<i64> {
        let is_alone = now.ledgers.makings.is_still_since(self.ledgers.makings, 0);
        let held = |ledgers: &Ledgers| ledgers.beside.saturating_add(ledgers.own);
        let explained = difference(held(&self.ledgers), held(&now.ledgers));
        is_alone.then(|| difference(now.free, self.free).saturating_sub(explained))
    }
}

impl Gauge {
    /// Chooses the source. NVML needs no context. The driver tells if NVML is missing and a context of the device is current.
    /// Returns `None` if neither tells, or if the memory is the host's and moves with programs that use no GPU.
    fn of(place: SliceDevice) -> Option<Self> {
        if place.shares_host_memory {
            return None;
        }
        let by_nvml = Session::open().and_then(|nvml| Some(Self::Nvml(nvml, nvml.device(&place.uuid)?)));
        let is_current = || contexts::current_device() == Some(place.handle);
        by_nvml.or_else(|| is_current().then_some(Self::Driver))
    }

    fn free(&self) -> Option<u64> {
        match self {
            Self::Nvml(nvml, device) => nvml.free(*device),
            Self::Driver => devices::device_free(),
        }
    }
}
