//! What does a member know about its slice and about what it has taken from it?

use crate::arrays::Arrays;
use crate::devices::Found;
use crate::hooks::vmm;
use crate::ledger::{Addresses, Reservation};
use crate::pools::Pools;
use core::ffi::c_int;
use gpuslice_driver::types::CUdevice;
use gpuslice_region::{Device, Member, Region, Uuid};
use parking_lot::Mutex;

/// The place of this process in its slice. Made once per process and never ended.
#[derive(Debug)]
pub(crate) struct Slice {
    member: Member,
    devices: Vec<Place>,
    /// What each address that this process got from the driver was charged.
    pub(crate) addresses: Addresses,
    /// Physical memory that was taken apart from addresses.
    pub(crate) physical: Mutex<vmm::Tables>,
    /// Arrays that this process made.
    pub(crate) arrays: Arrays,
    /// Pools that this process allocates from.
    pub(crate) pools: Pools,
    /// The primary context of each device, where it is known: context and device.
    pub(crate) primaries: Mutex<Vec<(usize, CUdevice)>>,
}

/// A device of this process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    /// CUDA's handle.
    pub(crate) handle: CUdevice,
    /// The region's.
    pub(crate) device: Device,
    /// The driver's own size, in bytes.
    pub(crate) total: u64,
    /// Its UUID.
    pub(crate) uuid: [u8; 16],
}

/// What a slice has and holds of a device that has a quota, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Quota {
    /// The quota, never more than the device has.
    pub(crate) total: u64,
    /// What is left of it.
    pub(crate) left: u64,
}

impl Slice {
    pub(crate) fn new(member: Member, found: &[Found]) -> Self {
        let place = |found: &Found| {
            let device = member.device(&Uuid(found.uuid))?;
            Some(Place { handle: found.handle, device, total: found.total, uuid: found.uuid })
        };
        let devices = found.iter().filter_map(place).collect();
        Self {
            member,
            devices,
            addresses: Addresses::default(),
            physical: Mutex::default(),
            arrays: Arrays::default(),
            pools: Pools::default(),
            primaries: Mutex::default(),
        }
    }

    /// What anybody can read of the slice.
    pub(crate) fn region(&self) -> &Region {
        self.member.region()
    }

    /// The device with this handle of CUDA's.
    pub(crate) fn place(&self, handle: c_int) -> Option<Place> {
        // Handles are numbers from 0 as far as anybody has seen, but nothing says so.
        let likely = usize::try_from(handle).ok().and_then(|number| self.devices.get(number));
        likely
            .filter(|place| place.handle == handle)
            .or_else(|| self.devices.iter().find(|place| place.handle == handle))
            .copied()
    }

    /// All devices of this process.
    pub(crate) fn places(&self) -> &[Place] {
        &self.devices
    }

    /// Takes bytes of the quota, or says that they do not fit.
    pub(crate) fn reserve(&'static self, device: Device, bytes: u64) -> Option<Reservation> {
        self.member.reserve(device, bytes).ok()?;
        Some(Reservation::new(self, device, bytes))
    }

    /// Counts a refusal that the program gets to see.
    pub(crate) fn count_refusal(&self, device: Device) {
        self.member.count_refusal(device);
    }

    /// Takes bytes whatever the quota says: the driver has taken them already.
    pub(crate) fn charge(&self, device: Device, bytes: u64) {
        self.member.charge(device, bytes);
    }

    /// Gives bytes back.
    pub(crate) fn refund(&self, device: Device, bytes: u64) {
        let _not_held = self.member.refund(device, bytes);
    }

    /// Whether the slice has a quota on a device now.
    pub(crate) fn has_quota(&self, device: Device) -> bool {
        self.member.limits(device).memory.is_some()
    }

    /// Bytes that this process holds of a device, by the ledger.
    pub(crate) fn own(&self, device: Device) -> u64 {
        self.member.own(device)
    }

    /// What a context on a device is likely to take; none while none was seen.
    pub(crate) fn context_bytes(&self, device: Device) -> Option<u64> {
        self.member.context_bytes(device)
    }

    /// Remembers for the whole slice what a context took.
    pub(crate) fn learn_context_bytes(&self, device: Device, bytes: u64) {
        self.member.learn_context_bytes(device, bytes);
    }

    /// What the slice has and holds of a device; none where the device has no quota.
    pub(crate) fn quota(&self, place: Place) -> Option<Quota> {
        let limit = self.member.limits(place.device).memory?;
        // What the dead held is free; an error means that they cannot be told now, and the figure stays low.
        let _reaped = self.member.reap_if_due(now());
        let held = self.member.held(place.device);
        Some(Quota { total: limit.min(place.total), left: limit.saturating_sub(held) })
    }

    /// The device with this UUID, if this process has it.
    pub(crate) fn place_of(&self, uuid: &[u8; 16]) -> Option<Place> {
        let device = self.member.device(&Uuid(*uuid))?;
        self.devices.iter().find(|place| place.device == device).copied()
    }
}

/// The monotonic clock in nanoseconds.
fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes to the structure given.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    let nanoseconds = i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
    u64::try_from(nanoseconds).unwrap_or(0)
}
