//! A checked configuration, and the limits that it gives each device.

use std::path::PathBuf;

use super::choices::{Burst, CoreMeter, CorePolicy, Log, Priority, ReportTotal, Weight};
use super::device::{DeviceIdentity, DeviceName, UuidPrefix, gpu_uuid_text};
use super::faults::{Fault, ValueError};
use super::messages::{Malformed, SourcedValue, Warning};
use super::per_device::PerDevice;
use super::sizes::Quota;
use crate::units::{Bytes, Permille};

/// A checked configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Config {
    /// `GPU_MEM_LIMIT`, or HAMi's `CUDA_DEVICE_MEMORY_LIMIT[_N]`.
    pub memory: PerDevice<Quota>,
    /// `GPU_CORE_PERCENT`, or HAMi's `CUDA_DEVICE_SM_LIMIT[_N]`.
    pub cores: PerDevice<Permille>,
    /// `GPU_CORE_POLICY`.
    pub core_policy: CorePolicy,
    /// `GPU_CORE_WEIGHT`.
    pub core_weight: Weight,
    /// `GPU_CORE_BURST`.
    pub core_burst: Burst,
    /// `GPU_CORE_METER`.
    pub core_meter: CoreMeter,
    /// `GPU_CORE_COPIES`.
    pub core_copies: bool,
    /// `GPU_PRIORITY`.
    pub priority: Priority,
    /// `GPU_MEM_OVERSUBSCRIBE`.
    pub oversubscribe: bool,
    /// `GPUSLICE_DEEPBIND`: true if `RTLD_DEEPBIND` stays set when a program opens a library.
    pub deepbind: bool,
    /// `GPU_MEM_REPORT_TOTAL`.
    pub report_total: ReportTotal,
    /// `GPUSLICE_REGION`.
    pub region: Option<PathBuf>,
    /// `GPUSLICE_LOG`.
    pub log: Log,
    /// Remarks for the user about the configuration.
    pub warnings: Vec<Warning>,
    pub(super) memory_told: LimitSources,
    pub(super) cores_told: LimitSources,
}

/// The limits of one device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceLimits {
    /// The quota, never zero. `None`: the device has no quota.
    pub memory: Option<Bytes>,
    /// The share of the device's time.
    pub cores: Permille,
    /// Remarks for the user.
    pub warnings: Vec<Warning>,
}

/// The setting that gives a device its quota.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaSource {
    /// The setting, with its place.
    pub said: SourcedValue,
    /// The quota in bytes.
    pub bytes: Bytes,
    /// The value that the user probably meant, such as `4096MiB`. It is set if the value is a number without a unit that is too
    /// small for any program.
    pub meant: Option<String>,
}

impl Config {
    /// Returns true if nothing is limited. The library then only forwards calls.
    ///
    /// A named region with a share of 100 % is a limit, too. The program joins a slice that other processes may use,
    /// and whose share may change later.
    #[must_use]
    pub fn is_unlimited(&self) -> bool {
        let is_member = self.region.is_some() && self.cores.values().next().is_some();
        !self.limits_something() && !is_member
    }

    /// Returns true if some device has a limit; the device may be absent.
    #[must_use]
    pub fn limits_something(&self) -> bool {
        self.memory.values().next().is_some() || self.has_share()
    }

    /// Returns true if any device's time is limited, or divided with other slices.
    #[must_use]
    pub fn has_share(&self) -> bool {
        self.divides() || self.cores.values().any(Permille::is_partial)
    }

    /// Returns true if the time of all devices is divided with other slices: by policy, or by priority.
    #[must_use]
    pub fn divides(&self) -> bool {
        self.core_policy != CorePolicy::Fixed || self.priority != Priority::Normal
    }

    /// Returns true if a list numbers devices by the bus, as lists in an operator's file do. Then each device's bus number
    /// must be known, or the limits cannot be enforced.
    #[must_use]
    pub fn counts_on_bus(&self) -> bool {
        self.memory.counts_on_bus() || self.cores.counts_on_bus()
    }

    /// Returns the devices that a list in an operator's file leaves without a limit.
    ///
    /// The result is the setting, and the numbers or UUIDs of these devices.
    #[must_use]
    pub fn left_out(&self, devices: &[DeviceIdentity]) -> Vec<(SourcedValue, Vec<String>)> {
        let memory = (self.memory_told.first(), unnamed(&self.memory, devices));
        let cores = (self.cores_told.first(), unnamed(&self.cores, devices));
        let lists = [memory, cores].into_iter().filter_map(|(said, unnamed)| Some((said?.clone(), unnamed)));
        lists.filter(|(said, unnamed)| said.is_of_operator() && !unnamed.is_empty()).collect()
    }

    /// Returns the limits of a device. If a list names the device twice, by number and by UUID, the smaller limits apply.
    #[must_use]
    pub fn limits_for(&self, device: DeviceIdentity) -> DeviceLimits {
        let quotas = self.memory.of(&device);
        let shares = self.cores.of(&device);
        let applied = quotas.iter().map(|quota| quota.on(device.total)).min_by_key(|applied| applied.bytes);
        let name = gpu_uuid_text(&device.uuid);
        let mut warnings = Vec::new();
        if applied.is_some_and(|applied| applied.clamped) {
            let said = self.memory_told.about(&device).cloned();
            warnings.push(Warning::OverDevice { said, device: name.clone(), total: device.total });
        }
        for (count, told) in [(quotas.len(), &self.memory_told), (shares.len(), &self.cores_told)] {
            if count > 1 {
                warnings
                    .push(Warning::TwoLimits { said: told.about(&device).cloned(), device: name.clone() });
            }
        }
        let memory = applied.map(|applied| applied.bytes);
        DeviceLimits { memory, cores: shares.into_iter().min().unwrap_or(Permille::FULL), warnings }
    }

