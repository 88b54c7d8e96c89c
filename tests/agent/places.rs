//! A machine with a container engine, and the files that an operator gives its containers.
//!
//! The containers consist of Debian's packages, from `ci/bases.sh`.

use crate::MIB;
use crate::engines::{Kind, Session};
use crate::support::bench::Bench;
use crate::support::command::PROGRAM;
use crate::support::living::Living;
use crate::support::outcome::Outcome;
use crate::support::{artefacts, compiler, skip};
use crate::tenants::take;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The library's path in a container, with its version.
pub(crate) const LIBRARY: &str =
    concat!("/usr/local/lib/gpuslice/", env!("CARGO_PKG_VERSION"), "/libgpuslice.so");
pub(crate) const REGION: &str = "/run/gpuslice/region";
pub(crate) const CONF: &str = "/run/gpuslice/conf";
pub(crate) const PRELOAD: &str = "/etc/ld.so.preload";
/// Quota of the operator's file.
pub(crate) const QUOTA: u64 = 256 * MIB;

/// A machine with a simulated GPU, an engine, and files for containers.
pub(crate) struct Place {
    pub(crate) session: Session,
    pub(crate) bench: Bench,
    pub(crate) files: TempDir,
}

/// The mounts of a container by their paths there, and further options of the engine.
pub(crate) struct Parts {
    mounts: BTreeMap<String, String>,
    options: Vec<String>,
}

/// Returns a place for each engine that runs containers. Each of the others is skipped with the reason.
pub(crate) fn places(what: &'static str) -> impl Iterator<Item = Place> {
    let base = base("here", what).is_some();
    let kinds = [Kind::Podman, Kind::Docker].into_iter().filter(move |_| base);
    kinds.filter_map(move |kind| Place::make(kind, what))
}

/// Returns a file system of `ci/bases.sh`. If there is none, skips `what` and returns `None`.
pub(crate) fn base(name: &str, what: &str) -> Option<PathBuf> {
    let base = artefacts::repository().join("build/bases").join(name);
    if !base.exists() {
        skip(&format!("{what}: there is no file system of Debian's packages; to mend it: ci/bases.sh"));
        return None;
    }
    Some(base)
}

impl Place {
    /// Makes a place with an engine, if it runs containers.
    pub(crate) fn make(kind: Kind, what: &str) -> Option<Self> {
        Self::make_on(Bench::simulated_without_contexts(), kind, what)
    }

    pub(crate) fn make_on(bench: Bench, kind: Kind, what: &str) -> Option<Self> {
        let files = tempfile::tempdir_in("/dev/shm").unwrap();
        let cdi = files.path().join("var/run/cdi");
        fs::create_dir_all(&cdi).unwrap();
        let session = Session::start(kind, &cdi, what)?;
        let place = Self { session, bench: bench.with_quick_nvml(), files };
        // All users of a container can enter these folders, and use the simulated GPU.
        for (folder, mode) in [
            (place.bench.folder(), 0o777),
            (place.driver(), 0o755),
            (place.folder("conf"), 0o755),
            (place.folder("region"), 0o777),
        ] {
            fs::set_permissions(folder, Permissions::from_mode(mode)).unwrap();
        }
        place.set(&format!("GPU_MEM_LIMIT={QUOTA}\n"));
        fs::write(place.files.path().join("preload"), format!("{LIBRARY}\n")).unwrap();
        let version = place.folder("lib").join(env!("CARGO_PKG_VERSION"));
        fs::create_dir(&version).unwrap();
        fs::copy(artefacts::library(), version.join("libgpuslice.so")).unwrap();
        symlink(LIBRARY, place.folder("lib").join("libgpuslice.so")).unwrap();
        Some(place)
    }

