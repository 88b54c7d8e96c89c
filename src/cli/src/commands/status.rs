//! `gpuslice status`: the use of slices, GPU by GPU and process by process.

use crate::arguments::{Interval, Status};
use crate::output::ending::Ending;
use crate::output::failure::{self, Failure};
use crate::output::progress;
use crate::slices::{self, OpenRegion, Survey, too_many};
use gpuslice_policy::time::GpuTime;
use gpuslice_region::Reader;
use gpuslice_slices::figures;
use gpuslice_slices::nvml_retry::NvmlRetry;
use gpuslice_slices::process;
use gpuslice_slices::report::{self, Beside, Device, Gpu, Slice};
use gpuslice_slices::time::{self, Time};
use serde::Serialize;
use std::io::{self, IsTerminal as _};
use std::thread;
use std::time::Instant;

/// Columns of a usual terminal.
const WIDTH: usize = 80;

/// Output of `--json`. `docs/reference/status-json.md` describes it.
#[derive(Debug, Serialize)]
struct StatusReport {
    /// Version of the document. A new field keeps the version. A removed field, or one with another meaning, increases it.
    version: u32,
    slices: Vec<Slice>,
    gpus: Vec<Gpu>,
}

/// Version of the printed document.
pub(crate) const STATUS_VERSION: u32 = 2;

/// Escape sequence that is sent to a terminal before the next report. It moves the cursor home and erases the screen.
const CLEAR_SCREEN: &str = "\x1b[H\x1b[2J";

/// Prints the use of slices: `gpuslice status`.
pub(crate) fn status(wish: &Status) -> Result<Ending, Failure> {
    let mut nvml = NvmlRetry::new(failure::note);
    let Some(Interval(interval)) = wish.watch else { return show(wish, &mut nvml, "") };
    let clear = if io::stdout().is_terminal() { CLEAR_SCREEN } else { "" };
    let mut between = clear;
    loop {
        let start = Instant::now();
        show(wish, &mut nvml, between)?;
        between = if clear.is_empty() && !wish.json { "\n" } else { clear };
        thread::sleep(interval.saturating_sub(start.elapsed()));
    }
}

/// Prints one report, after the text `before`.
fn show(wish: &Status, nvml: &mut NvmlRetry, before: &str) -> Result<Ending, Failure> {
    let (survey, open) = match &wish.slice {
        Some(slice) => {
            let survey = Survey::now()?;
            let open = vec![survey.look(slice)?];
            (survey, open)
        }
        None => slices::look_at_all()?,
    };
    // The command starts NVML only if a slice has devices, because starting NVML has effects on the machine.
    let has_devices = |open: &OpenRegion| open.reader.device_count().is_ok_and(|count| count > 0);
    let nvml = if open.iter().any(has_devices) { nvml.refresh() } else { None };
    let readers: Vec<&Reader> = open.iter().map(|open| &open.reader).collect();
    let looks = time::looks(&readers, wish.over.0, |long| {
        progress::wait("measuring the use of GPU time", long);
    });
    let mut slices = Vec::new();
    for (OpenRegion { region, reader }, look) in open.iter().zip(&looks) {
        let beside = Beside { machine: &survey.machine, nvml, compares: true, look: look.as_ref() };
        match Slice::of(&survey.label(region), region, reader, beside) {
            Ok(slice) => slices.push(slice),
            Err(error) if wish.slice.is_some() => return Err(Failure::new(slices::lost(region, &error))),
            Err(error) => failure::note(&slices::lost(region, &error)),
        }
    }
    report::unused_last(&mut slices);
    let gpus = report::gpus(&slices);
    let warnings = report::warnings(&gpus);
    failure::print(before)?;
    if wish.json {
        failure::print_json(&StatusReport { version: STATUS_VERSION, slices, gpus })?;
    } else if slices.is_empty() {
        failure::print("no slices\n")?;
    } else {
        failure::print(&slices.iter().map(describe).collect::<Vec<_>>().join("\n"))?;
    }
    too_many::note(&open);
    warnings.iter().for_each(|warning| failure::note(warning));
    Ok(Ending::Code(0))
}

fn describe(slice: &Slice) -> String {
    let devices: String = slice.devices.iter().map(describe_device).collect();
    let user = slice.user.as_ref().map_or_else(String::new, |user| format!("  user {user}"));
    let unused = if slice.is_unused() { "  unused: no process lives in it" } else { "" };
    let container = slice.container_words().map_or_else(String::new, |words| format!("  container {words}"));
    format!("{}  {}{user}{container}{unused}\n{devices}", slice.name, slice.region)
}

fn describe_device(device: &Device) -> String {
    let gpu = report::number(device.index, device.instance).map(|number| format!("GPU {number}"));
    let names = [gpu, device.product.clone(), Some(device.uuid.clone())];
    let mut text =
        format!("  {}: {}\n", device.number, names.map(Option::unwrap_or_default).join("  ").trim());
    text.push_str(&block("memory", &describe_memory(device)));
    if device.time.is_of_interest() {
        text.push_str(&block("time", &describe_time(&device.time)));
    }
    text.extend(processes(device).lines().map(|line| format!("      {line}\n")));
    text
}

