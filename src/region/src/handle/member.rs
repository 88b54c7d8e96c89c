//! A process's membership in a slice: reservations, charges, and shared memory. `handle::join` makes a member.

use core::ops::Deref;

use crate::{
    file::{error::RegionError, locks::LifeLock},
    handle::{device::Device, region::Region, reserve_env::LiveReserveEnv},
    layout::{compute_words::ProcessTime, constants::HOST_MEMORY},
    memory::ledger::Refusal,
    sync::{atomics::Word64, clock},
};

/// This process's use of memory that other processes of the slice can use as well.
#[derive(Debug, PartialEq, Eq)]
pub struct SharedUse(usize);

/// A process's membership in a slice.
///
/// A member belongs to the process that joined, with all its threads. A forked child has a copy of it but no slot. The
/// child must forget the copy (without dropping it) and join for itself. Otherwise it would write its parent's words. This
/// type does not notice a fork. After `exec` or death the slot is free, whatever the process did before.
///
/// Dropping a member unmaps the region, but the slot stays taken until the process ends. A library therefore keeps its
/// member until then. [`leave`](Self::leave) frees the slot.
#[derive(Debug)]
pub struct Member {
    pub(super) region: Region,
    pub(super) life: LifeLock,
}

impl Deref for Member {
    type Target = Region;

    fn deref(&self) -> &Region {
        &self.region
    }
}

impl Member {
    /// Returns the region.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Returns this process's slot.
    #[must_use]
    pub fn slot(&self) -> usize {
        self.life.slot()
    }

    /// Checks that the path leads to this region, and that the region has this process's slot. Makes system calls.
    ///
    /// # Errors
    /// [`RegionError::Damaged`] if the file was truncated or overwritten: the memory that the slice holds is then unknown.
    /// [`RegionError::Replaced`] if the file was removed or replaced: the members go on in the memory that they share.
    pub fn check(&self) -> Result<(), RegionError> {
        let layout = self.region.layout();
        if self.slot() >= layout.slot_high_water() || !layout.is_taken(self.slot()) {
            return Err(RegionError::Damaged { path: self.region.path().into() });
        }
        self.region.mapped().check_path()
    }

    /// Reserves `bytes` on a device, unless the slice would hold more than its limit.
    ///
    /// The function usually grants the request at once. If the request does not fit, the function first reaps dead
    /// processes. If other reservations are pending, the thread waits, usually for some microseconds and at most for 0.2 s.
    ///
    /// # Errors
    /// A [`Refusal`]. Then nothing was charged.
    pub fn reserve(&self, device: Device, bytes: u64) -> Result<(), Refusal> {
        let mut env = LiveReserveEnv { region: &self.region, backoff: None };
        self.region.layout().reserve(device.index(), self.slot(), bytes, &mut env)
    }

    /// Charges `bytes` that the driver has taken on a device, without regard to the limit.
    pub fn charge(&self, device: Device, bytes: u64) {
        self.region.layout().charge(device.index(), self.slot(), bytes);
    }

    /// Subtracts `bytes` that this process holds on a device, down to zero. Returns the bytes that the process did not
    /// hold: 0, unless the caller has made a mistake.
    #[must_use = "bytes that were not held are a mistake of the caller"]
    pub fn refund(&self, device: Device, bytes: u64) -> u64 {
        self.region.layout().refund(device.index(), self.slot(), bytes)
    }

    /// Returns the bytes that this process holds on a device, pending reservations included.
    #[must_use]
    pub fn own(&self, device: Device) -> u64 {
        self.region.layout().held_by(device.index(), self.slot())
    }

    /// Records that other processes can use memory for which this process is charged. `key` identifies the memory: all
    /// its users pass the same key. `None`: the table is full, and no other process will take over the charge.
    #[must_use = "a use has to be ended"]
    pub fn share_owned(&self, device: Device, key: u64, bytes: u64) -> Option<SharedUse> {
        self.region.layout().share_owned(self.slot(), device.index(), key, bytes).map(SharedUse)
    }

    /// Records that this process is about to use memory that another process of the slice uses. If all other users end,
    /// this process pays for it. `None`: no process of the slice uses it, or the table is full.
    ///
    /// The caller calls [`begin_use`](Self::begin_use) when the use begins, and [`end_use`](Self::end_use) in any case.
    #[must_use = "a use has to be ended"]
    pub fn share_borrowed(&self, key: u64) -> Option<SharedUse> {
        self.region.layout().share_borrowed(self.slot(), key).map(SharedUse)
    }

