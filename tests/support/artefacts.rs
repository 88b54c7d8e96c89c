//! Where is what the tests run?

use super::freshness;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// The top of the repository.
pub(crate) fn repository() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).expect("the package lies two folders deep").to_owned()
}

/// Cargo's output folder.
pub(crate) fn target() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .expect("Cargo's folder for tests lies in its target")
        .to_owned()
}

/// The preload library: `GPUSLICE_LIB`, or what `ci/stage.sh` built.
pub(crate) fn library() -> PathBuf {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    let find =
        || named_file("GPUSLICE_LIB").unwrap_or_else(|| staged("release/libgpuslice.so", "libgpuslice"));
    LIBRARY.get_or_init(find).clone()
}

/// The library that reads slices' figures.
pub(crate) fn reader() -> PathBuf {
    static READER: OnceLock<PathBuf> = OnceLock::new();
    READER.get_or_init(|| staged("release/libgpuslice_read.so", "libgpuslice_read")).clone()
}

/// The agent of a node.
pub(crate) fn agent() -> PathBuf {
    static AGENT: OnceLock<PathBuf> = OnceLock::new();
    AGENT.get_or_init(|| staged("release/gpuslice-agent", "gpuslice-agent")).clone()
}

/// The example program that is linked with cudarc.
pub(crate) fn cudarc_example() -> PathBuf {
    static EXAMPLE: OnceLock<PathBuf> = OnceLock::new();
    EXAMPLE.get_or_init(|| staged("release/example-cudarc", "example-cudarc")).clone()
}

/// Folder of the simulated driver: `GPUSLICE_SIMGPU`, or where `ci/stage.sh` puts it.
pub(crate) fn simulated_driver() -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| freshness::simulated_driver(&target(), &repository())).clone()
}

/// The reader of the simulated GPU's ground truth, which is built with it.
pub(crate) fn truth_reader() -> PathBuf {
    static TRUTH: OnceLock<PathBuf> = OnceLock::new();
    let find = || {
        if named("GPUSLICE_SIMGPU").is_none() {
            return staged("release/simgpu-truth", "simgpu-truth");
        }
        let folder = simulated_driver();
        let beside = folder.join("simgpu-truth");
        let built = folder.with_file_name("release").join("simgpu-truth");
        present(if beside.exists() { beside } else { built }, "GPUSLICE_SIMGPU")
    };
    TRUTH.get_or_init(find).clone()
}

/// Folders of real drivers, with the name of each series: those in `GPUSLICE_DRIVERS`, or in `build/drivers`.
pub(crate) fn real_drivers() -> Vec<(String, PathBuf)> {
    let folder = named("GPUSLICE_DRIVERS").unwrap_or_else(|| repository().join("build/drivers"));
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut drivers: Vec<_> = entries
        .filter(|entry| entry.path().join("libcuda.so.1").exists())
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))
        .collect();
    drivers.sort();
    drivers
}

/// NVIDIA's headers: `GPUSLICE_HEADERS`, or `build/headers`. None where they were not fetched.
pub(crate) fn headers() -> Option<PathBuf> {
    let folder = named("GPUSLICE_HEADERS").unwrap_or_else(|| repository().join("build/headers"));
    folder.join("cuda.h").exists().then_some(folder)
}

/// A shared object by the start of its file name, in the usual folders of the system or in `build`.
pub(crate) fn system_object(name: &str) -> Option<PathBuf> {
    let folders =
        ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/lib/x86_64-linux-gnu"].map(PathBuf::from);
    let own = repository().join("build/allocators");
    folders.into_iter().chain([own]).map(|folder| folder.join(name)).find(|path| path.exists())
}

fn named(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// A file that a variable names instead of what `ci/stage.sh` built. Its age is not checked: the user chose it.
fn named_file(variable: &str) -> Option<PathBuf> {
    named(variable).map(|path| present(path, variable))
}

fn present(path: PathBuf, variable: &str) -> PathBuf {
    assert!(path.exists(), "{} does not exist: see {variable}", path.display());
    path
}

/// A file that `ci/stage.sh` built, by its place in Cargo's folder and by the name of its dep-info file there.
fn staged(path: &str, dep_info: &str) -> PathBuf {
    let artefact = target().join(path);
    let sources = target().join("release").join(dep_info).with_extension("d");
    if let Some(why) = freshness::staleness(&artefact, &sources, &repository()) {
        panic!("{why}");
    }
    artefact
}
