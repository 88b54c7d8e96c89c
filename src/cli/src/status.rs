//! What does a slice hold, device by device and process by process?

use crate::arguments::Status;
use crate::failure::{self, Failure};
use crate::nvml::Nvml;
use crate::report::{Device, Slice};
use crate::{Ending, figures, slices};
use serde::Serialize;

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Report {
    slices: Vec<Slice>,
}

/// `gpuslice status`.
pub(crate) fn status(wish: &Status) -> Result<Ending, Failure> {
    let monitors = match &wish.slice {
        Some(slice) => vec![slices::open(slice)?],
        None => slices::open_all()?,
    };
    // Starting NVML has effects on the machine: not for nothing.
    let nvml = monitors.iter().any(|monitor| !monitor.devices().is_empty()).then(Nvml::open).flatten();
    let slices: Vec<Slice> = monitors.iter().map(|monitor| Slice::of(monitor, nvml.as_ref())).collect();
    if wish.json {
        let text = serde_json::to_string_pretty(&Report { slices });
        failure::print(&format!("{}\n", text.map_err(|error| Failure::new(error.to_string()))?))?;
    } else if slices.is_empty() {
        failure::print("no slices\n")?;
    } else {
        failure::print(&slices.iter().map(describe).collect::<Vec<_>>().join("\n"))?;
    }
    Ok(Ending::Code(0))
}

fn describe(slice: &Slice) -> String {
    let devices: String = slice.devices.iter().map(describe_device).collect();
    format!("{}  {}\n{devices}", slice.name, slice.region)
}

fn describe_device(device: &Device) -> String {
    let mut rows = vec![["PID", "HELD", "REFUSED", "COMMAND"].map(str::to_owned).to_vec()];
    for process in &device.processes {
        rows.push(vec![
            process.pid.to_string(),
            figures::size(process.held),
            process.refused.to_string(),
            process.command.clone().unwrap_or_else(|| "(not visible from here)".to_owned()),
        ]);
    }
    let processes =
        if device.processes.is_empty() { String::new() } else { figures::table(&rows, &[0, 1, 2]) };
    let indented: String = processes.lines().map(|line| format!("      {line}\n")).collect();
    format!(
        "  {} {}  holds {} of {}, {} refused, {} unaccounted; the device has {}\n{indented}",
        device.number,
        device.uuid,
        figures::size(device.held),
        device.limit.map_or_else(|| "all there is".to_owned(), |limit| figures::limit(Some(limit))),
        device.refused,
        device.unaccounted.map_or_else(|| "unknown".to_owned(), signed),
        figures::limit(Some(device.total)),
    )
}

/// A difference of sizes.
fn signed(bytes: i64) -> String {
    let sign = if bytes < 0 { "-" } else { "" };
    format!("{sign}{}", figures::size(bytes.unsigned_abs()))
}
