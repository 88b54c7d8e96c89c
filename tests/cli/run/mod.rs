//! `gpuslice run`: its program runs as it would without `run`, and nothing stays behind.
#![allow(clippy::indexing_slicing, reason = "a test")]

mod containers;
mod regions;
mod signals;
mod unlimited;

use crate::support::command::{PROGRAM, ask, end, gpuslice};
use crate::support::{artefacts, executable};
use std::ffi::OsStr;
use std::fs;
use std::io::BufReader;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// Shell lines that go on until a trap ends them. They start no other process, which the terminal could stop.
const FOR_EVER: &str = "exec 9<> <(:); echo ready; for ((i = 0; i < 3000; i++)); do read -t 0.02 -u 9; done";

fn start(mut command: Command) -> (Child, BufReader<ChildStdout>) {
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it can be started");
    let out = child.stdout.take().expect("it is piped");
    (child, BufReader::new(out))
}

fn line(out: &mut impl std::io::BufRead) -> String {
    let mut line = String::new();
    out.read_line(&mut line).expect("it is text");
    line.trim_end().to_owned()
}

fn kill(signal: &str, process: u32) {
    // The shell's built-in `kill` knows all names of signals.
    let sent = Command::new("bash").args(["-c", "kill -$0 $1", signal, &process.to_string()]).status();
    assert!(sent.expect("there is bash").success());
}

fn children_of(process: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).expect("it lives");
    text.split_whitespace().map(|number| number.parse().expect("it is a number")).collect()
}

/// Prepares a program of the system, with an empty environment but for `PATH`.
fn around(words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env_clear().env("PATH", "/usr/bin:/bin").stdin(Stdio::null());
    command
}

/// Returns true once `what` returns true, or false after 60 s.
fn soon(mut what: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(60);
    while !what() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

/// Returns true if these words run with success here.
fn works(words: &[&str]) -> bool {
    around(words).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

#[test]
fn run_ends_as_its_program_ends() {
    let run = |line: &str| ask(&["run", "--mem", "64MiB", "--", "sh", "-c", line]);
    for code in [0, 1, 7, 255] {
        run(&format!("exit {code}")).code(code);
    }
    for signal in [15, 9, 6] {
        assert_eq!(run(&format!("kill -{signal} $$")).status.signal(), Some(signal));
        let line = format!(r#""$0" run --mem 64MiB -- sh -c 'kill -{signal} $$' 2>/dev/null; echo $?"#);
        let shell = end(around(&["sh", "-c", &line, PROGRAM]).env("GPUSLICE_LIB", artefacts::library()));
        assert_eq!(shell.out.trim(), (128 + signal).to_string());
    }
}

#[test]
fn run_tells_its_own_failures_from_the_programs() {
    ask(&["run", "--mem", "1g", "/nowhere/at/all"]).code(127).complains("not found");
    ask(&["run", "--mem", "1g", "/etc/passwd"]).code(126).complains("cannot be executed");
    ask(&["run", "--mem", "1g", "--", "/tmp"]).code(126).complains("/tmp: is a directory; name a program");
    ask(&["run", "--mem", "1g", "python3 load.py 3"])
        .code(127)
        .complains("\"python3 load.py 3\": not found; if this is a command with its arguments")
        .complains("write them without quotes: -- python3 load.py 3");
    ask(&["run", "--mem", "1g", "--region", "/nowhere/region", "true"]).code(125).complains("make it first");
    ask(&["run", "--mem", "1g", "--region", "/dev/shm/a ", "true"]).code(125).complains("ends in a space");
    let mut run = gpuslice(&["run", "--mem", "1g", "--region"]);
    run.arg(OsStr::from_bytes(b"/dev/shm/\xff")).arg("true");
    end(&mut run).code(125).complains("is not UTF-8");
    let mut run = gpuslice(&["run", "--mem", "1g", "true"]);
    end(run.env("GPUSLICE_LIB", "/nowhere.so")).code(125).complains("GPUSLICE_LIB names /nowhere.so");
}

#[test]
fn the_library_is_looked_for_beside_the_program_and_the_places_are_named() {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder can be made");
    let copy = folder.path().join("bin/gpuslice");
    fs::create_dir(folder.path().join("bin")).expect("a folder can be made");
    executable::copy(PROGRAM, &copy, 0o755);
    let mut run = Command::new(&copy);
    run.args(["run", "--mem", "1g", "--", "sh", "-c", "echo $LD_PRELOAD"]).env_remove("GPUSLICE_LIB");
    end(&mut run)
        .code(125)
        .complains("bin/libgpuslice.so or ")
        .complains("../lib/gpuslice/libgpuslice.so; unpack the release with all its folders, or build it");
    for place in ["lib/gpuslice/libgpuslice.so", "bin/libgpuslice.so"] {
        let place = folder.path().join(place);
        fs::create_dir_all(place.parent().expect("it has a folder")).expect("a folder can be made");
        fs::copy(artefacts::library(), &place).expect("the library can be copied");
        let found = place.canonicalize().expect("it is there");
        end(&mut run).code(0).says(&found.display().to_string());
    }
}

#[test]
fn a_program_finds_its_slice_in_its_environment_and_its_signals_as_they_were() {
    let shown = "echo $LD_PRELOAD $GPU_MEM_LIMIT $GPU_CORE_PERCENT $GPU_CORE_BURST $GPU_CORE_POLICY \
                 $GPU_CORE_WEIGHT $GPU_PRIORITY $GPUSLICE_REGION";
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder can be made");
    let limits = ["--mem", "50%", "--cores", "0=12.5", "--burst", "latency"];
    let sharing = ["--policy", "Equal", "--weight", "300", "--priority", "high"];
    let run = [&["run"], &limits[..], &sharing, &["--region", "region", "--", "sh", "-c", shown]].concat();
    let ended = end(gpuslice(&run).current_dir(folder.path()).env("LD_PRELOAD", "libm.so.6")).code(0);
    let (library, region) = (artefacts::library(), folder.path().join("region"));
    assert_eq!(
        ended.out,
        format!("{}:libm.so.6 50% 0=12.5 latency equal 300 high {}\n", library.display(), region.display())
    );
    // Blocked, ignored and caught signals are as before, even the two that a program may change at its start.
    let ways = [&[][..], &["--block-signal=INT", "--ignore-signal=PIPE,CHLD,USR1"], &["--default-signal"]];
    for way in ways {
        let shown = ["grep", "Sig[BIC]", "/proc/self/status"];
        let bare = end(&mut around(&[&["env"], way, &shown[..]].concat()));
        let run = [&["env"], way, &[PROGRAM, "run", "--mem", "1g", "--"], &shown[..]].concat();
        let run = end(around(&run).env("GPUSLICE_LIB", artefacts::library())).code(0);
        assert_eq!((bare.out, bare.status), (run.out, run.status));
    }
}

#[test]
fn a_share_of_the_environment_stays_under_each_of_its_names() {
    for (name, value, share) in [
        ("CUDA_DEVICE_SM_LIMIT", "30", ""),
        ("CUDA_DEVICE_SM_LIMIT_0", "30", ""),
        ("CUDA_DEVICE_SM_LIMIT", "0", "100"),
        ("GPU_CORE_PERCENT", "40", "40"),
        ("GPU_CORE_PERCENT", " ", "100"),
    ] {
        let mut run = gpuslice(&["run", "--mem", "64MiB", "--", "sh", "-c", "echo \"<$GPU_CORE_PERCENT>\""]);
        end(run.env(name, value)).code(0).says(&format!("<{share}>"));
    }
}
