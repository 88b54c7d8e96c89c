//! The rule of `CUDA_VISIBLE_DEVICES`: the devices that CUDA shows a process, and their order. The module does not call
//! CUDA.
//!
//! The caller passes the GPUs in CUDA's order before the variable is applied. This is the order of the bus if
//! `CUDA_DEVICE_ORDER` is `PCI_BUS_ID`, or if all GPUs are of the same kind. In other cases the order is undocumented.

use crate::config::DeviceName;

/// A GPU of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// The GPU's UUID.
    pub uuid: [u8; 16],
    /// The GPU's MIG instances in order. `None`: the GPU is whole.
    pub instances: Option<Vec<Instance>>,
}

/// An instance of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instance {
    /// The instance's UUID.
    pub uuid: [u8; 16],
    /// Number of the GPU instance to which it belongs.
    pub gpu_instance: u32,
    /// Number of the compute instance.
    pub compute_instance: u32,
}

/// A device that CUDA can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CudaDevice {
    uuid: [u8; 16],
    is_instance: bool,
}

/// Returns the UUIDs of the devices that CUDA shows, in CUDA's order. `list` is the value of `CUDA_VISIBLE_DEVICES`.
///
/// - A list ends at its first entry that stands for no device, or for several.
/// - A list that names a device twice shows none.
/// - Beside a MIG instance, no whole GPU is shown.
/// - Present drivers show only the first instance. The result has the others after it, because a later driver would give
///   them these numbers.
#[must_use]
pub fn visible(gpus: &[Gpu], list: Option<&str>) -> Vec<[u8; 16]> {
    let Some(devices) =
        list.map_or_else(|| Some(gpus.iter().flat_map(devices_of).collect()), |list| named(gpus, list))
    else {
        return Vec::new();
    };
    let instances = devices.iter().any(|device| device.is_instance);
    devices.iter().filter(|device| device.is_instance || !instances).map(|device| device.uuid).collect()
}

/// Returns the devices of a list. `None`: the list names a device twice.
fn named(gpus: &[Gpu], list: &str) -> Option<Vec<CudaDevice>> {
    let mut devices = Vec::new();
    for entry in list.split(',') {
        let Some(device) = meant(gpus, entry.trim()) else { break };
        if devices.contains(&device) {
            return None;
        }
        devices.push(device);
    }
    Some(devices)
}

/// Returns the device of an entry. For a divided GPU this is its first instance.
fn meant(gpus: &[Gpu], entry: &str) -> Option<CudaDevice> {
    if let Some(place) = entry.strip_prefix("MIG-GPU-") {
        return placed(gpus, place);
    }
    match entry.parse::<DeviceName>() {
        Ok(DeviceName::Gpu(beginning)) => only(gpus.iter().filter(|gpu| beginning.matches(&gpu.uuid)))
            .and_then(|gpu| devices_of(gpu).next()),
        Ok(DeviceName::Mig(beginning)) => {
            only(gpus.iter().flat_map(instances_of).filter(|instance| beginning.matches(&instance.uuid)))
        }
        _ => gpus.get(number(entry)?).and_then(|gpu| devices_of(gpu).next()),
    }
}

/// Returns the instance with the UUID of its GPU and with its own numbers.
fn placed(gpus: &[Gpu], place: &str) -> Option<CudaDevice> {
    let mut parts = place.split('/');
    let Ok(DeviceName::Gpu(uuid)) = format!("GPU-{}", parts.next()?).parse() else { return None };
    let numbers = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let gpu = gpus.iter().find(|gpu| uuid.whole() == Some(gpu.uuid))?;
    let mut instances = gpu.instances.iter().flatten();
    let found = instances.find(|instance| (instance.gpu_instance, instance.compute_instance) == numbers);
    found
        .filter(|_| parts.next().is_none())
        .map(|instance| CudaDevice { uuid: instance.uuid, is_instance: true })
}

