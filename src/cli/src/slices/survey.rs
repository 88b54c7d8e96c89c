//! The regions that this process sees on the host and in containers, and the names that commands accept for them.

use super::access::{is_of_others, look_at, removed, trust, unreadable};
use super::bounds;
use crate::output::failure::{self, Failure};
use gpuslice_region::names::{self, NameMatch};
use gpuslice_region::{Detached, Monitor, ProcessView, Reader, RegionError, Trust, detached};
use gpuslice_slices::discovery::{Container, FoundRegion, Machine, find};
use std::ffi::OsStr;
use std::path::{Path, PathBuf, absolute};

/// Most names that a message lists.
const MOST_NAMES_TOLD: usize = 20;

/// The regions that this process sees at one moment.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// The processes of this machine.
    pub(crate) machine: Machine,
    /// The paths of this process at which there may be regions.
    here: Vec<PathBuf>,
    /// The regions. First come those that this process can open by a path, sorted by path, then those of containers.
    regions: Vec<FoundRegion>,
}

/// A region that is open for reading.
#[derive(Debug)]
pub(crate) struct OpenRegion {
    pub(crate) region: FoundRegion,
    pub(crate) reader: Reader,
}

impl Survey {
    /// Looks for regions.
    pub(crate) fn now() -> Result<Self, Failure> {
        let mut survey = Self::default();
        survey.refresh()?;
        Ok(survey)
    }

    /// Looks for regions again. A region that is still in its place keeps its path.
    pub(crate) fn refresh(&mut self) -> Result<(), Failure> {
        self.machine = Machine::look().unwrap_or_default();
        let before = std::mem::take(&mut self.regions);
        self.here = names::all().map_err(unreadable)?;
        let found = find(self.here.iter().cloned(), &self.machine.containers());
        let mut found: Vec<FoundRegion> = found.into_values().collect();
        for region in &mut found {
            if let Some(known) = before.iter().find(|known| known.is_same(region)) {
                region.keep_path(known);
            }
        }
        found.sort_by_cached_key(|region| {
            let container = region.private_to().map(|container| container.identity.clone());
            (container, region.inside().to_owned())
        });
        self.regions = found;
        Ok(())
    }

    /// Returns all regions.
    pub(crate) fn regions(&self) -> &[FoundRegion] {
        &self.regions
    }

    /// Returns the region with this path, if the survey has found it.
    pub(crate) fn at(&self, path: &Path) -> Option<&FoundRegion> {
        self.regions.iter().find(|region| region.path == path)
    }

    /// Returns the regions that only containers have, each with its container.
    fn private(&self) -> impl Iterator<Item = (&Container, &FoundRegion)> {
        self.regions.iter().filter_map(|region| Some((region.private_to()?, region)))
    }

    /// Returns the shortest text by which commands find a region.
    pub(crate) fn label(&self, region: &FoundRegion) -> String {
        let Some(container) = region.private_to() else { return names::label(&region.path) };
        let name = region.name();
        let is_free = matches!(names::find_among(&name, &self.here), NameMatch::Nothing);
        if is_free && self.private().filter(|(_, other)| is_named(other, &name)).count() == 1 {
            return name;
        }
        self.qualified(container, region)
    }

    /// Returns the name of a region. If only a container has the region, the container's name precedes it.
    pub(crate) fn full_label(&self, region: &FoundRegion) -> String {
        region.private_to().map_or_else(|| names::label(&region.path), |one| self.qualified(one, region))
    }

    fn qualified(&self, container: &Container, region: &FoundRegion) -> String {
        let identity = &container.identity;
        let is_it = |other: &&Container| other.identity == *identity;
        let called = |text: &str| {
            let mut meant = self.private().map(|(other, _)| other).filter(|one| one.identity.is_called(text));
            meant.all(|one| is_it(&one))
        };
        let name = identity.name.clone().filter(|name| called(name));
        let place = name.unwrap_or_else(|| identity.short());
        let name = region.name();
        let beside = self.private().filter(|(other, _)| is_it(other));
        let is_only = beside.filter(|(_, other)| is_named(other, &name)).count() == 1;
        if is_only { format!("{place}/{name}") } else { format!("{place}{}", region.inside().display()) }
    }

