//! The handle of a slice: what every part of the library needs in order to charge and to give back.

use super::ceiling::{self, DeviceCeiling};
use super::device::SliceDevice;
use super::devices::Found;
use super::enforcement;
use super::green_contexts::GreenContexts;
use super::primary_contexts::Primaries;
use crate::driver_calls::{contexts, devices};
use crate::os::clock::now;
use core::cell::Cell;
use core::ffi::c_int;
use gpuslice_policy::sizes::blocks::BLOCK;
use gpuslice_region::{Device, Member, Region, RegionError, SharedUse, Uuid};

/// The place of this process in its slice, and its devices. Made once per process and never ended.
#[derive(Debug)]
pub(crate) struct Slice {
    member: Member,
    devices: Vec<SliceDevice>,
    /// The most that the operator's fixed file allows; none without one.
    ceilings: Vec<DeviceCeiling>,
    /// Green contexts, each of which stands for a primary one.
    pub(crate) greens: GreenContexts,
    /// The primary context of each device, where it is known.
    pub(crate) primaries: Primaries,
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
    /// The handle of a member. `found`: the devices that CUDA shows this process.
    pub(crate) fn new(member: Member, found: &[Found]) -> Self {
        let place = |found: &Found| {
            let device = member.device(&Uuid(found.uuid))?;
            let shares_host_memory = devices::shares_host_memory(found.handle);
            let Found { handle, total, uuid, .. } = *found;
            Some(SliceDevice { handle, device, total, uuid, shares_host_memory })
        };
        let devices: Vec<SliceDevice> = found.iter().filter_map(place).collect();
        for place in devices.iter().filter(|place| place.shares_host_memory) {
            member.note_host_memory(place.device);
        }
        let ceilings = ceiling::of_all(member.region(), found);
        Self { member, devices, ceilings, greens: GreenContexts::default(), primaries: Primaries::default() }
    }

    /// This process's place in the slice.
    #[inline]
    pub(crate) fn member(&self) -> &Member {
        &self.member
    }

    /// What anybody can read of the slice.
    pub(crate) fn region(&self) -> &Region {
        self.member.region()
    }

    /// The device with this handle of CUDA's.
    pub(crate) fn place(&self, handle: c_int) -> Option<SliceDevice> {
        // Handles are numbers from 0 as far as anybody has seen, but nothing says so.
        let likely = usize::try_from(handle).ok().and_then(|number| self.devices.get(number));
        likely
            .filter(|place| place.handle == handle)
            .or_else(|| self.devices.iter().find(|place| place.handle == handle))
            .copied()
    }

    /// All devices of this process.
    pub(crate) fn places(&self) -> &[SliceDevice] {
        &self.devices
    }

    /// Takes bytes of the quota, or says that they do not fit.
    pub(crate) fn reserve(&'static self, device: Device, bytes: u64) -> Option<Reservation> {
        if is_time_to_look(bytes) && !self.is_whole() {
            return None;
        }
        self.hold_quota(device);
        if self.member.reserve(device, bytes).is_err() {
            let _said = self.is_whole();
            return None;
        }
        Some(Reservation::new(self, device, bytes))
    }

    /// Sets a quota above the operator's ceiling back.
    #[inline]
    fn hold_quota(&self, device: Device) {
        let above =
            |ceiling: &&DeviceCeiling| ceiling.device() == device && !ceiling.allows_quota(self.region());
        if let Some(ceiling) = self.ceilings.iter().find(above) {
            ceiling.hold(self.region());
        }
    }

    /// Sets all limits above the operator's ceiling back.
    pub(crate) fn hold_limits(&self) {
        let above = self.ceilings.iter().filter(|ceiling| !ceiling.allows_all(self.region()));
        above.for_each(|ceiling| ceiling.hold(self.region()));
    }

    /// Returns true if something may be granted that takes nothing more of the quota. A region that is lost reads as
    /// zeroes, and a limit of 0 was never set by anybody.
    pub(crate) fn may_grant(&self, device: Device) -> bool {
        let may_be_lost = self.member.memory_limit(device) == Some(0);
        !(is_time_to_look(0) || may_be_lost) || self.is_whole()
    }

    /// Looks whether the slice can still keep to its limits, for those who use nothing but its time.
    pub(crate) fn look(&self) {
        let _said = self.is_whole();
    }

    /// Returns true if the slice can still keep to its limits. When it cannot, memory is refused from now on. Without
    /// its file it can: the members share what they have mapped.
    #[cold]
    fn is_whole(&self) -> bool {
        match self.member.check() {
            Ok(()) => true,
            Err(removed @ RegionError::Replaced { .. }) => {
                enforcement::goes_on_without_file(&removed);
                true
            }
            Err(error) => {
                enforcement::lose(&error);
                false
            }
        }
    }

    /// Takes bytes whatever the quota says: the driver has taken them already.
    pub(crate) fn charge(&self, device: Device, bytes: u64) {
        self.member.charge(device, bytes);
    }

