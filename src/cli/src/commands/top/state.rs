//! State of the screen, and the effects of keys on it.

use super::keys::Key as Press;
use super::model::{Group, Model, RowKey, Sort};
use super::observation::SliceIdentity;
use std::path::PathBuf;

/// Most characters of a typed value.
const MOST_VALUE_LETTERS: usize = 128;

/// A page that fills the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Page {
    #[default]
    Slices,
    /// The processes of the selected slice.
    Processes,
    Help,
}

/// A limit that can be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    Memory,
    Share,
}

/// A change of a limit, as the user types it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LimitChange {
    pub(crate) limit: Limit,
    pub(crate) path: PathBuf,
    pub(crate) name: String,
    /// The slice that was selected when the user opened the prompt.
    pub(crate) life: SliceIdentity,
    /// The value as the user typed it.
    pub(crate) text: String,
}

/// A message at the foot of the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) text: String,
    pub(crate) is_bad: bool,
}

/// The action that follows a key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Only the shown state has changed.
    Show,
    /// Look at once, because the page needs more than the last look has.
    Look,
    Change(LimitChange),
    /// Remove the region at this path. It has no living process.
    Remove(PathBuf),
    Repaint,
    Suspend,
    Quit,
}

/// A slice on a GPU that can be selected.
#[derive(Debug)]
struct Entry {
    key: RowKey,
    name: String,
    is_unused: bool,
}

/// All state that keys change.
#[derive(Debug, Default)]
pub(crate) struct TopState {
    pub(crate) page: Page,
    pub(crate) sort: Sort,
    pub(crate) reversed: bool,
    pub(crate) selected: Option<RowKey>,
    /// Name of the selected slice, and its place in the list. They are used after the slice is gone.
    name: String,
    place: usize,
    /// The value that the user is typing.
    pub(crate) prompt: Option<LimitChange>,
    /// Only slices whose names contain this text are shown. Upper and lower case are the same.
    pub(crate) filter: String,
    /// True while the user types the filter.
    pub(crate) is_filtering: bool,
    pub(crate) message: Option<Message>,
    /// The first line and the first process on the screen.
    pub(crate) first_line: usize,
    pub(crate) first_process: usize,
}

impl TopState {
    /// Returns the path of the selected slice, if its processes are shown.
    pub(crate) fn open(&self) -> Option<PathBuf> {
        let open = self.page == Page::Processes;
        self.selected.as_ref().filter(|_| open).map(|key| key.path.clone())
    }

    /// Adapts the state to slices that have come, gone or moved. If the selected slice is gone, the nearest slice with a living
    /// process is selected, and the page of processes is closed. A prompt stays until the user leaves it. Otherwise keys for the
    /// prompt would have other effects.
    pub(crate) fn follow(&mut self, model: &Model) {
        let entries = self.entries(model);
        let wanted = self.selected.as_ref();
        if let Some((place, entry)) = entries.iter().enumerate().find(|(_, entry)| Some(&entry.key) == wanted)
        {
            self.name.clone_from(&entry.name);
            // Unused slices are last. After an unused slice is gone, the slice at its former place is nearer than the last one.
            if !entry.is_unused {
                self.place = place;
            }
            return;
        }
        if self.selected.is_some() {
            self.say(format!("{} is gone", self.name), false);
            self.first_process = 0;
            if self.page == Page::Processes {
                self.page = Page::Slices;
            }
        }
        let living = entries.iter().enumerate().filter(|(_, entry)| !entry.is_unused);
        let nearest = living.min_by_key(|(place, _)| place.abs_diff(self.place));
        self.select(nearest);
    }

