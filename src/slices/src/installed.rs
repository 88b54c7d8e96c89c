//! Finds the files that belong to this program.

use std::path::PathBuf;

/// Finds the preload library.
///
/// # Errors
/// No place has the library. The text names the places and the remedy.
pub fn library() -> Result<PathBuf, String> {
    find(&WantedFile {
        what: "the preload library libgpuslice.so",
        variable: "GPUSLICE_LIB",
        places: &["libgpuslice.so", "../lib/gpuslice/libgpuslice.so"],
        mend: "unpack the release with all its folders, or build it with ci/stage.sh in a source checkout",
    })
}

/// Finds the folder of the simulated driver's `libcuda.so.1`.
///
/// # Errors
/// No place has the folder. The text names the places and the remedy.
pub fn simulated_driver() -> Result<PathBuf, String> {
    find(&WantedFile {
        what: "the simulated driver's folder",
        variable: "GPUSLICE_SIMGPU",
        places: &["simgpu", "../simgpu", "../lib/gpuslice/simgpu"],
        mend: "no release has it: make it with ci/stage.sh of a source checkout",
    })
}

/// Finds the program that prints the memory and the time that the simulated GPU really gave out.
///
/// # Errors
/// No place has the program. The text names the places and the remedy.
pub fn truth_reader() -> Result<PathBuf, String> {
    find(&WantedFile {
        what: "simgpu-truth, which prints the memory and time that the simulated GPU really gave out",
        variable: "GPUSLICE_TRUTH",
        places: &["simgpu-truth", "../simgpu/simgpu-truth", "../lib/gpuslice/simgpu/simgpu-truth"],
        mend: "no release has it: build it with ci/stage.sh in a source checkout",
    })
}

/// A file, and the places where it may be.
struct WantedFile {
    what: &'static str,
    /// Variable that names the file's place. Its value wins over the other places.
    variable: &'static str,
    /// Places relative to the folder of this program. Links to the program are resolved first.
    places: &'static [&'static str],
    mend: &'static str,
}

fn find(wanted: &WantedFile) -> Result<PathBuf, String> {
    let WantedFile { what, variable, places, mend } = wanted;
    if let Some(named) = std::env::var_os(variable).filter(|value| !value.is_empty()) {
        let path = PathBuf::from(named);
        return path.canonicalize().map_err(|error| {
            format!("{variable} names {}: {error}; name {what}, or unset it", path.display())
        });
    }
    let program = std::env::current_exe().and_then(|path| path.canonicalize()).unwrap_or_default();
    let folder = program.parent().unwrap_or(&program);
    let candidates: Vec<PathBuf> = places.iter().map(|place| folder.join(place)).collect();
    candidates.iter().find_map(|candidate| candidate.canonicalize().ok()).ok_or_else(|| {
        let looked: Vec<String> = candidates.iter().map(|path| path.display().to_string()).collect();
        format!("{what} is not at {}; {mend}, or name it in {variable}", looked.join(" or "))
    })
}