    /// Gives bytes back.
    pub(crate) fn refund(&self, device: Device, bytes: u64) {
        let _not_held = self.member.refund(device, bytes);
    }

    /// Returns true if the slice holds more of a device than it may.
    pub(crate) fn is_beyond(&self, device: Device) -> bool {
        self.member.memory_limit(device).is_some_and(|limit| self.member.held(device) > limit)
    }

    /// The context that what is made now lives in: the current one, or the primary one where a green context is
    /// current.
    pub(crate) fn owner_of_current(&self) -> Option<usize> {
        contexts::current_context().map(|context| self.owner_of(context))
    }

    /// The context that what is made in one lives in: the primary one for a green one.
    pub(crate) fn owner_of(&self, context: usize) -> usize {
        let Some(device) = self.greens.device_of_view(context) else { return context };
        self.primaries.of(device).unwrap_or(context)
    }

    /// Lets others of the slice inherit the charge of memory that they use as well.
    pub(crate) fn lend(&self, device: Device, key: u64, bytes: u64) -> Option<SharedUse> {
        self.member.share_owned(device, key, bytes)
    }

    /// Notes that this process is about to use memory of another one of the slice.
    pub(crate) fn borrow(&self, key: u64) -> Option<SharedUse> {
        self.member.share_borrowed(key)
    }

    /// It uses it now.
    pub(crate) fn settle_use(&self, used: &SharedUse) {
        self.member.begin_use(used);
    }

    /// It does not use it any more.
    pub(crate) fn end_use(&self, used: SharedUse, lives_on: bool) {
        self.member.end_use(used, lives_on);
    }

    /// Returns true if the slice has a quota on a device now.
    pub(crate) fn has_quota(&self, device: Device) -> bool {
        self.member.memory_limit(device).is_some()
    }

    /// Returns true if it has one on any device of this process.
    pub(crate) fn has_any_quota(&self) -> bool {
        self.devices.iter().any(|place| self.has_quota(place.device))
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
    pub(crate) fn quota(&self, place: SliceDevice) -> Option<Quota> {
        self.hold_quota(place.device);
        let limit = self.member.memory_limit(place.device)?;
        // What the dead held is free; an error means that they cannot be told now, and the figure stays low.
        let was_due = !matches!(self.member.reap_if_due(now()), Ok(None));
        // A limit of 0 was never set by anybody.
        if (was_due || limit == 0) && !self.is_whole() {
            return None;
        }
        let region = self.region();
        let held = region.held(place.device).saturating_add(region.leaving(place.device));
        Some(Quota { total: limit.min(place.total), left: limit.saturating_sub(held) })
    }

    /// A device of the region, if this process has it.
    pub(crate) fn place_of_device(&self, device: Device) -> Option<SliceDevice> {
        self.devices.iter().find(|place| place.device == device).copied()
    }

    /// The device with this UUID, if this process has it.
    pub(crate) fn place_of(&self, uuid: &[u8; 16]) -> Option<SliceDevice> {
        let device = self.member.device(&Uuid(*uuid))?;
        self.place_of_device(device)
    }
}

/// Every so many reservations of a thread it is looked whether the region is still there: a look takes
/// half a microsecond, and this is its share of what a reservation may cost.
const LOOK_EVERY: u32 = 128;
/// From so many bytes on it is looked each time: the driver needs far longer than a look for so much. A block is less: small
/// memory that comes and goes may begin one each time.
const LOOK_FROM: u64 = 2 * BLOCK;

std::thread_local! {
    /// Reservations of this thread. Without destructor, so usable at any time of a thread's life.
    static RESERVATIONS: Cell<u32> = const { Cell::new(0) };
}

fn is_time_to_look(bytes: u64) -> bool {
    let count = RESERVATIONS.get().wrapping_add(1);
    RESERVATIONS.set(count);
    bytes >= LOOK_FROM || count.is_multiple_of(LOOK_EVERY)
}

/// Bytes of the quota that nothing is recorded for yet. Given back when dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    slice: &'static Slice,
    device: Device,
    bytes: u64,
}

impl Reservation {
    pub(crate) fn new(slice: &'static Slice, device: Device, bytes: u64) -> Self {
        Self { slice, device, bytes }
    }

    /// The device it is of.
    pub(crate) fn device(&self) -> Device {
        self.device
    }

    /// How many bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Brings it to what the driver really took; false if that does not fit.
    #[must_use]
    pub(crate) fn settle(&mut self, bytes: u64) -> bool {
        if let Some(more) = bytes.checked_sub(self.bytes) {
            let Some(extra) = self.slice.reserve(self.device, more) else { return false };
            extra.keep();
        } else {
            self.slice.refund(self.device, self.bytes.saturating_sub(bytes));
        }
        self.bytes = bytes;
        true
    }

    /// Keeps the bytes: something else gives them back.
    pub(crate) fn keep(self) {
        core::mem::forget(self);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.slice.refund(self.device, self.bytes);
    }
}
