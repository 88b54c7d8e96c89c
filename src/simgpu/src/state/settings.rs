//! The settings of the simulated machine.

use super::sizes::DEVICES;
use crate::engine::DeviceConfig;
use crate::hardware::allocation_sizes;
use gpuslice_driver::types::device_attribute::OF_HOST_MEMORY;

/// The properties of the simulated machine. The process that makes the state file sets them, and later
/// processes read them from the file.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Number of GPUs.
    pub devices: u64,
    /// Number of MIG instances of each GPU; 0 for a GPU that is not divided.
    pub instances: [u64; DEVICES],
    /// Number of the GPU that is faster than all others. With 0, all GPUs are of the same model.
    pub fastest: u64,
    /// NVLink connects this many successive GPUs with each other, then the next ones, and so on; 0 if no GPU has NVLink.
    pub nvlink: u64,
    /// Bytes that the driver takes and keeps when a process first allocates on a device. No call of the program explains them.
    pub unexplained_bytes: u64,
    /// Bytes of device memory that a context takes.
    pub context_bytes: u64,
    /// Bytes that the code of a module takes, without the variables.
    pub module_bytes: u64,
    /// The bytes of a module's code are rounded up to a multiple of this number, and so are those of all its variables together.
    pub module_granule: u64,
    /// Bytes of device memory that a green context takes.
    pub green_bytes: u64,
    /// The bytes of an allocation are rounded up to a multiple of this number; 0 for blocks. With blocks, an allocation above 1
    /// MiB takes a multiple of 2 MiB. A smaller one shares a block of 2 MiB with others of about the same size.
    pub linear_granule: u64,
    /// Bytes of memory of each device. A device is a whole GPU or one instance.
    pub memory: [u64; DEVICES],
    /// Milliseconds from the death of a process until the device has the process's memory back.
    pub teardown_ms: u64,
    /// 1 if the devices use the memory of the host, and so the free memory changes by itself.
    pub integrated: u64,
    /// How fast the engines are, and what they can hold.
    pub(crate) time: DeviceConfig,
}

impl Settings {
    /// The settings without any variable: one device of 16 GiB.
    pub const DEFAULT: Self = Self {
        devices: 1,
        instances: [0; DEVICES],
        fastest: 0,
        nvlink: 0,
        unexplained_bytes: 0,
        context_bytes: 530 << 20,
        module_bytes: 0,
        module_granule: 1,
        green_bytes: 4 << 20,
        linear_granule: 0,
        memory: [16 << 30; DEVICES],
        teardown_ms: 300,
        integrated: 0,
        time: DeviceConfig::DEFAULT,
    };

    /// Reads the settings from environment variables. `get` returns the value of a variable.
    ///
    /// # Errors
    /// The name and the value of the first variable that cannot be understood.
    pub fn read(get: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let mut settings = Self::DEFAULT;
        let number = |name: &str, default: u64| match get(name) {
            None => Ok(default),
            Some(text) => size(&text).ok_or_else(|| format!("{name}={text}")),
        };
        settings.devices = number("SIMGPU_DEVICES", settings.devices)?;
        if let Some(text) = get("SIMGPU_MIG") {
            settings.instances = list(&text, 0).ok_or_else(|| format!("SIMGPU_MIG={text}"))?;
        }
        if settings.devices > DEVICES as u64 || settings.all_devices() > DEVICES as u64 {
            return Err(format!("SIMGPU_DEVICES={} (at most {DEVICES})", settings.devices));
        }
        settings.fastest = number("SIMGPU_FASTEST", settings.fastest)?;
        settings.nvlink = number("SIMGPU_NVLINK", settings.nvlink)?;
        settings.unexplained_bytes = number("SIMGPU_UNEXPLAINED_BYTES", settings.unexplained_bytes)?;
        settings.context_bytes = number("SIMGPU_CONTEXT_BYTES", settings.context_bytes)?;
        settings.module_bytes = number("SIMGPU_MODULE_BYTES", settings.module_bytes)?;
        settings.module_granule = number("SIMGPU_MODULE_GRANULE", settings.module_granule)?.max(1);
        settings.green_bytes = number("SIMGPU_GREEN_BYTES", settings.green_bytes)?;
        settings.linear_granule = match get("SIMGPU_LINEAR_GRANULE").as_deref() {
            None | Some("blocks") => 0,
            Some(_) => number("SIMGPU_LINEAR_GRANULE", 0)?.max(1),
        };
        settings.teardown_ms = number("SIMGPU_TEARDOWN_MS", settings.teardown_ms)?;
        settings.integrated = number("SIMGPU_INTEGRATED", settings.integrated)?;
        if let Some(text) = get("SIMGPU_TIME") {
            settings.time = time(&text).ok_or_else(|| format!("SIMGPU_TIME={text}"))?;
        }
        if let Some(text) = get("SIMGPU_MEMORY") {
            let last = text.rsplit(',').next().and_then(size).unwrap_or_default();
            settings.memory = list(&text, last).ok_or_else(|| format!("SIMGPU_MEMORY={text}"))?;
        }
        Ok(settings)
    }