/// Returns the table of the processes of a slice on a device.
fn processes(device: &Device) -> String {
    let mut rows = vec![
        ["PID", "AGE", "USED", "DENIED", "GPU", "TIME", "THROTTLED", "COMMAND"].map(str::to_owned).to_vec(),
    ];
    for process in &device.processes {
        let command = process.command.as_deref().map(process::short_command);
        rows.push(vec![
            process.host_pid.unwrap_or(process.pid).to_string(),
            process.started.map_or_else(dash, figures::age_since),
            figures::size(process.held),
            process.refused.to_string(),
            process.time.used_permille.map_or_else(dash, figures::percent),
            figures::span(process.time.used_ns),
            figures::span(process.time.throttled_ns),
            command.unwrap_or_else(|| "(not visible from here)".to_owned()),
        ]);
    }
    let numbers = &[0, 1, 2, 3, 4, 5, 6];
    if device.processes.is_empty() { String::new() } else { figures::table(&rows, numbers) }
}

/// Returns the lines of parts after a word. Each line takes as many parts as fit, but at least one.
fn block(name: &str, lines: &[Vec<String>]) -> String {
    let mut text = String::new();
    for parts in lines {
        let indent = if text.is_empty() { format!("    {name:<8}") } else { " ".repeat(12) };
        let mut line = indent;
        let mut is_first = true;
        for part in parts {
            if is_first {
                line.push_str(part);
            } else if line.chars().count() + 2 + part.chars().count() <= WIDTH {
                line.push_str(", ");
                line.push_str(part);
            } else {
                text.push_str(&line);
                text.push_str(",\n");
                line = format!("{}{part}", " ".repeat(12));
            }
            is_first = false;
        }
        text.push_str(&line);
        text.push('\n');
    }
    text
}

fn dash() -> String {
    "-".to_owned()
}

/// Returns the lines about a slice's memory on a device.
fn describe_memory(device: &Device) -> Vec<Vec<String>> {
    let limit = match device.limit {
        Some(limit) => format!("limit {}", figures::exact_limit(Some(limit))),
        None => "no limit".to_owned(),
    };
    let first = vec![
        format!("{} used", figures::size(device.held)),
        limit,
        format!("the device has {}", figures::limit(Some(device.total))),
        format!("peak {}", figures::size(device.peak)),
    ];
    let mut second = vec![
        format!("{} denied (quota)", device.refused),
        format!("{} denied (device full)", device.unmet),
        format!("{} unaccounted", device.unaccounted.map_or_else(|| "unknown".to_owned(), signed)),
    ];
    if device.oversubscribe || device.spilled > 0 {
        second.push(format!("{} in host memory", figures::size(device.spilled)));
    }
    let mut lines = vec![first, second];
    lines.extend(describe_contexts(device));
    if device.held_by_dead > 0 {
        lines.push(vec![
            format!("{} held by exited processes", figures::size(device.held_by_dead)),
            "freed when the slice needs room".to_owned(),
        ]);
    }
    if device.leaving > 0 {
        lines.push(vec![
            format!("{} leaving: exited processes held it", figures::size(device.leaving)),
            "the device may not have it back yet".to_owned(),
        ]);
    }
    if device.host_memory {
        lines.push(vec!["this GPU's memory is the host's: contexts and code count by estimates".to_owned()]);
    }
    lines
}

/// Returns the bytes that contexts hold, if the slice has or had a context.
fn describe_contexts(device: &Device) -> Option<Vec<String>> {
    let all = format!("contexts use {} of that", figures::size(device.held_by_contexts));
    match device.context_bytes {
        None if device.held_by_contexts == 0 => None,
        None => Some(vec![all]),
        Some(one) => Some(vec![all, format!("the largest so far {}", figures::size(one))]),
    }
}

/// Returns the lines about the device's time: the part that the slice may use, and the part that it uses.
fn describe_time(time: &Time) -> Vec<Vec<String>> {
    let share = match time.share_permille {
        1000 => "no limit".to_owned(),
        share => format!("limit {}", figures::percent(share.into())),
    };
    let looked = time.used_permille.zip(time.used_over_ns);
    let now = looked.map(|(used, over)| format!("{} over {}", figures::percent(used), figures::span(over)));
    let used = time.lately.map(|one| format!("{} over {} s", time.used(&one), one.seconds));
    let waited = time.lately.map(|one| format!("{} over {} s", figures::span(one.throttled_ns), one.seconds));
    vec![
        vec![
            share,
            format!("policy {}", time.policy),
            format!("weight {}", time.weight),
            format!("priority {}", time.priority),
            format!("burst {}", GpuTime::from_nanos(time.burst_ns)),
        ],
        [format!("used {} in all", figures::span(time.used_ns))].into_iter().chain(now).chain(used).collect(),
        [format!("throttled {} in all", figures::span(time.throttled_ns))]
            .into_iter()
            .chain(waited)
            .collect(),
        vec![
            format!("{} queued", figures::span(time.queued_ns)),
            format!("{} debt", figures::span(time.owed_ns)),
            time.measurement(),
        ],
    ]
}

/// Returns a difference of sizes, with its sign.
fn signed(bytes: i64) -> String {
    let sign = if bytes < 0 { "-" } else { "" };
    format!("{sign}{}", figures::size(bytes.unsigned_abs()))
}
