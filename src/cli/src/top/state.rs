//! What is shown, and what does a key do?

use super::keys::Key as Press;
use super::model::{Key, Model, Sort};
use super::seen::Life;
use std::path::PathBuf;

/// Letters of a value at the most.
const MOST: usize = 128;

/// What fills the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Page {
    #[default]
    Slices,
    /// Those of the selected slice.
    Processes,
    Help,
}

/// Which limit is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Limit {
    Memory,
    Share,
}

/// What a limit is to become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) limit: Limit,
    pub(crate) path: PathBuf,
    pub(crate) name: String,
    /// The slice that was meant when it was asked.
    pub(crate) life: Life,
    /// The value, as it was typed.
    pub(crate) text: String,
}

/// Something that is said below.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) text: String,
    pub(crate) is_bad: bool,
}

/// What is to be done about a key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    /// Only what is shown is other than before.
    Show,
    /// Look at once: more is wanted than was looked at.
    Look,
    Change(Change),
    Repaint,
    Suspend,
    Quit,
}

/// All that keys change.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) page: Page,
    pub(crate) sort: Sort,
    pub(crate) reversed: bool,
    pub(crate) selected: Option<Key>,
    /// The selected slice's name and its place among all, for when it is gone.
    name: String,
    place: usize,
    /// The value that is being typed.
    pub(crate) prompt: Option<Change>,
    pub(crate) message: Option<Message>,
    /// First lines that are shown.
    pub(crate) first_line: usize,
    pub(crate) first_process: usize,
}

impl State {
    /// The selected slice, if its processes are shown.
    pub(crate) fn open(&self) -> Option<PathBuf> {
        let open = self.page == Page::Processes;
        self.selected.as_ref().filter(|_| open).map(|key| key.path.clone())
    }

    /// Takes in that slices have come, gone or moved. Where the selected one is gone, the one in its place is selected,
    /// and what was shown or asked of it is closed.
    pub(crate) fn follow(&mut self, model: &Model) {
        let keys = self.keys(model);
        let wanted = self.selected.as_ref();
        if let Some((place, (key, name))) = keys.iter().enumerate().find(|(_, (key, _))| Some(key) == wanted)
        {
            (self.place, self.name) = (place, name.clone());
            self.follow_prompt(model, key);
            return;
        }
        if self.selected.is_some() {
            self.say(format!("{} is gone", self.name), false);
            self.prompt = None;
            self.first_process = 0;
            if self.page == Page::Processes {
                self.page = Page::Slices;
            }
        }
        self.select(&keys, self.place);
    }

    /// A prompt means the slice that it was opened for, not another one under its name.
    fn follow_prompt(&mut self, model: &Model, key: &Key) {
        let life = model.slice(&key.path).map(|slice| slice.life);
        if let Some(prompt) = self.prompt.take_if(|prompt| Some(prompt.life) != life) {
            self.say(format!("{} was made anew, nothing was changed", prompt.name), true);
        }
    }

    fn keys(&self, model: &Model) -> Vec<(Key, String)> {
        let groups = model.groups(self.sort, self.reversed);
        let rows = groups.into_iter().flat_map(|group| group.rows);
        rows.map(|row| (row.key, row.slice.name.clone())).collect()
    }

    fn select(&mut self, keys: &[(Key, String)], place: usize) {
        self.place = place.min(keys.len().saturating_sub(1));
        let selected = keys.get(self.place);
        self.selected = selected.map(|(key, _)| key.clone());
        self.name = selected.map(|(_, name)| name.clone()).unwrap_or_default();
    }

    pub(crate) fn say(&mut self, text: String, is_bad: bool) {
        self.message = Some(Message { text, is_bad });
    }

    /// What became of a change: its prompt stays open until the value is right.
    pub(crate) fn changed(&mut self, change: Change, told: Result<String, String>) {
        match told {
            Ok(text) => self.say(text, false),
            Err(text) => {
                self.say(text, true);
                self.prompt = Some(change);
            }
        }
    }

