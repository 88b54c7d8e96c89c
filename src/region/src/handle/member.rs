//! A process's membership in a slice: joining, reservations, and charges.

use core::ops::Deref;
use std::path::Path;

use crate::{
    file::{
        detached,
        error::RegionError,
        locks::{LifeLock, LockFile, LockGuard},
        map::{self, Mapped, Trust},
    },
    handle::{
        device::{Device, Uuid},
        limits::Limits,
        region::Region,
        reserve_env::LiveReserveEnv,
    },
    layout::{
        compute_words::ProcessTime,
        constants::{HOST_MEMORY, MAX_SLOTS},
    },
    memory::ledger::Refusal,
    slots::{identity, roster::Liveness as _},
    sync::{
        atomics::Word64,
        backoff::{self, JOINING},
        clock,
    },
};

/// How often a process that joins opens a region that is removed meanwhile, before it gives up.
const OPENINGS: u32 = 16;

/// A device that a process wants to use, and the limits with which the process was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRequest {
    /// The device.
    pub uuid: Uuid,
    /// Bytes of memory that it has.
    pub total: u64,
    /// The limits, if the region does not have the device yet.
    pub limits: Limits,
}

/// A device for which the region has other limits than the process was started with. Those of the region hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The device.
    pub uuid: Uuid,
    /// The limits with which the process was started.
    pub asked: Limits,
    /// The limits of the region.
    pub holds: Limits,
}

/// This process's use of memory that other processes of the slice can use as well.
#[derive(Debug, PartialEq, Eq)]
pub struct SharedUse(usize);

/// A process's membership in a slice.
///
/// It belongs to the process that joined, with all its threads. A forked child has a copy of it but no slot. The child
/// must forget the copy (without dropping it) and join for itself; otherwise it would write its parent's words. This
/// type does not notice a fork. After `exec` or death the slot is free, whatever the process did before.
///
/// Dropping a member unmaps the region, but the slot stays taken until the process ends. A library therefore keeps its
/// member until then. [`leave`](Self::leave) frees the slot.
#[derive(Debug)]
pub struct Member {
    region: Region,
    life: LifeLock,
}

impl Deref for Member {
    type Target = Region;

    fn deref(&self) -> &Region {
        &self.region
    }
}

impl Member {
    /// Joins the slice with the region at `path`. Makes the region if there is none, but no directories.
    ///
    /// A region without a living process is initialised with the devices and limits in `wanted`. In a region in use,
    /// devices that it does not have are added. For the others the limits of the region hold, and the differences are
    /// returned.
    ///
    /// The file may be removed between the look-up of the path and the join lock. The function then starts over, 16
    /// times at most.
    ///
    /// # Errors
    /// Every [`RegionError`]; each message says how to correct it.
    pub fn join(
        path: &Path,
        trust: Trust,
        wanted: &[DeviceRequest],
    ) -> Result<(Self, Vec<Difference>), RegionError> {
        let path = &map::absolute(path)?;
        for _ in 0..OPENINGS {
            let Some(mapped) = map::open(path, trust)? else {
                let members = detached::members_of(path);
                if !members.is_empty() {
                    return Err(RegionError::Detached { path: path.into(), members });
                }
                map::create(path)?;
                continue;
            };
            match Self::enter(mapped, wanted) {
                Err(RegionError::Replaced { .. }) => {}
                entered => return entered,
            }
        }
        Err(RegionError::Replaced { path: path.into() })
    }

    /// Takes a slot of a mapped region.
    ///
    /// The steps under the join lock are:
    ///
    /// - Check that the path still leads to this file, and reap dead processes.
    /// - Lock a free slot.
    /// - Initialise the region if no process is alive.
    /// - Add devices, and publish the slot.
    ///
    /// A process killed at any step leaves a slot without a life lock, or a region that is not ready. The next process
    /// that joins corrects both.
    ///
    /// The life lock comes from a second opening of the file, because it must outlive the descriptor. The check after
    /// it asks through the first opening, and fails on file systems that drop the lock.
    fn enter(mapped: Mapped, wanted: &[DeviceRequest]) -> Result<(Self, Vec<Difference>), RegionError> {
        let who = identity::own_identity();
        let locks = mapped.locks()?;
        let failed = |source| mapped.failed("lock a slot", source);
        // Before the lock: each question for a process costs a system call, and others would wait meanwhile.
        let any_dead = mapped.any_dead(&locks).map_err(failed)?;
        let lock = wait_for(&mapped, &locks)?;
        // A second opening, for the life lock. `reopen` also checks that the path leads to this file, which no joining
        // process can change from here on.
        let file = mapped.reopen()?;
        let anybody = mapped.anybody_lives(&locks).map_err(failed)?;
        if any_dead || !anybody || (0..MAX_SLOTS).all(|slot| mapped.is_taken(slot)) {
            mapped.reap_locked(&locks, clock::now()).map_err(failed)?;
        }
        let free = (0..MAX_SLOTS).filter(|slot| !mapped.is_taken(*slot));
        let life = LifeLock::begin(&file, free).map_err(failed)?;
        drop(file);
        let life = life.ok_or_else(|| RegionError::TableFull { path: mapped.path().into() })?;
        if !locks.is_alive(life.slot()).map_err(failed)? {
            life.end();
            return Err(RegionError::LockNotKept { path: mapped.path().into() });
        }
        if !anybody {
            mapped.reinitialise(identity::boot(), clock::now());
        }
        let region = Region::new(mapped);
        let differences = match add_all(&region, &locks, wanted) {
            Ok(differences) => differences,
            Err(error) => {
                life.end();
                return Err(error);
            }
        };
        region.layout().claim_slot(life.slot(), who);
        region.layout().set_ready();
        drop(lock);
        Ok((Self { region, life }, differences))
    }