    /// Returns the GPUs with the slices that pass the filter.
    pub(crate) fn groups<'a>(&self, model: &'a Model) -> Vec<Group<'a>> {
        let wanted = self.filter.to_lowercase();
        let mut groups = model.groups(self.sort, self.reversed);
        for group in &mut groups {
            group.rows.retain(|row| row.slice.name.to_lowercase().contains(&wanted));
        }
        groups.retain(|group| !group.rows.is_empty());
        groups
    }

    fn entries(&self, model: &Model) -> Vec<Entry> {
        let groups = self.groups(model);
        let rows = groups.into_iter().flat_map(|group| group.rows);
        let entry = |row: super::model::Row<'_>| Entry {
            name: row.slice.name.clone(),
            is_unused: row.slice.is_unused(),
            key: row.key,
        };
        rows.map(entry).collect()
    }

    fn select(&mut self, selected: Option<(usize, &Entry)>) {
        self.place = selected.map_or(0, |(place, _)| place);
        self.selected = selected.map(|(_, entry)| entry.key.clone());
        self.name = selected.map(|(_, entry)| entry.name.clone()).unwrap_or_default();
    }

    pub(crate) fn say(&mut self, text: String, is_bad: bool) {
        self.message = Some(Message { text, is_bad });
    }

    /// Shows the outcome of a change. After a refusal, opens the prompt again.
    pub(crate) fn changed(&mut self, change: LimitChange, told: Result<String, String>) {
        match told {
            Ok(text) => self.say(text, false),
            Err(text) => {
                self.say(text, true);
                self.prompt = Some(change);
            }
        }
    }

    /// Handles a key, and returns the action that follows.
    pub(crate) fn press(&mut self, key: Press, model: &Model) -> Action {
        self.message = None;
        match key {
            Press::Interrupt => return Action::Quit,
            Press::Suspend => return Action::Suspend,
            Press::Redraw => return Action::Repaint,
            _ => {}
        }
        match self.prompt.take() {
            Some(prompt) => self.type_in(prompt, key),
            None if self.is_filtering => self.type_filter(key, model),
            None => self.command(key, model),
        }
    }

    /// Handles a key while the user types the filter. The filter takes effect at once.
    fn type_filter(&mut self, key: Press, model: &Model) -> Action {
        match key {
            Press::Enter => self.is_filtering = false,
            Press::Escape => {
                self.is_filtering = false;
                self.filter.clear();
            }
            Press::Clear => self.filter.clear(),
            Press::Backspace => {
                self.filter.pop();
            }
            Press::Letter(letter) if self.filter.chars().count() < MOST_VALUE_LETTERS => {
                self.filter.push(letter);
            }
            _ => {}
        }
        self.keep_in_sight(model);
        Action::Show
    }

    /// If the filter hides the selected slice, selects the first slice with a living process.
    fn keep_in_sight(&mut self, model: &Model) {
        let entries = self.entries(model);
        if !entries.iter().any(|entry| Some(&entry.key) == self.selected.as_ref()) {
            let first = entries.iter().enumerate().find(|(_, entry)| !entry.is_unused);
            self.select(first);
        }
    }

    /// Handles a key while the user types a value.
    fn type_in(&mut self, mut prompt: LimitChange, key: Press) -> Action {
        match key {
            Press::Escape => return Action::Show,
            Press::Enter => return Action::Change(prompt),
            Press::Clear => prompt.text.clear(),
            Press::Backspace => {
                prompt.text.pop();
            }
            Press::Letter(letter) if prompt.text.chars().count() < MOST_VALUE_LETTERS => {
                prompt.text.push(letter);
            }
            _ => {}
        }
        self.prompt = Some(prompt);
        Action::Show
    }

    fn command(&mut self, key: Press, model: &Model) -> Action {
        match (self.page, key) {
            (_, Press::Letter('q')) => return Action::Quit,
            (Page::Help, _) | (Page::Processes, Press::Escape | Press::Enter) => self.page = Page::Slices,
            (_, Press::Letter('?' | 'h') | Press::Help) => self.page = Page::Help,
            (Page::Slices, Press::Letter('/')) => self.is_filtering = true,
            (Page::Slices, Press::Escape) if !self.filter.is_empty() => {
                self.filter.clear();
                self.keep_in_sight(model);
            }
            (Page::Slices, Press::Escape) => self.say("q or Ctrl-C quits".to_owned(), false),
            (Page::Slices, Press::Enter) => return self.open_processes(),
            (_, Press::Letter('s')) => self.sort = self.sort.next(),
            (_, Press::Letter('r')) => self.reversed = !self.reversed,
            (_, Press::Letter('m')) => self.ask(model, Limit::Memory),
            (_, Press::Letter('c')) => self.ask(model, Limit::Share),
            (_, Press::Letter('x')) => return self.remove(model),
            (_, key) if !self.go(key, model) => self.say(unknown(key), true),
            _ => {}
        }
        Action::Show
    }

    fn open_processes(&mut self) -> Action {
        if self.selected.is_none() {
            return Action::Show;
        }
        (self.page, self.first_process) = (Page::Processes, 0);
        Action::Look
    }

    /// Moves the selection in the list on the screen. Returns false if the key is not for moving.
    fn go(&mut self, key: Press, model: &Model) -> bool {
        let entries = self.entries(model);
        let selected = entries.iter().position(|entry| Some(&entry.key) == self.selected.as_ref());
        let from = if self.page == Page::Processes { self.first_process } else { selected.unwrap_or(0) };
        let Some(to) = moved(from, key) else { return false };
        if self.page == Page::Processes {
            self.first_process = to;
            return true;
        }
        // If no slice is selected, the first key selects the first slice.
        let to = if selected.is_none() { 0 } else { to.min(entries.len().saturating_sub(1)) };
        self.select(entries.get(to).map(|entry| (to, entry)));
        true
    }

    /// Returns the action that removes the selected slice. If a process of it lives, shows a message instead.
    fn remove(&mut self, model: &Model) -> Action {
        let selected = self.selected.as_ref().and_then(|key| model.slice(&key.path));
        let Some(slice) = selected else { return Action::Show };
        if slice.is_unused() {
            return Action::Remove(slice.path.clone());
        }
        let (name, living) = (slice.name.clone(), slice.processes.len());
        let live = if living == 1 { "1 process lives" } else { &format!("{living} processes live") };
        self.say(format!("{live} in {name}; only a slice without processes can be removed"), true);
        Action::Show
    }

    /// Opens the prompt for the selected slice. If the slice has several devices, the typed value
    /// begins with the selected device.
    fn ask(&mut self, model: &Model, limit: Limit) {
        let Some(key) = self.selected.clone() else { return };
        let Some(slice) = model.slice(&key.path) else { return };
        let number = slice.devices.iter().find(|device| Some(device.uuid) == key.uuid);
        let text = match number {
            Some(device) if slice.devices.len() > 1 => format!("{}=", device.number),
            _ => String::new(),
        };
        let (path, name, life) = (key.path, slice.name.clone(), slice.life);
        self.prompt = Some(LimitChange { limit, path, name, life, text });
    }
}

