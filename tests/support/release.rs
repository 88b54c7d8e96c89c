//! The files of a release, which `ci/dist.sh` makes.

use super::{artefacts, freshness, skip};
use std::fs;
use std::path::PathBuf;
use std::time::SystemTime;

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

/// Returns why a release packed at this time is older than the sources or scripts, or `None` if it is not.
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
