//! Runs `gpuslice`, and checks its exit code and output.

use super::artefacts;
use gpuslice_region::{Device, DeviceRequest, Limits, Member, Trust, Uuid};
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Instant;

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_gpuslice");
pub(crate) const GIB: u64 = 1 << 30;

/// Exit status and output of a command.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    #[track_caller]
    pub(crate) fn code(self, code: i32) -> Self {
        assert_eq!(self.status.code(), Some(code), "{self:?}");
        self
    }

    #[track_caller]
    pub(crate) fn says(self, words: &str) -> Self {
        assert!(self.out.contains(words), "{words} is missing in {self:?}");
        self
    }

    /// Asserts that standard error begins as every failure of `gpuslice` does, and contains `words`.
    #[track_caller]
    pub(crate) fn complains(self, words: &str) -> Self {
        assert!(
            self.err.starts_with("gpuslice: ") && self.err.contains(words),
            "{words} is missing in {self:?}"
        );
        self
    }
}

/// Prepares `gpuslice` with an empty environment but for `PATH` and the paths of its own parts.
pub(crate) fn gpuslice(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).env_clear().env("PATH", "/usr/bin:/bin").stdin(Stdio::null());
    command.env("GPUSLICE_LIB", artefacts::library());
    command.env("GPUSLICE_SIMGPU", artefacts::simulated_driver());
    command.env("GPUSLICE_TRUTH", artefacts::truth_reader());
    command
}

pub(crate) fn end(command: &mut Command) -> Ended {
    let output = command.output().expect("gpuslice can be started");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ended { status: output.status, out: text(&output.stdout), err: text(&output.stderr) }
}

pub(crate) fn ask(arguments: &[&str]) -> Ended {
    end(&mut gpuslice(arguments))
}

pub(crate) fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&ask(arguments).code(0).out).expect("this is JSON")
}

/// Returns a name that no other test and no other run uses.
pub(crate) fn name(of: &str) -> String {
    format!("test-{}-{of}", std::process::id())
}

/// The region of a slice. Its file is removed when this is dropped.
pub(crate) struct RegionFile(pub(crate) PathBuf);

impl RegionFile {
    pub(crate) fn of(name: &str) -> Self {
        let user = std::fs::metadata("/proc/self").expect("there is /proc").uid();
        Self(format!("/dev/shm/gpuslice-{user}-run-{name}").into())
    }
}

impl Drop for RegionFile {
    fn drop(&mut self) {
        let _gone = std::fs::remove_file(&self.0);
    }
}

/// A slice of which this process is a member: 8 GiB of 16 on one device, no limit on another.
pub(crate) struct OwnSlice {
    pub(crate) member: Member,
    pub(crate) name: String,
    pub(crate) region: RegionFile,
}

impl OwnSlice {
    pub(crate) fn join(of: &str) -> Self {
        let name = name(of);
        Self::with(RegionFile::of(&name), name)
    }

    /// Joins a slice whose region lies in `folder`. Commands without a path, of other tests too, do not find it.
    pub(crate) fn join_in(folder: &Path) -> Self {
        let path = folder.join("region");
        let name = path.display().to_string();
        Self::with(RegionFile(path), name)
    }

    fn with(region: RegionFile, name: String) -> Self {
        let limits = Limits { memory: Some(8 * GIB), cores_permille: 1000, ..Limits::NONE };
        let wanted = [
            DeviceRequest { uuid: Uuid([0x11; 16]), total: 16 * GIB, limits },
            DeviceRequest { uuid: Uuid([0x22; 16]), total: 16 * GIB, limits: Limits::NONE },
        ];
        let (member, _) =
            Member::join(&region.0, Trust::OwnerOnly, &wanted).expect("the slice can be joined");
        Self { member, name, region }
    }

    pub(crate) fn device(&self, number: u8) -> Device {
        self.member.device(&Uuid([number; 16])).expect("the slice has the device")
    }

    pub(crate) fn limit(&self, number: u8) -> Option<u64> {
        self.member.limits(self.device(number)).memory
    }

    pub(crate) fn share(&self, number: u8) -> u32 {
        self.member.limits(self.device(number)).cores_permille
    }
}

/// A program of the demo in a slice on the simulated GPU, until its standard input ends.
pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) out: BufReader<ChildStdout>,
    folder: tempfile::TempDir,
}

impl Running {
    /// Starts a program that takes memory.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::working(arguments, &["--seed", "1"])
    }

    /// Starts a program that computes.
    pub(crate) fn computing(arguments: &[&str]) -> Self {
        Self::working(arguments, &[])
    }

    fn working(arguments: &[&str], work: &[&str]) -> Self {
        let folder = tempfile::tempdir_in("/dev/shm").expect("a folder can be made");
        let mut child = gpuslice(arguments)
            .args(["--", PROGRAM, "demo-worker"])
            .args(work)
            .env("LD_LIBRARY_PATH", artefacts::simulated_driver())
            .env("SIMGPU_STATE", folder.path().join("state"))
            .env("SIMGPU_CONTEXT_BYTES", "0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("gpuslice can be started");
        let mut out = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut line = String::new();
        out.read_line(&mut line).expect("it is text");
        assert!(line.contains(' '), "the program does not work: {:?}", child.wait_with_output());
        Self { child, out, folder }
    }

    pub(crate) fn finish(mut self) -> Ended {
        drop(self.child.stdin.take());
        let (mut out, mut err) = (String::new(), String::new());
        self.out.read_to_string(&mut out).expect("it is text");
        self.child.stderr.take().expect("it is piped").read_to_string(&mut err).expect("it is text");
        Ended { status: self.child.wait().expect("it is our child"), out, err }
    }

    /// Returns the time for which the simulated GPU ran kernels, in nanoseconds, with the instants before and after the look.
    pub(crate) fn busy(&self) -> ([Instant; 2], u64) {
        let before = Instant::now();
        let mut command = Command::new(artefacts::truth_reader());
        let output = command.env("SIMGPU_STATE", self.folder.path().join("state")).output();
        let instants = [before, Instant::now()];
        let truth: Value = serde_json::from_slice(&output.expect("it runs").stdout).expect("this is JSON");
        let busy = truth.pointer("/devices/0/busy_ns").and_then(Value::as_u64);
        (instants, busy.expect("there is a device"))
    }
}
