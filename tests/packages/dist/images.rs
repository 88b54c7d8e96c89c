//! The container images: Buildah builds them without any registry, and the agent starts in its own by Podman.

use super::release::{VERSION, file, files_below, release, run, said};
use crate::support::{artefacts, skip};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Settings of both programs in a container, which may not have the limits that they set by themselves.
const SETTINGS: &str =
    "[containers]\ndefault_ulimits=[\"nofile=1024:1024\",\"nproc=1024:1024\"]\n[engine]\nruntime=\"runc\"\n";
/// Files of a C library that the agent needs.
const C_LIBRARY: [&str; 4] = [
    "lib64/ld-linux-x86-64.so.2",
    "lib/x86_64-linux-gnu/libc.so.6",
    "lib/x86_64-linux-gnu/libdl.so.2",
    "lib/x86_64-linux-gnu/libpthread.so.0",
];

/// Buildah and Podman, with a storage of their own.
struct Engine(TempDir);

impl Engine {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("containers.conf"), SETTINGS).unwrap();
        Self(folder)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Prepares a program, on the storage.
    fn program(&self, name: &str) -> Command {
        let mut program = Command::new(name);
        program.arg("--root").arg(self.at("storage")).arg("--runroot").arg(self.at("run"));
        program.args(["--storage-driver", "vfs"]).env("CONTAINERS_CONF", self.at("containers.conf"));
        program
    }

    fn podman(&self, words: &[&str]) -> Command {
        let mut podman = self.program("podman");
        podman.args(["--cgroup-manager", "cgroupfs"]).args(words);
        podman
    }

    /// Prepares the build of an image from a recipe and the files of a folder.
    fn build(&self, tag: &str, recipe: &Path, context: &Path, more: &[&str]) -> Command {
        let mut build = self.program("buildah");
        build.args(["build", "--isolation", "chroot", "--tag", tag]).args(more);
        build.arg("-f").arg(recipe).arg(context);
        build
    }

    /// Builds an image of a release.
    fn build_target(&self, target: &str, context: &Path) {
        let recipe = artefacts::repository().join("ci/dist/Containerfile");
        let more = ["--target", target, "--build-arg", "BASE=localhost/base"];
        run(&mut self.build(target, &recipe, context, &more));
    }

    /// Builds an image from the C library of this machine. If nothing can be built, skips with the reason and returns `None`.
    fn build_base(&self) -> Option<()> {
        let what = "the container images of a release";
        let base = self.at("base");
        for path in C_LIBRARY {
            let place = base.join(path);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            if let Err(error) = fs::copy(Path::new("/").join(path), place) {
                skip(&format!("{what}: /{path}: {error}; elsewhere: on Debian or Ubuntu"));
                return None;
            }
        }
        let recipe = self.at("Containerfile");
        fs::write(&recipe, "FROM scratch\nCOPY . /\n").unwrap();
        let Ok(built) = self.build("base", &recipe, &base, &[]).output() else {
            skip(&format!("{what}: there is no buildah; to mend it: apt-get install buildah"));
            return None;
        };
        if !built.status.success() {
            let said = said(&built).replace('\n', " ");
            skip(&format!("{what}: buildah builds none: {said}; elsewhere: as root"));
            return None;
        }
        Some(())
    }
}

#[test]
fn images_are_built_from_a_release_and_the_agent_starts() {
    let Some(release) = release("the container images of a release") else { return };
    let engine = Engine::new();
    if engine.build_base().is_none() {
        return;
    }
    let context = tempfile::tempdir().unwrap();
    let archive = file(&release, ".tar.gz");
    fs::copy(&archive, context.path().join(archive.file_name().unwrap())).unwrap();
    for target in ["library", "agent"] {
        engine.build_target(target, context.path());
    }
    let Ok(mounted) = engine.podman(&["image", "mount", "library"]).output() else {
        return skip("the files of the images: there is no podman; to mend it: apt-get install podman runc");
    };
    assert!(mounted.status.success(), "{}", said(&mounted));
    let mounted = String::from_utf8_lossy(&mounted.stdout).into_owned();
    let mut files = files_below(Path::new(mounted.trim()));
    files.retain(|name| !name.starts_with("usr/local/share/doc/"));
    let library = format!("usr/local/lib/gpuslice/{VERSION}/libgpuslice.so");
    assert_eq!(files, ["usr/local/bin/gpuslice", &library, "usr/local/lib/gpuslice/libgpuslice.so"]);

    let started = engine.podman(&["run", "--rm", "--network=none", "agent", "--version"]).output().unwrap();
    if !started.status.success() && !said(&started).contains("gpuslice") {
        let said = said(&started).replace('\n', " ");
        return skip(&format!(
            "the agent in its image: podman runs no container: {said}; elsewhere: as root"
        ));
    }
    assert_eq!(said(&started), format!("gpuslice-agent {VERSION}\n"));
}
