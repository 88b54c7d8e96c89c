//! What does a slice hold and use, device by device and process by process?

use crate::arguments::Status;
use crate::failure::{self, Failure};
use crate::nvml::Nvml;
use crate::report::{Device, Slice};
use crate::time::{self, Time};
use crate::{Ending, crowd, figures, slices};
use gpuslice_policy::units::Nanos;
use gpuslice_region::Reader;
use serde::Serialize;
use std::time::UNIX_EPOCH;

/// What `--json` prints; `docs/status.md` describes it.
#[derive(Debug, Serialize)]
struct Report {
    /// Of this form. A field that is added leaves it; one that goes or means something else counts it up.
    version: u32,
    slices: Vec<Slice>,
}

/// The form that is printed.
pub(crate) const VERSION: u32 = 2;

/// `gpuslice status`.
pub(crate) fn status(wish: &Status) -> Result<Ending, Failure> {
    let readers = match &wish.slice {
        Some(slice) => vec![slices::look(slice)?],
        None => slices::look_at_all()?,
    };
    // Starting NVML has effects on the machine: not for nothing.
    let has_devices = |reader: &Reader| reader.device_count().is_ok_and(|count| count > 0);
    let nvml = readers.iter().any(has_devices).then(Nvml::open).flatten();
    let looks = time::looks(&readers, wish.over.0);
    let mut slices = Vec::new();
    for (reader, look) in readers.iter().zip(&looks) {
        match Slice::of(reader, nvml.as_ref(), look.as_ref()) {
            Ok(slice) => slices.push(slice),
            Err(error) if wish.slice.is_some() => return Err(Failure::new(slices::lost(&error))),
            Err(error) => failure::note(&slices::lost(&error)),
        }
    }
    crowd::note(&readers);
    if wish.json {
        failure::print_json(&Report { version: VERSION, slices })?;
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
    let mut rows = vec![
        ["PID", "SINCE", "HELD", "REFUSED", "GPU", "TIME", "WAITED", "COMMAND"].map(str::to_owned).to_vec(),
    ];
    let now = UNIX_EPOCH.elapsed().map_or(0, |age| age.as_secs());
    for process in &device.processes {
        rows.push(vec![
            process.pid.to_string(),
            process.started.map_or_else(dash, |started| figures::age(now.saturating_sub(started))),
            figures::size(process.held),
            process.refused.to_string(),
            process.time.used_permille.map_or_else(dash, figures::percent),
            figures::span(process.time.used_ns),
            figures::span(process.time.throttled_ns),
            process.command.clone().unwrap_or_else(|| "(not visible from here)".to_owned()),
        ]);
    }
    let numbers = &[0, 1, 2, 3, 4, 5, 6];
    let processes = if device.processes.is_empty() { String::new() } else { figures::table(&rows, numbers) };
    let indented = |text: &str| text.lines().map(|line| format!("      {line}\n")).collect::<String>();
    let time = if device.time.is_of_interest() { describe_time(&device.time) } else { String::new() };
    format!(
        "  {} {}  holds {} of {}; the device has {}\n{}    {}\n{time}{}",
        device.number,
        device.uuid,
        figures::size(device.held),
        device.limit.map_or_else(|| "all there is".to_owned(), |limit| figures::limit(Some(limit))),
        figures::limit(Some(device.total)),
        describe_contexts(device),
        describe_memory(device),
        indented(&processes),
    )
}

fn dash() -> String {
    "-".to_owned()
}

/// What there is to say of its memory beside what is held.
fn describe_memory(device: &Device) -> String {
    let mut words = vec![
        format!("peak {}", figures::size(device.peak)),
        format!("{} refused", device.refused),
        format!("{} unmet", device.unmet),
        format!("{} unaccounted", device.unaccounted.map_or_else(|| "unknown".to_owned(), signed)),
    ];
    if device.oversubscribe || device.spilled > 0 {
        words.push(format!("{} in host memory", figures::size(device.spilled)));
    }
    if device.held_by_dead > 0 {
        let size = figures::size(device.held_by_dead);
        words.push(format!("{size} of the dead count until a process of the slice clears them"));
    }
    words.join(", ")
}

/// How much of what is held is contexts', where there is or was one.
fn describe_contexts(device: &Device) -> String {
    let [all, one] = [device.held_by_contexts, device.context_bytes.unwrap_or(0)].map(figures::size);
    match device.context_bytes {
        None if device.held_by_contexts == 0 => String::new(),
        None => format!("    contexts hold {all} of that\n"),
        Some(_) => format!("    contexts hold {all} of that, the largest one so far took {one}\n"),
    }
}

/// How much of the device's time the slice has and uses.
fn describe_time(time: &Time) -> String {
    let looked = |(used, over)| format!("uses {} (over {}), ", figures::percent(used), figures::span(over));
    let used = time.used_permille.zip(time.used_over_ns).map_or_else(String::new, looked);
    let share = match time.share_permille {
        1000 => "all of its time".to_owned(),
        share => format!("{} of its time", figures::percent(share.into())),
    };
    let lately = time.lately.map(|lately| {
        let used = figures::percent(lately.used_permille);
        format!("{} s: {used}, waited {}", lately.seconds, figures::span(lately.throttled_ns))
    });
    format!(
        "    has {share}, policy {}, weight {}, priority {}, burst {}\n    {used}{} used in all; lately {}\n    \
         launches waited {}, {} queued ahead, {} owed; {}\n",
        time.policy,
        time.weight,
        time.priority,
        Nanos::new(time.burst_ns),
        figures::span(time.used_ns),
        lately.join("; "),
        figures::span(time.throttled_ns),
        figures::span(time.queued_ns),
        figures::span(time.owed_ns),
        time.measurement(),
    )
}

/// A difference of sizes.
fn signed(bytes: i64) -> String {
    let sign = if bytes < 0 { "-" } else { "" };
    format!("{sign}{}", figures::size(bytes.unsigned_abs()))
}
