//! Draws a slice on a GPU in a few lines.

use super::ViewSettings;
use crate::commands::top::marks;
use crate::commands::top::model::Row;
use crate::commands::top::observation::Device;
use gpuslice_policy::units::{Permille, Setting as _};
use gpuslice_slices::figures;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

/// From this width on, memory and time are in the same line.
const SIDE_BY_SIDE_COLUMNS: usize = 72;
/// Columns of `1023.99 MiB/1536MiB`.
const SIZE_COLUMNS: usize = 19;
/// Columns of `100.5%/12.5%`.
const SHARE_COLUMNS: usize = 12;
/// Columns of a history in the second line. On a narrow screen it has half of them. In the first line it has at least as many.
const HISTORY_COLUMNS: usize = 20;
/// Columns of space before text that belongs to the line above.
const INDENT: usize = 4;

/// Widths of the parts of a slice's first line. A part with width zero is left out.
#[derive(Debug, Clone, Copy)]
struct Widths {
    name: usize,
    memory: usize,
    time: usize,
    history: usize,
}

impl Widths {
    fn of(width: usize) -> Self {
        if width < SIDE_BY_SIDE_COLUMNS {
            // Two columns are for the mark, and a space is on each side of the bar.
            let room = width.saturating_sub(SIZE_COLUMNS + 4);
            let name = (room / 2).clamp(7, 20).min(width.saturating_sub(2));
            let memory = room.saturating_sub(name);
            return Self { name, memory: if memory < 4 { 0 } else { memory }, time: 0, history: 0 };
        }
        let room = width.saturating_sub(2 + 1 + 1 + SIZE_COLUMNS + 2 + 1 + SHARE_COLUMNS);
        let name = (room * 2 / 5).clamp(8, 32);
        let bar = (room.saturating_sub(name) / 2).min(40);
        let left = room.saturating_sub(name + 2 * bar + 2);
        Self { name, memory: bar, time: bar, history: if left < HISTORY_COLUMNS { 0 } else { left.min(60) } }
    }
}

/// Returns the names of the columns.
pub(super) fn names(view: &ViewSettings, width: usize) -> Line<'static> {
    let widths = Widths::of(width);
    let mut text = format!("  {} ", marks::left("SLICE", widths.name));
    if widths.memory > 0 {
        text.push_str(&format!("{} ", marks::left("MEMORY", widths.memory)));
    }
    text.push_str(&marks::right("USED/LIMIT", SIZE_COLUMNS));
    if widths.time > 0 {
        text.push_str(&format!(
            "  {} {}",
            marks::left("TIME", widths.time),
            marks::right("USED/SHARE", SHARE_COLUMNS)
        ));
    }
    if widths.history > 0 {
        text.push_str("  LAST MINUTE, OF SHARE");
    }
    Line::styled(marks::cut(&text, width), view.paint.faint())
}

/// Draws a slice on a GPU. The selected slice shows all figures. Another slice shows those that fit into two lines.
pub(super) fn lines(
    view: &ViewSettings,
    row: &Row<'_>,
    is_selected: bool,
    width: usize,
) -> Vec<Line<'static>> {
    let widths = Widths::of(width);
    let mark = if is_selected { "> " } else { "  " };
    let name_style = if is_selected { view.paint.strong() } else { Style::new() };
    let name = Span::styled(format!("{mark}{} ", marks::left(&row.slice.name, widths.name)), name_style);
    let Some(device) = row.device else {
        let processes = row.slice.processes.len();
        return vec![alone(view, row, name, &format!("no GPU yet, processes {processes}"), width)];
    };
    if row.slice.is_unused() {
        return vec![alone(view, row, name, "", width)];
    }
    let mut first = vec![name];
    first.extend(memory(view, device, widths));
    let time = time(row, device);
    if widths.time > 0 {
        first.push(Span::raw("  "));
        first.push(Span::styled(time_bar(row, device, widths.time), view.paint.time()));
        first.push(Span::raw(format!(" {}", marks::right(&time, SHARE_COLUMNS))));
    }
    if widths.history > 0 {
        first.push(Span::raw("  "));
        first.push(history(view, row, device, widths.history));
    }
    let mut second = vec![Span::raw(" ".repeat(INDENT.min(width)))];
    if widths.time == 0 {
        second.push(Span::raw(format!("{time}  ")));
    }
    if widths.history == 0 {
        second.push(history(
            view,
            row,
            device,
            if widths.time == 0 { HISTORY_COLUMNS / 2 } else { HISTORY_COLUMNS },
        ));
        second.push(Span::raw("  "));
    }
    let mut lines = vec![Line::from(first)];
    lines.extend(facts(view, row, device, second, width, is_selected));
    lines.into_iter().map(|line| fitted(line, width)).collect()
}

