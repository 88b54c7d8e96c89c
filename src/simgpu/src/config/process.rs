//! Settings of this process from its environment.

use std::sync::OnceLock;

use crate::state::machine::gpu_text;
use crate::state::settings::{Settings, size};

/// Settings that differ between processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProcessConfig {
    /// The group of this process in the ground truth; empty for none.
    pub(crate) group: Vec<u8>,
    /// The program's name.
    pub(crate) program: Vec<u8>,
    /// Duration of a kernel whose name does not contain its duration, in nanoseconds.
    pub(crate) kernel_ns: u64,
    /// `CUDA_LAUNCH_BLOCKING`: true if a launch returns only after its kernel has ended.
    pub(crate) launches_block: bool,
    /// `SIMGPU_GRAPH_BLOCK`: unit in which the graph pools of this process grow, in bytes.
    pub(crate) graph_block: u64,
    /// `CUDA_MODULE_LOADING`: true if the driver loads code only when it is first needed.
    pub(crate) lazy: bool,
    /// `SIMGPU_LOADING`: true if late loading waits for the queued work of its context, and blocks other calls there.
    pub(crate) loading_waits: bool,
    /// `SIMGPU_EVENT_CONTENTION_NS`: the record of an event takes this many nanoseconds longer for each other thread that
    /// records an event at the same time.
    pub(crate) event_contention_ns: u64,
    /// `SIMGPU_MANAGED`: the location of managed memory at its allocation.
    pub(crate) managing: Managing,
    /// `CUDA_VISIBLE_DEVICES`.
    pub(crate) visible: Option<String>,
    /// `CUDA_DEVICE_ORDER`.
    pub(crate) order: Option<String>,
}

/// Location of managed memory at its allocation, by `SIMGPU_MANAGED`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Managing {
    /// On its device from the start.
    AtOnce,
    /// Nowhere, until a copy, a fill or a prefetch touches it.
    WhenTouched,
    /// On its device from the start, and never on device and host at once.
    Exclusive,
    /// The devices support no managed memory.
    Never,
}

impl Managing {
    fn read(wanted: Option<&str>) -> Self {
        match wanted {
            Some("touched") => Self::WhenTouched,
            Some("exclusive") => Self::Exclusive,
            Some("none") => Self::Never,
            _ => Self::AtOnce,
        }
    }

    /// Returns the value of a device attribute, if this setting changes it.
    pub(crate) fn attribute(self, number: u32) -> Option<i32> {
        match (self, number) {
            (Self::Never, MANAGED_ATTRIBUTE)
            | (Self::Never | Self::Exclusive, CONCURRENT_MANAGED_ATTRIBUTE) => Some(0),
            _ => None,
        }
    }
}

/// `CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY`.
const MANAGED_ATTRIBUTE: u32 = 83;
/// `CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS`.
const CONCURRENT_MANAGED_ATTRIBUTE: u32 = 89;

/// Version of the driver API, unless the environment sets another one.
const USUAL_DRIVER_VERSION: i32 = 13_000;
/// The first version whose default is late loading.
const FIRST_LAZY: i32 = 12_020;
/// Duration of a kernel whose name does not contain its duration, in nanoseconds.
const KERNEL_NS: u64 = 10_000;
/// Nanoseconds that the record of an event takes longer for each other thread that records at the same time. A public report
/// measured 22.9 us with many threads (cms-patatrack/pixeltrack-standalone#218). That is a microsecond for each of about twenty.
const EVENT_CONTENTION_NS: u64 = 1000;
/// Default unit of a graph pool, in bytes.
const GRAPH_BLOCK: u64 = 2 << 20;

/// Returns the version of the driver API that this driver offers.
pub(crate) fn version() -> i32 {
    static WANTED: OnceLock<i32> = OnceLock::new();
    *WANTED.get_or_init(|| {
        let wanted = std::env::var("SIMGPU_CUDA_VERSION").ok();
        wanted.and_then(|text| text.trim().parse().ok()).unwrap_or(USUAL_DRIVER_VERSION)
    })
}

