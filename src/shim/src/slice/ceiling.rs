//! Ceilings of the slice's limits: the operator's fixed file.
//!
//! The limits in force are words of the region, and every process of the slice can write them. `gpuslice set` writes them, and
//! a tenant may do so too. So each process keeps the upper bounds from the file, and compares the words with them before it
//! uses the words. If a limit is above the ceiling, the process sets it back. The tenant may lower limits.
//!
//! The process reads the file again in two cases. The first case: limits are above the ceilings. To raise limits, an operator
//! changes the file first, so the file may be newer than the ceilings. The second case: the file has been replaced or written,
//! so an operator may have lowered the limits. A thread checks for that whenever it checks that the region still exists, and
//! the worker checks ten times a second.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use super::devices::FoundDevice;
use super::settings;
use crate::os::messages;
use crate::os::time_word::TimeWord;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use gpuslice_policy::config::{Ceiling, Ceilings, DeviceIdentity, FIXED_FILE, LogLevel, gpu_uuid_text};
use gpuslice_policy::time::{Monotonic, WallTime};
use gpuslice_policy::units::Bytes;
use gpuslice_region::operator::Contents;
use gpuslice_region::{Device, Limits, Region, Uuid};
use parking_lot::Mutex;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Ceilings of all devices of this process. The list is empty without a file.
#[derive(Debug)]
pub(crate) struct SliceCeilings {
    devices: Vec<DeviceCeiling>,
    /// State of the file that was read last. `None`: no thread has read it yet, or there is no file.
    file: Mutex<Option<FileState>>,
    /// Instant at which the worker last checked the file.
    looked_at: TimeWord<Monotonic>,
    has_warned: AtomicBool,
}

/// Ceiling of one device.
#[derive(Debug)]
struct DeviceCeiling {
    device: Device,
    identity: DeviceIdentity,
    /// Largest quota in bytes; the largest number if there is no bound. Each reservation compares the quota with it.
    memory: AtomicU64,
    all: Mutex<Ceiling>,
}

/// State of a file: its device and inode, its size, and the time of its last change in seconds and nanoseconds. If the file is
/// replaced or written, its state differs.
type FileState = (u64, u64, u64, i64, i64);

/// Time between two checks of the file by the worker.
const LOOK_EACH: WallTime = WallTime::from_millis(100);

impl SliceCeilings {
    /// Returns the ceilings of all devices of this process.
    pub(crate) fn of_all(region: &Region, found: &[FoundDevice]) -> Self {
        let ceiling = |ceilings: &Ceilings, found: &FoundDevice| {
            let (device, identity) = (region.device(&Uuid(found.uuid))?, found.identity());
            Some(DeviceCeiling::new(device, identity, ceilings.of(identity)))
        };
        let devices = settings::known()
            .and_then(|settings| settings.ceilings.as_ref())
            .map(|ceilings| found.iter().filter_map(|found| ceiling(ceilings, found)).collect());
        Self {
            devices: devices.unwrap_or_default(),
            file: Mutex::new(None),
            looked_at: TimeWord::zero(),
            has_warned: AtomicBool::new(false),
        }
    }

    /// Sets the quota of a device back if it is above the ceiling.
    #[inline]
    pub(crate) fn hold_quota(&self, region: &Region, device: Device) {
        let is_above = |ceiling: &DeviceCeiling| ceiling.device == device && !ceiling.allows_quota(region);
        if self.devices.iter().any(is_above) {
            self.hold(region);
        }
    }

    /// Sets all limits back that are above the ceilings. Checks the file at most once in [`LOOK_EACH`].
    pub(crate) fn hold_all(&self, region: &Region, now: Monotonic) {
        if now.since(self.looked_at.get()) >= LOOK_EACH {
            self.looked_at.set(now);
            self.look(region);
        }
        if !self.devices.iter().all(|ceiling| ceiling.allows_all(region)) {
            self.hold(region);
        }
    }

    /// Reads the file if its state differs from the last reading, and sets the limits back that are above it.
    pub(crate) fn look(&self, region: &Region) {
        if self.devices.is_empty() {
            return;
        }
        let now = file_now();
        if *self.file.lock() != now {
            self.hold(region);
        }
    }

    /// Reads the file again, and sets back the limits of the region that are above it.
    ///
    /// To raise limits, an operator changes the file before the region. This function reads the region before the file. So it
    /// never sets back limits that the operator has raised. It takes no lock of the region, because a tenant could hold one for
    /// ever. If another process has changed limits meanwhile, it leaves them until the next comparison.
    #[cold]
    fn hold(&self, region: &Region) {
        let before: Vec<Limits> = self.devices.iter().map(|ceiling| region.limits(ceiling.device)).collect();
        let now = file_now();
        let contents = Contents::of(Path::new(FIXED_FILE));
        // If the file cannot be read, for example because no descriptor is free, the process tries again at the next check.
        if !matches!(contents, Contents::Unreadable(_)) {
            *self.file.lock() = now;
        }
        if let Some(ceilings) = Ceilings::read(contents.as_read()) {
            self.devices.iter().for_each(|ceiling| ceiling.learn(&ceilings));
        }
        for (ceiling, limits) in self.devices.iter().zip(before) {
            let within = ceiling.lowered(limits);
            if within == limits || region.limits(ceiling.device) != limits {
                continue;
            }
            region.set_limits(ceiling.device, within);
            if !self.has_warned.swap(true, Ordering::Relaxed) {
                let gpu = gpu_uuid_text(&ceiling.identity.uuid);
                let text = format_args!("gpuslice: {gpu}: limits above those of {FIXED_FILE} were set back.");
                messages::say(LogLevel::Warn, &text);
            }
        }
    }
}

impl DeviceCeiling {
    fn new(device: Device, identity: DeviceIdentity, ceiling: Ceiling) -> Self {
        let (memory, all) = (AtomicU64::new(memory_of(&ceiling)), Mutex::new(ceiling));
        Self { device, identity, memory, all }
    }

    /// Replaces the ceiling by the device's ceiling in `ceilings`.
    fn learn(&self, ceilings: &Ceilings) {
        let mut all = self.all.lock();
        *all = ceilings.of(self.identity);
        self.memory.store(memory_of(&all), Ordering::Relaxed);
    }

    /// Returns true if the region's quota is within the ceiling.
    #[inline]
    fn allows_quota(&self, region: &Region) -> bool {
        region.memory_limit(self.device).unwrap_or(u64::MAX) <= self.memory.load(Ordering::Relaxed)
    }

    /// Returns true if all limits of the region are within the ceiling.
    fn allows_all(&self, region: &Region) -> bool {
        let limits = region.limits(self.device);
        self.lowered(limits) == limits
    }

    /// Returns the limits, each lowered to its ceiling if it is above.
    fn lowered(&self, limits: Limits) -> Limits {
        limits.within(&self.all.lock())
    }
}

/// Returns the current state of the file.
fn file_now() -> Option<FileState> {
    let found = fs::metadata(FIXED_FILE).ok()?;
    Some((found.dev(), found.ino(), found.size(), found.ctime(), found.ctime_nsec()))
}

fn memory_of(ceiling: &Ceiling) -> u64 {
    ceiling.memory.map_or(u64::MAX, Bytes::get)
}
