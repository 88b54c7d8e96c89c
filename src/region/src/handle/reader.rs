//! Reads a slice's figures without the right to write.
//!
//! A [`Reader`] maps the file for reading only, so no function here may change a word, not even to repair it. After it has
//! read a figure, it checks that the region is still the one that was opened. A damaged region thus yields an error and
//! never a number.

use std::{collections::BTreeMap, io, path::Path};

use crate::{
    compute::{history::RecentUsage, rate_limit, reclaim::TimeUsed},
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
    slots::roster::Liveness,
    sync::{atomics::read_fence, clock},
};
use gpuslice_policy::time::{GpuTime, Monotonic};

/// A region mapped for reading. It belongs to one epoch. When another slice initialises the region again, the reader's
/// functions return errors.
#[derive(Debug)]
pub struct Reader {
    region: Region,
    /// An opening of the file. It serves to ask for life locks, and for the size of the file.
    locks: LockFile,
    epoch: u64,
}

/// A slice's limits and use of a device. Each figure is exact for some instant during the reading, but different figures
/// may be exact for different instants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceFigures {
    /// The device.
    pub device: Device,
    /// The device's UUID.
    pub uuid: Uuid,
    /// Bytes of memory of the device.
    pub total: u64,
    /// The slice's limits on the device.
    pub limits: Limits,
    /// Bytes that living processes hold, pending reservations included. Excludes memory that [leaves](Self::leaving).
    pub held: u64,
    /// Bytes of dead processes. They count until a process reaps the dead processes.
    pub held_by_dead: u64,
    /// Bytes of dead processes that the device may not have back.
    pub leaving: u64,
    /// Whether the device's memory is the host's: see [`Region::has_host_memory`].
    pub host_memory: bool,
    /// The most bytes that were granted at a time.
    pub peak: u64,
    /// Allocations denied because of the quota.
    pub quota_denials: u64,
    /// Allocations within the quota for which the driver had no memory.
    pub device_denials: u64,
    /// Bytes beyond the quota that living processes hold in host memory.
    pub spilled: u64,
    /// Bytes of [`held`](Self::held) for contexts: see [`Region::contexts`].
    pub contexts: u64,
    /// Expected size of a context, in bytes: see [`Region::context_bytes`].
    pub context_bytes: Option<u64>,
    /// GPU time used, including processes that have ended; `queued` counts living processes only.
    pub time: TimeUsed,
    /// The instant up to which the slice's GPU time is paid.
    pub paid_until: Monotonic,
    /// GPU time that the slice owes; zero without a limit on GPU time.
    pub owed: GpuTime,
    /// The source of measured GPU time: see [`Region::measure_source`].
    pub measure_source: u32,
    /// The slice's own part of the time between events: see [`Region::correction`].
    pub correction: u32,
    /// The time at which the figures were read.
    pub read_at: Monotonic,
}

impl Reader {
    /// Opens the region at `path`. `None`: there is no region, or no process has finished initialising it.
    ///
    /// # Errors
    /// Every [`RegionError`] of a file that is not a readable region.
    pub fn open(path: &Path, trust: Trust) -> Result<Option<Self>, RegionError> {
        let path = &map::absolute(path)?;
        let Some((mapped, file)) = map::open_to_read(path, trust)? else { return Ok(None) };
        let region = Region::new(mapped);
        // This comes before the epoch is read: a region becomes ready after it has its epoch.
        let is_ready = region.is_ready();
        let epoch = region.epoch();
        Ok(is_ready.then(|| Self { region, locks: LockFile::new(file), epoch }))
    }

