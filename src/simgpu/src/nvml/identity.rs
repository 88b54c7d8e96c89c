//! Numbers, UUIDs, bus addresses and versions of devices.

use core::ffi::c_char;

use gpuslice_driver::types::{Status, nvmlDevice_t, nvmlPciInfo_t};

use super::entry::{NvmlCall, Subject};
use super::layouts::{PciInfoExt, PciInfoV1, PciInfoV2, Uuid, version};
use super::processes::instance_ids;
use super::statuses;
use crate::hardware::texts;
use crate::state::settings::Settings;
use crate::status::Outcome;

/// PCI numbers of device and vendor, and those of the board. They belong to the device that the attributes are taken from.
const DEVICE_ID: u32 = 0x2330_10de;
const SUBSYSTEM_ID: u32 = 0x16c1_10de;
/// PCI class of devices that compute and have no display.
const CLASS: (u32, u32) = (3, 2);

/// Returns the version of the driver that came with a version of the driver API.
pub(super) fn driver_version(api: i32) -> String {
    const SERIES: [(i32, u32); 11] = [
        (13_020, 595),
        (13_010, 590),
        (13_000, 580),
        (12_090, 575),
        (12_080, 570),
        (12_060, 560),
        (12_050, 555),
        (12_040, 550),
        (12_020, 535),
        (12_000, 525),
        (i32::MIN, 470),
    ];
    let series = SERIES.iter().find(|(from, _)| api >= *from).map_or(470, |(_, series)| *series);
    format!("{series}.00.00")
}

/// Returns the version of NVML. It is the driver API's major version, followed by the version of the driver.
pub(super) fn nvml_version(api: i32) -> String {
    format!("{}.{}", api / 1000, driver_version(api))
}

fn bytes<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    for (to, from) in bytes.iter_mut().take(N - 1).zip(text.bytes()) {
        *to = from;
    }
    bytes
}

/// Returns domain, bus and device of `domain:bus:device[.function]` or `bus:device[.function]`. The numbers are hexadecimal.
pub(super) fn place(text: &str) -> Option<(u32, u32, u32)> {
    let number = |text: &str| u32::from_str_radix(text, 16).ok();
    let (rest, device) = text.rsplit_once(':')?;
    let (device, function) = device.split_once('.').unwrap_or((device, "0"));
    let (domain, bus) = rest.split_once(':').unwrap_or(("0", rest));
    let (domain, bus, device) = (number(domain)?, number(bus)?, number(device)?);
    (number(function)? == 0).then_some((domain, bus, device))
}

impl NvmlCall {
    pub(super) fn handle_by_index(&self, index: u32, to: *mut nvmlDevice_t) -> Outcome {
        let gpus = self.truth()?.settings.gpus();
        let gpu = usize::try_from(index).ok().filter(|gpu| *gpu < gpus);
        let gpu = gpu.ok_or(statuses::INVALID_ARGUMENT)?;
        self.is_there(gpu)?;
        self.write_handle(to, Subject::Gpu(gpu))
    }

    /// Writes the handle of the device for which `matches` returns true. As the header of NVML says, the
    /// search fails if any GPU is lost.
    fn handle_where(&self, to: *mut nvmlDevice_t, matches: impl Fn(Subject, &Settings) -> bool) -> Outcome {
        let machine = self.truth()?.settings;
        (0..machine.gpus()).try_for_each(|gpu| self.is_there(gpu))?;
        let instances = (0..machine.count()).filter(|device| machine.instance(*device).is_some());
        let mut all = (0..machine.gpus()).map(Subject::Gpu).chain(instances.map(Subject::Instance));
        let found = all.find(|subject| matches(*subject, &machine));
        self.write_handle(to, found.ok_or(statuses::NOT_FOUND)?)
    }

    pub(super) fn handle_of_instance(&self, gpu: nvmlDevice_t, index: u32, to: *mut nvmlDevice_t) -> Outcome {
        let (state, subject) = self.on(gpu)?;
        let Subject::Gpu(gpu) = subject else { return Err(statuses::INVALID_ARGUMENT) };
        if !state.settings.is_divided(gpu) {
            return Err(statuses::NOT_SUPPORTED);
        }
        let device = state.settings.devices_of(gpu).nth(usize::try_from(index).unwrap_or(usize::MAX));
        drop(state);
        self.write_handle(to, Subject::Instance(device.ok_or(statuses::NOT_FOUND)?))
    }