fn is_lazy(wanted: Option<&str>) -> bool {
    match wanted {
        Some("EAGER") => false,
        Some("LAZY") => true,
        _ => version() >= FIRST_LAZY,
    }
}

impl ProcessConfig {
    pub(crate) fn from_environment() -> Self {
        Self::read(&|name: &str| std::env::var(name).ok())
    }

    /// Reads the variables by `text`.
    fn read(text: &impl Fn(&str) -> Option<String>) -> Self {
        Self {
            group: text("SIMGPU_GROUP").unwrap_or_default().into_bytes(),
            program: std::fs::read("/proc/self/comm").unwrap_or_default().trim_ascii_end().to_vec(),
            lazy: is_lazy(text("CUDA_MODULE_LOADING").as_deref()),
            loading_waits: text("SIMGPU_LOADING").as_deref() != Some("free"),
            event_contention_ns: text("SIMGPU_EVENT_CONTENTION_NS")
                .and_then(|n| n.parse().ok())
                .unwrap_or(EVENT_CONTENTION_NS),
            launches_block: text("CUDA_LAUNCH_BLOCKING")
                .is_some_and(|value| !value.is_empty() && value != "0"),
            kernel_ns: text("SIMGPU_KERNEL_NS").and_then(|n| n.parse().ok()).unwrap_or(KERNEL_NS),
            graph_block: text("SIMGPU_GRAPH_BLOCK").and_then(|n| size(&n)).unwrap_or(GRAPH_BLOCK).max(1),
            managing: Managing::read(text("SIMGPU_MANAGED").as_deref()),
            visible: text("CUDA_VISIBLE_DEVICES"),
            order: text("CUDA_DEVICE_ORDER"),
        }
    }

    /// Returns the devices that this process sees, in its order.
    ///
    /// The rules are those of the real driver. The list ends at the first entry that matches no device, or several.
    /// A list that has the same device twice shows no device. If the list names a MIG instance, only the first
    /// instance is visible, and no whole GPU.
    pub(crate) fn visible(&self, machine: &Settings) -> Vec<usize> {
        let by_bus = self.order.as_deref().map(str::trim) == Some("PCI_BUS_ID");
        let gpus = machine.order(by_bus);
        let mut devices = Vec::new();
        match &self.visible {
            None => devices.extend(gpus.iter().flat_map(|gpu| machine.devices_of(*gpu))),
            Some(list) => {
                for entry in list.split(',') {
                    match device(entry.trim(), machine, &gpus) {
                        Some(device) if devices.contains(&device) => return Vec::new(),
                        Some(device) => devices.push(device),
                        None => break,
                    }
                }
            }
        }
        let instance = devices.iter().copied().find(|device| machine.instance(*device).is_some());
        instance.map_or(devices, |instance| vec![instance])
    }
}

/// Returns the device of an entry. An entry is the device's number, or a beginning of its UUID that no other device has.
fn device(entry: &str, machine: &Settings, gpus: &[usize]) -> Option<usize> {
    let first = |gpu: usize| machine.devices_of(gpu).next();
    if let Some(rest) = entry.strip_prefix("MIG-GPU-") {
        let mut parts = rest.split('/');
        let (uuid, gpu_instance) = (parts.next()?, parts.next()?.parse::<usize>().ok()?);
        let gpu = gpus.iter().copied().find(|gpu| gpu_text(*gpu) == format!("GPU-{uuid}"))?;
        let device = machine.devices_of(gpu).find(|device| {
            machine.instance(*device).is_some_and(|instance| gpu_instance_id(instance) == gpu_instance)
        });
        return device.filter(|_| parts.next() == Some("0") && parts.next().is_none());
    }
    if entry.starts_with("MIG-") && entry.len() > 4 {
        let devices = (0..machine.count()).filter(|device| machine.instance(*device).is_some());
        return only(devices.filter(|device| machine.uuid_text(*device).starts_with(&lower(entry))));
    }
    if entry.starts_with("GPU-") && entry.len() > 4 {
        return only(gpus.iter().copied().filter(|gpu| gpu_text(*gpu).starts_with(&lower(entry))))
            .and_then(first);
    }
    let sign = usize::from(entry.starts_with('+'));
    let digits = entry.get(sign..)?.split(|letter: char| !letter.is_ascii_digit()).next()?;
    gpus.get(digits.parse::<usize>().ok()?).copied().and_then(first)
}

