//! `gpuslice doctor`: finds real faults, says how to mend them, and leaves nothing behind.

mod drivers;
mod preload;
mod programs;
mod settings;

use crate::support::command::{Ended, PROGRAM, ask, end, gpuslice};
use crate::support::{artefacts, executable, skip, skip_without_rights};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

/// A machine: a simulated driver or none, a state, a region, a limit, and the library preloaded.
struct Machine {
    folder: TempDir,
    variables: Vec<(String, String)>,
}

/// Result of a run of the doctor.
struct Told {
    ended: Ended,
    findings: Vec<Value>,
}

impl Machine {
    fn new() -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").expect("a folder can be made");
        let region = folder.path().join("region").display().to_string();
        let library = artefacts::library().display().to_string();
        Self { folder, variables: Vec::new() }
            .with("GPUSLICE_REGION", &region)
            .with("GPU_MEM_LIMIT", "4GiB")
            .with("LD_PRELOAD", &library)
    }

    fn simulated() -> Self {
        let machine = Self::new();
        let state = machine.path("state").display().to_string();
        let driver = artefacts::simulated_driver().display().to_string();
        machine.with("LD_LIBRARY_PATH", &driver).with("SIMGPU_STATE", &state)
    }

    fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    fn without(mut self, name: &str) -> Self {
        self.variables.retain(|(other, _)| other != name);
        self
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file that can be executed.
    fn script(&self, name: &str, text: &str) -> String {
        let path = self.path(name);
        executable::write(&path, text, 0o755);
        path.display().to_string()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = gpuslice(&["doctor"]);
        command.args(arguments).envs(self.variables.iter().cloned());
        command
    }

    fn asks(&self, arguments: &[&str]) -> Told {
        Told::of(end(&mut self.command(&[&["--json"], arguments].concat())))
    }
}

impl Told {
    fn of(ended: Ended) -> Self {
        let report: Value = serde_json::from_str(&ended.out).unwrap_or_else(|_| panic!("no JSON: {ended:?}"));
        assert_eq!(report.pointer("/version"), Some(&1.into()));
        let findings = report.pointer("/findings").and_then(Value::as_array).expect("a list").clone();
        let count = |level: &str| findings.iter().filter(|finding| finding["level"] == level).count();
        for (field, level) in [("errors", "error"), ("warnings", "warning"), ("notes", "note")] {
            assert_eq!(report.get(field), Some(&count(level).into()), "{field}");
        }
        let expected = if count("error") > 0 {
            1
        } else if count("warning") > 0 {
            3
        } else {
            0
        };
        assert_eq!(ended.status.code(), Some(expected), "{ended:?}");
        for finding in &findings {
            let is_mended = finding["mend"].as_str().is_some_and(|mend| !mend.is_empty());
            assert!(
                is_mended || ["ok", "note"].contains(&finding["level"].as_str().unwrap_or_default()),
                "{finding}"
            );
            assert!(!finding["what"].as_str().expect("a text").contains('\n'), "{finding}");
        }
        Self { ended, findings }
    }

    /// Fails unless a finding has this check and level, and `words` in its text.
    #[track_caller]
    fn has(&self, check: &str, level: &str, words: &str) -> &Self {
        let is_it = |finding: &Value| {
            finding["check"] == check
                && finding["level"] == level
                && finding["what"].as_str().is_some_and(|what| what.contains(words))
        };
        assert!(self.findings.iter().any(is_it), "no {check} {level} {words:?} in {}", self.ended.out);
        self
    }

    /// Fails if a finding has this check.
    #[track_caller]
    fn has_no(&self, check: &str) -> &Self {
        assert!(
            !self.findings.iter().any(|finding| finding["check"] == check),
            "{check} in {}",
            self.ended.out
        );
        self
    }