    /// Returns the value of a device attribute, if these settings change that attribute.
    pub(crate) fn attribute(&self, number: u32) -> Option<i32> {
        let reported = usize::try_from(self.integrated).ok()?.checked_sub(1)?;
        (OF_HOST_MEMORY.get(reported) == Some(&number)).then_some(1)
    }

    /// Returns true if small allocations share blocks of 2 MiB.
    pub(crate) const fn has_blocks(&self) -> bool {
        self.linear_granule == 0
    }

    /// Returns the bytes that an allocation of `size` takes on a device if it shares no block. Returns
    /// `None` if the number is too large.
    pub(crate) fn taken(&self, size: u64) -> Option<u64> {
        if self.has_blocks() {
            allocation_sizes::whole(size)
        } else {
            size.checked_next_multiple_of(self.linear_granule)
        }
    }

    /// Returns the number of devices, which are the whole GPUs and the instances of divided ones.
    #[must_use]
    pub fn count(&self) -> usize {
        usize::try_from(self.all_devices()).unwrap_or(DEVICES).min(DEVICES)
    }

    fn all_devices(&self) -> u64 {
        let gpus = usize::try_from(self.devices).unwrap_or(DEVICES);
        self.instances.iter().take(gpus).fold(0, |sum, instances| sum.saturating_add((*instances).max(1)))
    }

    /// Returns the bytes of memory of a device; 0 if there is no such device.
    #[must_use]
    pub fn capacity(&self, device: usize) -> u64 {
        if device >= self.count() { 0 } else { self.memory.get(device).copied().unwrap_or(0) }
    }
}

/// Reads a list with a size for each device, separated by commas. Devices after the end of the list get `rest`.
fn list(text: &str, rest: u64) -> Option<[u64; DEVICES]> {
    let mut numbers = [rest; DEVICES];
    for (place, part) in text.split(',').enumerate() {
        *numbers.get_mut(place)? = size(part)?;
    }
    Some(numbers)
}

/// Reads the properties of the engines from a text such as `slice_ns=1000000,stream_depth=64`.
fn time(text: &str) -> Option<DeviceConfig> {
    let mut config = DeviceConfig::DEFAULT;
    for part in text.split(',').filter(|part| !part.trim().is_empty()) {
        let (name, value) = part.trim().split_once('=')?;
        let number = || value.parse::<u64>().ok();
        let small = || value.parse::<u32>().ok();
        match name {
            "slice_ns" => config.slice_ns = number()?,
            "switch_ns" => config.switch_ns = number()?,
            "event_resolution_ns" => config.event_resolution_ns = number()?,
            "sample_period_ns" => config.sample_period_ns = number()?,
            "sample_lag_ns" => config.sample_lag_ns = number()?,
            "graph_node_gap_ns" => config.graph_node_gap_ns = number()?,
            "copy_overhead_ns" => config.copy_overhead_ns = number()?,
            "host_to_device" => config.host_to_device = number()?,
            "device_to_host" => config.device_to_host = number()?,
            "peer" => config.peer = number()?,
            "device_to_device" => config.device_to_device = number()?,
            "stream_depth" => config.stream_depth = small()?,
            "client_depth" => config.client_depth = small()?,
            "concurrent" => config.concurrent = small()?,
            "copy_engines" => config.copy_engines = small()?,
            "event_ns" => config.event_ns = small()?,
            "event_skew_ppm" => config.event_skew_ppm = value.parse().ok()?,
            _ => return None,
        }
    }
    Some(config)
}