/// Returns NVML's number of a MIG instance. Its compute instance is always 0.
pub(crate) const fn gpu_instance_id(instance: usize) -> usize {
    instance + 1
}

/// Returns a UUID with its digits in lower case.
fn lower(entry: &str) -> String {
    let (kind, digits) = entry.split_at(4);
    kind.to_owned() + &digits.to_ascii_lowercase()
}

/// Returns the match if there is exactly one.
fn only(mut matching: impl Iterator<Item = usize>) -> Option<usize> {
    matching.next().filter(|_| matching.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_record_events_together_delay_each_other_by_default() {
        assert_eq!(ProcessConfig::read(&|_: &str| None).event_contention_ns, 1000);
        let free = |name: &str| (name == "SIMGPU_EVENT_CONTENTION_NS").then(|| "0".to_owned());
        assert_eq!(ProcessConfig::read(&free).event_contention_ns, 0);
    }

    fn shown(machine: &Settings, list: &str, order: &str) -> Vec<usize> {
        let mut config = ProcessConfig::from_environment();
        config.visible = Some(list.to_owned());
        config.order = Some(order.to_owned());
        config.visible(machine)
    }

    fn machine() -> Settings {
        Settings { devices: 3, ..Settings::DEFAULT }
    }

    fn seen(list: &str) -> Vec<usize> {
        shown(&machine(), list, "")
    }

    #[test]
    fn devices_are_seen_in_the_order_that_is_asked_for() {
        assert_eq!(seen("2,0"), [2, 0]);
        assert_eq!(seen(" 2gpu, +0"), [2, 0]);
        assert_eq!(seen(&format!("{},1", gpu_text(2))), [2, 1]);
        assert_eq!(seen(gpu_text(1).get(..12).unwrap()), [1]);
    }

    #[test]
    fn a_list_ends_where_it_stops_making_sense() {
        assert_eq!(seen(""), []);
        assert_eq!(seen("1,-1,0"), [1]);
        assert_eq!(seen("1,7,0"), [1]);
        assert_eq!(seen("GPU-"), []);
        assert_eq!(seen("1,MIG-,0"), [1]);
    }

    #[test]
    fn a_list_that_names_a_device_twice_shows_none() {
        assert_eq!(seen("1,0,1"), []);
        assert_eq!(seen(&format!("{},0", gpu_text(0))), []);
    }

    #[test]
    fn numbers_follow_the_driver_apis_order() {
        let machine = Settings { fastest: 2, ..machine() };
        assert_eq!(shown(&machine, "0,1", "FASTEST_FIRST"), [2, 0]);
        assert_eq!(shown(&machine, "0,1", "PCI_BUS_ID"), [0, 1]);
    }

    #[test]
    fn one_instance_is_seen_and_nothing_beside_it() {
        let mut machine = machine();
        machine.instances[1] = 2;
        let (second, parent) = (machine.uuid_text(2), gpu_text(1));
        for list in [&second, second.get(..9).unwrap(), &format!("0,{second}"), &format!("MIG-{parent}/2/0")]
        {
            assert_eq!(shown(&machine, list, ""), [2], "{list}");
        }
        for list in ["1", &parent, "0,1,2"] {
            assert_eq!(shown(&machine, list, ""), [1], "{list}");
        }
        for list in [format!("MIG-{parent}/9/0"), format!("MIG-{parent}/1"), format!("MIG-{parent}/1/1")] {
            assert_eq!(shown(&machine, &list, ""), [], "{list}");
        }
        assert_eq!(shown(&machine, "0", ""), [0]);
    }
}
