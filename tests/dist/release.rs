//! The files of a release, and the programs that install and inspect them.

use crate::support::{artefacts, freshness, skip};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::SystemTime;
use tempfile::TempDir;

/// Version of the product.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Returns the folder that `ci/dist.sh` made. If there is none or it is older than the sources, skips `what` and returns `None`.
pub(crate) fn release(what: &str) -> Option<PathBuf> {
    let folder = artefacts::target().join("dist");
    let why = match fs::metadata(folder.join("SHA256SUMS")).and_then(|sums| sums.modified()) {
        Ok(packed) => why_stale(packed),
        Err(_) => Some("there is no release in target/dist".to_owned()),
    };
    let Some(why) = why else { return Some(folder) };
    skip(&format!("{what}: {why}; to mend it: ci/dist.sh"));
    None
}

/// Returns why a release of this time is older than the sources and scripts, or `None` if it is not.
fn why_stale(packed: SystemTime) -> Option<String> {
    let (repository, portable) = (artefacts::repository(), artefacts::target().join("portable"));
    let mut scripts = fs::read_dir(repository.join("ci/dist")).unwrap().map(|entry| entry.unwrap().path());
    let changed = |path: &PathBuf| fs::metadata(path).unwrap().modified().unwrap() > packed;
    if let Some(script) = scripts.find(changed) {
        return Some(format!("target/dist is older than {}", script.display()));
    }
    let names = [
        ("libgpuslice.so", "libgpuslice.d"),
        ("gpuslice", "gpuslice.d"),
        ("gpuslice-agent", "gpuslice-agent.d"),
    ];
    names.iter().find_map(|(name, sources)| {
        let sources = portable.join("release").join(sources);
        let why = freshness::staleness(&portable.join(name), &sources, &repository)?;
        Some(why.trim_end_matches(": run ci/stage.sh").to_owned())
    })
}

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
