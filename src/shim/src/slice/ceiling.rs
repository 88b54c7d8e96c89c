//! The operator's fixed file as a ceiling of the slice's limits.
//!
//! The limits that hold are words of the region, which every process of the slice can write: `gpuslice set` does, and so may a
//! tenant. So each process keeps the most that the file allows, and compares the words with it before it uses them. Limits above
//! the ceiling are set back, and the tenant may lower them.
//!
//! The file is read again when limits are above the ceiling: an operator who raises the limits changes the file first.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use super::devices::Found;
use super::settings;
use crate::os::messages;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use gpuslice_policy::config::{Ceiling, Ceilings, DeviceIdentity, FIXED_FILE, LogLevel, gpu_uuid_text};
use gpuslice_policy::units::Bytes;
use gpuslice_region::operator::Contents;
use gpuslice_region::{Device, Region, Uuid};
use parking_lot::Mutex;
use std::path::Path;

/// The ceiling of one device.
#[derive(Debug)]
pub(crate) struct DeviceCeiling {
    device: Device,
    identity: DeviceIdentity,
    /// Bytes of memory, all ones without a bound: each reservation compares the quota with it.
    memory: AtomicU64,
    all: Mutex<Ceiling>,
    has_warned: AtomicBool,
}

/// The ceilings of all devices of this process; none without a file.
pub(crate) fn of_all(region: &Region, found: &[Found]) -> Vec<DeviceCeiling> {
    let Some(ceilings) = settings::known().and_then(|settings| settings.ceilings.as_ref()) else {
        return Vec::new();
    };
    let ceiling = |found: &Found| {
        let (device, identity) = (region.device(&Uuid(found.uuid))?, found.identity());
        Some(DeviceCeiling::new(device, identity, ceilings.of(identity)))
    };
    found.iter().filter_map(ceiling).collect()
}

impl DeviceCeiling {
    fn new(device: Device, identity: DeviceIdentity, ceiling: Ceiling) -> Self {
        let (memory, all) = (AtomicU64::new(memory_of(&ceiling)), Mutex::new(ceiling));
        Self { device, identity, memory, all, has_warned: AtomicBool::new(false) }
    }

    /// The device.
    pub(crate) fn device(&self) -> Device {
        self.device
    }

    /// Returns true if the region's quota is within the ceiling.
    #[inline]
    pub(crate) fn allows_quota(&self, region: &Region) -> bool {
        region.memory_limit(self.device).unwrap_or(u64::MAX) <= self.memory.load(Ordering::Relaxed)
    }

    /// Returns true if all limits of the region are within the ceiling.
    pub(crate) fn allows_all(&self, region: &Region) -> bool {
        let limits = region.limits(self.device);
        limits.within(&self.all.lock()) == limits
    }

    /// Reads the file again, and sets limits of the region that are above it back.
    ///
    /// The limits are read before the file, which an operator changes first: limits that it has raised are never above the file.
    /// There is no lock, which a tenant could hold for ever.
    #[cold]
    pub(crate) fn hold(&self, region: &Region) {
        let limits = region.limits(self.device);
        let within = {
            let mut all = self.all.lock();
            if let Some(ceilings) = Ceilings::read(Contents::of(Path::new(FIXED_FILE)).as_read()) {
                *all = ceilings.of(self.identity);
                self.memory.store(memory_of(&all), Ordering::Relaxed);
            }
            limits.within(&all)
        };
        if within == limits {
            return;
        }
        region.set_limits(self.device, within);
        if !self.has_warned.swap(true, Ordering::Relaxed) {
            let gpu = gpu_uuid_text(&self.identity.uuid);
            let text = format_args!("gpuslice: {gpu}: limits above those of {FIXED_FILE} were set back.");
            messages::say(LogLevel::Warn, &text);
        }
    }
}

fn memory_of(ceiling: &Ceiling) -> u64 {
    ceiling.memory.map_or(u64::MAX, Bytes::get)
}
