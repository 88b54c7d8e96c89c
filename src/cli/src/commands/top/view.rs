//! Draws the screen.
//!
//! The screen fills the terminal. If there is little room, the least important parts are left out.

mod pages;
mod paint;
mod row;

use super::marks::{self, Levels};
use super::model::Model;
use super::state::{Limit, Page, TopState};
use paint::Paint;
use ratatui::text::Line;
use std::ops::Range;
use std::time::Duration;

/// Most lines of a page that leaves out the names of the columns.
const ROOMY: usize = 14;

/// Settings of the view. They do not change while `top` runs.
#[derive(Debug)]
pub(crate) struct ViewSettings {
    paint: Paint,
    levels: Levels,
    interval: Duration,
    /// Text for a screen without slices.
    nothing: String,
}

impl ViewSettings {
    /// Returns a view with or without colours, and with characters that the terminal can show.
    pub(crate) fn new(has_colours: bool, levels: Levels, interval: Duration, nothing: String) -> Self {
        Self { paint: Paint::new(has_colours), levels, interval, nothing }
    }

    /// Returns the lines of the screen, at most `height` of them. Writes the scroll position into the state.
    pub(crate) fn lines(
        &self,
        model: &Model,
        state: &mut TopState,
        (width, height): (usize, usize),
    ) -> Vec<Line<'static>> {
        let mut foot = self.foot(state, width);
        foot.truncate(height.div_ceil(2));
        let mut lines = Vec::new();
        let room = height.saturating_sub(foot.len());
        if room > 1 {
            lines.push(self.title(model, state, width));
        }
        if room > ROOMY && state.page == Page::Slices {
            lines.push(row::names(self, width));
        }
        let room = room.saturating_sub(lines.len());
        lines.extend(self.page(model, state, (width, room)));
        lines.resize(height.saturating_sub(foot.len()), Line::default());
        lines.extend(foot);
        lines
    }

    fn page(&self, model: &Model, state: &mut TopState, (width, room): (usize, usize)) -> Vec<Line<'static>> {
        match state.page {
            Page::Help => pages::help(width).into_iter().take(room).collect(),
            Page::Processes => pages::processes(self, model, state, (width, room)),
            Page::Slices => {
                let (lines, selected) = pages::slices(self, model, state, width);
                state.first_line = scroll(state.first_line, &selected, lines.len(), room);
                lines.into_iter().skip(state.first_line).take(room).collect()
            }
        }
    }

    fn title(&self, model: &Model, state: &TopState, width: usize) -> Line<'static> {
        let gpus = model.groups(state.sort, false).iter().filter(|group| group.uuid.is_some()).count();
        let figures = [(gpus, "GPU"), (model.seen.slices.len(), "slice"), (model.processes(), "process")];
        let plural = |(count, what): (usize, &str)| match (count, what) {
            (1, what) => format!("1 {what}"),
            (count, "process") => format!("{count} processes"),
            (count, what) => format!("{count} {what}s"),
        };
        let unreadable = match model.seen.unreadable.len() {
            0 => String::new(),
            count => format!(", {count} unreadable"),
        };
        let order = if state.reversed { ", reversed" } else { "" };
        let only = if state.filter.is_empty() { String::new() } else { format!("  only *{}*", state.filter) };
        let text = format!(
            "gpuslice top  {}{unreadable}{only}  by {}{order}  every {} s",
            figures.map(plural).join(", "),
            state.sort.name(),
            seconds(self.interval),
        );
        Line::styled(marks::left(&text, width), self.paint.title())
    }

    /// Returns the message and the prompts, or the keys if there are none.
    fn foot(&self, state: &TopState, width: usize) -> Vec<Line<'static>> {
        let mut lines = Vec::new();
        if let Some(message) = &state.message {
            let style = if message.is_bad { self.paint.bad() } else { self.paint.good() };
            let said = message.text.lines().flat_map(|line| marks::wrap(line, width));
            lines.extend(said.map(|line| Line::styled(line, style)));
        }
        if let Some(prompt) = &state.prompt {
            let what = match prompt.limit {
                Limit::Memory => "memory limit (like 4GiB, 50%)",
                Limit::Share => "share in percent (1 to 100)",
            };
            let text = format!("{} of {}: {}_", what, prompt.name, prompt.text);
            lines.extend(
                marks::wrap(&text, width).into_iter().map(|line| Line::styled(line, self.paint.strong())),
            );
        }
        if state.is_filtering {
            let text = format!("slices with this in their names (Esc: all): {}_", state.filter);
            lines.extend(
                marks::wrap(&text, width).into_iter().map(|line| Line::styled(line, self.paint.strong())),
            );
        }
        if lines.is_empty() {
            lines.push(Line::styled(keys(state.page, width), self.paint.faint()));
        }
        lines
    }
}

