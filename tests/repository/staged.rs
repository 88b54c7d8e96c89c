//! Tests refuse to run an artefact that is older than its sources.

use crate::support::freshness::staleness;
use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

/// A project with two sources and the artefact that was built from them.
struct Project {
    folder: TempDir,
}

impl Project {
    fn new() -> Self {
        let project = Self { folder: tempfile::tempdir().unwrap() };
        for name in ["built.so", "first.rs", "a space.rs"] {
            project.write(name, "");
        }
        let [first, second] = ["first.rs", "a space.rs"].map(|name| project.path(name).display().to_string());
        project.write(
            "built.d",
            &format!("{}: {first} {}\n", "/any\\ where/built.so", second.replace(' ', "\\ ")),
        );
        project
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
        self.is_of(name, 0);
    }

    /// Sets the time of a file, in seconds after a fixed instant.
    fn is_of(&self, name: &str, seconds: u64) {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000 + seconds);
        File::options().write(true).open(self.path(name)).unwrap().set_modified(time).unwrap();
    }

    fn staleness(&self) -> Option<String> {
        staleness(&self.path("built.so"), &self.path("built.d"), self.folder.path())
    }
}

#[test]
fn a_build_as_new_as_its_sources_is_tested() {
    let project = Project::new();
    assert_eq!(project.staleness(), None);
    project.is_of("built.so", 5);
    assert_eq!(project.staleness(), None);
}

#[test]
fn a_source_that_was_changed_after_the_build_is_named() {
    for source in ["first.rs", "a space.rs"] {
        let project = Project::new();
        project.is_of(source, 1);
        let why = format!("built.so is older than {source}: run ci/stage.sh");
        assert_eq!(project.staleness(), Some(why));
    }
}

#[test]
fn a_source_that_is_gone_was_changed() {
    let project = Project::new();
    fs::remove_file(project.path("first.rs")).unwrap();
    assert_eq!(project.staleness().unwrap(), "built.so is older than first.rs: run ci/stage.sh");
}

#[test]
fn a_build_that_is_missing_or_not_by_cargo_is_refused() {
    let project = Project::new();
    fs::remove_file(project.path("built.d")).unwrap();
    assert_eq!(project.staleness().unwrap(), "built.d is missing, so built.so may be old: run ci/stage.sh");
    fs::remove_file(project.path("built.so")).unwrap();
    assert_eq!(project.staleness().unwrap(), "built.so does not exist: run ci/stage.sh");
}
