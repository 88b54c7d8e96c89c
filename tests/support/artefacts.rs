//! Paths of the libraries and programs that the tests run.

use super::freshness;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Returns the root folder of the repository.
pub(crate) fn repository() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.ancestors().nth(2).expect("the package lies two folders deep").to_owned()
}

/// Returns Cargo's output folder.
pub(crate) fn target() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .expect("Cargo's folder for tests lies in its target")
        .to_owned()
}

/// Returns the preload library: `GPUSLICE_LIB`, or the one that `ci/stage.sh` built.
pub(crate) fn library() -> PathBuf {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    let find =
        || named_file("GPUSLICE_LIB").unwrap_or_else(|| staged("release/libgpuslice.so", "libgpuslice"));
    LIBRARY.get_or_init(find).clone()
}

/// Returns the library that reads the figures of slices.
pub(crate) fn reader() -> PathBuf {
    static READER: OnceLock<PathBuf> = OnceLock::new();
    READER.get_or_init(|| staged("release/libgpuslice_read.so", "libgpuslice_read")).clone()
}

/// Returns the agent of a node.
pub(crate) fn agent() -> PathBuf {
    static AGENT: OnceLock<PathBuf> = OnceLock::new();
    AGENT.get_or_init(|| staged("release/gpuslice-agent", "gpuslice-agent")).clone()
}

/// Returns the example program that is linked with cudarc.
pub(crate) fn cudarc_example() -> PathBuf {
    static EXAMPLE: OnceLock<PathBuf> = OnceLock::new();
    EXAMPLE.get_or_init(|| staged("release/example-cudarc", "example-cudarc")).clone()
}

/// Returns the folder of the simulated driver: `GPUSLICE_SIMGPU`, or the one that `ci/stage.sh` filled.
pub(crate) fn simulated_driver() -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| freshness::simulated_driver(&target(), &repository())).clone()
}

/// Returns the program that reads the simulated GPU's ground truth. It is built with the simulated driver.
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

/// Returns folders of real drivers with the name of each series, from `GPUSLICE_TEST_DRIVERS` or `build/drivers`.
pub(crate) fn real_drivers() -> Vec<(String, PathBuf)> {
    let folder = named("GPUSLICE_TEST_DRIVERS").unwrap_or_else(|| repository().join("build/drivers"));
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut drivers: Vec<_> = entries
        .filter(|entry| entry.path().join("libcuda.so.1").exists())
        .map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()))
        .collect();
    drivers.sort();
    drivers
}

/// Returns the folder of NVIDIA's headers, `GPUSLICE_TEST_HEADERS` or `build/headers`, or `None` if they were not fetched.
pub(crate) fn headers() -> Option<PathBuf> {
    let folder = named("GPUSLICE_TEST_HEADERS").unwrap_or_else(|| repository().join("build/headers"));
    folder.join("cuda.h").exists().then_some(folder)
}

/// Finds a shared object by its file name, in the usual folders of the system or in `build/allocators`.
pub(crate) fn system_object(name: &str) -> Option<PathBuf> {
    let folders =
        ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/lib/x86_64-linux-gnu"].map(PathBuf::from);
    let own = repository().join("build/allocators");
    folders.into_iter().chain([own]).map(|folder| folder.join(name)).find(|path| path.exists())
}

fn named(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Returns the file that a variable names. The age of the file is not checked, because the user chose it.
fn named_file(variable: &str) -> Option<PathBuf> {
    named(variable).map(|path| present(path, variable))
}

fn present(path: PathBuf, variable: &str) -> PathBuf {
    assert!(path.exists(), "{} does not exist: see {variable}", path.display());
    path
}

/// Returns a file that `ci/stage.sh` built. `path` is its place in Cargo's folder, `dep_info` the name of its dep-info file.
fn staged(path: &str, dep_info: &str) -> PathBuf {
    let artefact = target().join(path);
    let sources = target().join("release").join(dep_info).with_extension("d");
    if let Some(why) = freshness::staleness(&artefact, &sources, &repository()) {
        panic!("{why}");
    }
    artefact
}
