//! What stands on each page?

use super::{View, row};
use crate::figures;
use crate::top::marks;
use crate::top::model::{Group, Model, ProcessRow, Row};
use crate::top::state::State;
use ratatui::text::{Line, Span};
use std::ops::Range;

/// Columns from which on all is told of a process.
const BROAD: usize = 72;

const HELP: &str = "\
up, k / down, j   select a slice; also PgUp, PgDn, Home, End
Enter             processes of the selected slice
s                 sort by name, memory, time
r                 reverse the order
m                 change the memory limit: 4GiB, 50%, 0=4GiB,1=50%
c                 change the share of GPU time: 30, 12.5, 0=30,1=50
Ctrl-L            draw the screen anew
Ctrl-Z            suspend
?                 this help
q, Esc, Ctrl-C    quit; Esc leaves a page or a prompt first

MEMORY [##..|.]   held of the limit; | is the most that was granted at a time
TIME   [##....]   used over the last second, of the share
history           the last minute, against the share
waited            launches waited for the share, in all
ahead             GPU time of work that is under way
contexts          what contexts hold of what is held
refused           allocations beyond the limit
unmet             allocations the driver had no memory for
spilled           bytes given in host memory";

pub(super) fn help(width: usize) -> Vec<Line<'static>> {
    HELP.lines().map(|line| Line::raw(marks::cut(line, width))).collect()
}

/// All GPUs and slices, and which lines are the selected slice's.
pub(super) fn slices(
    view: &View,
    model: &Model,
    state: &State,
    width: usize,
) -> (Vec<Line<'static>>, Range<usize>) {
    let (mut lines, mut selected) = (Vec::new(), 0..0);
    for group in model.groups(state.sort, state.reversed) {
        let start = lines.len();
        lines.push(gpu(view, &group, width));
        for (place, row) in group.rows.iter().enumerate() {
            let is_selected = state.selected.as_ref() == Some(&row.key);
            // With the first slice its GPU is seen.
            let from = if place == 0 { start } else { lines.len() };
            lines.extend(row::lines(view, row, is_selected, width));
            if is_selected {
                selected = from..lines.len();
            }
        }
    }
    if model.seen.slices.is_empty() {
        lines.extend(marks::wrap(&view.nothing, width).into_iter().map(Line::raw));
    }
    for why in &model.seen.unreadable {
        // Where there is more to see, its beginning says which one it is.
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

fn gpu(view: &View, group: &Group<'_>, width: usize) -> Line<'static> {
    let Some(uuid) = group.uuid else {
        return Line::styled(marks::cut("without a GPU", width), view.paint.strong());
    };
    let [held, total] = [figures::size(group.held), figures::limit(Some(group.total))];
    let used = group.used.map_or_else(|| "-".to_owned(), figures::percent);
    let (whole, long) = (format!("GPU-{uuid}"), format!("slices hold {held} of {total}, use {used}"));
    // Its beginning is enough for the lists that `set` takes.
    let short: String = whole.chars().take(12).collect();
    let forms =
        [format!("{whole}  {long}"), format!("{short}  {long}"), format!("{short}  {held}/{total}, {used}")];
    let fits = forms.iter().find(|form| marks::width(form) <= width).or_else(|| forms.last());
    Line::styled(marks::cut(fits.map_or("", String::as_str), width), view.paint.strong())
}

/// The selected slice and its processes.
pub(super) fn processes(
    view: &View,
    model: &Model,
    state: &mut State,
    (width, room): (usize, usize),
) -> Vec<Line<'static>> {
    let groups = model.groups(state.sort, state.reversed);
    let selected = groups.iter().find_map(|group| {
        let is_selected = |row: &&Row<'_>| Some(&row.key) == state.selected.as_ref();
        Some((group, group.rows.iter().find(is_selected)?))
    });
    let Some((group, row)) = selected else { return Vec::new() };
    let mut lines = vec![gpu(view, group, width)];
    lines.extend(row::lines(view, row, true, width));
    // Where there is little room, the processes go first.
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
        format!("{} {} {}", marks::right("PID", 8), marks::right("HELD", 11), marks::right("GPU", 6));
    if width >= BROAD {
        text.push_str(&format!(
            " {} {} {}",
            marks::right("TIME", 9),
            marks::right("WAITED", 9),
            marks::right("REFUSED", 7)
        ));
    }
    marks::cut(&format!("{text}  COMMAND"), width)
}

fn process_line(row: &ProcessRow<'_>, width: usize) -> Line<'static> {
    let used = row.used.map_or_else(|| "-".to_owned(), figures::percent);
    let mut text = format!(
        "{} {} {}",
        marks::right(&row.process.id.pid.to_string(), 8),
        marks::right(&figures::size(row.held), 11),
        marks::right(&used, 6)
    );
    if width >= BROAD {
        text.push_str(&format!(
            " {} {} {}",
            marks::right(&figures::span(row.total), 9),
            marks::right(&figures::span(row.throttled), 9),
            marks::right(&row.refused.to_string(), 7)
        ));
    }
    let command = row.process.command.as_deref().unwrap_or("(not visible from here)");
    row::fitted(Line::from(vec![Span::raw(text), Span::raw(format!("  {command}"))]), width)
}
