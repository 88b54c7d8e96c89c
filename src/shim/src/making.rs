//! How much of a device does a context take?
//!
//! There may be no context yet in which the driver could be asked for free memory, so NVML is asked on both sides. What it
//! says of this process is believed where a context can take so much, or where the device's free memory says the same. A
//! figure that does not grow by a context is not this process's: the number that NVML knows it by is another process's on
//! the host.
//!
//! Where NVML does not tell, the device's free memory does. Neighbours move it too. What the ledgers of this slice and of
//! those beside it say that they took or gave back meanwhile is taken off. While another process makes a context, no ledger
//! has its size: then free memory is no witness. Neither is it for a size that a context cannot have.
//!
//! Where neither tells, a context counts as what one of the slice was seen to take, and before the first as an estimate.

use crate::compute::neighbours;
use crate::flights::Count;
use crate::footprint::Session;
use crate::measure::settle_here;
use crate::slice::{Place, Slice};
use crate::witness::{difference, signed};
use gpuslice_policy::context::believed;
use gpuslice_region::{ContextCreations, Device, Uuid};

/// How often the ledgers are read anew because one moved meanwhile.
const READINGS: u32 = 3;

/// A context is about to be made.
#[derive(Debug)]
pub(crate) struct Making {
    slice: &'static Slice,
    pub(crate) place: Place,
    /// NVML, if the device has a quota.
    nvml: Option<Session>,
    own: Option<u64>,
    charged: u64,
    count: Count,
    /// Whether it is a context like others, whose size is the same for all.
    is_usual: bool,
    device: Option<Reading>,
}

/// A device at an instant.
#[derive(Debug, Clone, Copy)]
struct Reading {
    /// Bytes that nobody holds.
    free: u64,
    books: Books,
}

/// What the ledgers of this slice and of those beside it say of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Books {
    /// Bytes that all of them hold.
    held: u64,
    /// Bytes that this slice holds.
    own: u64,
    /// Contexts that other processes make.
    makings: ContextCreations,
}

impl Books {
    /// `reserved` is of this process, and not held yet. None: there are more slices than can be read.
    fn read(slice: &Slice, place: Place, reserved: u64) -> Option<Self> {
        let region = slice.region();
        let own = region.held(place.device).saturating_sub(reserved);
        let mut held = own;
        let mut makings = region.context_creations(Some(slice.member().slot()));
        for other in neighbours::beside(region.path())? {
            let device = other.device(&Uuid(place.uuid));
            held = held.saturating_add(device.map_or(0, |device| other.held(device)));
            makings = makings.plus(other.context_creations(None));
        }
        Some(Self { held, own, makings })
    }
}

impl Reading {
    /// None: free memory cannot be read, says nothing, or moves with others all the time.
    fn take(slice: &Slice, place: Place, reserved: u64, nvml: Session) -> Option<Self> {
        if place.shares_host_memory {
            return None;
        }
        let mut before = Books::read(slice, place, reserved)?;
        for _ in 0..READINGS {
            let free = nvml.free(place)?;
            let books = Books::read(slice, place, reserved)?;
            if books == before {
                return Some(Self { free, books });
            }
            before = books;
        }
        None
    }

    /// The device's free memory and what the slice holds, which has `more` than its ledger says.
    fn note_room(&self, slice: &Slice, device: Device, more: u64) {
        slice.member().note_available(device, self.free.saturating_add(self.books.own).saturating_add(more));
    }

    /// What the device lost until another reading, beyond what the ledgers explain. None: somebody made a context meanwhile.
    fn lost(&self, now: &Self) -> Option<i64> {
        let is_alone = self.books.makings == now.books.makings && now.books.makings.under_way == 0;
        let explained = difference(self.books.held, now.books.held);
        is_alone.then(|| difference(now.free, self.free).saturating_sub(explained))
    }
}

impl Making {
    /// Asks before a call that makes a context.
    pub(crate) fn read(slice: &'static Slice, place: Place) -> Self {
        // Not made of another value's fields, which would end the making with it.
        let mut making = Self::beside(slice, place);
        making.is_usual = true;
        making
    }

    /// Asks before a call that makes something else of the kind.
    pub(crate) fn beside(slice: &'static Slice, place: Place) -> Self {
        if slice.witness.is_unsettled() {
            settle_here(slice, 1);
        }
        let nvml = if slice.has_quota(place.device) { Session::open() } else { None };
        let count = slice.flights.count();
        let charged = slice.own(place.device);
        let own = nvml.and_then(|nvml| nvml.own(place).ok());
        let device = nvml.and_then(|nvml| Reading::take(slice, place, 0, nvml));
        // Before the driver is called: others see the mark at one of their readings, or do not meet the call.
        slice.member().begin_context_creation();
        Self { slice, place, nvml, own, charged, count, is_usual: false, device }
    }

    /// What the context took. `reserved` bytes of it are in the ledger already.
    pub(crate) fn took(&self, reserved: u64, estimate: u64) -> u64 {
        let (slice, device) = (self.slice, self.place.device);
        let known = slice.context_bytes(device).filter(|_| self.is_usual);
        if !slice.has_quota(device) {
            let took = known.unwrap_or(estimate);
            slice.witness.note_estimate(device, 0, signed(took));
            return took;
        }
        let now = self.nvml.and_then(|nvml| Reading::take(slice, self.place, reserved, nvml));
        let own = self.nvml.and_then(|nvml| nvml.own(self.place).ok());
        let charged = slice.own(device).saturating_sub(reserved);
        let still = charged == self.charged && slice.flights.count().is_still_since(self.count, 1);
        let lost = self.device.zip(now).and_then(|(before, now)| before.lost(&now)).filter(|_| still);
        let more = charged.saturating_sub(self.charged);
        let grown =
            own.map(|own| own.saturating_sub(self.own.unwrap_or(0)).saturating_sub(more)).filter(|grown| {
                let contradicted = lost.filter(|lost| *lost != signed(*grown));
                believed(signed(*grown), estimate).is_some()
                    || contradicted.is_none_or(|lost| believed(lost, estimate).is_none())
            });
        let seen = grown.or_else(|| lost.and_then(|lost| believed(lost, estimate)));
        if let Some(seen) = seen.filter(|_| still && self.is_usual) {
            slice.learn_context_bytes(device, seen);
        }
        let took = seen.filter(|_| still).or(known).or(seen).unwrap_or(estimate);
        if let Some(before) = self.device {
            before.note_room(slice, device, 0);
        }
        if let Some(now) = now {
            now.note_room(slice, device, took);
        }
        // Where it is not told NVML knows this process by another number.
        let own = own.filter(|_| grown.is_some());
        slice.witness.note(device, own, own.map_or(charged, |_| charged.saturating_add(took)));
        took
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        self.slice.member().end_context_creation();
    }
}