    /// Returns the path of the region.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.region.path()
    }

    /// Returns the epoch in which the region was opened.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Checks that the region is still the one that was opened. Makes two system calls.
    ///
    /// # Errors
    /// [`RegionError::Damaged`] if the file was truncated or overwritten. [`RegionError::Replaced`] if it was removed
    /// or replaced. [`RegionError::Reinitialised`] if another slice has it.
    pub fn check(&self) -> Result<(), RegionError> {
        let mapped = self.region.mapped();
        // All earlier reads happen before the checks. So they read the region that the checks find, or an older state of
        // it.
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

    /// Returns the number of devices of the slice.
    ///
    /// # Errors
    /// Those of [`check`](Self::check).
    pub fn device_count(&self) -> Result<usize, RegionError> {
        self.checked(Ok(self.layout().device_count()))
    }

    /// Returns the figures of all devices.
    ///
    /// # Errors
    /// Those of [`device`](Self::device).
    pub fn devices(&self) -> Result<Vec<DeviceFigures>, RegionError> {
        let figures = self.figures(&self.region.devices());
        self.checked(figures.map_err(|source| self.unknown(source)))
    }

    /// Returns the recent use of a device: see [`Region::used_over`].
    ///
    /// # Errors
    /// Those of [`check`](Self::check).
    pub fn used_over(&self, device: Device, seconds: u64) -> Result<RecentUsage, RegionError> {
        self.checked(Ok(self.region.used_over(device, seconds, clock::now())))
    }

    /// Tells whether a process is dead and not reaped yet. A reader cannot reap it: [`Region::reap`] needs the right to
    /// write.
    ///
    /// # Errors
    /// Those of [`device`](Self::device).
    pub fn any_dead(&self) -> Result<bool, RegionError> {
        let dead = self.layout().any_dead(&self.locks);
        self.checked(dead.map_err(|source| self.unknown(source)))
    }

    /// Returns the figures of the device at `index` of the region's table. `None`: the slice has no such device.
    ///
    /// # Errors
    /// Those of [`check`](Self::check), and [`RegionError::System`] if the kernel does not tell whether a process is alive.
    pub fn device(&self, index: usize) -> Result<Option<DeviceFigures>, RegionError> {
        let view: Vec<_> = self.region.devices().into_iter().skip(index).take(1).collect();
        let figures = self.figures(&view).map(|mut figures| figures.pop());
        self.checked(figures.map_err(|source| self.unknown(source)))
    }

    /// Returns the living processes.
    ///
    /// # Errors
    /// Those of [`device`](Self::device).
    pub fn processes(&self) -> Result<Vec<ProcessView>, RegionError> {
        let mut processes = self.region.processes();
        let slots: Vec<usize> = processes.iter().map(|process| process.slot).collect();
        let living = self.locks.living(&slots).map_err(|source| self.unknown(source));
        self.checked(living.map(|living| {
            processes.retain(|process| living.contains(&process.slot));
            processes
        }))
    }

    /// Returns the number of living processes.
    ///
    /// # Errors
    /// Those of [`device`](Self::device).
    pub fn process_count(&self) -> Result<usize, RegionError> {
        let layout = self.layout();
        let taken: Vec<usize> = (0..layout.slot_high_water()).filter(|slot| layout.is_taken(*slot)).collect();
        let living = self.locks.living(&taken).map_err(|source| self.unknown(source));
        self.checked(living.map(|living| living.len()))
    }

    fn layout(&self) -> &Layout {
        self.region.layout()
    }

    /// Returns the result of a reading. If the region has changed meanwhile, returns that error instead, which explains all
    /// others.
    fn checked<T>(&self, read: Result<T, RegionError>) -> Result<T, RegionError> {
        self.check()?;
        read
    }

    /// Returns the error of a system call that failed to tell whether a process is alive.
    fn unknown(&self, source: io::Error) -> RegionError {
        self.region.mapped().failed("ask who lives", source)
    }

    /// Reads the figures of some devices.
    fn figures(&self, views: &[DeviceView]) -> io::Result<Vec<DeviceFigures>> {
        let layout = self.layout();
        // Sums are read before the dead processes are looked up. If a process is reaped in between, its bytes count once
        // more, and bytes that are not in the sum are never subtracted.
        let mut figures: Vec<_> = views.iter().map(|view| self.with_dead(view)).collect();
        let devices: Vec<_> = views.iter().map(|view| view.device).collect();
        let dead = held_by_dead(layout, &self.locks, &devices)?;
        for (figures, dead) in figures.iter_mut().zip(dead) {
            let now = clock::now();
            let words = layout.time(figures.device.index());
            let rate_limit = layout.rate_limit(figures.device.index());
            let paid_until =
                words.map_or(Monotonic::BEGIN, |time| rate_limit::load_clamped(time, rate_limit, now));
            let is_paced = figures.limits.is_paced();
            figures.owed = if is_paced { rate_limit.gpu(paid_until.since(now)) } else { GpuTime::ZERO };
            (figures.paid_until, figures.read_at) = (paid_until, now);
            figures.held = figures.held.saturating_sub(dead.held);
            figures.held_by_dead = dead.held;
            figures.spilled = figures.spilled.saturating_sub(dead.spilled);
            figures.contexts = figures.contexts.saturating_sub(dead.contexts);
            figures.time.queued = figures.time.queued.saturating_sub(dead.queued);
        }
        Ok(figures)
    }

    /// Reads the figures of a device that are known without asking whether a process is alive. The sums include dead
    /// processes.
    fn with_dead(&self, view: &DeviceView) -> DeviceFigures {
        let (region, device) = (&self.region, view.device);
        DeviceFigures {
            device,
            uuid: view.uuid,
            total: view.total,
            limits: view.limits,
            leaving: region.leaving(device),
            held: region.held(device),
            held_by_dead: 0,
            host_memory: region.has_host_memory(device),
            peak: region.peak(device),
            quota_denials: region.quota_denials(device),
            device_denials: region.device_denials(device),
            spilled: region.spilled(device),
            contexts: region.contexts(device),
            context_bytes: region.context_bytes(device),
            time: region.time_used(device),
            paid_until: Monotonic::BEGIN,
            owed: GpuTime::ZERO,
            measure_source: region.measure_source(device),
            correction: region.correction(device),
            read_at: Monotonic::BEGIN,
        }
    }
}