    /// Returns the region that an argument of the command line means.
    pub(crate) fn find(&self, slice: &OsStr) -> Result<FoundRegion, Failure> {
        let text = slice.to_string_lossy();
        if text.contains('/') {
            return self.find_qualified(slice, &text);
        }
        match names::find_among(&text, &self.here) {
            NameMatch::One(path) => Ok(self.at(&path).cloned().unwrap_or_else(|| FoundRegion::here(path))),
            NameMatch::Several(paths) => {
                let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
                Err(ambiguous(&text, "give the path of one", &paths))
            }
            NameMatch::Nothing => {
                let meant = self.private().filter(|(_, region)| is_named(region, &text));
                let meant = self.only_one(&text, meant.map(|(_, region)| region).collect())?;
                meant.or_else(|| self.of_process(&text)).cloned().ok_or_else(|| self.missing(slice))
            }
        }
    }

    /// Returns the region that `CONTAINER/NAME` means, or the region at a path.
    fn find_qualified(&self, slice: &OsStr, text: &str) -> Result<FoundRegion, Failure> {
        if let Some((place, name)) = text.split_once('/').filter(|(place, _)| !place.starts_with('.')) {
            let is_it = |(container, region): &(&Container, &FoundRegion)| {
                let is_inside = region.inside().strip_prefix("/").is_ok_and(|path| path == Path::new(name));
                container.identity.is_called(place) && (is_inside || is_named(region, name))
            };
            let meant = self.private().filter(is_it).map(|(_, region)| region).collect();
            if let Some(region) = self.only_one(text, meant)? {
                return Ok(region.clone());
            }
        }
        let failed = |error| Failure::new(format!("{text}: {error}; give an absolute path"));
        let path = absolute(slice).map_err(failed)?;
        Ok(self.at(&path).cloned().unwrap_or_else(|| FoundRegion::here(path)))
    }

