//! How does a process take its place in a slice, and use it?

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

/// How often a region may vanish under a newcomer before it gives up.
const OPENINGS: u32 = 16;

/// A device that a process wants to use, and the limits that it was started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRequest {
    /// The device.
    pub uuid: Uuid,
    /// Bytes of memory that it has.
    pub total: u64,
    /// The limits, if the region does not have the device yet.
    pub limits: Limits,
}

/// A device for which the region has other limits than the newcomer was started with. The region's hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The device.
    pub uuid: Uuid,
    /// What the newcomer was started with.
    pub asked: Limits,
    /// What holds.
    pub holds: Limits,
}

/// This process's use of memory that others of the slice can use as well.
#[derive(Debug, PartialEq, Eq)]
pub struct SharedUse(usize);

/// A process's place in a slice.
///
/// It belongs to the process that joined, all of its threads. A forked child has the memory but not the place:
/// it must forget its copy (without dropping it) and join for itself, or it would use its parent's words. This
/// type does not notice a fork. After `exec` or death the place is free, whatever the process did before.
///
/// Dropping a member unmaps the region, but the place stays taken until the process ends; a library keeps its
/// member for ever. [`leave`](Self::leave) gives the place back.
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
    /// Joins the slice whose region is at `path`, and makes the region if there is none. Directories are not made.
    ///
    /// A region in which nobody lives is made anew with `wanted`. Otherwise devices that it does not have are
    /// added, and for those that it has its own limits hold; the differences are returned.
    ///
    /// # Errors
    /// Every [`RegionError`]; each says what mends it.
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

    /// Takes a slot of a region that is open.
    fn enter(mapped: Mapped, wanted: &[DeviceRequest]) -> Result<(Self, Vec<Difference>), RegionError> {
        let who = identity::own_identity();
        let locks = mapped.locks()?;
        let failed = |source| mapped.failed("lock a slot", source);
        // Asked before others wait for us: each process that is asked for costs a system call.
        let any_dead = mapped.any_dead(&locks).map_err(failed)?;
        let lock = wait_for(&mapped, &locks)?;
        // Another opening, for the life lock: and it is seen whether the path still is this file, which nobody
        // who joins can change from here on.
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

    /// What both can read.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// This process's slot.
    #[must_use]
    pub fn slot(&self) -> usize {
        self.life.slot()
    }

    /// Whether all is as it was: newcomers find this region, and it knows of this process. Takes a look at the file
    /// system.
    ///
    /// # Errors
    /// [`RegionError::Damaged`] when the file was shortened or overwritten: nothing says any more what the slice holds.
    /// [`RegionError::Replaced`] when it was removed or something else stands in its place: the members go on in the
    /// memory that they share.
    pub fn check(&self) -> Result<(), RegionError> {
        let layout = self.region.layout();
        if self.slot() >= layout.slot_high_water() || !layout.is_taken(self.slot()) {
            return Err(RegionError::Damaged { path: self.region.path().into() });
        }
        self.region.mapped().check_path()
    }

    /// Makes this process hold `bytes` more on a device, unless the slice would hold more than its limit.
    ///
    /// Granted at once in the usual case. When it does not fit, the dead are cleared first; when others are
    /// reserving at the same time, it waits for them to be done, up to 0.2 s and usually some microseconds.
    ///
    /// # Errors
    /// A [`Refusal`]; nothing was charged then.
    pub fn reserve(&self, device: Device, bytes: u64) -> Result<(), Refusal> {
        let mut around = LiveReserveEnv { region: &self.region, patience: None };
        self.region.layout().reserve(device.index(), self.slot(), bytes, &mut around)
    }

    /// Makes this process hold `bytes` more on a device whatever the limit says: the driver took them.
    pub fn charge(&self, device: Device, bytes: u64) {
        self.region.layout().charge(device.index(), self.slot(), bytes);
    }

    /// Makes this process hold `bytes` less on a device, down to nothing. Returns how many of them it did not
    /// hold, which is 0 unless the caller is mistaken.
    #[must_use = "bytes that were not held are a mistake of the caller"]
    pub fn refund(&self, device: Device, bytes: u64) -> u64 {
        self.region.layout().refund(device.index(), self.slot(), bytes)
    }

    /// Bytes that this process holds on a device, those of reservations under way included.
    #[must_use]
    pub fn own(&self, device: Device) -> u64 {
        self.region.layout().held_by(device.index(), self.slot())
    }

    /// Notes that other processes can use memory that this one is charged for. `key` says what memory it is: who
    /// uses the same memory names the same key. `None`: there is no room, and nobody will inherit the charge.
    #[must_use = "a use has to be ended"]
    pub fn share_owned(&self, device: Device, key: u64, bytes: u64) -> Option<SharedUse> {
        self.region.layout().share_owned(self.slot(), device.index(), key, bytes).map(SharedUse)
    }

    /// Notes that this process is about to use memory that somebody of the slice uses, and who uses it pays for it
    /// if everybody else ends. `None`: nobody of the slice does, or there is no room. To be followed by
    /// [`begin`](Self::begin) when it does use it, and by [`end`](Self::end) when it does not or no more.
    #[must_use = "a use has to be ended"]
    pub fn share_borrowed(&self, key: u64) -> Option<SharedUse> {
        self.region.layout().share_borrowed(self.slot(), key).map(SharedUse)
    }

    /// Memory that was to be borrowed is used now.
    pub fn begin_use(&self, used: &SharedUse) {
        self.region.layout().begin_use(used.0);
    }

    /// This process does not use the memory any more. If it paid for it, and the memory lives on with those who use
    /// it as well (`hands_on`), one of them pays from here on. What was [lent](Self::lend) is to be refunded
    /// afterwards.
    pub fn end_use(&self, used: SharedUse, hands_on: bool) {
        self.region.layout().end_use(used.0, hands_on);
    }

    /// Counts a reservation that the program was refused. Not counted by [`reserve`](Self::reserve): only the
    /// caller knows whether the program sees it.
    pub fn count_quota_denial(&self, device: Device) {
        let refused = self.region.layout().quota_denials.get(self.slot());
        if let Some(count) = refused.and_then(|row| row.get(device.index())) {
            count.count();
        }
        if let Some(entry) = self.region.layout().devices.get(device.index()) {
            entry.quota_denials.add(1);
        }
    }

    /// Counts an allocation that was within the quota and that the driver had no memory for: others have taken it.
    pub fn count_device_denial(&self, device: Device) {
        if let Some(entry) = self.region.layout().devices.get(device.index()) {
            entry.device_denials.add(1);
        }
    }

    /// The device's free bytes and those that the slice holds were so many together: that tells later when memory of the dead
    /// is back.
    pub fn note_available(&self, device: Device, room: u64) {
        self.region.layout().note_available(device.index(), room, clock::now());
    }

    /// The device has so many free bytes. Returns whether memory of the dead that left it is back, and counts no more.
    #[must_use = "what did not fit may fit now"]
    pub fn is_back(&self, device: Device, free: u64) -> bool {
        self.region.layout().end_if_back(device.index(), free)
    }

    /// The device's memory is the host's, so that its free memory moves with every program of the machine.
    pub fn note_host_memory(&self, device: Device) {
        if let Some(entry) = self.region.layout().devices.get(device.index()) {
            entry.host_memory.set(HOST_MEMORY);
        }
    }

    /// This process has so many bytes more, beyond the quota, in host memory.
    pub fn spill(&self, device: Device, bytes: u64) {
        self.change(device, |process| &process.spilled_bytes, |spilled| spilled.saturating_add(bytes));
    }

    /// This process has so many bytes less, beyond the quota, in host memory.
    pub fn unspill(&self, device: Device, bytes: u64) {
        self.change(device, |process| &process.spilled_bytes, |spilled| spilled.saturating_sub(bytes));
    }

    /// So many of the bytes that this process holds are a context's: to be said when they are held already.
    pub fn begin_context(&self, device: Device, bytes: u64) {
        self.change(device, |process| &process.context_bytes, |contexts| contexts.saturating_add(bytes));
    }

    /// So many of them are a context's no more: to be said before they are [given back](Self::refund).
    pub fn end_context(&self, device: Device, bytes: u64) {
        self.change(device, |process| &process.context_bytes, |contexts| contexts.saturating_sub(bytes));
    }

    /// Changes one of this process's words for a device.
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

    /// Gives the place back and unmaps the region. For tests: a process that ends need not do anything, and
    /// one that uses a GPU is never sure that it is done.
    pub fn leave(self) {
        self.region.layout().release_slot(self.slot(), clock::now());
        self.life.end();
    }
}

/// Waits for the join lock, but not for ever: its holder may be suspended.
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

/// Adds the devices that the region does not have, and says where its limits are others.
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
