//! `gpuslice top`: shows slices live, and changes them when the user presses keys.
//!
//! The `model` receives each look at the slices, a key changes the `state`, and the `view` draws both. One thread waits for keys,
//! signals and the next look at the same time, and does nothing in between.

mod change;
mod gpus;
mod keys;
mod marks;
mod model;
mod observation;
mod state;
mod terminal;
mod view;

use crate::arguments::Top;
use crate::commands::remove;
use crate::output::ending::Ending;
use crate::output::failure::Failure;
use crate::slices::{Survey, survey};
use crate::system::{SIGCONT, SIGHUP, SIGTSTP, SIGWINCH};
use gpus::Gpus;
use gpuslice_region::Trust;
use gpuslice_slices::discovery::FoundRegion;
use gpuslice_slices::figures;
use marks::Levels;
use model::Model;
use observation::{Observation, Scope};
use state::{Action, TopState};
use std::env;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use terminal::{Event, FullScreen};
use view::ViewSettings;

/// Shows slices live, and handles keys: `gpuslice top`.
pub(crate) fn top(wish: &Top) -> Result<Ending, Failure> {
    terminal::check()?;
    let survey = Survey::now()?;
    let (scope, nothing) = match &wish.slice {
        Some(slice) => {
            let region = survey.look(slice)?.region;
            let shown = figures::printable(&survey::shown(&region));
            let nothing = format!("{shown} is gone; it is shown again when it comes back");
            (Scope::One(region), nothing)
        }
        None => (Scope::All, "no slices; `gpuslice run` starts a program in one".to_owned()),
    };
    let text = |name: &str| env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    let is_said = |name: &&str| text(name).is_some_and(|value| !value.is_empty());
    let language = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find(is_said).and_then(text);
    let levels = Levels::of(&text("TERM").unwrap_or_default(), language.as_deref());
    let view = ViewSettings::new(!is_said(&"NO_COLOR"), levels, wish.interval.0, nothing);
    let mut watch = Watch {
        screen: FullScreen::open(terminal::signals())?,
        view,
        scope,
        survey,
        gpus: Gpus::new(),
        model: Model::default(),
        state: TopState::default(),
        due: Instant::now(),
        interval: wish.interval.0,
    };
    let failed = |error: io::Error| Failure::new(format!("the terminal cannot be used: {error}"));
    if let Some(signal) = watch.screen.take_over().map_err(failed)? {
        return Ok(Ending::Signal(signal.number));
    }
    // A terminal that can be neither read nor written is gone, like its user.
    Ok(watch.run()?.unwrap_or(Ending::Signal(SIGHUP)))
}

/// State of `top` while it runs.
#[derive(Debug)]
struct Watch {
    screen: FullScreen,
    view: ViewSettings,
    scope: Scope,
    survey: Survey,
    gpus: Gpus,
    model: Model,
    state: TopState,
    /// Time of the next look.
    due: Instant,
    interval: Duration,
}

impl Watch {
    /// Runs until the end. Returns `None` if the terminal is gone.
    fn run(&mut self) -> Result<Option<Ending>, Failure> {
        self.look();
        loop {
            let Ok(()) = self.show() else { return Ok(None) };
            match self.screen.next(self.gpus.due(self.due)) {
                Ok(Event::Due) => self.tick(),
                Ok(Event::Keys(keys)) => match self.press(keys) {
                    Ok(None) => {}
                    Ok(ending) => return Ok(ending),
                    Err(_) => return Ok(None),
                },
                Ok(Event::Signal(signal)) if terminal::is_end(signal) => {
                    return Ok(Some(Ending::Signal(signal.number)));
                }
                Ok(Event::Signal(signal)) => match self.heed(signal.number) {
                    Ok(None) => {}
                    Ok(ending) => return Ok(ending),
                    Err(_) => return Ok(None),
                },
                Ok(Event::Gone) | Err(_) => return Ok(None),
            }
        }
    }

    /// Receives NVML's answer, and looks at the slices if a look is due.
    fn tick(&mut self) {
        if let Some(told) = self.gpus.answer() {
            self.model.gpus = told;
        }
        if Instant::now() >= self.due {
            self.look();
        }
    }

    /// Looks at the slices, and sets the time of the next look. A look that comes too late is skipped.
    fn look(&mut self) {
        let now = Instant::now();
        match self.survey.refresh() {
            Ok(()) => {
                let open = self.state.open();
                self.model.take(Observation::now(&self.scope, &self.survey, open.as_deref()), now);
            }
            Err(Failure::Message { text, .. }) => self.state.say(text, true),
            Err(Failure::ReaderGone) => {}
        }
        self.gpus.ask(self.model.uuids());
        self.state.follow(&self.model);
        let next = self.due + self.interval;
        self.due = if next > now { next } else { now + self.interval };
    }

    fn show(&mut self) -> io::Result<()> {
        let lines = self.view.lines(&self.model, &mut self.state, self.screen.size());
        self.screen.show(lines)
    }

    fn press(&mut self, keys: Vec<keys::Key>) -> io::Result<Option<Ending>> {
        for key in keys {
            match self.state.press(key, &self.model) {
                Action::Show => self.state.follow(&self.model),
                Action::Look => self.look_at_once(),
                Action::Change(change) => {
                    let told = change::apply(&self.region(change.path.clone()), &change);
                    self.look_at_once();
                    self.state.changed(change, told);
                }
                Action::Remove(path) => {
                    let region = self.region(path);
                    let told = remove::take_away(&self.survey, &region, Trust::AnyOwner, false);
                    self.look_at_once();
                    match told {
                        Ok(text) => self.state.say(text, false),
                        Err(Failure::Message { text, .. }) => self.state.say(figures::printable(&text), true),
                        Err(Failure::ReaderGone) => {}
                    }
                }
                Action::Repaint => self.screen.repaint()?,
                Action::Suspend => {
                    if let Some(ending) = self.suspend()? {
                        return Ok(Some(ending));
                    }
                }
                Action::Quit => return Ok(Some(Ending::Code(0))),
            }
        }
        Ok(None)
    }

    /// Returns the region with this path.
    fn region(&self, path: PathBuf) -> FoundRegion {
        let regions = self.scope.regions(&self.survey);
        let known = regions.iter().find(|region| region.path == path).cloned();
        known.unwrap_or_else(|| FoundRegion::here(path))
    }

    /// Looks in between. The times of the regular looks do not change.
    fn look_at_once(&mut self) {
        let due = self.due;
        self.look();
        self.due = due;
    }

    /// Handles a signal that does not end this process by itself.
    fn heed(&mut self, signal: i32) -> io::Result<Option<Ending>> {
        match signal {
            SIGTSTP => return self.suspend(),
            SIGCONT => return Ok(self.screen.resume()?.map(|signal| Ending::Signal(signal.number))),
            SIGWINCH => self.screen.resize()?,
            _ => {}
        }
        Ok(None)
    }

    fn suspend(&mut self) -> io::Result<Option<Ending>> {
        let ended = self.screen.suspend()?;
        self.due = Instant::now();
        Ok(ended.map(|signal| Ending::Signal(signal.number)))
    }
}
