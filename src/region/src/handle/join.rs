//! Joins a process to a region. Makes the region if there is none.

use std::path::Path;

use crate::{
    file::{
        detached,
        error::RegionError,
        locks::{LifeLock, LockFile, LockGuard},
        map::{self, Mapped, Trust},
    },
    handle::{device::Uuid, limits::Limits, member::Member, region::Region},
    layout::constants::MAX_SLOTS,
    slots::{identity, roster::Liveness as _},
    sync::{
        backoff::{self, JOINING},
        clock,
    },
};

/// Number of times that a joining process opens a region that another process removes meanwhile. After these it gives up.
const REGION_OPENINGS: u32 = 16;

/// A device that a process wants to use, and the limits with which the process was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceRequest {
    /// The device.
    pub uuid: Uuid,
    /// Bytes of memory of the device.
    pub total: u64,
    /// The limits for the device, if the region does not have it yet.
    pub limits: Limits,
}

/// A device for which the region has other limits than the process was started with. The limits of the region hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The device.
    pub uuid: Uuid,
    /// The limits with which the process was started.
    pub asked: Limits,
    /// The limits of the region.
    pub holds: Limits,
}

impl Member {
    /// Joins the slice with the region at `path`. Makes the region if there is none, but no directories.
    ///
    /// If no process of the region is alive, the function initialises it with the devices and limits in `wanted`. To a
    /// region in use it adds the devices that the region lacks. For all other devices the limits of the region hold, and
    /// the function returns the differences.
    ///
    /// Another process may remove the file between the look-up of the path and the join lock. The function then starts
    /// over, 16 times at most.
    ///
    /// # Errors
    /// Every [`RegionError`]; each message says how to correct it.
    pub fn join(
        path: &Path,
        trust: Trust,
        wanted: &[DeviceRequest],
    ) -> Result<(Self, Vec<Difference>), RegionError> {
        let path = &map::absolute(path)?;
        for _ in 0..REGION_OPENINGS {
            let Some(mapped) = map::open(path, trust)? else {
                let members = detached::members_of(path);
                if !members.is_empty() {
                    return Err(RegionError::Detached { path: path.into(), members });
                }
                map::create(path, trust)?;
                continue;
            };
            match Self::enter(mapped, wanted) {
                Err(RegionError::Replaced { .. }) => {}
                entered => return entered,
            }
        }
        Err(RegionError::Replaced { path: path.into() })
    }

    /// Takes a slot of a mapped region for this process.
    ///
    /// The process holds the join lock and does these steps:
    ///
    /// - Check that the path still leads to this file, and reap dead processes.
    /// - Lock a free slot. This is the life lock of the process.
    /// - Initialise the region if no process is alive.
    /// - Add devices, and publish the slot.
    ///
    /// A process killed at any step leaves a slot without a life lock, or a region that is not ready. The next process that
    /// joins repairs both.
    ///
    /// The process opens the file a second time for the life lock, which must outlive the descriptor (`slots::roster`).
    /// Some file systems drop the lock with the descriptor. So the process asks through the first descriptor whether the
    /// lock still exists, and fails if it does not.
    fn enter(mapped: Mapped, wanted: &[DeviceRequest]) -> Result<(Self, Vec<Difference>), RegionError> {
        let identity = identity::own_identity();
        let locks = mapped.locks()?;
        let failed = |source| mapped.failed("lock a slot", source);
        // This comes before the lock: it makes a system call for each process, for which other processes would wait.
        let any_dead = mapped.any_dead(&locks).map_err(failed)?;
        let lock = wait_for(&mapped, &locks)?;
        // A second opening, for the life lock. `reopen` also checks that the path leads to this file, which no joining
        // process can change from here on.
        let file = mapped.reopen()?;
        let any_alive = mapped.any_alive(&locks).map_err(failed)?;
        if any_dead || !any_alive || (0..MAX_SLOTS).all(|slot| mapped.is_taken(slot)) {
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
        if !any_alive {
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
        region.layout().claim_slot(life.slot(), identity);
        region.layout().set_ready();
        drop(lock);
        Ok((Self { region, life }, differences))
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

/// Adds the devices that the region does not have. Returns the differences for its other devices.
fn add_all(
    region: &Region,
    locks: &LockFile,
    wanted: &[DeviceRequest],
) -> Result<Vec<Difference>, RegionError> {
    let mut differences = Vec::new();
    for DeviceRequest { uuid, total, limits } in wanted {
        let Some(device) = region.device(uuid) else {
            // The space comes first: a full disk is then an error here, and not a `SIGBUS` at a later write.
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