    /// Returns a folder among the files for containers.
    pub(crate) fn folder(&self, name: &str) -> PathBuf {
        let folder = self.files.path().join(name);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    pub(crate) fn driver(&self) -> PathBuf {
        Path::new(&self.bench.absolute("")).to_owned()
    }

    /// Writes the operator's file.
    pub(crate) fn set(&self, text: &str) {
        fs::write(self.folder("conf").join("config"), text).unwrap();
    }

    /// Returns the parts of a container with programs and a GPU, and without gpuslice.
    pub(crate) fn bare(&self, base: &str) -> Parts {
        let programs = artefacts::repository().join("build/bases").join(base).join("usr");
        let witness = compiler::plain("witness");
        let mut parts = Parts { mounts: BTreeMap::new(), options: Vec::new() };
        for name in ["bin", "lib", "lib64"] {
            parts = parts.with(&programs.join(name), &format!("/usr/{name}"), "ro");
        }
        for (name, value) in self.bench.variables() {
            parts = parts.option(&["-e", &format!("{name}={value}")]);
        }
        parts = parts.option(&["-e", "LD_LIBRARY_PATH=/driver", "-e", "SIMGPU_STATE=/bench/state"]);
        parts
            .with(&self.bench.folder(), "/bench", "rw")
            .with(&self.driver(), "/driver", "ro")
            .with(witness.parent().unwrap(), "/programs", "ro")
            .with(Path::new(PROGRAM), "/usr/local/bin/gpuslice", "ro")
    }

    /// Returns the parts of a container with all files of an operator.
    pub(crate) fn whole(&self) -> Parts {
        self.bare("here")
            .with(&self.folder("lib"), "/usr/local/lib/gpuslice", "ro")
            .with(&self.files.path().join("preload"), PRELOAD, "ro")
            .with(&self.folder("conf"), CONF, "ro")
            .with(&self.folder("region"), REGION, "rw")
    }

    /// Writes a specification of the device `nvidia.com/gpu=0`: the simulated GPU, and all programs of the image. `python` is a
    /// script.
    pub(crate) fn specify_gpu(&self, python: &str) {
        let parts = self.bare("here").with(&self.python(python), "/usr/local/bin/python", "ro");
        let mounts: Vec<Value> = parts.mounts.iter().map(|(to, mount)| specified(to, mount)).collect();
        let (mut env, mut options) = (Vec::new(), parts.options.iter());
        while let Some(option) = options.next() {
            assert_eq!(option, "-e");
            env.extend(options.next());
        }
        let device = json!({ "name": "0", "containerEdits": { "env": env, "mounts": mounts } });
        let spec = json!({ "cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [device] });
        fs::write(self.files.path().join("var/run/cdi/nvidia.json"), spec.to_string()).unwrap();
    }

    /// Writes a script that stands for Python in an image.
    pub(crate) fn python(&self, script: &str) -> PathBuf {
        let path = self.files.path().join("python");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// Returns the words that start a program with nothing but the variables of the simulated GPU, whose driver is in a folder.
    pub(crate) fn cleared(&self, driver: &str) -> Vec<String> {
        let path = "PATH=/usr/local/bin:/usr/bin";
        let words = ["env", "-i", path, &format!("LD_LIBRARY_PATH={driver}"), "SIMGPU_STATE=/bench/state"];
        let variables = self.bench.variables().iter().map(|(name, value)| format!("{name}={value}"));
        words.map(str::to_owned).into_iter().chain(variables).collect()
    }

    pub(crate) fn keep(&mut self, name: &str, parts: &Parts) {
        self.session.keep(name, &parts.words());
    }

    /// Runs a command in a container to its end.
    pub(crate) fn run(&self, name: &str, options: &[&str], words: &[&str]) -> Outcome {
        self.session.command(&exec(name, options, words)).run()
    }

    /// Starts a program in a container that takes memory on order. `before` are the words of a command that starts the program.
    fn start(&self, name: &str, options: &[&str], before: &[&str]) -> Living {
        // The first program makes the state of the simulated GPU. Before that there is no file whose mode could change.
        let _none_yet = fs::set_permissions(self.bench.folder().join("state"), Permissions::from_mode(0o666));
        let words = [before, &["/programs/witness", "2097152"]].concat();
        self.session.command(&exec(name, options, &words)).start()
    }

    /// Starts a program like [`start`](Self::start), and waits until it has memory.
    #[track_caller]
    pub(crate) fn witness(&self, name: &str, options: &[&str], before: &[&str]) -> Living {
        let program = self.start(name, options, before);
        if program.hear().as_deref() != Some("ready") {
            panic!("{options:?} {before:?} is refused: {:?}", program.end());
        }
        program
    }

    /// Starts a program that does not get its memory. Returns its errors.
    #[track_caller]
    pub(crate) fn refused(&self, name: &str, options: &[&str]) -> String {
        let program = self.start(name, options, &[]);
        assert_eq!(program.hear(), None);
        program.end().1
    }

    /// Returns the findings of `gpuslice doctor` in a container.
    pub(crate) fn doctor(&self, name: &str, options: &[&str]) -> Value {
        let told = self.run(name, options, &["gpuslice", "doctor", "--json"]);
        serde_json::from_str(&told.out).unwrap_or_else(|_| panic!("{told}"))
    }
}

impl Parts {
    pub(crate) fn with(mut self, from: &Path, to: &str, mode: &str) -> Self {
        self.mounts.insert(to.to_owned(), format!("{}:{to}:{mode}", from.display()));
        self
    }

    pub(crate) fn without(mut self, to: &str) -> Self {
        self.mounts.remove(to).expect("it is mounted");
        self
    }

    pub(crate) fn option(mut self, words: &[&str]) -> Self {
        self.options.extend(words.iter().map(|word| (*word).to_owned()));
        self
    }

    fn words(&self) -> Vec<String> {
        let mounts = self.mounts.values().flat_map(|mount| ["-v".to_owned(), mount.clone()]);
        mounts.chain(self.options.iter().cloned()).collect()
    }
}

/// Returns a mount `FROM:TO:MODE` in the form of a specification.
fn specified(to: &str, mount: &str) -> Value {
    let (from, mode) = mount.split_once(&format!(":{to}:")).unwrap();
    json!({ "hostPath": from, "containerPath": to, "options": [mode, "bind"] })
}

/// Returns the words that run a command in a container.
fn exec(name: &str, options: &[&str], words: &[&str]) -> Vec<String> {
    [&["exec", "-i"], options, &[name], words].concat().into_iter().map(str::to_owned).collect()
}

/// Lets a program take `bytes` of memory and never free them.
#[track_caller]
pub(crate) fn keep(program: &mut Living, bytes: u64) {
    let kept = program.ask(&format!("keep {bytes}"));
    assert!(kept.starts_with("0 "), "{kept}");
}

/// Fails unless a program has `bytes` left of its quota, to 16 MiB.
#[track_caller]
pub(crate) fn has_left(program: &mut Living, bytes: u64) {
    assert_eq!(take(program, bytes + 8 * MIB), "2", "it has more than {bytes} bytes left");
    assert_eq!(take(program, bytes - 8 * MIB), "0", "it has less than {bytes} bytes left");
}

/// Fails unless the doctor has a finding with this check and level, and `words` in its text.
#[track_caller]
pub(crate) fn has(told: &Value, check: &str, level: &str, words: &str) {
    let is_it = |found: &Value| {
        let what = found["what"].as_str().unwrap_or_default();
        found["check"] == check && found["level"] == level && what.contains(words)
    };
    assert!(told["findings"].as_array().unwrap().iter().any(is_it), "no {check} {level} {words:?} in {told}");
}
