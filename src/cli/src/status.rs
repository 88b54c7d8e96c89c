//! What does a slice hold and use, device by device and process by process?

use crate::arguments::Status;
use crate::failure::{self, Failure};
use crate::nvml::Nvml;
use crate::report::{Device, Slice};
use crate::time::{self, Time};
use crate::{Ending, figures, slices};
use serde::Serialize;
use std::time::Duration;

/// What `--json` prints; `docs/configuration.md` describes it.
#[derive(Debug, Serialize)]
struct Report {
    /// Of this form. A field that is added leaves it; one that goes or means something else counts it up.
    version: u32,
    slices: Vec<Slice>,
}

/// The form that is printed.
const VERSION: u32 = 1;

/// `gpuslice status`.
pub(crate) fn status(wish: &Status) -> Result<Ending, Failure> {
    let monitors = match &wish.slice {
        Some(slice) => vec![slices::open(slice)?],
        None => slices::open_all()?,
    };
    // Starting NVML has effects on the machine: not for nothing.
    let nvml = monitors.iter().any(|monitor| !monitor.devices().is_empty()).then(Nvml::open).flatten();
    let looks = time::looks(&monitors, Duration::from_secs(wish.over));
    let both = monitors.iter().zip(&looks);
    let slices: Vec<Slice> =
        both.map(|(monitor, look)| Slice::of(monitor, nvml.as_ref(), look.as_ref())).collect();
    if wish.json {
        let text = serde_json::to_string_pretty(&Report { version: VERSION, slices });
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
    let mut rows =
        vec![["PID", "HELD", "REFUSED", "GPU", "TIME", "WAITED", "COMMAND"].map(str::to_owned).to_vec()];
    for process in &device.processes {
        rows.push(vec![
            process.pid.to_string(),
            figures::size(process.held),
            process.refused.to_string(),
            process.time.used_permille.map_or_else(|| "-".to_owned(), figures::percent),
            figures::span(process.time.used_ns),
            figures::span(process.time.throttled_ns),
            process.command.clone().unwrap_or_else(|| "(not visible from here)".to_owned()),
        ]);
    }
    let processes =
        if device.processes.is_empty() { String::new() } else { figures::table(&rows, &[0, 1, 2, 3, 4, 5]) };
    let table = processes.lines().map(|line| format!("      {line}\n"));
    let indented: String = describe_time(&device.time).into_iter().chain(table).collect();
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

/// How much of the device's time the slice has and uses, where that is limited or counted.
fn describe_time(time: &Time) -> Option<String> {
    let lately = |(used, over)| format!("uses {} (over {}), ", figures::percent(used), figures::span(over));
    let used = time.used_permille.zip(time.used_over_ns).map_or_else(String::new, lately);
    let share = match time.share_permille {
        1000 => "all of its time".to_owned(),
        share => format!("{} of its time", figures::percent(share.into())),
    };
    let words = format!(
        "    has {share}, {used}{} in all\n    launches waited {}, {} queued ahead, {} owed; {}\n",
        figures::span(time.used_ns),
        figures::span(time.throttled_ns),
        figures::span(time.queued_ns),
        figures::span(time.owed_ns),
        time.measurement(),
    );
    time.is_of_interest().then_some(words)
}

/// A difference of sizes.
fn signed(bytes: i64) -> String {
    let sign = if bytes < 0 { "-" } else { "" };
    format!("{sign}{}", figures::size(bytes.unsigned_abs()))
}
