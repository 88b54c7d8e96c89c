//! Handle of a slice: charges and releases memory, and gives access to the member and its devices.

use super::ceiling::SliceCeilings;
use super::device::SliceDevice;
use super::devices::FoundDevice;
use super::enforcement;
use super::green_contexts::GreenContexts;
use super::other_slices;
use super::primary_contexts::PrimaryContexts;
use crate::driver_calls::{contexts, devices};
use crate::os::clock::now;
use core::cell::Cell;
use core::ffi::c_int;
use gpuslice_policy::sizes::blocks::BLOCK;
use gpuslice_policy::time::Monotonic;
use gpuslice_region::{Device, Member, Region, RegionError, SharedUse, Uuid};

/// The membership of this process in its slice, and its devices. It is made once per process and never dropped.
#[derive(Debug)]
pub(crate) struct Slice {
    member: Member,
    devices: Vec<SliceDevice>,
    /// Ceilings of the operator's fixed file.
    ceilings: SliceCeilings,
    /// Green contexts. Each lives in a primary context.
    pub(crate) greens: GreenContexts,
    /// Primary context of each device, if the program has retained it.
    pub(crate) primary_contexts: PrimaryContexts,
}

/// Quota of a slice on one device, and the rest of it, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DeviceQuota {
    /// The quota, at most the device's memory.
    pub(crate) total: u64,
    /// Bytes of the quota that are not used.
    pub(crate) left: u64,
}

impl Slice {
    /// Makes the handle of a member. `found`: the devices that CUDA shows this process.
    pub(crate) fn new(member: Member, found: &[FoundDevice]) -> Self {
        let place = |found: &FoundDevice| {
            let device = member.device(&Uuid(found.uuid))?;
            let shares_host_memory = devices::shares_host_memory(found.handle);
            let FoundDevice { handle, total, uuid, .. } = *found;
            Some(SliceDevice { handle, device, total, uuid, shares_host_memory })
        };
        let devices: Vec<SliceDevice> = found.iter().filter_map(place).collect();
        for place in devices.iter().filter(|place| place.shares_host_memory) {
            member.note_host_memory(place.device);
        }
        let ceilings = SliceCeilings::of_all(member.region(), found);
        Self {
            member,
            devices,
            ceilings,
            greens: GreenContexts::default(),
            primary_contexts: PrimaryContexts::default(),
        }
    }

    /// Returns this process's place in the slice.
    #[inline]
    pub(crate) fn member(&self) -> &Member {
        &self.member
    }

    /// Returns the region of the slice.
    pub(crate) fn region(&self) -> &Region {
        self.member.region()
    }

    /// Returns the device with this CUDA handle.
    pub(crate) fn place(&self, handle: c_int) -> Option<SliceDevice> {
        // Every known driver numbers its handles from 0, so the first try usually succeeds. But CUDA does not promise this order.
        let likely = usize::try_from(handle).ok().and_then(|number| self.devices.get(number));
        likely
            .filter(|place| place.handle == handle)
            .or_else(|| self.devices.iter().find(|place| place.handle == handle))
            .copied()
    }

    /// Returns the device of the current context.
    pub(crate) fn place_of_current(&self) -> Option<SliceDevice> {
        self.place(contexts::current_device()?)
    }

    /// Returns all devices of this process.
    pub(crate) fn places(&self) -> &[SliceDevice] {
        &self.devices
    }

    /// Reserves bytes of the quota. Returns `None` if they do not fit.
    pub(crate) fn reserve(&'static self, device: Device, bytes: u64) -> Option<Reservation> {
        if count_reservation(bytes) && !self.check_region() {
            return None;
        }
        self.hold_quota(device);
        if self.member.reserve(device, bytes).is_err() {
            let _said = self.check_region();
            return None;
        }
        Some(Reservation::new(self, device, bytes))
    }

    /// Sets the quota back if it is above the operator's ceiling.
    #[inline]
    fn hold_quota(&self, device: Device) {
        self.ceilings.hold_quota(self.region(), device);
    }

    /// Sets all limits back that are above the operator's ceilings. The worker calls this at each tick.
    pub(crate) fn hold_limits(&self, now: Monotonic) {
        self.ceilings.hold_all(self.region(), now);
    }

    /// Returns true if the library may grant a call that takes no further bytes of the quota. A lost region reads as zeroes, and
    /// no slice has a limit of 0. So if the limit is 0, this function checks the region.
    pub(crate) fn may_grant(&self, device: Device) -> bool {
        let may_be_lost = self.member.memory_limit(device) == Some(0);
        !(count_reservation(0) || may_be_lost) || self.check_region()
    }

    /// Checks whether the slice can still keep to its limits. Threads that only wait for GPU time call this.
    pub(crate) fn check(&self) {
        let _said = self.check_region();
    }

