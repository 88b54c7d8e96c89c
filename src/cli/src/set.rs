//! How is a limit changed while a slice runs?

use crate::arguments::{Memory, Set};
use crate::failure::{self, Failure};
use crate::{Ending, figures, slices};
use gpuslice_policy::config::{Config, DeviceIdentity};
use gpuslice_policy::units::Bytes;
use gpuslice_region::{DeviceView, Limits, Monitor};

/// `gpuslice set`. The whole of GPU time, which is all that `--cores` can ask for, is what every slice has.
pub(crate) fn set(wish: &Set) -> Result<Ending, Failure> {
    let monitor = slices::open(&wish.slice)?;
    monitor.reap()?;
    if monitor.processes().is_empty() {
        return Err(Failure::new(format!(
            "no process lives in {}; the next one brings its own limits, set them where it is started",
            monitor.path().display()
        )));
    }
    if let Some(memory) = &wish.mem {
        set_memory(&monitor, memory)?;
    }
    Ok(Ending::Code(0))
}

fn set_memory(monitor: &Monitor, memory: &Memory) -> Result<(), Failure> {
    let mut config = Config::default();
    config.memory = memory.quotas.clone();
    let devices = monitor.devices();
    let uuids: Vec<[u8; 16]> = devices.iter().map(|device| device.uuid.0).collect();
    if config.ambiguous(&uuids).is_empty() {
        let changes: Vec<(&DeviceView, u64)> =
            devices.iter().filter_map(|device| Some((device, quota_on(device, &config)?))).collect();
        if changes.is_empty() {
            return Err(Failure::new(format!(
                "{:?} names no device of the slice; `gpuslice status` shows its devices",
                memory.text
            )));
        }
        return changes.into_iter().try_for_each(|(device, quota)| change(monitor, device, quota));
    }
    Err(Failure::new(format!(
        "{:?} names a device by what several UUIDs begin with; write more of it",
        memory.text
    )))
}

/// The quota that a device gets, if it gets one.
fn quota_on(device: &DeviceView, config: &Config) -> Option<u64> {
    let ordinal = u32::try_from(device.device.index()).ok();
    let identity = DeviceIdentity { ordinal, uuid: device.uuid.0, total: Bytes::new(device.total) };
    let limits = config.limits_for(identity);
    limits.warnings.iter().for_each(|warning| {
        let warning = warning.to_string();
        failure::note(warning.strip_prefix("gpuslice: ").unwrap_or(&warning));
    });
    limits.memory.map(Bytes::get)
}

fn change(monitor: &Monitor, device: &DeviceView, quota: u64) -> Result<(), Failure> {
    let limits = Limits { memory: Some(quota), ..monitor.limits(device.device) };
    monitor.set_limits(device.device, limits);
    let held = monitor.held(device.device);
    let rest = if held > quota {
        format!("; it holds {}, and gets no more until it has freed enough", figures::size(held))
    } else {
        String::new()
    };
    failure::print(&format!(
        "GPU-{}: {} -> {}{rest}\n",
        device.uuid,
        figures::limit(device.limits.memory),
        figures::limit(Some(quota)),
    ))
}
