//! Staleness check for the files that `ci/stage.sh` built: no test may run an artefact that is older than its sources.
//!
//! `cargo test` builds the tests, and neither the preload library nor the simulated driver. Cargo leaves the list of an
//! artefact's sources beside it (`libgpuslice.d` beside `libgpuslice.so`); this module compares their times.

use std::path::{Path, PathBuf};
use std::time::SystemTime;
use std::{fs, io};

/// Returns why an artefact must not be tested, or `None` if it is as new as each of its sources.
///
/// `sources` is Cargo's dep-info file of the artefact. Paths in the answer are relative to `root` where they lie in it.
pub(crate) fn staleness(artefact: &Path, sources: &Path, root: &Path) -> Option<String> {
    let short = |path: &Path| path.strip_prefix(root).unwrap_or(path).display().to_string();
    let Ok(built) = modified(artefact) else {
        return Some(format!("{} does not exist: run ci/stage.sh", short(artefact)));
    };
    let Ok(text) = fs::read_to_string(sources) else {
        return Some(format!(
            "{} is missing, so {} may be old: run ci/stage.sh",
            short(sources),
            short(artefact)
        ));
    };
    let changed = |source: &PathBuf| modified(source).map_or(true, |changed| changed > built);
    let source = listed(&text).into_iter().map(|source| root.join(source)).find(changed)?;
    Some(format!("{} is older than {}: run ci/stage.sh", short(artefact), short(&source)))
}

fn modified(path: &Path) -> io::Result<SystemTime> {
    path.metadata()?.modified()
}

/// Returns the sources in a dep-info file, which is one rule of make: `artefact: source source`. A backslash precedes each space
/// that belongs to a path.
fn listed(text: &str) -> Vec<PathBuf> {
    let rule = text.lines().next().unwrap_or_default().replace("\\ ", "\0");
    rule.split(' ')
        .skip(1)
        .filter(|path| !path.is_empty())
        .map(|path| path.replace('\0', " ").into())
        .collect()
}

/// Returns the folder of the simulated driver: the one that `GPUSLICE_SIMGPU` names, at any age, or the one of `ci/stage.sh`.
pub(crate) fn simulated_driver(target: &Path, root: &Path) -> PathBuf {
    if let Some(named) =
        std::env::var_os("GPUSLICE_SIMGPU").filter(|value| !value.is_empty()).map(PathBuf::from)
    {
        assert!(
            named.join("libcuda.so.1").exists(),
            "GPUSLICE_SIMGPU: {} has no libcuda.so.1",
            named.display()
        );
        return named;
    }
    for (library, sources) in [("libcuda.so.1", "libcuda.d"), ("libnvidia-ml.so.1", "libnvidia_ml.d")] {
        let (library, sources) = (target.join("simgpu").join(library), target.join("release").join(sources));
        if let Some(why) = staleness(&library, &sources, root) {
            panic!("{why}");
        }
    }
    target.join("simgpu")
}