/// Draws a slice in one line, with `words`, or with a note that no process of it lives.
fn alone(
    view: &ViewSettings,
    row: &Row<'_>,
    name: Span<'static>,
    words: &str,
    width: usize,
) -> Line<'static> {
    let (words, style) = match (row.slice.is_unused(), row.slice.is_removable) {
        (false, _) => (words, Style::new()),
        (true, false) => ("unused: no process lives in it", view.paint.faint()),
        (true, true) => ("unused: no process lives in it; x removes it", view.paint.faint()),
    };
    fitted(Line::from(vec![name, Span::styled(words.to_owned(), style)]), width)
}

fn memory(view: &ViewSettings, device: &Device, widths: Widths) -> Vec<Span<'static>> {
    let whole = device.limits.memory.unwrap_or(device.total);
    let mut spans = Vec::new();
    if widths.memory > 0 {
        let bar = marks::bar(device.held, device.total, device.limits.memory, widths.memory);
        spans.push(Span::styled(bar, view.paint.fill(device.held, whole)));
        spans.push(Span::raw(" "));
    }
    let sizes = format!("{}/{}", figures::size(device.held), figures::limit(device.limits.memory));
    spans.push(Span::raw(marks::right(&sizes, SIZE_COLUMNS)));
    spans
}

/// Returns the recent use of GPU time, and the share.
fn time(row: &Row<'_>, device: &Device) -> String {
    let used = row.used.map_or_else(|| "-".to_owned(), figures::percent);
    format!("{used}/{}", figures::percent(device.limits.cores_permille.into()))
}

fn time_bar(row: &Row<'_>, device: &Device, width: usize) -> String {
    marks::bar(
        row.used.unwrap_or(0),
        Permille::FULL.get().into(),
        Some(device.limits.cores_permille.into()),
        width,
    )
}

/// Draws the last minute in relation to the share.
fn history(view: &ViewSettings, row: &Row<'_>, device: &Device, width: usize) -> Span<'static> {
    let share = device.limits.cores_permille.into();
    Span::styled(marks::sparkline(&row.seconds, share, width, view.levels), view.paint.time())
}

/// Returns figures in words. Failures come first, so that they are visible even if there is little room.
fn words(row: &Row<'_>, device: &Device) -> Vec<(String, bool)> {
    let sharing = device.limits.sharing;
    let mut words = vec![
        (format!("peak {}", figures::size(device.peak)), false),
        (format!("throttled {}", figures::span(device.throttled)), false),
        (format!("{} queued", figures::span(device.queued)), false),
        (format!("contexts {}", figures::size(device.contexts)), false),
        (format!("denied {}", device.refused), device.refused > 0),
        (format!("device full {}", device.unmet), device.unmet > 0),
        (format!("spilled {}", figures::size(device.spilled)), device.spilled > 0),
        (format!("policy {}", sharing.policy.setting()), false),
        (format!("weight {}", sharing.weight), false),
        (format!("priority {}", sharing.priority.setting()), false),
        (format!("processes {}", row.slice.processes.len()), false),
    ];
    if device.limits.oversubscribe {
        words.push(("oversubscribes".to_owned(), false));
    }
    words.sort_by_key(|(_, is_bad)| !is_bad);
    words
}

/// Appends words to `start`. If `all` is set, the text takes as many lines as it needs, and otherwise one line.
fn facts(
    view: &ViewSettings,
    row: &Row<'_>,
    device: &Device,
    start: Vec<Span<'static>>,
    width: usize,
    all: bool,
) -> Vec<Line<'static>> {
    let mut lines = vec![Line::from(start)];
    let mut is_first = true;
    for (word, is_bad) in words(row, device) {
        let Some(line) = lines.last_mut() else { break };
        let gap = if is_first { 0 } else { 2 };
        let style = if is_bad { view.paint.bad() } else { Style::new() };
        if line.width() + gap + marks::width(&word) <= width {
            line.push_span(Span::raw(" ".repeat(gap)));
            line.push_span(Span::styled(word, style));
        } else if all {
            lines.push(Line::from(vec![Span::raw(" ".repeat(INDENT)), Span::styled(word, style)]));
        } else {
            break;
        }
        is_first = false;
    }
    lines
}

/// Cuts a line to `width`.
pub(super) fn fitted(line: Line<'static>, width: usize) -> Line<'static> {
    if line.width() <= width {
        return line;
    }
    let mut room = width;
    let mut spans = Vec::new();
    for span in line.spans {
        let text =
            if span.width() <= room { span.content.into_owned() } else { marks::cut(&span.content, room) };
        room = room.saturating_sub(marks::width(&text));
        spans.push(Span::styled(text, span.style));
    }
    Line::from(spans)
}