/// Returns the leading number of an entry, as C's `strtoul` reads it. The rest is ignored.
fn number(entry: &str) -> Option<usize> {
    let unsigned = entry.strip_prefix('+').unwrap_or(entry);
    unsigned.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

/// Returns CUDA's devices of a GPU: the GPU itself, or its instances.
fn devices_of(gpu: &Gpu) -> impl Iterator<Item = CudaDevice> {
    let whole = gpu.instances.is_none().then_some(CudaDevice { uuid: gpu.uuid, is_instance: false });
    whole.into_iter().chain(instances_of(gpu))
}

fn instances_of(gpu: &Gpu) -> impl Iterator<Item = CudaDevice> {
    gpu.instances.iter().flatten().map(|instance| CudaDevice { uuid: instance.uuid, is_instance: true })
}

/// Returns the only item. `None`: there is no item, or there are several.
fn only<T>(mut found: impl Iterator<Item = T>) -> Option<T> {
    found.next().filter(|_| found.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::gpu_uuid_text;

    fn whole(first: u8) -> Gpu {
        Gpu { uuid: [first; 16], instances: None }
    }

    /// Makes three whole GPUs. The UUIDs of two of them have a common prefix.
    fn machine() -> [Gpu; 3] {
        [whole(0x10), whole(0x1f), whole(0x20)]
    }

    fn shown(gpus: &[Gpu], list: &str) -> Vec<u8> {
        visible(gpus, Some(list)).iter().map(|uuid| uuid[0]).collect()
    }

    #[test]
    fn without_the_variable_all_are_shown() {
        assert_eq!(visible(&machine(), None), [[0x10; 16], [0x1f; 16], [0x20; 16]]);
        assert_eq!(visible(&machine(), Some("")), [[0; 16]; 0]);
    }

    #[test]
    fn numbers_and_uuids_show_devices_in_their_order() {
        for (list, expected) in [
            ("2,0", vec![0x20, 0x10]),
            (" 2 , 0 ", vec![0x20, 0x10]),
            ("+1gpu,0x1", vec![0x1f, 0x10]),
            ("GPU-2,GPU-1f", vec![0x20, 0x1f]),
            ("GPU-2,0", vec![0x20, 0x10]),
        ] {
            assert_eq!(shown(&machine(), list), expected, "{list}");
        }
        let text = gpu_uuid_text(&[0x1f; 16]);
        assert_eq!(shown(&machine(), &format!("{text},2")), [0x1f, 0x20]);
    }

    #[test]
    fn a_list_ends_at_an_entry_that_means_no_device_or_several() {
        for list in ["1,-1,0", "1,3,0", "1,,0", "1,GPU-1,0", "1,GPU-3,0", "1,GPU-,0", "1,MIG-1,0", "1,gpu,0"]
        {
            assert_eq!(shown(&machine(), list), [0x1f], "{list}");
        }
    }

    #[test]
    fn a_list_that_names_a_device_twice_shows_none() {
        for list in ["0,0", "1,0,01", "0,GPU-10", "GPU-1f,GPU-1f1f"] {
            assert_eq!(shown(&machine(), list), [], "{list}");
        }
        // Entries after the end of the list are not read.
        assert_eq!(shown(&machine(), "0,-1,0"), [0x10]);
    }

    #[test]
    fn instances_are_meant_by_name_by_place_and_by_their_gpu() {
        let instance = |number: u8| Instance {
            uuid: [0x80 + number; 16],
            gpu_instance: u32::from(number),
            compute_instance: 0,
        };
        let divided = Gpu { uuid: [0x1f; 16], instances: Some(vec![instance(1), instance(2)]) };
        let gpus = [whole(0x10), divided, whole(0x20)];
        let parent = gpu_uuid_text(&[0x1f; 16]);
        for list in ["MIG-82", &format!("MIG-{parent}/2/0"), "0,MIG-82,2"] {
            assert_eq!(shown(&gpus, list), [0x82], "{list}");
        }
        for list in ["1", &parent, "0,1"] {
            assert_eq!(shown(&gpus, list), [0x81], "{list}");
        }
        for list in
            ["MIG-8", "GPU-82", "MIG-1f", &format!("MIG-{parent}/3/0"), &format!("MIG-{parent}/2/0/0")]
        {
            assert_eq!(shown(&gpus, list), [], "{list}");
        }
        assert_eq!(shown(&gpus, "0,2"), [0x10, 0x20]);
        assert_eq!(visible(&gpus, None), [[0x81; 16], [0x82; 16]]);
        let empty = Gpu { uuid: [0x30; 16], instances: Some(Vec::new()) };
        assert_eq!(shown(&[empty, whole(0x10)], "0,1"), []);
    }
}
