//! How does a C program become a host?

use super::artefacts;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::SystemTime;

/// One at a time in each test program; several test programs are kept apart by renaming what is finished.
static COMPILER: Mutex<()> = Mutex::new(());

/// A host from `tests/programs`, with the flags it is compiled with; compiled unless it is newer than its sources.
pub(crate) fn compile(source: &str, name: &str, flags: &[&str]) -> Option<PathBuf> {
    let _one = COMPILER.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let sources = artefacts::repository().join("tests/programs");
    let folder = artefacts::target().join("programs");
    std::fs::create_dir_all(&folder).expect("the folder of hosts can be made");
    let finished = folder.join(name);
    if newest(&sources) < modified(&finished) {
        return Some(finished);
    }
    let part = folder.join(format!("{name}.{}", std::process::id()));
    let output = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-o"])
        .args([part.as_path(), sources.join(source).as_path()])
        .args(flags)
        .args(["-ldl", "-lpthread"])
        .output()
        .expect("a C compiler is needed: install gcc and libc6-dev");
    if !output.status.success() {
        println!("{}", String::from_utf8_lossy(&output.stderr));
        return None;
    }
    std::fs::rename(&part, &finished).expect("a host can be renamed");
    Some(finished)
}

/// A host that uses nothing but the C library.
pub(crate) fn plain(name: &str) -> PathBuf {
    compile(&format!("{name}.c"), name, &[]).unwrap_or_else(|| panic!("{name}.c does not compile"))
}

/// A host that is linked with the driver, as `-lcuda` does it.
pub(crate) fn linked(source: &str, name: &str, flags: &[&str]) -> Option<PathBuf> {
    let folder = format!("-L{}", artefacts::simulated_driver().display());
    let all: Vec<_> =
        [folder.as_str(), "-DLINKED"].into_iter().chain(flags.iter().copied()).chain(["-lcuda"]).collect();
    compile(source, name, &all)
}

/// A preload of another author.
pub(crate) fn wrapper(name: &str) -> PathBuf {
    let object = format!("{name}.so");
    compile(&format!("{name}.c"), &object, &["-shared", "-fPIC"])
        .unwrap_or_else(|| panic!("{name}.c does not compile"))
}

fn modified(path: &Path) -> SystemTime {
    path.metadata().and_then(|data| data.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// When the last of the sources was changed.
fn newest(folder: &Path) -> SystemTime {
    let entries = std::fs::read_dir(folder).expect("tests/programs can be read");
    entries.flatten().map(|entry| modified(&entry.path())).max().unwrap_or(SystemTime::UNIX_EPOCH)
}
