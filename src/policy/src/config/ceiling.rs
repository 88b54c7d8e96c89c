//! Upper bounds of a slice's limits, from the operator's fixed file.
//!
//! The first process of a slice brings the limits into the region, and every process of the slice can write there. So each
//! process compares the region with the file later.

use super::checked::Config;
use super::choices::{CorePolicy, Priority, Weight};
use super::device::DeviceIdentity;
use super::reading::settings_that_are_set;
use super::sources::{FileRead, OperatorFiles};
use crate::time::GpuTime;
use crate::units::{Bytes, Permille};

/// Upper bounds of a slice's limits on a device. A limit that is `None` has no bound.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ceiling {
    /// Bytes of memory.
    pub memory: Option<Bytes>,
    /// Share of the device's time.
    pub cores: Option<Permille>,
    /// The policy. No other policy may replace it, because policies have no order.
    pub policy: Option<CorePolicy>,
    /// The largest weight.
    pub weight: Option<Weight>,
    /// The highest priority.
    pub priority: Option<Priority>,
    /// The most GPU time that the slice may save up.
    pub burst: Option<GpuTime>,
    /// Whether host memory may serve allocations beyond the memory limit.
    pub oversubscribe: Option<bool>,
}

/// The settings of the fixed file.
#[derive(Debug)]
pub struct Ceilings {
    config: Config,
    /// The parts that are the same on all devices.
    of_all: Ceiling,
}

impl Ceilings {
    /// Reads the fixed file. `None`: the file does not exist, or it has faults. With faults, GPU work is refused anyway.
    #[must_use]
    pub fn read(fixed: FileRead<'_>) -> Option<Self> {
        if fixed == FileRead::Absent {
            return None;
        }
        let (files, no_environment) = (OperatorFiles { fixed, named: FileRead::Absent }, |_: &str| None);
        let config = Config::from_sources(&no_environment, &files).ok()?;
        let sets = settings_that_are_set(&no_environment, &files);
        let of_all = Ceiling {
            policy: sets("GPU_CORE_POLICY").then_some(config.core_policy),
            weight: sets("GPU_CORE_WEIGHT").then_some(config.core_weight),
            priority: sets("GPU_PRIORITY").then_some(config.priority),
            burst: sets("GPU_CORE_BURST").then_some(config.core_burst.span()),
            oversubscribe: sets("GPU_MEM_OVERSUBSCRIBE").then_some(config.oversubscribe),
            ..Ceiling::default()
        };
        Some(Self { config, of_all })
    }

    /// Returns true if the file has a share of the device's time.
    #[must_use]
    pub fn has_share_of(&self, device: DeviceIdentity) -> bool {
        self.config.share_of(device).is_some()
    }

    /// Returns the upper bounds of a slice's limits on a device.
    #[must_use]
    pub fn of(&self, device: DeviceIdentity) -> Ceiling {
        let limits = self.config.limits_for(device);
        Ceiling { memory: limits.memory, cores: Some(limits.cores), ..self.of_all }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: DeviceIdentity =
        DeviceIdentity { ordinal: Some(0), bus: Some(0), uuid: [7; 16], total: Bytes::new(16 << 30) };

    fn ceiling(text: &str) -> Option<Ceiling> {
        Some(Ceilings::read(FileRead::Contents(text.as_bytes()))?.of(GPU))
    }

    #[test]
    fn a_ceiling_has_the_values_of_the_file() {
        let all = "GPU_MEM_LIMIT=25%\nGPU_CORE_PERCENT=30\nGPU_CORE_POLICY=equal\nGPU_CORE_WEIGHT=50\nGPU_PRIORITY=low\n\
                   GPU_CORE_BURST=50ms\nGPU_MEM_OVERSUBSCRIBE=0\n";
        let expected = Ceiling {
            memory: Some(Bytes::new(4 << 30)),
            cores: Permille::new(300),
            policy: Some(CorePolicy::Equal),
            weight: "50".parse().ok(),
            priority: Some(Priority::Low),
            burst: Some(GpuTime::from_millis(50)),
            oversubscribe: Some(false),
        };
        assert_eq!(ceiling(all), Some(expected));
        let memory =
            Ceiling { memory: Some(Bytes::new(1 << 30)), cores: Some(Permille::FULL), ..Ceiling::default() };
        assert_eq!(ceiling("GPU_MEM_LIMIT=1GiB\n"), Some(memory));
    }

    #[test]
    fn without_a_file_or_with_a_faulty_one_there_is_no_ceiling() {
        assert!(Ceilings::read(FileRead::Absent).is_none());
        assert_eq!(ceiling("GPU_MEM_LIMIT=much\n"), None);
    }
}
