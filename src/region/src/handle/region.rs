//! A mapped region: figures, limits, and reaping, for members and monitors.

use std::{collections::BTreeMap, path::Path};

use gpuslice_policy::time::{GpuTime, Monotonic, WallTime};

use crate::{
    compute::reclaim::TimeUsed,
    file::{error::RegionError, map::Mapped},
    handle::{
        device::{Device, Uuid},
        limits::Limits,
    },
    layout::{
        DeviceEntry, Layout,
        compute_words::ProcessTime,
        constants::{HOST_MEMORY, READY},
    },
    memory::{leaving::is_recent, ledger::limit_of},
    slots::{identity, pid_liveness::PidLiveness, roster::Reaped},
    sync::{atomics::Word64, clock},
};

/// Shortest time between two calls of [`Region::reap_if_due`] that reap.
const REAP_OWN_EVERY: WallTime = WallTime::from_millis(50);

/// A device as the region describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceView {
    /// The device.
    pub device: Device,
    /// The device's UUID.
    pub uuid: Uuid,
    /// Bytes of memory of the device.
    pub total: u64,
    /// The slice's limits on the device.
    pub limits: Limits,
}

/// A process of the slice, as the process itself has described it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessView {
    /// The process's slot.
    pub slot: usize,
    /// The process's number, in its own process-number namespace.
    pub pid: u32,
    /// The instant of its start, in clock ticks since boot; 0: not known.
    pub start: u64,
    /// Inode of its process-number namespace; 0: not known.
    pub pid_namespace: u64,
    /// Bytes that it holds, by [`Device::index`].
    pub held: Vec<u64>,
    /// Reservations of the process that were denied, by [`Device::index`]. Wraps at 2^32.
    pub quota_denials: Vec<u32>,
    /// GPU time that it has used, by [`Device::index`].
    pub time: Vec<TimeUsed>,
    /// Bytes beyond the quota that it holds in host memory, by [`Device::index`].
    pub spilled: Vec<u64>,
    /// Bytes of [`held`](Self::held) for contexts, by [`Device::index`].
    pub contexts: Vec<u64>,
}

/// A mapped region. [`Member`](crate::Member) and [`Monitor`](crate::Monitor) dereference to it.
#[derive(Debug)]
pub struct Region {
    mapped: Mapped,
    /// The time at which this process last reaped.
    reaped_at: Word64<Monotonic>,
}

impl Region {
    pub(crate) fn new(mapped: Mapped) -> Self {
        Self { mapped, reaped_at: Word64::default() }
    }

    /// Returns the shared words.
    pub(crate) fn layout(&self) -> &Layout {
        &self.mapped
    }

    /// Returns the mapped file.
    pub(crate) fn mapped(&self) -> &Mapped {
        &self.mapped
    }

