//! What is simulated: how many devices, of what size?

use super::DEVICES;
use crate::engine::Config;

/// Properties of the simulated machine. Whoever makes the state file sets them; later processes find them.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Number of devices.
    pub devices: u64,
    /// What a context costs.
    pub context_bytes: u64,
    /// What a module's code costs, in addition to its variables.
    pub module_bytes: u64,
    /// What linear memory is rounded up to.
    pub linear_granule: u64,
    /// Size of each device's memory.
    pub memory: [u64; DEVICES],
    /// Properties of the devices' time.
    pub(crate) time: Config,
}

impl Settings {
    /// One device of 16 GiB.
    pub const DEFAULT: Self = Self {
        devices: 1,
        context_bytes: 300 << 20,
        module_bytes: 0,
        linear_granule: 1,
        memory: [16 << 30; DEVICES],
        time: Config::DEFAULT,
    };

    /// What the variables ask for; `get` reads one.
    ///
    /// # Errors
    /// The name and value of the first variable that cannot be understood.
    pub fn read(get: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let mut settings = Self::DEFAULT;
        let number = |name: &str, default: u64| match get(name) {
            None => Ok(default),
            Some(text) => size(&text).ok_or_else(|| format!("{name}={text}")),
        };
        settings.devices = number("SIMGPU_DEVICES", settings.devices)?;
        if settings.devices > DEVICES as u64 {
            return Err(format!("SIMGPU_DEVICES={} (at most {DEVICES})", settings.devices));
        }
        settings.context_bytes = number("SIMGPU_CONTEXT_BYTES", settings.context_bytes)?;
        settings.module_bytes = number("SIMGPU_MODULE_BYTES", settings.module_bytes)?;
        settings.linear_granule = number("SIMGPU_LINEAR_GRANULE", settings.linear_granule)?.max(1);
        if let Some(text) = get("SIMGPU_TIME") {
            settings.time = time(&text).ok_or_else(|| format!("SIMGPU_TIME={text}"))?;
        }
        if let Some(text) = get("SIMGPU_MEMORY") {
            let sizes: Option<Vec<u64>> = text.split(',').map(size).collect();
            let sizes = sizes.ok_or_else(|| format!("SIMGPU_MEMORY={text}"))?;
            let last = sizes.last().copied().unwrap_or_default();
            let all = sizes.into_iter().chain(core::iter::repeat(last));
            for (memory, size) in settings.memory.iter_mut().zip(all) {
                *memory = size;
            }
        }
        Ok(settings)
    }

    /// Number of devices.
    #[must_use]
    pub fn count(&self) -> usize {
        usize::try_from(self.devices).unwrap_or(DEVICES).min(DEVICES)
    }

    /// Size of a device's memory; 0 where there is no such device.
    #[must_use]
    pub fn capacity(&self, device: usize) -> u64 {
        if device as u64 >= self.devices { 0 } else { self.memory.get(device).copied().unwrap_or(0) }
    }
}

/// Properties of the devices' time, as `slice_ns=1000000,stream_depth=64`.
fn time(text: &str) -> Option<Config> {
    let mut config = Config::DEFAULT;
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
            "event_skew_ppm" => config.event_skew_ppm = value.parse().ok()?,
            _ => return None,
        }
    }
    Some(config)
}

/// Bytes in words: a number and a power of 1024 (`k`, `KiB`, `m`, `MiB`, `g`, `GiB`, `t`, `TiB`).
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
        assert_eq!(time(""), Some(Config::DEFAULT));
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
    fn a_variable_that_cannot_be_understood_is_named() {
        let settings = Settings::read(|name| (name == "SIMGPU_MEMORY").then(|| "lots".to_owned()));
        assert_eq!(settings, Err("SIMGPU_MEMORY=lots".to_owned()));
    }
}