    /// Returns the numbers that NVML gives to the GPU instance and the compute instance of a handle.
    pub(super) fn ids_of_instance(&self, instance: nvmlDevice_t) -> Result<(u32, u32), Status> {
        let (state, subject) = self.on(instance)?;
        match subject {
            Subject::Instance(device) => Ok(instance_ids(&state.settings, device)),
            Subject::Gpu(_) => Err(statuses::INVALID_ARGUMENT),
        }
    }

    pub(super) fn handle_of_gpu(&self, instance: nvmlDevice_t, to: *mut nvmlDevice_t) -> Outcome {
        let (state, subject) = self.on(instance)?;
        let Subject::Instance(device) = subject else { return Err(statuses::INVALID_ARGUMENT) };
        let gpu = state.settings.gpu_of(device);
        drop(state);
        self.write_handle(to, Subject::Gpu(gpu))
    }

    pub(super) fn handle_by_uuid(&self, uuid: *const c_char, to: *mut nvmlDevice_t) -> Outcome {
        let wanted = self.text(uuid)?;
        self.handle_where(to, |subject, machine| subject.uuid_text(machine).eq_ignore_ascii_case(wanted))
    }

    pub(super) fn handle_by_uuid_v1(&self, uuid: *const Uuid, to: *mut nvmlDevice_t) -> Outcome {
        /// The two formats of the value.
        const TEXT: u32 = 1;
        const BYTES: u32 = 2;
        let asked = self.read(uuid)?;
        if asked.version != version::<Uuid>(1) {
            return Err(statuses::ARGUMENT_VERSION_MISMATCH);
        }
        match asked.kind {
            TEXT => {
                self.handle_where(to, |subject, machine| bytes(&subject.uuid_text(machine)) == asked.value)
            }
            BYTES => {
                self.handle_where(to, |subject, machine| asked.value.starts_with(&subject.uuid(machine)))
            }
            _ => Err(statuses::INVALID_ARGUMENT),
        }
    }

    pub(super) fn handle_by_place(&self, bus_id: *const c_char, to: *mut nvmlDevice_t) -> Outcome {
        let wanted = place(self.text(bus_id)?).ok_or(statuses::INVALID_ARGUMENT)?;
        self.handle_where(to, |subject, machine| (0, texts::bus(subject.gpu(machine)), 0) == wanted)
    }

    fn pci_v2(&self, device: nvmlDevice_t) -> Result<PciInfoV2, u32> {
        let bus = texts::bus(self.gpu(device)?);
        let legacy_bus_id = bytes(&format!("0000:{bus:02X}:00.0"));
        let first = PciInfoV1 { legacy_bus_id, domain: 0, bus, device: 0, device_id: DEVICE_ID };
        Ok(PciInfoV2 { first, subsystem_id: SUBSYSTEM_ID })
    }

    pub(super) fn write_pci_v1(&self, device: nvmlDevice_t, to: *mut PciInfoV1) -> Outcome {
        self.write(to, self.pci_v2(device)?.first)
    }

    pub(super) fn write_pci_v2(&self, device: nvmlDevice_t, to: *mut PciInfoV2) -> Outcome {
        self.write(to, self.pci_v2(device)?)
    }

    pub(super) fn write_pci_v3(&self, device: nvmlDevice_t, to: *mut nvmlPciInfo_t) -> Outcome {
        let PciInfoV2 { first, subsystem_id } = self.pci_v2(device)?;
        let PciInfoV1 { legacy_bus_id, domain, bus, device, device_id } = first;
        let bus_id = bytes(&format!("{domain:08X}:{bus:02X}:{device:02X}.0"));
        self.write(to, nvmlPciInfo_t { legacy_bus_id, domain, bus, device, device_id, subsystem_id, bus_id })
    }

    pub(super) fn write_pci_ext(&self, device: nvmlDevice_t, to: *mut PciInfoExt) -> Outcome {
        let PciInfoV2 { first, subsystem_id } = self.pci_v2(device)?;
        let PciInfoV1 { domain, bus, device, device_id, .. } = first;
        let asked: u32 = self.read(to.cast())?;
        if asked != version::<PciInfoExt>(1) {
            return Err(statuses::ARGUMENT_VERSION_MISMATCH);
        }
        let bus_id = bytes(&format!("{domain:08X}:{bus:02X}:{device:02X}.0"));
        let (base_class, sub_class) = CLASS;
        let version = asked;
        self.write(
            to,
            PciInfoExt {
                version,
                domain,
                bus,
                device,
                device_id,
                subsystem_id,
                base_class,
                sub_class,
                bus_id,
            },
        )
    }
}
