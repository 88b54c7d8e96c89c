//! Draws the pages.

use super::{ViewSettings, row};
use crate::commands::top::marks;
use crate::commands::top::model::{Group, Model, ProcessRow, Row};
use crate::commands::top::state::TopState;
use gpuslice_slices::figures;
use gpuslice_slices::report;
use ratatui::text::{Line, Span};
use std::ops::Range;

/// From this width on, the line of a process has all figures.
const ALL_FIGURES_COLUMNS: usize = 72;

const HELP: &str = "\
up, k / down, j   select a slice; also PgUp, PgDn, Home, End
Enter             processes of the selected slice
/                 show slices with these letters in their names; Esc shows all
s, r              sort by name, memory, time; reverse the order
m                 change the memory limit: 4GiB, 50%, 0=4GiB,1=50%
c                 change the share of GPU time: 30, 12.5, 0=30,1=50
x                 remove the selected slice, if no process lives in it
Ctrl-L, Ctrl-Z    draw the screen anew; suspend
?, h, F1          this help
Esc               leave a page or a prompt
q, Ctrl-C         quit

MEMORY [##..|.]   used of the GPU's memory; | is the limit
TIME   [##|...]   used of the GPU's time over the last second; | is the share
LAST MINUTE       used of the share, second by second
throttled         launches waited for the share, in all
queued            GPU time of work that is under way
contexts          what contexts use of the memory
denied            allocations beyond the limit
device full       allocations within the limit that the GPU had no room for
outside           used by NVML's count, and by none of these slices";

pub(super) fn help(width: usize) -> Vec<Line<'static>> {
    HELP.lines().map(|line| Line::raw(marks::cut(line, width))).collect()
}

/// Returns the lines of all GPUs and slices, and the range of the selected slice's lines.
pub(super) fn slices(
    view: &ViewSettings,
    model: &Model,
    state: &TopState,
    width: usize,
) -> (Vec<Line<'static>>, Range<usize>) {
    let (mut lines, mut selected) = (Vec::new(), 0..0);
    for group in state.groups(model) {
        let start = lines.len();
        lines.extend(gpu(view, &group, width));
        for (place, row) in group.rows.iter().enumerate() {
            let is_selected = state.selected.as_ref() == Some(&row.key);
            // For the first slice, the range includes the line of its GPU, so that the GPU is visible too.
            let from = if place == 0 { start } else { lines.len() };
            lines.extend(row::lines(view, row, is_selected, width));
            if is_selected {
                selected = from..lines.len();
            }
        }
    }
    if lines.is_empty() && !state.filter.is_empty() {
        let text = format!("no slice has \"{}\" in its name; Esc shows all", state.filter);
        lines.extend(marks::wrap(&text, width).into_iter().map(Line::raw));
    }
    if model.seen.slices.is_empty() {
        lines.extend(marks::wrap(&view.nothing, width).into_iter().map(Line::raw));
    }
    for why in &model.seen.unreadable {
        // Beside slices, one line is enough for a message, because its beginning names the region.
        let told =
            if model.seen.slices.is_empty() { marks::wrap(why, width) } else { vec![marks::cut(why, width)] };
        lines.extend(told.into_iter().map(|line| Line::styled(line, view.paint.bad())));
    }
    if model.seen.others > 0 {
        let text = format!("regions of other users are not shown ({}); root sees all", model.seen.others);
        lines
            .extend(marks::wrap(&text, width).into_iter().map(|line| Line::styled(line, view.paint.faint())));
    }
    (lines, selected)
}

/// Draws a GPU: its names, its use, and each sum of limits that is more than the GPU has.
fn gpu(view: &ViewSettings, group: &Group<'_>, width: usize) -> Vec<Line<'static>> {
    let style = view.paint.strong();
    let Some(uuid) = group.uuid else {
        return vec![Line::styled(marks::cut("without a GPU", width), style)];
    };
    let whole = group.gpu.map_or_else(|| format!("GPU-{uuid}"), |gpu| gpu.uuid.clone());
    let number = group.gpu.and_then(|gpu| report::number(gpu.index, gpu.instance));
    // Without a number, the beginning of the UUID is shown. The lists of `set` accept it.
    let name = number.map_or_else(|| report::short(&whole), |number| format!("GPU {number}"));
    let [held, total] = [figures::size(group.held), figures::limit(Some(group.total))];
    let used = group.used.map_or_else(|| "-".to_owned(), figures::percent);
    let slices = format!("slices use {held} of {total}, {used}");
    let (outside, seen) = (outside(group), figures_of(group));
    let short = format!("{name}  {held}/{total}, {used}");
    let mut texts = match group.gpu {
        Some(gpu) if width >= ALL_FIGURES_COLUMNS => {
            let product = gpu.product.as_deref().map_or_else(String::new, figures::printable);
            let names = [
                format!("{name}  {product}  {whole}{seen}"),
                format!("{name}  {product}{seen}"),
                format!("{name}{seen}"),
            ];
            vec![
                fitting(&names, width),
                fitting(&[format!("  {slices}{outside}"), format!("  {slices}")], width),
            ]
        }
        _ => {
            let forms = [
                format!("{whole}  {slices}"),
                format!("{name}  {slices}"),
                format!("{short}{outside}"),
                short,
            ];
            vec![fitting(&forms, width)]
        }
    };
    let excess: Vec<String> =
        [group.committed.memory_excess(), group.committed.share_excess()].into_iter().flatten().collect();
    let mut lines: Vec<Line<'static>> = texts.drain(..).map(|text| Line::styled(text, style)).collect();
    lines.extend(
        excess.iter().map(|what| {
            Line::styled(marks::cut(&format!("  overcommitted: {what}"), width), view.paint.bad())
        }),
    );
    lines
}

/// Returns the first text that fits. If none fits, returns the last one, cut.
fn fitting(texts: &[String], width: usize) -> String {
    let fits = texts.iter().find(|text| marks::width(text) <= width).or_else(|| texts.last());
    marks::cut(fits.map_or("", String::as_str), width)
}

/// Returns the use of a GPU outside of these slices: `; outside 1.20 GiB, 4%`.
fn outside(group: &Group<'_>) -> String {
    let memory = group.outside().map(figures::size);
    let parts: Vec<String> = memory.into_iter().chain(group.outside_time().map(figures::percent)).collect();
    if parts.is_empty() { String::new() } else { format!("; outside {}", parts.join(", ")) }
}

/// Returns NVML's figures of a GPU: `  util 98%  61 C`.
fn figures_of(group: &Group<'_>) -> String {
    let busy = group.gpu.and_then(|gpu| gpu.utilization).map(|busy| format!("  util {busy}%"));
    let heat = group.gpu.and_then(|gpu| gpu.temperature).map(|degrees| format!("  {degrees} C"));
    [busy, heat].into_iter().flatten().collect()
}

/// Draws the selected slice and its processes.
pub(super) fn processes(
    view: &ViewSettings,
    model: &Model,
    state: &mut TopState,
    (width, room): (usize, usize),
) -> Vec<Line<'static>> {
    let groups = state.groups(model);
    let selected = groups.iter().find_map(|group| {
        let is_selected = |row: &&Row<'_>| Some(&row.key) == state.selected.as_ref();
        Some((group, group.rows.iter().find(is_selected)?))
    });
    let Some((group, row)) = selected else { return Vec::new() };
    let mut lines = gpu(view, group, width);
    lines.extend(row::lines(view, row, true, width));
    // If there is little room, the processes are more important.
    lines.truncate(room.saturating_sub(3).max(1));
    lines.push(Line::styled(names(width), view.paint.faint()));
    let processes = model.processes_of(row, state.sort, state.reversed);
    let left = room.saturating_sub(lines.len());
    state.first_process = state.first_process.min(processes.len().saturating_sub(left.max(1)));
    let shown = processes.iter().skip(state.first_process).take(left);
    lines.extend(shown.map(|process| process_line(process, width)));
    lines.truncate(room);
    lines
}

fn names(width: usize) -> String {
    let mut text =
        format!("{} {} {}", marks::right("PID", 8), marks::right("USED", 11), marks::right("GPU", 6));
    if width >= ALL_FIGURES_COLUMNS {
        text.push_str(&format!(
            " {} {} {}",
            marks::right("TIME", 9),
            marks::right("THROTTLED", 9),
            marks::right("DENIED", 7)
        ));
    }
    marks::cut(&format!("{text}  COMMAND"), width)
}

fn process_line(row: &ProcessRow<'_>, width: usize) -> Line<'static> {
    let used = row.used.map_or_else(|| "-".to_owned(), figures::percent);
    let mut text = format!(
        "{} {} {}",
        marks::right(&row.process.number.unwrap_or(row.process.id.pid).to_string(), 8),
        marks::right(&figures::size(row.held), 11),
        marks::right(&used, 6)
    );
    if width >= ALL_FIGURES_COLUMNS {
        text.push_str(&format!(
            " {} {} {}",
            marks::right(&figures::span(row.total), 9),
            marks::right(&figures::span(row.throttled), 9),
            marks::right(&row.refused.to_string(), 7)
        ));
    }
    let command = row.process.command.as_deref().unwrap_or("(not visible from here)");
    let room = width.saturating_sub(text.chars().count() + 2);
    row::fitted(Line::from(vec![Span::raw(text), Span::raw(format!("  {}", in_room(command, room)))]), width)
}

/// Returns a command. If it does not fit, paths of files are replaced by their names, so that the name of a script is visible.
fn in_room(command: &str, room: usize) -> String {
    if command.chars().count() <= room {
        return command.to_owned();
    }
    let name = |word: &str| match word.rsplit('/').next() {
        Some(name) if word.starts_with('/') && !name.is_empty() => name.to_owned(),
        _ => word.to_owned(),
    };
    command.split(' ').map(name).collect::<Vec<_>>().join(" ")
}
