//! The ground truth as JSON.

use super::device_time::ClientTotals;
use super::file::Locked;
use super::layout::{MemoryKind, Process, State, Usage, life, name_text};
use super::sizes::DEVICES;

/// Returns a text as a string in JSON.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn list(parts: impl IntoIterator<Item = String>) -> String {
    format!("[{}]", parts.into_iter().collect::<Vec<_>>().join(","))
}

fn device(state: &mut Locked<'_>, device: usize) -> String {
    let level = state.levels.get(device).copied().unwrap_or_default();
    let capacity = state.settings.capacity(device);
    let busy = super::device_time::device_busy(state.engine(device));
    let leaving = state.leaving(device);
    format!(
        "{{\"index\":{device},\"uuid\":{},\"capacity\":{capacity},\"held\":{},\"peak\":{},\"leaving\":{leaving},\"busy_ns\":{busy}}}",
        quoted(&state.settings.uuid_text(device)),
        level.held,
        level.peak,
    )
}

fn usage(usage: &Usage, device: usize, now: &ClientTotals) -> String {
    let kinds = MemoryKind::ALL.iter().zip(usage.held);
    let kinds: Vec<_> = kinds.map(|(kind, held)| format!("\"{}\":{held}", kind.name())).collect();
    format!(
        "{{\"device\":{device},\"held\":{},\"peak\":{},\"kinds\":{{{}}},\"on_host\":{},\"on_host_peak\":{},\"allocations\":{},\"refusals\":{},\
         \"live\":{},\"contexts\":{},\"contexts_made\":{},\"modules\":{},\"modules_loaded\":{},\
         \"busy_ns\":{},\"kernel_ns\":{},\"launches\":{}}}",
        usage.total(),
        usage.peak,
        kinds.join(","),
        usage.on_host,
        usage.on_host_peak,
        usage.allocations,
        usage.refusals,
        usage.live,
        usage.contexts,
        usage.contexts_made,
        usage.modules,
        usage.modules_loaded,
        usage.busy_ns.saturating_add(now.busy_ns),
        usage.kernel_ns.saturating_add(now.kernel_ns),
        usage.launches.saturating_add(now.launches),
    )
}

fn process(process: &Process, devices: &[String], groups: &State) -> String {
    let group = groups.groups.get(process.group as usize).map(|group| name_text(&group.name));
    format!(
        "{{\"serial\":{},\"pid\":{},\"alive\":{},\"name\":{},\"group\":{},\"devices\":{}}}",
        process.serial,
        process.pid,
        process.life == life::LIVE,
        quoted(&name_text(&process.name)),
        quoted(&group.unwrap_or_default()),
        list(devices.iter().cloned()),
    )
}

fn processes(state: &mut Locked<'_>) -> Vec<String> {
    let mut serials: Vec<(u64, usize)> = Vec::new();
    for (slot, process) in
        state.processes.iter().enumerate().filter(|(_, process)| process.life != life::FREE)
    {
        serials.push((process.serial, slot));
    }
    serials.sort_unstable();
    let mut texts = Vec::new();
    for (serial, slot) in serials {
        let mut devices = Vec::new();
        for device in 0..state.settings.count() {
            let now = super::device_time::process_totals(state.engine(device), serial);
            if let Some(own) = state.usage(slot, device) {
                devices.push(usage(own, device, &now));
            }
        }
        if let Some(one) = state.processes.get(slot) {
            texts.push(process(one, &devices, state));
        }
    }
    texts
}

fn groups(state: &State) -> Vec<String> {
    let named = state.groups.iter().filter(|group| !name_text(&group.name).is_empty());
    named
        .map(|group| {
            let levels = group.levels.iter().take(state.settings.count()).enumerate();
            let levels = levels.map(|(device, level)| {
                format!("{{\"device\":{device},\"held\":{},\"peak\":{}}}", level.held, level.peak)
            });
            format!("{{\"name\":{},\"devices\":{}}}", quoted(&name_text(&group.name)), list(levels))
        })
        .collect()
}

/// Returns all figures as one JSON object. In it, dead processes hold nothing. Memory of theirs that the devices do not have
/// back yet is counted in `leaving`.
#[must_use]
pub fn report(state: &mut Locked<'_>) -> String {
    state.reap_dead(None);
    let devices: Vec<_> =
        (0..state.settings.count().min(DEVICES)).map(|index| device(state, index)).collect();
    let processes = processes(state);
    let groups = groups(state);
    format!(
        "{{\"version\":{},\"joined\":{},\"takeovers\":{},\"devices\":{},\"groups\":{},\"processes\":{}}}",
        state.version,
        state.joined,
        state.takeovers,
        list(devices),
        list(groups),
        list(processes),
    )
}