/// Returns the sums of the words of dead processes, for each of `devices`.
///
/// The tenants of the slice write these words, and a tenant can write the largest counts. So the function reads the table
/// of shares once, and asks about each process at most once.
fn held_by_dead<L: Liveness>(
    layout: &Layout,
    lives: &L,
    devices: &[Device],
) -> Result<Vec<HeldByDead>, L::Error> {
    let transferred = layout.transferred_by_slot();
    let mut dead: Vec<_> = devices.iter().map(|_| HeldByDead::default()).collect();
    let left_by = |slot: usize| {
        let left_on = |device: &Device| {
            let transferred = transferred.get(&(device.index(), slot)).copied().unwrap_or(0);
            HeldByDead::in_slot(layout, slot, device.index(), transferred)
        };
        let left: Vec<_> = devices.iter().map(left_on).collect();
        left.iter().any(|left| *left != HeldByDead::default()).then_some((slot, left))
    };
    let taken = (0..layout.slot_high_water()).filter(|slot| layout.is_taken(*slot));
    let left: BTreeMap<usize, Vec<_>> = taken.filter_map(left_by).collect();
    // The question whether a process is alive is a system call, which costs more than all the rest. It comes after the words,
    // because another process may take the slot of a dead process in between.
    let living = lives.living(&left.keys().copied().collect::<Vec<_>>())?;
    for (_, left) in left.iter().filter(|(slot, _)| !living.contains(slot)) {
        dead.iter_mut().zip(left).for_each(|(sum, left)| sum.add(left));
    }
    Ok(dead)
}

/// Words of a process that still count when it is dead.
#[derive(Debug, Default, PartialEq, Eq)]
struct HeldByDead {
    held: u64,
    spilled: u64,
    contexts: u64,
    queued: GpuTime,
}

impl HeldByDead {
    /// Returns the words of the process in `slot` on a device. `transferred`: the bytes of shares for which it pays.
    fn in_slot(layout: &Layout, slot: usize, device: usize, transferred: u64) -> Self {
        let held = layout.held_by(device, slot).saturating_add(transferred);
        let Some((_, process)) = layout.process_time(device, slot) else {
            return Self { held, ..Self::default() };
        };
        Self {
            held,
            spilled: process.spilled_bytes.get(),
            contexts: process.context_bytes.get(),
            queued: process.queued(),
        }
    }

    fn add(&mut self, other: &Self) {
        self.held = self.held.saturating_add(other.held);
        self.spilled = self.spilled.saturating_add(other.spilled);
        self.contexts = self.contexts.saturating_add(other.contexts);
        self.queued = self.queued.saturating_add(other.queued);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        handle::{join::DeviceRequest, member::Member},
        layout::constants::{MAX_DEVICES, MAX_SHARES, MAX_SLOTS, SLOT_TAKEN},
        memory::shared_memory::reads,
    };
    use std::cell::Cell;

    /// Counts the questions. In its answers no process is alive.
    #[derive(Default)]
    struct Nobody(Cell<usize>);

    impl Liveness for Nobody {
        type Error = io::Error;

        fn is_alive(&self, _slot: usize) -> io::Result<bool> {
            self.0.set(self.0.get() + 1);
            Ok(false)
        }
    }

    #[test]
    fn the_largest_counts_cost_a_bounded_number_of_reads_and_questions() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = directory.path().join("region");
        let request =
            |number: u8| DeviceRequest { uuid: Uuid([number; 16]), total: 1 << 40, limits: Limits::NONE };
        let requests: Vec<_> = (1..=u8::try_from(MAX_DEVICES).unwrap()).map(request).collect();
        let (member, _) = Member::join(&path, Trust::OwnerOnly, &requests).unwrap();
        let layout = member.layout();
        layout.header.slot_high_water.set(u32::MAX);
        layout.header.share_high_water.set(u32::MAX);
        layout.slots.iter().for_each(|slot| slot.state.publish(SLOT_TAKEN));
        for (index, share) in layout.shares.iter().enumerate() {
            // Role 4 is a payer, which counts. The device follows from bit 8 on, and the slot from bit 16 on.
            let (device, slot) = (index % MAX_DEVICES, index % MAX_SLOTS);
            share.bytes.set(1);
            share.state.publish(u64::try_from(4 | device << 8 | slot << 16).unwrap());
        }
        let devices: Vec<_> = member.devices().iter().map(|view| view.device).collect();
        assert_eq!(devices.len(), MAX_DEVICES);
        let (lives, _) = (Nobody::default(), reads::take());
        let dead = held_by_dead(layout, &lives, &devices).unwrap();
        assert_eq!((reads::take(), lives.0.get()), (MAX_SHARES, MAX_SLOTS));
        assert!(dead.iter().all(|dead| dead.held == u64::try_from(MAX_SHARES / MAX_DEVICES).unwrap()));
        assert_eq!(member.processes().len(), MAX_SLOTS);
        assert_eq!(reads::take(), MAX_SHARES);
        // The sums of a device read the table three times each.
        let reader = Reader::open(&path, Trust::OwnerOnly).unwrap().unwrap();
        assert_eq!(reader.devices().unwrap().len(), MAX_DEVICES);
        assert!(reads::take() <= (1 + 3 * MAX_DEVICES) * MAX_SHARES);
    }
}