    /// What a key does.
    pub(crate) fn press(&mut self, key: Press, model: &Model) -> Deed {
        self.message = None;
        match key {
            Press::Interrupt => return Deed::Quit,
            Press::Suspend => return Deed::Suspend,
            Press::Redraw => return Deed::Repaint,
            _ => {}
        }
        match self.prompt.take() {
            Some(prompt) => self.type_in(prompt, key),
            None => self.command(key, model),
        }
    }

    /// A key while a value is typed.
    fn type_in(&mut self, mut prompt: Change, key: Press) -> Deed {
        match key {
            Press::Escape => return Deed::Show,
            Press::Enter => return Deed::Change(prompt),
            Press::Clear => prompt.text.clear(),
            Press::Backspace => {
                prompt.text.pop();
            }
            Press::Letter(letter) if prompt.text.chars().count() < MOST => prompt.text.push(letter),
            _ => {}
        }
        self.prompt = Some(prompt);
        Deed::Show
    }

    fn command(&mut self, key: Press, model: &Model) -> Deed {
        match (self.page, key) {
            (_, Press::Letter('q')) | (Page::Slices, Press::Escape) => return Deed::Quit,
            (Page::Help, _) | (Page::Processes, Press::Escape | Press::Enter) => self.page = Page::Slices,
            (_, Press::Letter('?' | 'h')) => self.page = Page::Help,
            (Page::Slices, Press::Enter) => return self.open_processes(),
            (_, Press::Letter('s')) => self.sort = self.sort.next(),
            (_, Press::Letter('r')) => self.reversed = !self.reversed,
            (_, Press::Letter('m')) => self.ask(model, Limit::Memory),
            (_, Press::Letter('c')) => self.ask(model, Limit::Share),
            (Page::Slices, key) => self.go(key, model),
            (Page::Processes, key) => self.first_process = moved(self.first_process, key),
        }
        Deed::Show
    }

    fn open_processes(&mut self) -> Deed {
        if self.selected.is_none() {
            return Deed::Show;
        }
        (self.page, self.first_process) = (Page::Processes, 0);
        Deed::Look
    }

    fn go(&mut self, key: Press, model: &Model) {
        let keys = self.keys(model);
        let place = keys.iter().position(|(key, _)| Some(key) == self.selected.as_ref());
        self.select(&keys, moved(place.unwrap_or(0), key));
    }

    /// Opens the prompt for the selected slice. Of several devices, the one that is selected is named in the value.
    fn ask(&mut self, model: &Model, limit: Limit) {
        let Some(key) = self.selected.clone() else { return };
        let Some(slice) = model.slice(&key.path) else { return };
        let number = slice.devices.iter().find(|device| Some(device.uuid) == key.uuid);
        let text = match number {
            Some(device) if slice.devices.len() > 1 => format!("{}=", device.number),
            _ => String::new(),
        };
        let (path, name, life) = (key.path, slice.name.clone(), slice.life);
        self.prompt = Some(Change { limit, path, name, life, text });
    }
}

