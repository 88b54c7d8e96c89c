//! Physical memory apart from addresses: it goes back with its last handle and its last mapping.
//!
//! A call that adds a handle or mapping counts it before the driver is called. A call that removes one counts after it. So memory
//! is never given back while the driver still holds it.

use crate::driver_calls::locations::device_of;
use crate::hooks::hooked_call::HookedCall;
use crate::hooks::protocol::{Decision, Granted, around, charge, reserve};
use crate::memory::physical::{Allocation, AllocationId};
use crate::memory::physical_uses::{pin, released, unmapped};
use crate::process::Process;
use crate::slice::handle::Reservation;
use gpuslice_driver::arguments::read_in;
use gpuslice_driver::functions as real;
use gpuslice_driver::types::{AllocationProperties, CUmemGenericAllocationHandle, Status, status};
use gpuslice_region::{Device, SharedUse};

/// Kind of an import, as far as it is known before the driver is asked.
pub(crate) enum Incoming {
    /// Memory that this process has already: the import is one handle more.
    Known(AllocationId),
    /// Memory that a member of the slice pays for.
    Borrowed(u64, SharedUse),
    /// Anything else.
    Foreign,
}

impl Incoming {
    pub(crate) fn expect(process: &Process, key: Option<u64>) -> Self {
        let Some(key) = key else { return Self::Foreign };
        let mut tables = process.physical.lock();
        if let Some(number) = tables.by_key(key) {
            tables.retain(number);
            return Self::Known(number);
        }
        drop(tables);
        process.borrow(key).map_or(Self::Foreign, |used| Self::Borrowed(key, used))
    }

    /// Records the handle that the driver gave for the import.
    pub(crate) fn arrive(self, process: &Process, handle: CUmemGenericAllocationHandle) {
        if let Self::Borrowed(_, used) = &self {
            process.settle_use(used);
        }
        let mut tables = process.physical.lock();
        match self {
            Self::Known(number) => tables.note(handle, number),
            Self::Borrowed(key, used) => {
                // Another thread may have imported the same memory meanwhile.
                if let Some(number) = tables.by_key(key) {
                    tables.retain(number);
                    tables.note(handle, number);
                    drop(tables);
                    process.end_use(used, true);
                } else {
                    tables.add(handle, Allocation::borrowed(key, used));
                }
            }
            // The driver gives the same handle for memory that it knows.
            Self::Foreign => match tables.number_of(handle) {
                Some(number) => {
                    tables.retain(number);
                    tables.note(handle, number);
                }
                None => tables.add_free(handle),
            },
        }
    }

    /// Takes back the import that the driver refused.
    pub(crate) fn fail(self, process: &Process) {
        match self {
            Self::Known(number) => released(process, process.physical.lock(), number),
            Self::Borrowed(_, used) => process.end_use(used, true),
            Self::Foreign => {}
        }
    }
}

impl Granted for (&'static Process, Reservation) {
    fn granted(&self) -> Option<(Device, u64)> {
        self.1.granted()
    }
}

/// `cuMemCreate`. Needs no context: the location names the device.
pub(crate) fn create(call: &HookedCall<real::cuMemCreate>) -> Status {
    let (output, bytes, properties, _) = call.arguments();
    let decide = |process: &'static Process| -> Decision<(&'static Process, Reservation)> {
        // SAFETY: `read_in` requires null or readable bytes, and so does the driver. `AllocationProperties` has the same bytes,
        // with integers for enumerations.
        let wanted = unsafe { read_in(properties.cast::<AllocationProperties>()) };
        let device = wanted.and_then(|wanted| device_of(wanted.location));
        let Some(place) = device.and_then(|device| process.place(device)) else { return Decision::Forward };
        reserve(process, place.device, bytes as u64).map(|reservation| (process, reservation))
    };
    charge(
        decide,
        || call.forward(),
        |(process, reservation), code| {
            // SAFETY: `read_in` requires that `output` is null or readable, and so does the driver.
            if let Some(handle) = unsafe { read_in(output) }.filter(|_| code == status::SUCCESS) {
                let piece = Allocation::made(reservation.device(), reservation.bytes());
                process.physical.lock().add(handle, piece);
                reservation.keep();
            }
            code
        },
    )
}

/// `cuMemRelease`.
pub(crate) fn release(call: &HookedCall<real::cuMemRelease>) -> Status {
    let (handle,) = call.arguments();
    around(
        |process| process.physical.lock().forget(handle),
        || call.forward(),
        |process, number, code| {
            let Some(number) = number else { return };
            let mut tables = process.physical.lock();
            if code == status::SUCCESS {
                released(process, tables, number);
            } else {
                tables.note(handle, number);
            }
        },
    )
}

/// `cuMemRetainAllocationHandle`: a further handle of the memory that is mapped at an address.
pub(crate) fn retain(call: &HookedCall<real::cuMemRetainAllocationHandle>) -> Status {
    let (output, address) = call.arguments();
    let pin = |process: &'static Process| {
        let mut tables = process.physical.lock();
        let number = tables.mapped_at(address.addr() as u64)?;
        tables.retain(number);
        Some(number)
    };
    around(
        pin,
        || call.forward(),
        |process, number, code| {
            let Some(number) = number else { return };
            let mut tables = process.physical.lock();
            // SAFETY: `read_in` requires that `output` is null or readable, and so does the driver.
            if let Some(handle) = unsafe { read_in(output) }.filter(|_| code == status::SUCCESS) {
                tables.note(handle, number);
                return;
            }
            released(process, tables, number);
        },
    )
}

/// `cuMemMap`.
pub(crate) fn map(call: &HookedCall<real::cuMemMap>) -> Status {
    let (address, bytes, _, handle, _) = call.arguments();
    around(
        |process| pin(process, handle),
        || call.forward(),
        |process, number, code| {
            let Some(number) = number else { return };
            let mut tables = process.physical.lock();
            if code == status::SUCCESS {
                tables.map(address, bytes as u64, number);
            } else {
                unmapped(process, tables, number);
            }
        },
    )
}

/// `cuMemUnmap`: all mappings within a range.
pub(crate) fn unmap(call: &HookedCall<real::cuMemUnmap>) -> Status {
    let (address, bytes) = call.arguments();
    around(
        |process| process.physical.lock().take_mappings(address, bytes as u64),
        || call.forward(),
        |process, gone, code| {
            for (start, (bytes, number)) in gone {
                let mut tables = process.physical.lock();
                if code == status::SUCCESS {
                    unmapped(process, tables, number);
                } else {
                    tables.map(start, bytes, number);
                }
            }
        },
    )
}
