//! Compiles the C programs of `tests/programs` to hosts.

use super::{artefacts, skip};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::SystemTime;

/// Lets one thread of a test program compile at a time. Test programs do not disturb each other, because each renames a finished
/// file into place.
static COMPILER: Mutex<()> = Mutex::new(());

/// Compiles a host of `tests/programs` with `flags`, unless it is newer than its sources.
pub(crate) fn compile(source: &str, name: &str, flags: &[&str]) -> Option<PathBuf> {
    compile_by("cc", source, name, flags).expect("a C compiler is needed: install gcc and libc6-dev")
}

/// Compiles a host for musl. If the compiler for musl is missing, skips `what` with the reason and returns `None`.
pub(crate) fn for_musl(what: &str, source: &str, name: &str, flags: &[&str]) -> Option<PathBuf> {
    let made = compile_by("musl-gcc", source, name, flags);
    if made.is_err() {
        skip(&format!("{what}: there is no musl-gcc; to mend it: apt-get install musl-tools"));
    }
    made.ok().map(|host| host.unwrap_or_else(|| panic!("{source} does not compile for musl")))
}

/// Compiles a host by a compiler. Returns an error if the compiler cannot be started, and `None` if it fails.
fn compile_by(compiler: &str, source: &str, name: &str, flags: &[&str]) -> io::Result<Option<PathBuf>> {
    let _one = COMPILER.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let sources = artefacts::repository().join("tests/programs");
    let folder = artefacts::target().join("programs");
    std::fs::create_dir_all(&folder).expect("the folder of hosts can be made");
    let finished = folder.join(name);
    if newest(&sources) < modified(&finished) {
        return Ok(Some(finished));
    }
    let part = folder.join(format!("{name}.{}", std::process::id()));
    let output = Command::new(compiler)
        .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-o"])
        .args([part.as_path(), sources.join(source).as_path()])
        .args(flags)
        .args(["-ldl", "-lpthread"])
        .output()?;
    if !output.status.success() {
        println!("{}", String::from_utf8_lossy(&output.stderr));
        return Ok(None);
    }
    std::fs::rename(&part, &finished).expect("a host can be renamed");
    Ok(Some(finished))
}

/// Returns a host that uses nothing but the C library.
pub(crate) fn plain(name: &str) -> PathBuf {
    compile(&format!("{name}.c"), name, &[]).unwrap_or_else(|| panic!("{name}.c does not compile"))
}

/// Returns a host that is linked with the driver, as by `-lcuda`.
pub(crate) fn linked(source: &str, name: &str, flags: &[&str]) -> Option<PathBuf> {
    let folder = format!("-L{}", artefacts::simulated_driver().display());
    let all: Vec<_> =
        [folder.as_str(), "-DLINKED"].into_iter().chain(flags.iter().copied()).chain(["-lcuda"]).collect();
    compile(source, name, &all)
}

/// Returns a preload library that is not part of gpuslice.
pub(crate) fn wrapper(name: &str) -> PathBuf {
    let object = format!("{name}.so");
    compile(&format!("{name}.c"), &object, &["-shared", "-fPIC"])
        .unwrap_or_else(|| panic!("{name}.c does not compile"))
}

fn modified(path: &Path) -> SystemTime {
    path.metadata().and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Returns when the last of the sources was changed.
fn newest(folder: &Path) -> SystemTime {
    let entries = std::fs::read_dir(folder).expect("tests/programs can be read");
    entries.flatten().map(|entry| modified(&entry.path())).max().unwrap_or(SystemTime::UNIX_EPOCH)
}
