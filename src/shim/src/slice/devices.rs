//! Devices that CUDA shows this process, and the limits of each.

use super::device::SliceDevice;
use crate::driver_calls::{devices, nvml};
use core::fmt;
use gpuslice_driver::types::CUdevice;
use gpuslice_policy::config::{Config, DeviceIdentity, LogLevel, gpu_uuid_text};
use gpuslice_policy::units::{Bytes, Permille, Setting as _};
use gpuslice_region::{DeviceRequest, Difference, Limits, Sharing, Uuid};

/// A device as CUDA describes it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FoundDevice {
    /// Number that CUDA gives the device, after `CUDA_VISIBLE_DEVICES`.
    pub(crate) ordinal: u32,
    /// Number that NVML gives the device, in the order of the bus; `None` before [`number_by_bus`].
    pub(crate) bus: Option<u32>,
    /// CUDA's handle of the device.
    pub(crate) handle: CUdevice,
    /// UUID of the device.
    pub(crate) uuid: [u8; 16],
    /// Bytes of memory of the device.
    pub(crate) total: u64,
}

/// Returns all devices, in CUDA's order; `None` before a successful `cuInit`. A device without a UUID or a size cannot be
/// limited, and is an error.
pub(crate) fn find() -> Option<Result<Vec<FoundDevice>, UnknownDevice>> {
    let count = devices::device_count()?;
    Some((0..count).map(|number| describe(number).ok_or(UnknownDevice(number))).collect())
}

fn describe(number: i32) -> Option<FoundDevice> {
    let handle = devices::device(number)?;
    let uuid = devices::device_uuid(handle)?;
    let total = devices::device_total(handle)?;
    Some(FoundDevice { ordinal: number.try_into().ok()?, bus: None, handle, uuid, total })
}

/// Gives each device its number in the order of the bus. Lists in an operator's file name devices by that number.
///
/// # Errors
/// NVML does not report the order. CUDA's order cannot replace it, because the tenant decides in which order CUDA shows devices.
pub(crate) fn number_by_bus(found: &mut [FoundDevice]) -> Result<(), UnknownBus> {
    let order = nvml::devices::bus_order().ok_or(UnknownBus(None))?;
    for device in found {
        let place = order.iter().find(|(uuid, _)| *uuid == device.uuid);
        device.bus = Some(place.ok_or(UnknownBus(Some(device.uuid)))?.1);
    }
    Ok(())
}

/// Message that the numbers in an operator's file cannot be resolved to devices.
#[derive(Debug)]
pub(crate) struct UnknownBus(Option<[u8; 16]>);

impl fmt::Display for UnknownBus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("gpuslice: an operator's file limits devices by their numbers on the bus, and NVML")?;
        match &self.0 {
            None => f.write_str(" cannot be opened to tell these")?,
            Some(uuid) => write!(f, " does not tell that of {}", gpu_uuid_text(uuid))?,
        }
        f.write_str(
            "; name devices by UUID or limit all alike, or give the container NVML \
             (NVIDIA_DRIVER_CAPABILITIES=compute,utility). GPU work is refused.",
        )
    }
}

/// Message that CUDA shows a device and does not report its UUID or size.
#[derive(Debug)]
pub(crate) struct UnknownDevice(i32);

impl fmt::Display for UnknownDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "gpuslice: CUDA does not tell UUID and size of its device {}, so it cannot be limited; leave it out of \
             CUDA_VISIBLE_DEVICES. GPU work is refused.",
            self.0,
        )
    }
}