    fn checks(&self) -> Vec<String> {
        // The files in the real /dev/shm belong to other processes and change.
        let names = self.findings.iter().filter_map(|finding| finding["check"].as_str());
        names.filter(|name| !name.starts_with("region.")).map(str::to_owned).collect()
    }
}

/// Runs a line of shell in namespaces of mounts and of IPC, and then the doctor there. Returns `None` if that is not allowed
/// here.
fn with_mounts(line: &str, machine: &Machine, arguments: &[&str]) -> Option<Told> {
    let mut command = Command::new("unshare");
    command.args([
        "-mi",
        "sh",
        "-c",
        &format!("{{ {line}; }} || exit 99; exec \"$0\" doctor --json \"$@\""),
        PROGRAM,
    ]);
    let asked = machine.command(&[]);
    command
        .args(arguments)
        .env_clear()
        .envs(asked.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let Ok(output) = command.output() else {
        skip("doctor with other mounts: there is no unshare; to mend it: apt-get install util-linux");
        return None;
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let ended = Ended { status: output.status, out: text(&output.stdout), err: text(&output.stderr) };
    if ended.status.code() == Some(99) || ended.err.contains("unshare") {
        skip_without_rights("doctor with other mounts");
        return None;
    }
    Some(Told::of(ended))
}

#[test]
fn a_machine_with_nothing_wrong_is_found_so_and_ends_with_0() {
    // All users can read this folder. The clone may lie in a home that only its owner may enter, which is a finding.
    let public = tempfile::tempdir_in("/tmp").unwrap();
    fs::set_permissions(public.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let library = public.path().join("libgpuslice.so");
    fs::copy(artefacts::library(), &library).unwrap();
    let library = library.display().to_string();
    let machine = Machine::simulated().with("GPUSLICE_LIB", &library).with("LD_PRELOAD", &library);
    let told = machine.asks(&["--", "cat"]);
    told.has("driver.cuda", "ok", "simgpu/libcuda.so.1, CUDA 13.0")
        .has("driver.init", "ok", "shows 1 device")
        .has("driver.nvml", "ok", "driver 580")
        .has("devices.state", "ok", "Simulated H100")
        .has("library.found", "ok", "libgpuslice.so")
        .has("library.version", "ok", env!("CARGO_PKG_VERSION"))
        .has("library.c-library", "ok", "glibc 2.")
        .has("preload.active", "ok", "calls its dlsym")
        .has("preload.inherited", "ok", "libgpuslice.so in it")
        .has("region.folder", "ok", "locks are kept")
        .has("settings.value", "ok", "GPU_MEM_LIMIT is 4GiB, by the environment")
        .has("command.program", "ok", "can be preloaded")
        .has_no("preload.conflict");
    assert_eq!(told.checks(), machine.asks(&["--", "cat"]).checks(), "the order is stable");
    let elsewhere = machine.with("GPUSLICE_REGION", "/dev/shm/region").with("SIMGPU_STATE", "/dev/shm/state");
    if let Some(told) = with_mounts("mount -t tmpfs none /dev/shm && chmod 1777 /dev/shm", &elsewhere, &[]) {
        assert_eq!(told.ended.status.code(), Some(0), "{}", told.ended.out);
    }
}

#[test]
fn people_are_told_the_same_in_lines_and_the_help_has_examples() {
    let machine = Machine::new();
    let ended = end(&mut machine.command(&["--", "/nowhere/at/all"])).code(1);
    let ended = ended
        .says("driver\n  error    libcuda.so.1 cannot be loaded")
        .says("           -> install the NVIDIA driver");
    let summary = ended.out.lines().last().expect("there is one").to_owned();
    assert!(summary.contains("2 errors"), "{summary}");
    ask(&["doctor", "--help"]).code(0).says("Examples:").says("3 warnings only");
    ask(&["doctor", "--timeout", "0"]).code(2).complains("a whole number from 1 to 600");
    assert!(!ask(&["--help"]).code(0).out.contains("doctor-probe"));
}
