//! The files of a release, and the programs that install and inspect them.

pub(crate) use crate::support::release::release;

use crate::support::artefacts;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// Version of the product.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Returns the only file of a release whose name ends with `end`.
pub(crate) fn file(release: &Path, end: &str) -> PathBuf {
    let names = fs::read_dir(release).unwrap().map(|entry| entry.unwrap().path());
    let mut found = names.filter(|path| path.to_string_lossy().ends_with(end));
    found.next().unwrap_or_else(|| panic!("the release has no {end}"))
}

/// Unpacks the archive in a folder of its own.
pub(crate) fn unpacked(release: &Path) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let archive = file(release, ".tar.gz");
    run(Command::new("tar").arg("-C").arg(folder.path()).arg("-xzf").arg(archive));
    folder
}

/// Prepares a script of the repository, on the output of this build.
pub(crate) fn script(path: &str) -> Command {
    let mut command = Command::new(artefacts::repository().join(path));
    command.env("CARGO_TARGET_DIR", artefacts::target());
    command
}

/// Runs a program that must succeed. Returns its standard output.
#[track_caller]
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", said(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns everything that a program printed.
pub(crate) fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned()).concat()
}

/// Returns the paths of the files and links below a folder, sorted.
pub(crate) fn files_below(folder: &Path) -> Vec<String> {
    let listed = run(Command::new("find").arg(folder).args(["!", "-type", "d", "-printf", "%P\\n"]));
    let mut names: Vec<String> = listed.lines().map(str::to_owned).collect();
    names.sort();
    names
}