    /// The region.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// This process's slot.
    #[must_use]
    pub fn slot(&self) -> usize {
        self.life.slot()
    }

    /// Checks that the path leads to this region, and that the region has this process's slot. Makes system calls.
    ///
    /// # Errors
    /// [`RegionError::Damaged`] if the file was truncated or overwritten: the memory held by the slice is no longer
    /// known. [`RegionError::Replaced`] if the file was removed or replaced: the members go on in the memory that they
    /// share.
    pub fn check(&self) -> Result<(), RegionError> {
        let layout = self.region.layout();
        if self.slot() >= layout.slot_high_water() || !layout.is_taken(self.slot()) {
            return Err(RegionError::Damaged { path: self.region.path().into() });
        }
        self.region.mapped().check_path()
    }

    /// Reserves `bytes` on a device, unless the slice would hold more than its limit.
    ///
    /// In the usual case the request is granted at once. If it does not fit, dead processes are reaped first. If other
    /// reservations are pending, the thread waits, usually for some microseconds and at most for 0.2 s.
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

    /// Subtracts `bytes` that this process holds on a device, down to zero. Returns the bytes that it did not hold: 0,
    /// unless the caller has made a mistake.
    #[must_use = "bytes that were not held are a mistake of the caller"]
    pub fn refund(&self, device: Device, bytes: u64) -> u64 {
        self.region.layout().refund(device.index(), self.slot(), bytes)
    }

    /// Bytes that this process holds on a device, pending reservations included.
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

    /// Ends a use. If this process paid and `hands_on`, another user pays from here on: the memory stays with the other
    /// users. For [owned](Self::share_owned) memory the caller refunds the bytes afterwards.
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

    /// Records the sum of the device's free bytes and the bytes that the slice holds. A later measurement shows by it
    /// that the memory of dead processes is back.
    pub fn note_available(&self, device: Device, room: u64) {
        self.region.layout().note_available(device.index(), room, clock::now());
    }

    /// Tells the ledger that the device has `free` free bytes. Returns whether memory that left the device is back;
    /// then it counts no more.
    #[must_use = "what did not fit may fit now"]
    pub fn is_back(&self, device: Device, free: u64) -> bool {
        self.region.layout().end_if_back(device.index(), free)
    }

    /// Records that the device's memory is the host's.
    pub fn note_host_memory(&self, device: Device) {
        if let Some(entry) = self.region.layout().devices.get(device.index()) {
            entry.host_memory.set(HOST_MEMORY);
        }
    }

    /// Counts `bytes` more beyond the quota in host memory, for this process.
    pub fn spill(&self, device: Device, bytes: u64) {
        self.change(device, |process| &process.spilled_bytes, |spilled| spilled.saturating_add(bytes));
    }

    /// Counts `bytes` less beyond the quota in host memory, for this process.
    pub fn unspill(&self, device: Device, bytes: u64) {
        self.change(device, |process| &process.spilled_bytes, |spilled| spilled.saturating_sub(bytes));
    }

    /// Counts `bytes` of this process as a context's. The caller has charged them already.
    pub fn begin_context(&self, device: Device, bytes: u64) {
        self.change(device, |process| &process.context_bytes, |contexts| contexts.saturating_add(bytes));
    }

    /// Counts `bytes` of this process as a context's no more. The caller [refunds](Self::refund) them afterwards.
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

    /// Frees the slot and unmaps the region. For tests: a process that ends needs no such call, and a process that uses
    /// a GPU never knows that all its work is done.
    pub fn leave(self) {
        self.region.layout().release_slot(self.slot(), clock::now());
        self.life.end();
    }
}

/// Waits for the join lock, for a bounded time: its holder may be suspended.
fn wait_for<'locks>(mapped: &Mapped, locks: &'locks LockFile) -> Result<LockGuard<'locks>, RegionError> {
    let attempt = || locks.try_join().map_err(|source| mapped.failed("lock it", source));
    let lock = backoff::retry_until(JOINING, attempt, |waited| RegionError::Busy {
        path: mapped.path().into(),
        by: mapped.header.last_joiner_pid.get(),
        waited,
    })?;
    mapped.header.last_joiner_pid.set(identity::own_pid());
    Ok(lock)
}

/// Adds the devices that the region does not have. Returns the differences for those that it has.
fn add_all(
    region: &Region,
    locks: &LockFile,
    wanted: &[DeviceRequest],
) -> Result<Vec<Difference>, RegionError> {
    let mut differences = Vec::new();
    for DeviceRequest { uuid, total, limits } in wanted {
        let Some(device) = region.device(uuid) else {
            let space = region.layout().device_count();
            locks
                .take_space(space)
                .map_err(|source| region.mapped().failed("take room for a device", source))?;
            region
                .add(*uuid, *total, *limits, clock::now())
                .ok_or_else(|| RegionError::TooManyDevices { path: region.path().into() })?;
            continue;
        };
        let holds = region.limits(device);
        let asked = limits.bounded();
        if holds != asked {
            differences.push(Difference { uuid: *uuid, asked, holds });
        }
    }
    Ok(differences)
}