    /// Returns true if the slice can still keep to its limits. Otherwise the library refuses memory from now on. If only the file
    /// was removed or replaced, the slice still can, because the members share the pages that they have mapped. The function also
    /// checks the operator's file.
    #[cold]
    fn check_region(&self) -> bool {
        self.ceilings.look(self.region());
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

    /// Charges bytes without regard to the quota, because the driver has taken them already.
    pub(crate) fn charge(&self, device: Device, bytes: u64) {
        self.member.charge(device, bytes);
    }

    /// Releases bytes.
    pub(crate) fn refund(&self, device: Device, bytes: u64) {
        let _not_held = self.member.refund(device, bytes);
    }

    /// Returns true if the slice holds more of a device than its quota.
    pub(crate) fn is_beyond(&self, device: Device) -> bool {
        self.member.memory_limit(device).is_some_and(|limit| self.member.held(device) > limit)
    }

    /// Returns the context that will own an object that the thread makes now. It is the current context, or the primary context
    /// if a green context is current.
    pub(crate) fn owner_of_current(&self) -> Option<usize> {
        contexts::current_context().map(|context| self.owner_of(context))
    }

    /// Returns the context that owns the objects of `context`: the primary context for a green context, or `context` itself.
    pub(crate) fn owner_of(&self, context: usize) -> usize {
        let Some(device) = self.greens.device_of_context_handle(context) else { return context };
        self.primary_contexts.of(device).unwrap_or(context)
    }

    /// Records that other members may use memory of this process by `key`, so that one of them can inherit its charge.
    pub(crate) fn lend(&self, device: Device, key: u64, bytes: u64) -> Option<SharedUse> {
        self.member.share_owned(device, key, bytes)
    }

    /// Notes that this process is about to use memory of another member.
    pub(crate) fn borrow(&self, key: u64) -> Option<SharedUse> {
        self.member.share_borrowed(key)
    }

    /// Notes that this process now uses memory that [`borrow`](Self::borrow) or [`lend`](Self::lend) announced.
    pub(crate) fn settle_use(&self, used: &SharedUse) {
        self.member.begin_use(used);
    }

    /// Notes that this process does not use shared memory any more. `lives_on`: the memory remains for its other users.
    pub(crate) fn end_use(&self, used: SharedUse, lives_on: bool) {
        self.member.end_use(used, lives_on);
    }

    /// Returns true if the slice has a quota on a device now.
    pub(crate) fn has_quota(&self, device: Device) -> bool {
        self.member.memory_limit(device).is_some()
    }

    /// Returns true if the quota has room for `bytes` bytes, once the slice has given back `coming` bytes of its usage.
    pub(crate) fn fits_without(&self, device: Device, bytes: u64, coming: u64) -> bool {
        let held = self.region().held(device).saturating_sub(coming);
        self.region().memory_limit(device).is_some_and(|limit| held.saturating_add(bytes) <= limit)
    }

    /// Returns true if the slice has a quota on any device of this process.
    pub(crate) fn has_any_quota(&self) -> bool {
        self.devices.iter().any(|place| self.has_quota(place.device))
    }

    /// Returns the bytes that a context on a device is likely to take: the largest context that the slice has measured on it. If
    /// there is none, the slices beside it tell what they have measured ([`other_slices::context_bytes`]).
    pub(crate) fn context_bytes(&self, place: SliceDevice) -> Option<u64> {
        let beside = || other_slices::context_bytes(self.region().path(), place.total);
        self.member.context_bytes(place.device).or_else(beside)
    }

    /// Stores the bytes that a context took, for the whole slice.
    pub(crate) fn learn_context_bytes(&self, device: Device, bytes: u64) {
        self.member.learn_context_bytes(device, bytes);
    }

    /// Returns the quota of a device and its unused part; `None` if the device has no quota.
    pub(crate) fn quota(&self, place: SliceDevice) -> Option<DeviceQuota> {
        self.hold_quota(place.device);
        let limit = self.member.memory_limit(place.device)?;
        // The reap frees memory of dead members. If it fails, the process cannot find dead members now, and the unused part is
        // reported too low.
        let was_due = !matches!(self.member.reap_if_due(now()), Ok(None));
        // No slice has a limit of 0, but a lost region reads as zeroes.
        if (was_due || limit == 0) && !self.check_region() {
            return None;
        }
        let region = self.region();
        let held = region.held(place.device).saturating_add(region.leaving(place.device));
        Some(DeviceQuota { total: limit.min(place.total), left: limit.saturating_sub(held) })
    }

    /// Returns a device of the region, if this process has it.
    pub(crate) fn place_of_device(&self, device: Device) -> Option<SliceDevice> {
        self.devices.iter().find(|place| place.device == device).copied()
    }

    /// Returns the device with this UUID, if this process has it.
    pub(crate) fn place_of(&self, uuid: &[u8; 16]) -> Option<SliceDevice> {
        let device = self.member.device(&Uuid(*uuid))?;
        self.place_of_device(device)
    }
}

/// Number of a thread's reservations between two checks that the region still exists. A check takes half a microsecond. Divided
/// by this number it adds little to a reservation.
const CHECK_EVERY: u32 = 128;
/// Least size of a reservation that always checks the region, because the driver takes far longer than a check for such a size.
/// The threshold is above the size of a block: a program that allocates and frees small memory may reserve a block each time.
const LOOK_FROM: u64 = 2 * BLOCK;

std::thread_local! {
    /// Number of reservations of this thread. It has no destructor, so it is usable at any time of the thread's life.
    static RESERVATIONS: Cell<u32> = const { Cell::new(0) };
}

/// Counts a reservation of `bytes`. Returns true if the caller must check that the region still exists.
fn count_reservation(bytes: u64) -> bool {
    let count = RESERVATIONS.get().wrapping_add(1);
    RESERVATIONS.set(count);
    bytes >= LOOK_FROM || count.is_multiple_of(CHECK_EVERY)
}

/// Bytes that are charged to the quota before an allocation is recorded for them. Its drop refunds them.
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

    /// Returns the device of the reservation.
    pub(crate) fn device(&self) -> Device {
        self.device
    }

    /// Returns the number of reserved bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adjusts the reservation to the bytes that the driver really took. Returns false if they do not fit.
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

    /// Keeps the bytes charged. The caller's own record refunds them later.
    pub(crate) fn keep(self) {
        core::mem::forget(self);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.slice.refund(self.device, self.bytes);
    }
}