/// Returns the limits that the settings give each device, and logs the warnings about them. Also logs if none of the limits
/// applies to a device of this process. Otherwise logs the named devices that are absent.
pub(crate) fn limits(found: &[FoundDevice], config: &Config) -> Vec<DeviceRequest> {
    let requests: Vec<DeviceRequest> = found
        .iter()
        .map(|device| {
            let limits = config.limits_for(device.identity());
            limits.warnings.iter().for_each(|warning| crate::os::messages::say(LogLevel::Warn, warning));
            DeviceRequest {
                uuid: Uuid(device.uuid),
                total: device.total,
                limits: Limits {
                    memory: limits.memory.map(Bytes::get),
                    cores_permille: limits.cores.get().into(),
                    burst: config.core_burst.span(),
                    oversubscribe: config.oversubscribe,
                    sharing: Sharing {
                        policy: config.core_policy,
                        priority: config.priority,
                        weight: config.core_weight.get().into(),
                    },
                },
            }
        })
        .collect();
    if config.limits_something() && !requests.is_empty() && requests.iter().all(is_free) {
        crate::os::messages::say(LogLevel::Warn, &NothingLimited(requests.len()));
    } else {
        let identities: Vec<DeviceIdentity> = found.iter().map(FoundDevice::identity).collect();
        config
            .absent(&identities)
            .iter()
            .for_each(|warning| crate::os::messages::say(LogLevel::Warn, warning));
    }
    requests
}

impl FoundDevice {
    /// Returns the names by which settings can name the device.
    pub(crate) fn identity(&self) -> DeviceIdentity {
        DeviceIdentity {
            ordinal: Some(self.ordinal),
            bus: self.bus,
            uuid: self.uuid,
            total: Bytes::new(self.total),
        }
    }
}

/// Returns the names by which settings can name a device of this slice. The number on the bus is not known here. So if an
/// operator's list names the device by that number, the item does not match.
pub(crate) fn identity_of(place: &SliceDevice, ordinal: Option<usize>) -> DeviceIdentity {
    let ordinal = ordinal.and_then(|ordinal| u32::try_from(ordinal).ok());
    DeviceIdentity { ordinal, bus: None, uuid: place.uuid, total: Bytes::new(place.total) }
}

fn is_free(request: &DeviceRequest) -> bool {
    request.limits.memory.is_none() && !request.limits.is_paced()
}

/// Message that the settings set limits, but only for devices that this process does not have.
struct NothingLimited(usize);

impl fmt::Display for NothingLimited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "gpuslice: the limits that are set name none of the {} devices that CUDA shows this process, so nothing is \
             limited; name devices by CUDA's numbers (in an operator's file: by the bus's) or by the UUIDs that \
             `nvidia-smi -L` prints.",
            self.0,
        )
    }
}

/// Message that the slice's limits differ from the limits with which this process was started.
pub(crate) struct Disagreement(pub(crate) Difference);

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = gpu_uuid_text(&self.0.uuid.0);
        let Difference { asked, holds, .. } = self.0;
        write!(f, "gpuslice: {name}: this process was started with ")?;
        describe_limits(f, asked, holds)?;
        f.write_str("; its slice has ")?;
        describe_limits(f, holds, asked)?;
        f.write_str("; the slice's limits hold.")
    }
}

/// Writes the items of `limits` that differ from `others`.
fn describe_limits(f: &mut fmt::Formatter<'_>, limits: Limits, others: Limits) -> fmt::Result {
    let mut said = Vec::new();
    if limits.memory != others.memory {
        said.push(
            limits
                .memory
                .map_or_else(|| "no quota".to_owned(), |bytes| format!("a quota of {}", Bytes::new(bytes))),
        );
    }
    if limits.cores_permille != others.cores_permille {
        let share =
            u16::try_from(limits.cores_permille).ok().and_then(Permille::new).unwrap_or(Permille::FULL);
        said.push(format!("a share of {share}"));
    }
    if limits.burst != others.burst {
        said.push(format!("a burst of {}", limits.burst));
    }
    if limits.oversubscribe != others.oversubscribe {
        let with = if limits.oversubscribe { "host memory beyond its quota" } else { "a hard quota" };
        said.push(with.to_owned());
    }
    if limits.sharing.policy != others.sharing.policy {
        said.push(format!("policy {}", limits.sharing.policy.setting()));
    }
    if limits.sharing.weight != others.sharing.weight {
        said.push(format!("a weight of {}", limits.sharing.weight));
    }
    if limits.sharing.priority != others.sharing.priority {
        said.push(format!("{} priority", limits.sharing.priority.setting()));
    }
    f.write_str(&said.join(", "))
}