    /// Begins the use of borrowed memory.
    pub fn begin_use(&self, used: &SharedUse) {
        self.region.layout().begin_use(used.0);
    }

    /// Ends a use. If this process paid and `hands_on` is true, another user pays from here on: the memory stays with the
    /// other users. For [owned](Self::share_owned) memory the caller refunds the bytes afterwards.
    pub fn end_use(&self, used: SharedUse, hands_on: bool) {
        self.region.layout().end_use(used.0, hands_on);
    }

    /// Counts an allocation that the program was denied. [`reserve`](Self::reserve) does not count it, because only the
    /// caller knows whether the program sees the denial.
    pub fn count_quota_denial(&self, device: Device) {
        let refused = self.region.layout().quota_denials.get(self.slot());
        if let Some(count) = refused.and_then(|row| row.get(device.index())) {
            count.count();
        }
        if let Some(entry) = self.region.layout().devices.get(device.index()) {
            entry.quota_denials.add(1);
        }
    }

    /// Counts an allocation within the quota for which the driver had no memory.
    pub fn count_device_denial(&self, device: Device) {
        if let Some(entry) = self.region.layout().devices.get(device.index()) {
            entry.device_denials.add(1);
        }
    }

    /// Records the sum of the free bytes of `device` and of the bytes that the slices of the folder hold. Later the sum
    /// shows whether memory of dead processes is back.
    ///
    /// The caller measures the sum while no other process makes a memory call. Otherwise the sum would not be exact.
    pub fn note_available(&self, device: Device, available: u64) {
        self.region.layout().note_available(device.index(), available, clock::now());
    }

    /// Tells whether a member has measured the memory that is available on `device`.
    #[must_use]
    pub fn is_available_known(&self, device: Device) -> bool {
        self.region.layout().devices.get(device.index()).is_some_and(|entry| entry.available.get() > 0)
    }

    /// Ends the leaving of memory of dead processes if the device has it back. Returns true if any ended. `measure` returns
    /// the sum of the free bytes of `device` and of the bytes that living processes of all slices of the folder hold. The
    /// sum must not be too high; `None`: it is not known exactly. Memory of processes that die during the measurement goes
    /// on leaving.
    #[must_use = "an allocation that was denied may be granted now"]
    pub fn end_leaving(&self, device: Device, measure: impl FnOnce() -> Option<u64>) -> bool {
        self.region.layout().end_if_back(device.index(), measure)
    }

    /// Records that the device's memory is the host's.
    pub fn note_host_memory(&self, device: Device) {
        if let Some(entry) = self.region.layout().devices.get(device.index()) {
            entry.host_memory.set(HOST_MEMORY);
        }
    }

    /// Adds `bytes` to the bytes that this process holds in host memory beyond the quota.
    pub fn spill(&self, device: Device, bytes: u64) {
        self.change(device, |process| &process.spilled_bytes, |spilled| spilled.saturating_add(bytes));
    }

    /// Subtracts `bytes` from the bytes that this process holds in host memory beyond the quota.
    pub fn unspill(&self, device: Device, bytes: u64) {
        self.change(device, |process| &process.spilled_bytes, |spilled| spilled.saturating_sub(bytes));
    }

    /// Counts `bytes` of this process as a context's. The caller has charged them already.
    pub fn begin_context(&self, device: Device, bytes: u64) {
        self.change(device, |process| &process.context_bytes, |contexts| contexts.saturating_add(bytes));
    }

    /// Stops counting `bytes` of this process as a context's. The caller [refunds](Self::refund) them afterwards.
    pub fn end_context(&self, device: Device, bytes: u64) {
        self.change(device, |process| &process.context_bytes, |contexts| contexts.saturating_sub(bytes));
    }

    /// Changes one word of this process for a device.
    fn change(
        &self,
        device: Device,
        word: impl FnOnce(&ProcessTime) -> &Word64,
        change: impl Fn(u64) -> u64,
    ) {
        if let Some((_, process)) = self.region.layout().process_time(device.index(), self.slot()) {
            word(process).change(change);
        }
    }

    /// Frees the slot and unmaps the region. Only tests call it. A process that ends needs no such call, and a process that
    /// uses a GPU cannot know that all its work is done.
    pub fn leave(self) {
        self.region.layout().release_slot(self.slot(), clock::now());
        self.life.end();
    }
}