/// Returns the keys of a page. If there is little room, returns only the most important ones.
fn keys(page: Page, width: usize) -> String {
    let all: &[&str] = match page {
        Page::Slices => &[
            "q quit",
            "? help",
            "Enter processes",
            "/ filter",
            "s sort",
            "r reverse",
            "m memory",
            "c share",
            "x remove",
            "j,k select",
        ],
        Page::Processes => {
            &["Esc back", "? help", "s sort", "r reverse", "m memory", "c share", "j,k scroll"]
        }
        Page::Help => &["any key: back"],
    };
    let mut text = String::new();
    for key in all {
        let longer = if text.is_empty() { (*key).to_owned() } else { format!("{text}  {key}") };
        if marks::width(&longer) > width {
            break;
        }
        text = longer;
    }
    text
}

/// Returns a number of seconds as text: `0.2`, `1`, `60`.
fn seconds(span: Duration) -> String {
    let (whole, millis) = (span.as_secs(), span.subsec_millis());
    if millis == 0 {
        whole.to_string()
    } else {
        format!("{whole}.{millis:03}").trim_end_matches('0').to_owned()
    }
}

/// Returns the first line to show. It changes as little as possible, so that the selected lines are visible.
fn scroll(first: usize, selected: &Range<usize>, lines: usize, room: usize) -> usize {
    let first = first.min(lines.saturating_sub(room));
    let first = first.max(selected.end.saturating_sub(room));
    first.min(selected.start)
}

#[cfg(test)]
mod tests {
    use super::super::keys::Key;
    use super::super::model::tests::{seen, slice};
    use super::super::observation::{Observation, ObservedSlice};
    use super::*;
    use std::time::Instant;

    fn view(levels: Levels) -> ViewSettings {
        ViewSettings::new(false, levels, Duration::from_secs(1), "no slices".to_owned())
    }

    fn busy() -> Model {
        let (mut model, start) = (Model::default(), Instant::now());
        for second in 0..5 {
            let mut slices: Vec<_> =
                ["red", "green", "blue"].into_iter().map(|name| slice(name, 3 << 30, second * 125)).collect();
            let device = &mut slices[0].devices[0];
            (device.peak, device.throttled, device.queued) = (4 << 30, 3_100_000_000, 12_000_000);
            (device.refused, device.unmet, device.spilled) = (3, 2, 1 << 20);
            slices[1].devices[0].limits.memory = None;
            slices[2].devices.clear();
            let unreadable = vec!["/dev/shm/x: is a folder".to_owned()];
            let seen = Observation { unreadable, others: 2, ..seen(&slices) };
            model.take(seen, start + Duration::from_secs(second));
        }
        model
    }

    fn shown(model: &Model, state: &mut TopState, width: usize, height: usize) -> Vec<String> {
        state.follow(model);
        let lines = view(Levels::ASCII).lines(model, state, (width, height));
        lines.iter().map(|line| line.to_string().trim_end().to_owned()).collect()
    }

    #[test]
    fn every_size_is_filled_and_never_overrun_on_every_page() {
        let (busy, empty) = (busy(), Model::default());
        for model in [&busy, &empty] {
            for keys in ["", "j", "\n", "?", "m", "cx", "/nobody"] {
                for (width, height) in
                    [(0, 0), (1, 1), (5, 2), (20, 5), (40, 10), (80, 24), (200, 50), (500, 3)]
                {
                    let mut state = TopState::default();
                    state.follow(model);
                    for key in keys.chars() {
                        let key = if key == '\n' { Key::Enter } else { Key::Letter(key) };
                        state.press(key, model);
                    }
                    state.say("a message that is somewhat long, to be wrapped".to_owned(), true);
                    let lines = view(Levels::BLOCKS).lines(model, &mut state, (width, height));
                    assert_eq!(lines.len(), height, "{keys:?} {width}x{height}");
                    let widest = lines.iter().map(Line::width).max().unwrap_or(0);
                    assert!(widest <= width.max(1), "{keys:?} {width}x{height}: {lines:#?}");
                }
            }
        }
    }