/// Returns the bytes that a text means: a number, and a power of 1024 (`k`, `KiB`, `m`, `MiB`, `g`, `GiB`, `t`, `TiB`).
#[must_use]
pub fn size(text: &str) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "ki" | "kib" => 10,
        "m" | "mi" | "mib" => 20,
        "g" | "gi" | "gib" => 30,
        "t" | "ti" | "tib" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_numbers_with_a_power_of_1024() {
        assert_eq!(size("16GiB"), Some(16 << 30));
        assert_eq!(size(" 4m "), Some(4 << 20));
        assert_eq!(size("0"), Some(0));
        for wrong in ["", "GiB", "-1", "4 apples", "99999999999999999999"] {
            assert_eq!(size(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn properties_of_time_are_set_by_name() {
        let config = time("slice_ns=5000, stream_depth=2").unwrap();
        assert_eq!((config.slice_ns, config.stream_depth), (5000, 2));
        assert_eq!(time("slices=5"), None);
        assert_eq!(time(""), Some(DeviceConfig::DEFAULT));
    }

    #[test]
    fn harsh_properties_are_the_default_and_mild_ones_are_settings() {
        let read = |name: &str, value: &str| {
            Settings::read(|wanted| (wanted == name).then(|| value.to_owned())).unwrap()
        };
        let default = read("", "");
        assert_eq!((default.context_bytes, default.linear_granule), (530 << 20, 0));
        assert_eq!((default.time.slice_ns, default.time.event_ns), (1_024_000, 2_500));
        assert_eq!(read("SIMGPU_CONTEXT_BYTES", "300MiB").context_bytes, 300 << 20);
        assert_eq!(read("SIMGPU_LINEAR_GRANULE", "1").linear_granule, 1);
        let mild = read("SIMGPU_TIME", "event_ns=0,slice_ns=2000000").time;
        assert_eq!((mild.slice_ns, mild.event_ns), (2_000_000, 0));
    }

    #[test]
    fn the_last_size_of_a_list_holds_for_all_further_devices() {
        let settings = Settings::read(|name| match name {
            "SIMGPU_DEVICES" => Some("4".to_owned()),
            "SIMGPU_MEMORY" => Some("1g,2g".to_owned()),
            _ => None,
        });
        let settings = settings.unwrap();
        assert_eq!(
            [0, 1, 2, 3, 4].map(|device| settings.capacity(device)),
            [1 << 30, 2 << 30, 2 << 30, 2 << 30, 0]
        );
    }

    #[test]
    fn instances_are_devices_like_whole_gpus() {
        let read = |devices: &str, mig: &str| {
            let (devices, mig) = (devices.to_owned(), mig.to_owned());
            Settings::read(move |name| match name {
                "SIMGPU_DEVICES" => Some(devices.clone()),
                "SIMGPU_MIG" => Some(mig.clone()),
                _ => None,
            })
        };
        assert_eq!(read("3", "0,2").unwrap().count(), 4);
        assert_eq!(read("1", "0,2").unwrap().count(), 1);
        assert!(read("2", "7,10").is_err());
        assert!(read("2", "many").is_err());
    }

    #[test]
    fn a_variable_that_cannot_be_understood_is_named() {
        let settings = Settings::read(|name| (name == "SIMGPU_MEMORY").then(|| "lots".to_owned()));
        assert_eq!(settings, Err("SIMGPU_MEMORY=lots".to_owned()));
    }
}