/// Where a key leads from a place in a list.
fn moved(place: usize, key: Press) -> usize {
    match key {
        Press::Up | Press::Letter('k') => place.saturating_sub(1),
        Press::Down | Press::Letter('j') => place.saturating_add(1),
        Press::PageUp => place.saturating_sub(10),
        Press::PageDown => place.saturating_add(10),
        Press::Home | Press::Letter('g') => 0,
        Press::End | Press::Letter('G') => usize::MAX,
        _ => place,
    }
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::{seen, slice};
    use super::super::seen::Slice;
    use super::*;
    use std::time::Instant;

    fn model(slices: &[Slice]) -> Model {
        let mut model = Model::default();
        model.take(seen(slices), Instant::now());
        model
    }

    fn three() -> Model {
        model(&[slice("a", 1, 0), slice("b", 2, 0), slice("c", 3, 0)])
    }

    fn selected(state: &State) -> String {
        let path = &state.selected.as_ref().expect("something is selected").path;
        path.file_name().expect("it has a name").to_string_lossy().into_owned()
    }

    fn typed(state: &mut State, model: &Model, text: &str) {
        for letter in text.chars() {
            assert_eq!(state.press(Press::Letter(letter), model), Deed::Show);
        }
    }

    #[test]
    fn the_selection_moves_stops_at_the_ends_and_follows_its_slice_through_every_order() {
        let (model, mut state) = (three(), State::default());
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
    fn where_the_selected_slice_ends_the_one_in_its_place_is_selected_and_its_pages_are_closed() {
        let (before, mut state) = (three(), State::default());
        state.follow(&before);
        state.press(Press::Down, &before);
        assert_eq!(state.press(Press::Enter, &before), Deed::Look);
        state.press(Press::Letter('m'), &before);
        let after = model(&[slice("a", 1, 0), slice("c", 3, 0)]);
        state.follow(&after);
        assert_eq!((selected(&state).as_str(), state.page, state.prompt.clone()), ("c", Page::Slices, None));
        assert_eq!(state.message.as_ref().map(|message| message.text.as_str()), Some("b is gone"));
        state.follow(&model(&[]));
        assert_eq!(state.selected, None);
        for key in "mcsr?q".chars().map(Press::Letter).chain([Press::Enter, Press::Down, Press::Up]) {
            state.press(key, &after);
        }
        state.follow(&after);
        assert_eq!(selected(&state), "a");
    }

    #[test]
    fn a_value_is_typed_corrected_sent_and_kept_where_it_is_refused() {
        let (model, mut state) = (three(), State::default());
        state.follow(&model);
        state.press(Press::Letter('c'), &model);
        typed(&mut state, &model, "xq");
        state.press(Press::Clear, &model);
        typed(&mut state, &model, "300");
        state.press(Press::Backspace, &model);
        let Deed::Change(change) = state.press(Press::Enter, &model) else { panic!("nothing is changed") };
        assert_eq!((change.limit, change.name.as_str(), change.text.as_str()), (Limit::Share, "a", "30"));
        state.changed(change.clone(), Err("no".to_owned()));
        assert_eq!(state.prompt, Some(change.clone()));
        assert_eq!(state.press(Press::Escape, &model), Deed::Show);
        assert_eq!((state.prompt.clone(), state.message.clone()), (None, None));
        state.changed(change, Ok("yes".to_owned()));
        assert_eq!(state.prompt, None);
        assert_eq!(state.press(Press::Escape, &model), Deed::Quit);
    }

    #[test]
    fn a_prompt_is_closed_when_its_slice_is_made_anew() {
        let (before, mut state) = (three(), State::default());
        state.follow(&before);
        state.press(Press::Letter('m'), &before);
        let mut anew = slice("a", 1, 0);
        anew.life.epoch = 2;
        state.follow(&model(&[anew]));
        assert_eq!(state.prompt, None);
        assert!(state.message.is_some_and(|message| message.is_bad));
    }

    #[test]
    fn of_several_devices_the_selected_one_is_named_in_the_value() {
        let mut two = slice("two", 1, 0);
        let second = two.devices[0].clone();
        two.devices.push(super::super::seen::Device {
            number: 1,
            uuid: gpuslice_region::Uuid([0x22; 16]),
            ..second
        });
        let (model, mut state) = (model(&[two]), State::default());
        state.follow(&model);
        state.press(Press::Down, &model);
        state.press(Press::Letter('m'), &model);
        assert_eq!(state.prompt.map(|prompt| prompt.text), Some("1=".to_owned()));
    }

    #[test]
    fn pages_are_left_with_escape_and_all_is_left_with_q_and_ctrl_c() {
        let (model, mut state) = (three(), State::default());
        state.follow(&model);
        state.press(Press::Letter('?'), &model);
        assert_eq!((state.page, state.press(Press::Escape, &model)), (Page::Help, Deed::Show));
        state.press(Press::Enter, &model);
        assert_eq!((state.page, state.press(Press::Escape, &model)), (Page::Processes, Deed::Show));
        assert_eq!(state.page, Page::Slices);
        state.press(Press::Letter('m'), &model);
        assert_eq!(state.press(Press::Letter('q'), &model), Deed::Show);
        assert_eq!(state.press(Press::Interrupt, &model), Deed::Quit);
        assert_eq!(state.press(Press::Suspend, &model), Deed::Suspend);
    }
}
