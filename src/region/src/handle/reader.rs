//! What can be read of a slice without the right to write?
//!
//! A [`Reader`] maps the file for reading only, so nothing here may change a word, not even to mend it. Every figure is
//! read, and then it is seen whether the region is still the one that was opened: what comes out of a region that is
//! going to pieces is an error and never a number.

use std::{io, path::Path};

use crate::{
    compute::{history::RecentUsage, reclaim::TimeUsed, terms},
    file::{
        error::RegionError,
        locks::LockFile,
        map::{self, Trust},
    },
    handle::{
        device::{Device, Uuid},
        limits::Limits,
        region::{DeviceView, ProcessView, Region},
    },
    layout::{
        Layout,
        constants::{MAGIC, READY, VERSION},
    },
    slots::roster::Liveness as _,
    sync::{atomics::read_fence, clock},
};

/// A region that is mapped for reading only. One slice's: when the region is made anew, for another slice, it reads no
/// more.
#[derive(Debug)]
pub struct Reader {
    region: Region,
    /// An opening for questions: who lives, and what became of the file.
    locks: LockFile,
    epoch: u64,
}

/// What a slice has and uses of a device. Each figure is exact for an instant while they were read, not all for the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceFigures {
    /// Which one.
    pub device: Device,
    /// Its UUID.
    pub uuid: Uuid,
    /// Bytes of memory that it has.
    pub total: u64,
    /// What the slice may use of it.
    pub limits: Limits,
    /// Bytes that the living hold, those of reservations under way included, and none that [leave](Self::leaving).
    pub held: u64,
    /// Bytes that count until somebody clears the dead who held them.
    pub held_by_dead: u64,
    /// Bytes that the dead held and that the device may not have back.
    pub leaving: u64,
    /// Whether the device's memory is the host's: see [`Region::has_host_memory`].
    pub host_memory: bool,
    /// The most bytes that were granted at a time.
    pub peak: u64,
    /// Allocations that passed the quota.
    pub quota_denials: u64,
    /// Allocations within the quota that the driver had no memory for.
    pub device_denials: u64,
    /// Bytes beyond the quota that the living were given in host memory.
    pub spilled: u64,
    /// Bytes of [`held`](Self::held) that are contexts': see [`Region::contexts`].
    pub contexts: u64,
    /// What a context is likely to take, in bytes: see [`Region::context_bytes`].
    pub context_bytes: Option<u64>,
    /// What was used of its time, by those who have ended too; `queued` is of the living.
    pub time: TimeUsed,
    /// Until when the slice's GPU time is paid, on the monotonic clock.
    pub paid_until: u64,
    /// GPU time that the slice owes, in nanoseconds; nothing where its launches are not paid for.
    pub owed: u64,
    /// How GPU time is measured: see [`Region::meter`].
    pub meter: u32,
    /// The slice's part of the time between events: see [`Region::factor`].
    pub factor: u32,
    /// When this was read, in nanoseconds of the monotonic clock.
    pub read_at: u64,
}

impl Reader {
    /// Opens the region at `path`. `None`: there is none, or nobody has finished making it.
    ///
    /// # Errors
    /// Every [`RegionError`] of a file that is not a region that can be read.
    pub fn open(path: &Path, trust: Trust) -> Result<Option<Self>, RegionError> {
        let path = &map::absolute(path)?;
        let Some((mapped, file)) = map::open_to_read(path, trust)? else { return Ok(None) };
        let region = Region::new(mapped);
        // Before the epoch: a region is ready after it has its number.
        let is_ready = region.is_ready();
        let epoch = region.epoch();
        Ok(is_ready.then(|| Self { region, locks: LockFile::new(file), epoch }))
    }