    #[test]
    fn a_screen_of_80_by_24_shows_all_figures_of_the_selected_slice() {
        let (model, mut state) = (busy(), TopState::default());
        shown(&model, &mut state, 80, 24);
        state.press(Key::Down, &model);
        let screen = shown(&model, &mut state, 80, 24).join("\n");
        for figure in [
            "gpuslice top  1 GPU, 3 slices, 3 processes, 1 unreadable  by name  every 1 s",
            "GPU-11111111-1111-1111-1111-111111111111",
            "slices use 6.00 GiB of 16GiB",
            "> red",
            "[##...|.....]",
            "3.00 GiB/8GiB",
            "12.5%/30%",
            "peak 4.00 GiB",
            "throttled 3.10 s",
            "contexts 768.00 MiB",
            "12.00 ms queued",
            "denied 3",
            "device full 2",
            "spilled 1.00 MiB",
            "policy fixed",
            "weight 100",
            "priority normal",
            "3.00 GiB/none",
            "no GPU yet",
            "/dev/shm/x: is a folder",
            "regions of other users are not shown (2); root sees all",
            "q quit",
        ] {
            assert!(screen.contains(figure), "{figure} is missing:\n{screen}");
        }
    }

    #[test]
    fn a_small_screen_keeps_the_lines_that_matter() {
        let (model, mut state) = (busy(), TopState::default());
        shown(&model, &mut state, 40, 10);
        state.press(Key::Down, &model);
        let screen = shown(&model, &mut state, 40, 10).join("\n");
        for figure in ["> red", "3.00 GiB/8GiB", "12.5%/30%", "denied 3", "q quit"] {
            assert!(screen.contains(figure), "{figure} is missing:\n{screen}");
        }
    }

    #[test]
    fn the_selected_slice_is_always_on_the_screen() {
        let slices: Vec<_> = (0..50).map(|number| slice(&format!("s{number:02}"), 1, 0)).collect();
        let (mut model, mut state) = (Model::default(), TopState::default());
        model.take(seen(&slices), Instant::now());
        for key in [[Key::Down; 60], [Key::Up; 60]].concat() {
            let screen = shown(&model, &mut state, 80, 10).join("\n");
            assert_eq!(screen.lines().filter(|line| line.starts_with("> s")).count(), 1, "{screen}");
            state.press(key, &model);
        }
        state.press(Key::End, &model);
        assert!(shown(&model, &mut state, 80, 10).join("\n").contains("> s49"));
        state.press(Key::Home, &model);
        assert!(shown(&model, &mut state, 80, 10).join("\n").contains("> s00"));
    }

    #[test]
    fn processes_are_shown_with_their_commands_and_the_list_ends_where_it_ends() {
        let (model, mut state) = (busy(), TopState::default());
        state.follow(&model);
        state.press(Key::Enter, &model);
        for key in [Key::End, Key::Down, Key::Home] {
            state.press(key, &model);
            let screen = shown(&model, &mut state, 80, 24).join("\n");
            assert!(screen.contains("PID") && screen.contains("python train.py"), "{screen}");
        }
    }

    #[test]
    fn a_script_is_seen_by_its_name_where_its_path_has_no_room() {
        let (mut model, mut state) = (Model::default(), TopState::default());
        let mut slices = [slice("a", 1, 0)];
        slices[0].processes[0].command = Some("python3 /srv/experiments/2026/train.py --epochs 3".to_owned());
        model.take(seen(&slices), Instant::now());
        state.follow(&model);
        state.press(Key::Enter, &model);
        for (width, told) in
            [(80, "  python3 train.py "), (140, " /srv/experiments/2026/train.py --epochs 3")]
        {
            let screen = shown(&model, &mut state, width, 24).join("\n");
            assert!(screen.contains(told), "{screen}");
        }
    }

    #[test]
    fn the_key_that_removes_is_told_only_where_it_can_remove() {
        let (mut model, mut state) = (Model::default(), TopState::default());
        let unused = |name: &str, is_removable| ObservedSlice {
            processes: Vec::new(),
            is_removable,
            ..slice(name, 0, 0)
        };
        model.take(seen(&[unused("kept", false), unused("left", true)]), Instant::now());
        let screen = shown(&model, &mut state, 80, 24);
        let line = |name| screen.iter().find(|line| line.contains(name)).expect("it is shown").as_str();
        assert!(line("kept").ends_with(" unused: no process lives in it"), "{screen:?}");
        assert!(line("left").ends_with(" unused: no process lives in it; x removes it"), "{screen:?}");
    }

    #[test]
    fn intervals_are_told_shortly() {
        for (millis, told) in [(100, "0.1"), (1000, "1"), (2250, "2.25"), (60_000, "60")] {
            assert_eq!(seconds(Duration::from_millis(millis)), told);
        }
    }
}