    /// Returns the path of the region.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.mapped.path()
    }

    /// Returns a number of 38 bits for the region's file, which is the same in all containers of the node.
    #[must_use]
    pub fn file_number(&self) -> u64 {
        self.mapped.id().number()
    }

    /// Returns the number of initialisations of the region. If it changes, the region has other devices and limits.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.layout().header.epoch.get()
    }

    /// Tells whether the region may be used. It returns false while a process initialises the region.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.layout().header.ready.observe() == READY
    }

    /// Returns the device with this UUID, if the slice has it.
    #[must_use]
    pub fn device(&self, uuid: &Uuid) -> Option<Device> {
        self.entries().find(|(_, entry)| Uuid::of(entry) == *uuid).map(|(device, _)| device)
    }

    /// Returns the number of devices of the slice.
    #[must_use]
    pub fn device_count(&self) -> usize {
        self.layout().device_count()
    }

    /// Returns all devices of the slice.
    #[must_use]
    pub fn devices(&self) -> Vec<DeviceView> {
        let view = |(device, entry): (Device, &DeviceEntry)| DeviceView {
            device,
            uuid: Uuid::of(entry),
            total: entry.total.get(),
            limits: Limits::of(entry),
        };
        self.entries().map(view).collect()
    }

    /// Returns the limits on a device now; other processes may change them at any time. For a device that does not exist,
    /// returns limits that allow nothing.
    #[must_use]
    pub fn limits(&self, device: Device) -> Limits {
        let nothing = Limits { memory: Some(0), cores_permille: 1, burst: GpuTime::ZERO, ..Limits::NONE };
        self.layout().devices.get(device.0).map_or(nothing, Limits::of)
    }

    /// Returns the memory limit alone, which costs less to read than all [`limits`](Self::limits).
    #[must_use]
    pub fn memory_limit(&self, device: Device) -> Option<u64> {
        self.layout().devices.get(device.0).map_or(Some(0), |entry| limit_of(entry.memory_limit.get()))
    }

    /// Writes the limits on a device, without regard to changes by other processes at the same time. A caller that changes
    /// only some of the limits uses [`change_limits`](Self::change_limits).
    ///
    /// The slice keeps the memory that it holds: only new reservations are checked against the limit. Its debt and its
    /// saved GPU time stay the same. Throttled processes try again at once. A grant of the arbiter ends; the arbiter may
    /// write a new one at any time.
    pub fn set_limits(&self, device: Device, limits: Limits) {
        let layout = self.layout();
        layout.set_own_rate_limit(device.0, limits.rate_limit(), clock::now, |entry| {
            limits.write(&layout.header, entry)
        });
    }

    /// Returns the most bytes that the slice was granted on a device at a time, in this epoch.
    #[must_use]
    pub fn peak(&self, device: Device) -> u64 {
        self.layout().devices.get(device.0).map_or(0, |entry| entry.peak.get())
    }

    /// Returns the number of allocations on a device that were denied because of the quota, in this epoch.
    #[must_use]
    pub fn quota_denials(&self, device: Device) -> u64 {
        self.layout().devices.get(device.0).map_or(0, |entry| entry.quota_denials.get())
    }

    /// Returns the number of allocations within the quota for which the driver had no memory, in this epoch.
    #[must_use]
    pub fn device_denials(&self, device: Device) -> u64 {
        self.layout().devices.get(device.0).map_or(0, |entry| entry.device_denials.get())
    }

    /// Returns the bytes beyond the quota that the slice holds in host memory, for a device.
    #[must_use]
    pub fn spilled(&self, device: Device) -> u64 {
        self.sum(device, |process| process.spilled_bytes.get())
    }

    /// Returns the bytes that the slice holds on a device for contexts, including green contexts, and for limits of contexts: a
    /// part of [`held`](Self::held). Includes the contexts of dead processes until [`reap`](Self::reap).
    #[must_use]
    pub fn contexts(&self, device: Device) -> u64 {
        self.sum(device, |process| process.context_bytes.get())
    }

    /// Returns the sum of a word over all processes.
    fn sum(&self, device: Device, word: impl Fn(&ProcessTime) -> u64) -> u64 {
        let layout = self.layout();
        let processes = layout
            .time(device.0)
            .into_iter()
            .flat_map(|time| time.processes.iter().take(layout.slot_high_water()));
        processes.fold(0, |sum, process| sum.saturating_add(word(process)))
    }

    /// Returns the expected size of a context on a device, in bytes: the largest one that a member of the slice has measured.
    #[must_use]
    pub fn context_bytes(&self, device: Device) -> Option<u64> {
        self.layout().devices.get(device.0)?.context_bytes.get().checked_sub(1)
    }

    /// Records the measured size of a context on a device.
    pub fn learn_context_bytes(&self, device: Device, bytes: u64) {
        let word = bytes.saturating_add(1);
        if let Some(entry) = self.layout().devices.get(device.0)
            && entry.context_bytes.get() < word
        {
            entry.context_bytes.set(word);
        }
    }

    /// Returns the bytes that the slice holds on a device. Includes pending reservations and the bytes of dead processes that
    /// were not [reaped](Self::reap_if_due). Excludes memory that [leaves](Self::leaving).
    #[must_use]
    pub fn held(&self, device: Device) -> u64 {
        let left = self.layout().all_left(device.0);
        self.layout().held(device.0).saturating_sub(left)
    }

    /// Returns the bytes of dead processes that the device may not have back. Reservations count them as held.
    #[must_use]
    pub fn leaving(&self, device: Device) -> u64 {
        self.layout().leaving(device.0, clock::now())
    }

    /// Tells whether a process that held memory of the device was found dead less than [`LEAVING`](crate::LEAVING) ago.
    #[must_use]
    pub fn has_recent_death(&self, device: Device) -> bool {
        let left_at =
            self.layout().devices.get(device.0).map_or(Monotonic::BEGIN, |entry| entry.holder_died_at.get());
        left_at > Monotonic::BEGIN && is_recent(left_at, clock::now())
    }

    /// Tells whether the device's memory is the host's. Its free memory then changes with every program of the machine.
    #[must_use]
    pub fn has_host_memory(&self, device: Device) -> bool {
        self.layout().devices.get(device.0).is_some_and(|entry| entry.host_memory.get() == HOST_MEMORY)
    }

    /// Tells whether any process has a slot. It may be dead: see [`reap`](Self::reap).
    #[must_use]
    pub fn is_inhabited(&self) -> bool {
        let layout = self.layout();
        (0..layout.slot_high_water()).any(|slot| layout.is_taken(slot))
    }

    /// Returns the processes that have a slot. Dead processes are included until [`reap`](Self::reap).
    #[must_use]
    pub fn processes(&self) -> Vec<ProcessView> {
        let layout = self.layout();
        let transferred = layout.transferred_by_slot();
        (0..layout.slot_high_water())
            .filter(|slot| layout.is_taken(*slot))
            .filter_map(|slot| self.view(slot, &transferred))
            .collect()
    }

    /// Reaps dead processes. Ends the leaving of memory that has left for long enough.
    ///
    /// If the file was removed, no process can ask for its locks. The function then finds processes of this process-number
    /// namespace by number and start time, and takes all others for alive.
    ///
    /// # Errors
    /// [`RegionError::Replaced`] if the path leads to another file and this file is not known to be removed.
    /// [`RegionError::System`] if the file cannot be opened or locked.
    pub fn reap(&self) -> Result<Reaped, RegionError> {
        let layout = self.layout();
        let ended = layout.end_expired(clock::now());
        Ok(match self.reap_members()? {
            Reaped::Nobody if ended > 0 => Reaped::Dead(0),
            reaped => reaped,
        })
    }

    /// Reaps dead processes, by their life locks or, without a file, by their process numbers.
    fn reap_members(&self) -> Result<Reaped, RegionError> {
        let layout = self.layout();
        let locks = match self.mapped.locks() {
            Err(RegionError::Replaced { .. }) if self.mapped.has_lost_its_name() => {
                return Ok(layout.reap_detached(&PidLiveness::here(layout), clock::now()));
            }
            locks => locks?,
        };
        let failed = |source| self.mapped.failed("ask who lives", source);
        if !layout.any_dead(&locks).map_err(failed)? {
            return Ok(Reaped::Nobody);
        }
        let Some(_lock) = locks.try_join().map_err(failed)? else { return Ok(Reaped::UnderWay) };
        layout.header.last_joiner_pid.set(identity::own_pid());
        let (dead, _living) = layout.reap_locked(&locks, clock::now()).map_err(failed)?;
        Ok(if dead == 0 { Reaped::Nobody } else { Reaped::Dead(dead) })
    }

    /// Does the same as [`reap`](Self::reap), at most once in 50 ms for each process. `now` is the monotonic clock, in
    /// nanoseconds. `None`: the 50 ms have not passed yet.
    ///
    /// # Errors
    /// Those of [`reap`](Self::reap).
    pub fn reap_if_due(&self, now: Monotonic) -> Result<Option<Reaped>, RegionError> {
        let last = self.reaped_at.get();
        if (last != Monotonic::BEGIN && now.since(last) < REAP_OWN_EVERY)
            || !self.reaped_at.replace(last, now)
        {
            return Ok(None);
        }
        self.reap().map(Some)
    }

    /// Adds a device. Its compute ledger already has space in the file. Needs the join lock. `None`: the table is full.
    pub(crate) fn add(&self, uuid: Uuid, total: u64, limits: Limits, now: Monotonic) -> Option<Device> {
        let layout = self.layout();
        let index = layout.device_count();
        let (entry, time) = (layout.devices.get(index)?, layout.time.get(index)?);
        time.clear(layout.slot_high_water());
        layout.held.get(index)?.iter().for_each(|word| word.clear());
        if Uuid::of(entry) != uuid {
            layout.forget_leaving(index);
        }
        uuid.words().iter().zip(&entry.uuid).for_each(|(value, word)| word.set(*value));
        entry.total.set(total);
        entry.host_memory.set(0);
        let _before = limits.write(&layout.header, entry);
        layout.take_debt(index, now);
        [&entry.context_bytes, &entry.peak, &entry.quota_denials, &entry.device_denials]
            .iter()
            .for_each(|word| word.set(0));
        layout.header.device_count.publish(u32::try_from(index.saturating_add(1)).unwrap_or(u32::MAX));
        Some(Device(index))
    }

    /// Returns the valid entries of the device table.
    fn entries(&self) -> impl Iterator<Item = (Device, &DeviceEntry)> {
        let layout = self.layout();
        layout
            .devices
            .iter()
            .take(layout.device_count())
            .enumerate()
            .map(|(index, entry)| (Device(index), entry))
    }

    /// Returns the description of the process in `slot`. `transferred`: see [`Layout::transferred_by_slot`].
    fn view(&self, slot: usize, transferred: &BTreeMap<(usize, usize), u64>) -> Option<ProcessView> {
        let layout = self.layout();
        let entry = layout.slots.get(slot)?;
        let devices = layout.device_count();
        let each = |word: fn(&ProcessTime) -> u64| {
            let of = |device| layout.process_time(device, slot).map_or(0, |(_, process)| word(process));
            (0..devices).map(of).collect()
        };
        Some(ProcessView {
            slot,
            pid: entry.pid.get(),
            start: entry.start.get(),
            pid_namespace: entry.pid_namespace.get(),
            held: (0..devices)
                .map(|device| {
                    let transferred = transferred.get(&(device, slot)).copied().unwrap_or(0);
                    layout.held_by(device, slot).saturating_add(transferred)
                })
                .collect(),
            quota_denials: layout
                .quota_denials
                .get(slot)?
                .iter()
                .take(devices)
                .map(|count| count.get())
                .collect(),
            time: (0..devices).map(|device| layout.time_used_by(device, slot)).collect(),
            spilled: each(|process| process.spilled_bytes.get()),
            contexts: each(|process| process.context_bytes.get()),
        })
    }
}
