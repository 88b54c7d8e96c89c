//! Where is what the tests run?

use std::path::{Path, PathBuf};

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

/// The preload library: `GPUSLICE_LIB`, or what was built for release.
pub(crate) fn library() -> PathBuf {
    let built = target().join("release/libgpuslice.so");
    present(named("GPUSLICE_LIB").unwrap_or(built), "the preload library", "ci/stage.sh, or set GPUSLICE_LIB")
}

/// The library that reads slices' figures.
pub(crate) fn reader() -> PathBuf {
    present(target().join("release/libgpuslice_read.so"), "the reader", "ci/stage.sh")
}

/// Folder of the simulated driver: `GPUSLICE_SIMGPU`, or where `ci/stage.sh` puts it.
pub(crate) fn simulated_driver() -> PathBuf {
    let folder = named("GPUSLICE_SIMGPU").unwrap_or_else(|| target().join("simgpu"));
    present(folder.join("libcuda.so.1"), "the simulated driver", "ci/stage.sh, or set GPUSLICE_SIMGPU");
    folder
}

/// The reader of the simulated GPU's ground truth, which is built with it.
pub(crate) fn truth_reader() -> PathBuf {
    let folder = simulated_driver();
    let staged = folder.join("simgpu-truth");
    let built = folder.with_file_name("release").join("simgpu-truth");
    present(if staged.exists() { staged } else { built }, "simgpu-truth", "ci/stage.sh")
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

fn present(path: PathBuf, what: &str, remedy: &str) -> PathBuf {
    assert!(path.exists(), "{what} is missing: {} does not exist; run {remedy}", path.display());
    path
}