/// Returns the place to which a key moves from `place`, or `None` if the key is not for moving.
fn moved(place: usize, key: Press) -> Option<usize> {
    Some(match key {
        Press::Up | Press::Letter('k') => place.saturating_sub(1),
        Press::Down | Press::Letter('j') => place.saturating_add(1),
        Press::PageUp => place.saturating_sub(10),
        Press::PageDown => place.saturating_add(10),
        Press::Home | Press::Letter('g') => 0,
        Press::End | Press::Letter('G') => usize::MAX,
        _ => return None,
    })
}

/// Returns the answer to a key without a function.
fn unknown(key: Press) -> String {
    match key {
        Press::Letter(letter) => format!("no such key: {letter}; ? shows help"),
        _ => "no such key; ? shows help".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::{seen, slice};
    use super::super::observation::ObservedSlice;
    use super::*;
    use std::time::Instant;

    fn model(slices: &[ObservedSlice]) -> Model {
        let mut model = Model::default();
        model.take(seen(slices), Instant::now());
        model
    }

    fn three() -> Model {
        model(&[slice("a", 1, 0), slice("b", 2, 0), slice("c", 3, 0)])
    }

    fn selected(state: &TopState) -> String {
        let path = &state.selected.as_ref().expect("something is selected").path;
        path.file_name().expect("it has a name").to_string_lossy().into_owned()
    }

    fn typed(state: &mut TopState, model: &Model, text: &str) {
        for letter in text.chars() {
            assert_eq!(state.press(Press::Letter(letter), model), Action::Show);
        }
    }

    #[test]
    fn the_selection_moves_stops_at_the_ends_and_follows_its_slice_through_every_order() {
        let (model, mut state) = (three(), TopState::default());
        state.follow(&model);
        assert_eq!(selected(&state), "a");
        for (key, name) in [
            (Press::Up, "a"),
            (Press::Down, "b"),
            (Press::Letter('j'), "c"),
            (Press::Down, "c"),
            (Press::Letter('k'), "b"),
            (Press::End, "c"),
            (Press::Home, "a"),
            (Press::Letter('s'), "a"),
            (Press::Up, "b"),
            (Press::Letter('r'), "b"),
            (Press::Down, "c"),
        ] {
            state.press(key, &model);
            state.follow(&model);
            assert_eq!(selected(&state), name, "after {key:?}");
        }
    }

    #[test]
    fn where_the_selected_slice_ends_the_one_in_its_place_is_selected_and_its_page_is_closed() {
        let (before, mut state) = (three(), TopState::default());
        state.follow(&before);
        state.press(Press::Down, &before);
        assert_eq!(state.press(Press::Enter, &before), Action::Look);
        let after = model(&[slice("a", 1, 0), slice("c", 3, 0)]);
        state.follow(&after);
        assert_eq!((selected(&state).as_str(), state.page), ("c", Page::Slices));
        assert_eq!(state.message.as_ref().map(|message| message.text.as_str()), Some("b is gone"));
        state.follow(&model(&[]));
        assert_eq!(state.selected, None);
        for key in "mcsr?qx".chars().map(Press::Letter).chain([Press::Enter, Press::Down, Press::Up]) {
            state.press(key, &after);
        }
        state.follow(&after);
        assert_eq!(selected(&state), "a");
    }

    #[test]
    fn a_prompt_outlives_its_slice_so_that_typed_keys_do_nothing_else() {
        let (before, mut state) = (three(), TopState::default());
        state.follow(&before);
        state.press(Press::Letter('m'), &before);
        typed(&mut state, &before, "6");
        let after = model(&[slice("b", 2, 0)]);
        state.follow(&after);
        typed(&mut state, &after, "GiB");
        let Action::Change(change) = state.press(Press::Enter, &after) else {
            panic!("the prompt was closed")
        };
        assert_eq!((change.name.as_str(), change.text.as_str()), ("a", "6GiB"));
        state.changed(change, Err("a is gone".to_owned()));
        assert_eq!(state.press(Press::Escape, &after), Action::Show);
        assert_eq!((state.prompt.clone(), state.page), (None, Page::Slices));
    }

    #[test]
    fn unused_slices_are_last_not_selected_by_themselves_and_the_only_ones_removed() {
        let mut ended = slice("a", 0, 0);
        ended.processes.clear();
        let (before, mut state) =
            (model(&[ended.clone(), slice("b", 2, 0), slice("c", 3, 0)]), TopState::default());
        state.follow(&before);
        assert_eq!(selected(&state), "b");
        assert_eq!(state.press(Press::Letter('x'), &before), Action::Show);
        assert!(state.message.as_ref().is_some_and(|message| message.text.contains("1 process lives in b")));
        state.press(Press::End, &before);
        assert_eq!(selected(&state), "a");
        assert_eq!(state.press(Press::Letter('x'), &before), Action::Remove(ended.path.clone()));
        // An unused slice stays selected if the user has selected it. After it is gone, a slice with a process is selected.
        state.follow(&before);
        assert_eq!(selected(&state), "a");
        let mut other = slice("c", 0, 0);
        other.processes.clear();
        state.follow(&model(&[slice("b", 2, 0), other.clone()]));
        assert_eq!(selected(&state), "b");
        // If all slices are unused, none is selected until the user presses a key.
        let only = model(&[ended, other]);
        let mut state = TopState::default();
        state.follow(&only);
        assert_eq!(state.selected, None);
        state.press(Press::Down, &only);
        assert_eq!(selected(&state), "a");
    }

    #[test]
    fn a_slice_that_ends_and_goes_leaves_the_selection_at_its_former_place() {
        let mut ended = slice("a", 0, 0);
        ended.processes.clear();
        let (before, mut state) = (three(), TopState::default());
        state.follow(&before);
        state.follow(&model(&[ended, slice("b", 2, 0), slice("c", 3, 0)]));
        assert_eq!(selected(&state), "a");
        state.follow(&model(&[slice("b", 2, 0), slice("c", 3, 0)]));
        assert_eq!(selected(&state), "b");
    }

    #[test]
    fn a_filter_shows_and_selects_slices_by_a_part_of_their_names_until_escape() {
        let model = model(&[slice("train-a", 1, 0), slice("Train-b", 2, 0), slice("web", 3, 0)]);
        let mut state = TopState::default();
        state.follow(&model);
        let shown = |state: &TopState| -> Vec<String> {
            state
                .groups(&model)
                .iter()
                .flat_map(|group| &group.rows)
                .map(|row| row.slice.name.clone())
                .collect()
        };
        typed(&mut state, &model, "/w");
        state.follow(&model);
        assert_eq!((selected(&state).as_str(), shown(&state)), ("web", vec!["web".to_owned()]));
        assert_eq!(state.message, None, "the one before is not gone");
        state.press(Press::Backspace, &model);
        typed(&mut state, &model, "train-");
        assert_eq!(shown(&state), ["Train-b", "train-a"]);
        // While the filter is typed, a letter is no command, and Enter keeps the filter.
        typed(&mut state, &model, "q");
        assert_eq!((shown(&state).len(), state.selected.clone()), (0, None));
        state.press(Press::Backspace, &model);
        state.press(Press::Enter, &model);
        state.press(Press::End, &model);
        assert_eq!((selected(&state).as_str(), state.filter.as_str()), ("train-a", "train-"));
        assert_eq!(state.press(Press::Escape, &model), Action::Show);
        assert_eq!((shown(&state).len(), selected(&state).as_str()), (3, "train-a"));
        state.press(Press::Escape, &model);
        assert!(state.message.as_ref().is_some_and(|message| message.text.contains("q or Ctrl-C")));
    }

    #[test]
    fn a_key_that_does_nothing_says_so() {
        let (model, mut state) = (three(), TopState::default());
        state.follow(&model);
        for (key, words) in [
            (Press::Letter('z'), "no such key: z; ? shows help"),
            (Press::Other, "no such key"),
            (Press::Escape, "q or Ctrl-C quits"),
        ] {
            assert_eq!(state.press(key, &model), Action::Show);
            let said = state.message.as_ref().map(|message| message.text.clone()).unwrap_or_default();
            assert!(said.contains(words), "{key:?}: {said}");
        }
        for key in [Press::Letter('h'), Press::Help] {
            state.press(key, &model);
            assert_eq!(state.page, Page::Help);
            state.press(key, &model);
            assert_eq!((state.page, state.message.clone()), (Page::Slices, None));
        }
    }

    #[test]
    fn a_value_is_typed_corrected_sent_and_kept_where_it_is_refused() {
        let (model, mut state) = (three(), TopState::default());
        state.follow(&model);
        state.press(Press::Letter('c'), &model);
        typed(&mut state, &model, "xq");
        state.press(Press::Clear, &model);
        typed(&mut state, &model, "300");
        state.press(Press::Backspace, &model);
        let Action::Change(change) = state.press(Press::Enter, &model) else { panic!("nothing is changed") };
        assert_eq!((change.limit, change.name.as_str(), change.text.as_str()), (Limit::Share, "a", "30"));
        state.changed(change.clone(), Err("no".to_owned()));
        assert_eq!(state.prompt, Some(change.clone()));
        assert_eq!(state.press(Press::Escape, &model), Action::Show);
        assert_eq!((state.prompt.clone(), state.message.clone()), (None, None));
        state.changed(change, Ok("yes".to_owned()));
        assert_eq!(state.prompt, None);
    }

    #[test]
    fn of_several_devices_the_selected_one_is_named_in_the_value() {
        let mut two = slice("two", 1, 0);
        let second = two.devices[0].clone();
        two.devices.push(super::super::observation::Device {
            number: 1,
            uuid: gpuslice_region::Uuid([0x22; 16]),
            ..second
        });
        let (model, mut state) = (model(&[two]), TopState::default());
        state.follow(&model);
        state.press(Press::Down, &model);
        state.press(Press::Letter('m'), &model);
        assert_eq!(state.prompt.map(|prompt| prompt.text), Some("1=".to_owned()));
    }

    #[test]
    fn pages_are_left_with_escape_and_the_program_with_q_and_ctrl_c() {
        let (model, mut state) = (three(), TopState::default());
        state.follow(&model);
        state.press(Press::Letter('?'), &model);
        assert_eq!((state.page, state.press(Press::Escape, &model)), (Page::Help, Action::Show));
        state.press(Press::Enter, &model);
        assert_eq!((state.page, state.press(Press::Escape, &model)), (Page::Processes, Action::Show));
        assert_eq!((state.page, state.press(Press::Escape, &model)), (Page::Slices, Action::Show));
        assert_eq!(state.press(Press::Letter('q'), &model), Action::Quit);
        state.press(Press::Letter('m'), &model);
        assert_eq!(state.press(Press::Letter('q'), &model), Action::Show);
        assert_eq!(state.press(Press::Interrupt, &model), Action::Quit);
        assert_eq!(state.press(Press::Suspend, &model), Action::Suspend);
    }
}
