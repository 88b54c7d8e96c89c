//! Ceiling of the slice's limits: the operator's fixed file.
//!
//! The limits that hold are words of the region, which every process of the slice can write: `gpuslice set` does, and so may a
//! tenant. So each process keeps the upper bounds from the file, and compares the words with them before it uses the words.
//! If a limit is above the ceiling, the process sets it back. The tenant may lower limits.
//!
//! If limits are above the ceiling, the process reads the file again: an operator who raises the limits changes the file first.
#![allow(
    clippy::disallowed_types,
    reason = "words of this process alone: `region::sync` is for words shared between processes"
)]

use super::devices::FoundDevice;
use super::settings;
use crate::os::messages;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use gpuslice_policy::config::{Ceiling, Ceilings, DeviceIdentity, FIXED_FILE, LogLevel, gpu_uuid_text};
use gpuslice_policy::units::Bytes;
use gpuslice_region::operator::Contents;
use gpuslice_region::{Device, Region, Uuid};
use parking_lot::Mutex;
use std::path::Path;

/// Ceiling of one device.
#[derive(Debug)]
pub(crate) struct DeviceCeiling {
    device: Device,
    identity: DeviceIdentity,
    /// Bytes of memory, all ones without a bound. Each reservation compares the quota with it.
    memory: AtomicU64,
    all: Mutex<Ceiling>,
    has_warned: AtomicBool,
}

/// Returns the ceilings of all devices of this process; empty without a file.
pub(crate) fn of_all(region: &Region, found: &[FoundDevice]) -> Vec<DeviceCeiling> {
    let Some(ceilings) = settings::known().and_then(|settings| settings.ceilings.as_ref()) else {
        return Vec::new();
    };
    let ceiling = |found: &FoundDevice| {
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

    /// Returns the device.
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

    /// Reads the file again, and sets back the limits of the region that are above it.
    ///
    /// It reads the limits before the file, and an operator changes the file first: limits that the operator has raised are never
    /// above the file. It takes no lock, because a tenant could hold one for ever.
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