    /// Returns the only region that a text means, or none. Fails if the text means several regions.
    fn only_one<'a>(
        &self,
        text: &str,
        meant: Vec<&'a FoundRegion>,
    ) -> Result<Option<&'a FoundRegion>, Failure> {
        if meant.len() > 1 {
            let labels: Vec<String> = meant.iter().map(|region| self.full_label(region)).collect();
            return Err(ambiguous(text, "give one as CONTAINER/NAME", &labels));
        }
        Ok(meant.first().copied())
    }

    /// Returns the region of the slice that has the process with the number `text`. Names come first, because a slice without a
    /// name is called by the number of its first process.
    fn of_process(&self, text: &str) -> Option<&FoundRegion> {
        let pid: u32 = text.parse().ok()?;
        let is_it = |process: &ProcessView| self.machine.number_of(process) == Some(pid);
        let lives_in = |reader: &Reader| reader.processes().is_ok_and(|all| all.iter().any(is_it));
        self.readable().find(|(_, reader)| lives_in(reader)).map(|(region, _)| region)
    }

    /// Returns every readable region, and prints no message about the others.
    pub(crate) fn readable(&self) -> impl Iterator<Item = (&FoundRegion, Reader)> {
        let open = |region: &FoundRegion| Reader::open(&region.path, trust()).ok().flatten();
        self.regions.iter().filter_map(move |region| Some((region, open(region)?)))
    }

    /// Returns the failure that there is no such slice. The message names the existing slices.
    ///
    /// If the slice's region was removed while processes use it, the message says so instead. If a file has the name, the
    /// message explains how to write a path.
    pub(crate) fn missing(&self, slice: &OsStr) -> Failure {
        let text = slice.to_string_lossy();
        if text.contains('/') {
            let is_there = |path| detached().into_iter().find(|found| found.path == path);
            if let Some(removed) = absolute(slice).ok().and_then(is_there) {
                return Failure::new(removed.to_string());
            }
            return Failure::new(format!(
                "there is no region at {text}; `gpuslice list` shows those there are"
            ));
        }
        let is_it =
            |found: &Detached| names::name_of(&found.path) == text || found.path.file_name() == Some(slice);
        if let Some(removed) = removed().into_iter().find(is_it) {
            return Failure::new(removed.to_string());
        }
        let mut names: Vec<String> = self.readable().map(|(region, _)| self.label(region)).collect();
        let more = names.len().saturating_sub(MOST_NAMES_TOLD);
        names.truncate(MOST_NAMES_TOLD);
        let there = match (names.as_slice(), more) {
            ([], _) => "there is none at all".to_owned(),
            (names, 0) => format!("there are: {}", names.join(", ")),
            (names, more) => format!("there are: {} and {more} more, see `gpuslice list`", names.join(", ")),
        };
        let path = if Path::new(slice).exists() {
            format!(" (for the file of that name write ./{text})")
        } else {
            String::new()
        };
        let hidden = self.hidden().map_or_else(String::new, |words| format!("; {words}"));
        Failure::new(format!("there is no slice {text:?}; {there}{path}{hidden}"))
    }

    /// Returns a remark if containers into which this process may not look could have slices.
    fn hidden(&self) -> Option<String> {
        match self.machine.hidden() {
            0 => None,
            count => Some(format!("containers of other users are not looked into ({count}); root sees all")),
        }
    }

    /// Opens the region of a slice that the user named, for reading.
    pub(crate) fn look(&self, slice: &OsStr) -> Result<OpenRegion, Failure> {
        let region = self.find(slice)?;
        let reader = look_at(&region.path, Trust::AnyOwner).map_err(|error| failed(&region, &error))?;
        let reader = reader.ok_or_else(|| self.missing(slice))?;
        Ok(OpenRegion { region, reader })
    }

    /// Opens the region of a slice that the user named, for a change.
    pub(crate) fn open(&self, slice: &OsStr) -> Result<(FoundRegion, Monitor), Failure> {
        let region = self.find(slice)?;
        let monitor =
            Monitor::open(&region.path, Trust::AnyOwner).map_err(|error| failed(&region, &error))?;
        let none = || bounds::unused(&region).unwrap_or_else(|| self.missing(slice));
        let monitor = monitor.ok_or_else(none)?;
        Ok((region, monitor))
    }

    /// Opens every region for reading, and prints the reason for each one that cannot be read.
    pub(crate) fn look_at_all(&self) -> Vec<OpenRegion> {
        let mut open = Vec::new();
        let mut others: u32 = 0;
        for region in &self.regions {
            match look_at(&region.path, trust()) {
                Ok(Some(reader)) => open.push(OpenRegion { region: region.clone(), reader }),
                Ok(None) => {}
                Err(error) if is_of_others(&error) => others = others.saturating_add(1),
                Err(error) => failure::note(&in_words(region, &error.to_string())),
            }
        }
        removed().iter().for_each(|region| failure::note(&region.to_string()));
        if others > 0 {
            failure::note(&format!("regions of other users are not shown ({others}); root sees all"));
        }
        self.hidden().iter().for_each(|words| failure::note(words));
        open
    }
}

/// Returns true if a text is the name of a region, or the name of its file.
fn is_named(region: &FoundRegion, text: &str) -> bool {
    region.name() == text || region.inside().file_name() == Some(OsStr::new(text))
}

fn ambiguous(text: &str, remedy: &str, choices: &[String]) -> Failure {
    Failure::new(format!("{text:?} means several slices; {remedy}: {}", choices.join(", ")))
}

/// Returns the failure of an access to a region.
pub(crate) fn failed(region: &FoundRegion, error: &RegionError) -> Failure {
    Failure::new(in_words(region, &error.to_string()))
}

/// Replaces the path in a message about a region. A region of a container has a path that only this process knows. The new text
/// is one that people and commands understand.
pub(crate) fn in_words(region: &FoundRegion, text: &str) -> String {
    match region.private_to() {
        None => text.to_owned(),
        Some(_) => text.replace(&region.path.display().to_string(), &shown(region)),
    }
}

/// Returns the path of a region, which commands accept. If only a container has the region, the container's number precedes it.
pub(crate) fn shown(region: &FoundRegion) -> String {
    let container = region.private_to().map(|container| container.identity.short());
    format!("{}{}", container.unwrap_or_default(), region.inside().display())
}
