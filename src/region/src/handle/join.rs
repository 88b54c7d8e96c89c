//! Joins a process to a region. Makes the region if there is none.

use std::{
    path::{Path, PathBuf},
    slice,
};

use crate::{
    file::{
        choice::{self, Choice, Purpose},
        detached,
        error::RegionError,
        folders,
        locks::{LifeLock, LockFile, LockGuard},
        map::{self, Mapped, Trust},
        names::ProgramRegion,
    },
    handle::{device::Uuid, limits::Limits, member::Member, region::Region},
    layout::constants::MAX_SLOTS,
    slots::{identity, roster::Liveness as _},
    sync::{
        backoff::{self, Backoff, JOINING},
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
                check_no_detached(path, slice::from_ref(path))?;
                map::create(path, trust)?;
                continue;
            };
            match Self::enter(mapped, wanted, |_| Ok(())) {
                Err(RegionError::Replaced { .. }) => {}
                entered => return entered,
            }
        }
        Err(RegionError::Replaced { path: path.into() })
    }

    /// Joins the slice of a program, as [`join`](Self::join) does.
    ///
    /// If the region has several names, the file may become another one until this process has its life lock. The function then
    /// starts over, for a second at most.
    ///
    /// # Errors
    /// Those of [`join`](Self::join).
    pub fn join_program(
        region: &ProgramRegion,
        wanted: &[DeviceRequest],
    ) -> Result<(Self, Vec<Difference>), RegionError> {
        let trust = region.trust;
        if !region.has_more_names {
            return Self::join(&region.path, trust, wanted);
        }
        let first = &map::absolute(&region.path)?;
        let names: Vec<PathBuf> = folders::names_of(first).collect();
        let check = |chosen: &Mapped| {
            let other =
                (trust == Trust::AllUsers).then(|| choice::other_in_use(first, chosen.id())).flatten();
            other.map_or(Ok(()), |other| Err(RegionError::SecondFile { path: chosen.path().into(), other }))
        };
        let mut is_alone = false;
        let (mut backoff, mut makings) = (Backoff::new(JOINING), 0..REGION_OPENINGS);
        loop {
            let error = match choice::choose(first, trust, Purpose::Joining)? {
                Choice::Region(mapped) => {
                    // The slice may have left this file behind before it used another one, which was then removed.
                    let is_first = is_alone || mapped.path() == first;
                    let has_life = if is_first { Ok(true) } else { choice::has_life(&mapped) };
                    if matches!(has_life, Ok(false)) {
                        check_no_detached(mapped.path(), &names)?;
                        is_alone = true;
                    }
                    match has_life.and_then(|_| Self::enter(mapped, wanted, check)) {
                        Err(error @ (RegionError::Replaced { .. } | RegionError::SecondFile { .. })) => error,
                        entered => return entered,
                    }
                }
                Choice::Name(path) => {
                    check_no_detached(&path, &names)?;
                    is_alone = true;
                    map::create(&path, trust)?;
                    if makings.next().is_some() {
                        continue;
                    }
                    RegionError::Replaced { path }
                }
                Choice::Changing(error) => error,
            };
            if !backoff.wait() {
                return Err(error);
            }
        }
    }

    /// Takes a slot of a mapped region for this process. `check` fails if members of the slice use another file.
    ///
    /// The process holds the join lock and does these steps:
    ///
    /// - Check that the path still leads to this file, and reap dead processes.
    /// - Lock a free slot. This is the life lock of the process. Check that no member has another file.
    /// - Initialise the region if no process is alive.
    /// - Add devices, and publish the slot.
    ///
    /// A process killed at any step leaves a slot without a life lock, or a region that is not ready. The next process that
    /// joins repairs both.
    ///
    /// The process opens the file a second time for the life lock, which must outlive the descriptor (`slots::roster`).
    /// Some file systems drop the lock with the descriptor. So the process asks through the first descriptor whether
    /// the lock is still there, and fails if it is not.
    fn enter(
        mapped: Mapped,
        wanted: &[DeviceRequest],
        check: impl FnOnce(&Mapped) -> Result<(), RegionError>,
    ) -> Result<(Self, Vec<Difference>), RegionError> {
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
        if let Err(error) = check(&mapped) {
            life.end();
            return Err(error);
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

/// Fails if members use a removed file with one of the region's names.
fn check_no_detached(path: &Path, names: &[PathBuf]) -> Result<(), RegionError> {
    let members = detached::members_of(names);
    if members.is_empty() { Ok(()) } else { Err(RegionError::Detached { path: path.into(), members }) }
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
