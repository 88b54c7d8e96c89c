//! The Debian packages: their files, and an upgrade while a slice runs.

use super::archive::expected;
use super::release::{VERSION, files_below, release, run, said, script, unpacked};
use crate::support::bench::Bench;
use crate::support::other_user::is_root;
use crate::support::skip;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// Version of an upgrade.
const NEXT: &str = "9.0.0";
/// Packages of the base system that gpuslice's packages depend on.
const BASE: &str = "Package: libc6\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2.31-13\n\
    Maintainer: nobody\nDescription: the C library\n\n";

/// Returns the paths of both packages in a folder.
fn packages(folder: &Path, version: &str) -> [PathBuf; 2] {
    ["gpuslice", &format!("libgpuslice-{version}")]
        .map(|name| folder.join(format!("{name}_{version}_amd64.deb")))
}

/// Returns true if packages can be inspected.
fn has_dpkg(what: &str) -> bool {
    let is_there = Command::new("dpkg-deb").arg("--version").output().is_ok();
    if !is_there {
        skip(&format!("{what}: there is no dpkg; elsewhere: on Debian or Ubuntu"));
    }
    is_there
}

/// A root folder with nothing in it but the state of dpkg.
struct Root(TempDir);

impl Root {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("var/lib/dpkg");
        for name in ["info", "updates", "triggers"] {
            fs::create_dir_all(state.join(name)).unwrap();
        }
        fs::write(state.join("status"), BASE).unwrap();
        fs::write(state.join("info/libc6.list"), "").unwrap();
        Self(folder)
    }

    fn dpkg(&self) -> Command {
        let mut dpkg = Command::new("dpkg");
        dpkg.arg(format!("--root={}", self.0.path().display())).arg("--force-script-chrootless");
        dpkg.args(["--log=/dev/null", "--no-pager", "--force-unsafe-io"]).env("LC_ALL", "C.UTF-8");
        dpkg
    }

    fn install(&self, packages: &[PathBuf]) {
        run(self.dpkg().arg("--install").args(packages));
    }

    fn remove(&self, package: &str) -> Output {
        self.dpkg().args(["--remove", package]).output().unwrap()
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn library(&self, version: &str) -> PathBuf {
        self.at(&format!("usr/lib/gpuslice/{version}/libgpuslice.so"))
    }
}

/// Makes the same files into packages of the next version.
fn next_version(release: &Path) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let tree = unpacked(release);
    let libraries = tree.path().join("lib/gpuslice");
    fs::rename(libraries.join(VERSION), libraries.join(NEXT)).unwrap();
    fs::remove_file(libraries.join("libgpuslice.so")).unwrap();
    std::os::unix::fs::symlink(format!("{NEXT}/libgpuslice.so"), libraries.join("libgpuslice.so")).unwrap();
    let mut make = script("ci/dist/deb.sh");
    make.arg(tree.path()).arg(folder.path()).env("VERSION", NEXT).env("SOURCE_DATE_EPOCH", "0");
    run(&mut make);
    folder
}

#[test]
fn the_packages_have_each_file_of_the_archive() {
    let Some(release) = release("the Debian packages of a release") else { return };
    if !has_dpkg("the Debian packages of a release") {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    for package in packages(&release, VERSION) {
        run(Command::new("dpkg-deb").arg("--extract").arg(package).arg(root.path()));
    }
    let found: BTreeSet<String> = files_below(root.path()).into_iter().collect();
    let place = |file: String| {
        let file = file.replace("zsh/site-functions", "zsh/vendor-completions");
        if file.contains("/man1/") { format!("usr/{file}.gz") } else { format!("usr/{file}") }
    };
    let mut all: BTreeSet<String> = expected().into_iter().map(place).collect();
    all.insert("usr/share/doc/gpuslice/copyright".to_owned());
    all.insert(format!("usr/share/doc/libgpuslice-{VERSION}/copyright"));
    assert_eq!(found, all);
}

#[test]
fn an_upgrade_keeps_the_library_of_a_slice_that_runs() {
    let what = "an upgrade of the Debian packages";
    let Some(release) = release(what) else { return };
    if !has_dpkg(what) {
        return;
    }
    if !is_root() {
        return skip(&format!("{what}: dpkg installs for root alone; to mend it: run the tests as root"));
    }
    let root = Root::new();
    root.install(&packages(&release, VERSION));
    assert!(!root.at("etc").exists(), "the unit of the agent is enabled");
    assert_eq!(said(&root.dpkg().arg("--verify").output().unwrap()), "");

    let old = root.library(VERSION);
    let before = (fs::metadata(&old).unwrap().ino(), fs::read(&old).unwrap());
    let bench = Bench::simulated_without_contexts().with_quick_nvml().with("GPU_MEM_LIMIT", "64MiB");
    let start = || {
        let program = bench.host("witness", &["16777216"]).preload(&old).start();
        assert_eq!(program.hear().as_deref(), Some("ready"));
        program
    };
    let mut first = start();
    let next = next_version(&release);
    root.install(&packages(next.path(), NEXT));

    assert!(before == (fs::metadata(&old).unwrap().ino(), fs::read(&old).unwrap()));
    let link = fs::canonicalize(root.at("usr/lib/gpuslice/libgpuslice.so")).unwrap();
    assert_eq!(link, root.library(NEXT).canonicalize().unwrap());
    // A program of the slice that starts now has the old library and shares the quota.
    let second = start();
    assert_eq!(first.numbers("left"), [0, 32 << 20]);
    assert!(first.ask("take 67108864").starts_with("2 "), "it passes the quota");
    drop(second);

    // The package is installed again: the path has another file, and the program keeps the old one.
    root.install(&packages(&release, VERSION)[1..]);
    assert_ne!(before.0, fs::metadata(&old).unwrap().ino());
    let package = format!("libgpuslice-{VERSION}");
    let refused = root.remove(&package);
    assert!(!refused.status.success() && old.exists(), "{refused:?}");
    let told = format!("processes use {}: {}; end them", old.display(), first.pid());
    assert!(said(&refused).contains(&told), "{told}: {}", said(&refused));
    first.end();
    let removed = root.remove(&package);
    assert!(removed.status.success() && !old.parent().unwrap().exists(), "{removed:?}");
    for package in ["gpuslice", &format!("libgpuslice-{NEXT}")] {
        assert!(root.remove(package).status.success());
    }
    assert!(!root.at("usr").exists(), "{:?}", files_below(&root.at("usr")));
}