    /// Where the region is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.region.path()
    }

    /// How often the region had been made anew when it was opened.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether the region still is what was opened. Two looks at the file system.
    ///
    /// # Errors
    /// [`RegionError::Damaged`] when the file was shortened or overwritten, [`RegionError::Replaced`] when it was
    /// removed or another stands in its place, [`RegionError::Renewed`] when another slice has it.
    pub fn check(&self) -> Result<(), RegionError> {
        let mapped = self.region.mapped();
        // What was read before this is of the region as it is found here, or older.
        read_fence();
        mapped.check_file(self.locks.file())?;
        let (header, path) = (&self.layout().header, || self.path().to_owned());
        if header.magic.get() != MAGIC || header.version.get() != VERSION {
            return Err(RegionError::Damaged { path: path() });
        }
        if header.ready.observe() != READY || header.epoch.get() != self.epoch {
            return Err(RegionError::Reinitialised { path: path() });
        }
        Ok(())
    }

    /// How many devices the slice has.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn device_count(&self) -> Result<usize, RegionError> {
        self.checked(Ok(self.layout().device_count()))
    }

    /// The figures of all devices.
    ///
    /// # Errors
    /// As [`device`](Self::device).
    pub fn devices(&self) -> Result<Vec<DeviceFigures>, RegionError> {
        let views = self.region.devices();
        let figures: io::Result<Vec<_>> = views.iter().map(|view| self.figures(view)).collect();
        self.checked(figures.map_err(|source| self.unknown(source)))
    }

    /// What all processes used of a device lately: see [`Region::used_over`].
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn used_over(&self, device: Device, seconds: u64) -> Result<RecentUsage, RegionError> {
        self.checked(Ok(self.region.used_over(device, seconds, clock::now())))
    }

    /// Whether anybody has died whom nobody has cleared yet: see [`Region::reap`], which needs the right to write.
    ///
    /// # Errors
    /// As [`device`](Self::device).
    pub fn any_dead(&self) -> Result<bool, RegionError> {
        let dead = self.layout().any_dead(&self.locks);
        self.checked(dead.map_err(|source| self.unknown(source)))
    }

    /// The figures of the device at this place of the region's table. `None`: the slice has no such device.
    ///
    /// # Errors
    /// As [`check`](Self::check), and [`RegionError::System`] when the system does not say who lives.
    pub fn device(&self, index: usize) -> Result<Option<DeviceFigures>, RegionError> {
        let view = self.region.devices().into_iter().nth(index);
        let figures = view.map(|view| self.figures(&view)).transpose();
        self.checked(figures.map_err(|source| self.unknown(source)))
    }

    /// The processes that live.
    ///
    /// # Errors
    /// As [`device`](Self::device).
    pub fn processes(&self) -> Result<Vec<ProcessView>, RegionError> {
        let mut processes = self.region.processes();
        let mut unknown = Ok(());
        processes.retain(|process| match self.locks.is_alive(process.slot) {
            Ok(lives) => lives,
            Err(source) => {
                unknown = Err(self.unknown(source));
                false
            }
        });
        self.checked(unknown.map(|()| processes))
    }

    /// How many processes live.
    ///
    /// # Errors
    /// As [`device`](Self::device).
    pub fn process_count(&self) -> Result<usize, RegionError> {
        let layout = self.layout();
        let mut count = Ok(0_usize);
        for slot in (0..layout.slot_high_water()).filter(|slot| layout.is_taken(*slot)) {
            match self.locks.is_alive(slot) {
                Ok(lives) => count = count.map(|count| count.saturating_add(usize::from(lives))),
                Err(source) => count = Err(self.unknown(source)),
            }
        }
        self.checked(count)
    }

    fn layout(&self) -> &Layout {
        self.region.layout()
    }

    /// What was read, unless the region is another by now: that explains every other error too.
    fn checked<T>(&self, read: Result<T, RegionError>) -> Result<T, RegionError> {
        self.check()?;
        read
    }

    fn unknown(&self, source: io::Error) -> RegionError {
        self.region.mapped().failed("ask who lives", source)
    }

    fn figures(&self, view: &DeviceView) -> io::Result<DeviceFigures> {
        let (region, layout, device) = (&self.region, self.layout(), view.device);
        // The sums before the dead: who is cleared in between counts once more, and nobody is taken off who is not in.
        let leaving = layout.leaving(device.index(), clock::now());
        let (held, spilled, contexts) =
            (region.held(device), region.spilled(device), region.contexts(device));
        let mut time = region.time_used(device);
        let dead = self.dead_on(device)?;
        time.queued = time.queued.saturating_sub(dead.queued);
        let now = clock::now();
        let words = layout.time(device.index());
        let terms = layout.terms(device.index());
        let paid_until = words.map_or(0, |time| terms::load_clamped(time, terms, now));
        let owed = if view.limits.is_paced() { terms.gpu(paid_until.saturating_sub(now)) } else { 0 };
        Ok(DeviceFigures {
            device,
            uuid: view.uuid,
            total: view.total,
            limits: view.limits,
            held: held.saturating_sub(dead.held),
            leaving,
            host_memory: region.has_host_memory(device),
            held_by_dead: dead.held,
            peak: region.peak(device),
            quota_denials: region.quota_denials(device),
            device_denials: region.device_denials(device),
            spilled: spilled.saturating_sub(dead.spilled),
            contexts: contexts.saturating_sub(dead.contexts),
            time,
            context_bytes: region.context_bytes(device),
            paid_until,
            owed,
            meter: region.measure_source(device),
            factor: region.correction(device),
            read_at: now,
        })
    }

    /// What the words of the dead still say.
    fn dead_on(&self, device: Device) -> io::Result<HeldByDead> {
        let layout = self.layout();
        let mut dead = HeldByDead::default();
        for slot in (0..layout.slot_high_water()).filter(|slot| layout.is_taken(*slot)) {
            let left = self.left_by(slot, device.index());
            // Who lives is a question to the kernel, which takes longer than all the rest.
            if left != HeldByDead::default() && !self.locks.is_alive(slot)? {
                dead = dead.plus(&left);
            }
        }
        Ok(dead)
    }

    fn left_by(&self, slot: usize, device: usize) -> HeldByDead {
        let layout = self.layout();
        let held = layout.held_by(device, slot).saturating_add(layout.transferred_to(device, slot));
        let Some((_, process)) = layout.process_time(device, slot) else {
            return HeldByDead { held, ..HeldByDead::default() };
        };
        HeldByDead {
            held,
            spilled: process.spilled_bytes.get(),
            contexts: process.context_bytes.get(),
            queued: process.queued(),
        }
    }
}

/// What a process has, and leaves when it dies.
#[derive(Debug, Default, PartialEq, Eq)]
struct HeldByDead {
    held: u64,
    spilled: u64,
    contexts: u64,
    queued: u64,
}

impl HeldByDead {
    fn plus(self, other: &Self) -> Self {
        Self {
            held: self.held.saturating_add(other.held),
            spilled: self.spilled.saturating_add(other.spilled),
            contexts: self.contexts.saturating_add(other.contexts),
            queued: self.queued.saturating_add(other.queued),
        }
    }
}