    /// Returns the setting that gives a device its quota. `None`: the device has no quota.
    #[must_use]
    pub fn quota_source(&self, device: DeviceIdentity) -> Option<QuotaSource> {
        let bytes = self.limits_for(device).memory?;
        let said = self.memory_told.about(&device)?.clone();
        let meant = meant(&said, bytes, device.total);
        Some(QuotaSource { said, bytes, meant })
    }

    /// Returns the configured share of a device. If a list names it twice, returns the smaller share. `None`: no setting
    /// names it.
    #[must_use]
    pub fn share_of(&self, device: DeviceIdentity) -> Option<Permille> {
        self.cores.of(&device).into_iter().min()
    }

    /// Returns warnings about list items that name none of `devices`.
    ///
    /// Such an item leaves no device without its limit, because a program cannot use a device that CUDA does not show. The
    /// list may be meant for a whole machine. It may also be a mistake, by which a present device has no limit. So GPU work
    /// is not refused, and the warning names the devices without a limit.
    #[must_use]
    pub fn absent(&self, devices: &[DeviceIdentity]) -> Vec<Warning> {
        let quotas = absent(&self.memory, &self.memory_told, devices);
        quotas.chain(absent(&self.cores, &self.cores_told, devices)).collect()
    }

    /// Returns the names by which the lists of quotas and shares name devices.
    pub fn names(&self) -> impl Iterator<Item = &DeviceName> {
        self.named().map(|(name, _)| name)
    }

    fn named(&self) -> impl Iterator<Item = (&DeviceName, &LimitSources)> {
        let quotas = self.memory.named.iter().map(|(name, _)| (name, &self.memory_told));
        quotas.chain(self.cores.named.iter().map(|(name, _)| (name, &self.cores_told)))
    }

    /// Returns the list items that are ambiguous on a machine with these devices: a prefix of several UUIDs.
    #[must_use]
    pub fn ambiguous(&self, uuids: &[[u8; 16]]) -> Vec<Malformed> {
        let several = |prefix: &UuidPrefix| uuids.iter().filter(|uuid| prefix.matches(uuid)).count() > 1;
        let ambiguous = self.named().filter(|(name, _)| name.uuid().is_some_and(several));
        ambiguous
            .filter_map(|(name, told)| {
                let error = ValueError { part: Some(name.to_string()), fault: Fault::SeveralDevices };
                Some(Malformed::new(told.first()?.clone(), error))
            })
            .collect()
    }
}

/// Returns the size that a bare number of bytes probably means: with the largest unit of which the device has that many.
/// Some users write `4` for 4GiB, and Slurm and HAMi write `4096` for 4096MiB.
fn meant(said: &SourcedValue, quota: Bytes, total: Bytes) -> Option<String> {
    let number = quota.get().to_string();
    let is_bare = |item: &[u8]| item.trim_ascii() == number.as_bytes();
    let items = said.value.split(|byte| *byte == b',');
    let is_said =
        items.map(|item| item.rsplit(|byte| *byte == b'=').next()).any(|item| item.is_some_and(is_bare));
    if !is_said || quota >= Bytes::MIB {
        return None;
    }
    let units = [("GiB", Bytes::GIB), ("MiB", Bytes::MIB), ("KiB", Bytes::KIB)];
    let fits = |unit: Bytes| quota.get().checked_mul(unit.get()).is_some_and(|bytes| bytes <= total.get());
    units.into_iter().find(|(_, unit)| fits(*unit)).map(|(name, _)| format!("{number}{name}"))
}

/// Returns warnings about the items of one list that name none of `devices`.
fn absent<T: Copy>(
    list: &PerDevice<T>,
    told: &LimitSources,
    devices: &[DeviceIdentity],
) -> impl Iterator<Item = Warning> {
    let unnamed = unnamed(list, devices);
    list.absent(devices).into_iter().map(move |name| Warning::Absent {
        said: told.about_name(&name).cloned(),
        name: name.to_string(),
        unnamed: unnamed.clone(),
    })
}

/// Returns the devices that a list does not name. The result names them as the list would: by number, or by UUID without a
/// number.
fn unnamed<T: Copy>(list: &PerDevice<T>, devices: &[DeviceIdentity]) -> Vec<String> {
    let name = |device: &DeviceIdentity| {
        let number = if list.counts_on_bus() { device.bus } else { device.ordinal };
        number.map_or_else(|| gpu_uuid_text(&device.uuid), |number| number.to_string())
    };
    devices.iter().filter(|device| list.of(device).is_empty()).map(name).collect()
}

/// The places that set a limit, each for all devices or for one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct LimitSources(pub(super) Vec<(Option<DeviceName>, SourcedValue)>);

impl LimitSources {
    /// Returns the setting that gives this device its limit.
    pub(super) fn about(&self, device: &DeviceIdentity) -> Option<&SourcedValue> {
        let concerns = |name: &Option<DeviceName>| name.is_none_or(|name| name.matches(device));
        self.0.iter().find(|(name, _)| concerns(name)).map(|(_, said)| said)
    }

    /// Returns the setting that gives a device of this name its limit.
    pub(super) fn about_name(&self, wanted: &DeviceName) -> Option<&SourcedValue> {
        let concerns = |name: &Option<DeviceName>| name.is_none_or(|name| name == *wanted);
        self.0.iter().find(|(name, _)| concerns(name)).map(|(_, said)| said)
    }

    /// Returns the first setting that gives any device a limit.
    pub(super) fn first(&self) -> Option<&SourcedValue> {
        self.0.first().map(|(_, said)| said)
    }
}
