//! Tests that the simulated NVML, as programs load it, reports the truth about other processes.
//!
//! The tests need the staged libraries (`ci/stage.sh`) and a C compiler. If a client is not installed, its
//! test does nothing and prints this.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{OnceLock, mpsc};
use std::time::{Duration, Instant};

use crate::support::{libraries, repository};
use simgpu::state::file::Shared;

const MIB: u64 = 1 << 20;

/// Returns the path of the test program. It is compiled at the first call. Returns `None` if there is no C compiler.
fn watch() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/watch.c");
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("simgpu-watch");
        // The program gets its own name only when it is complete, because another run may use the old one at this moment.
        let made = program.with_extension(std::process::id().to_string());
        let compiler = std::env::var_os("CC").unwrap_or_else(|| OsString::from("cc"));
        let flags = ["-std=gnu11", "-O1", "-Wall", "-Werror", "-ldl"];
        match Command::new(compiler).arg("-o").arg(&made).arg(&source).args(flags).status() {
            Ok(status) => {
                assert!(status.success(), "{} does not compile", source.display());
                std::fs::rename(&made, &program).expect("it can be renamed");
                Some(program)
            }
            Err(error) => {
                println!("SKIP NVML beside other processes: no C compiler ({error}); to mend it: apt-get install gcc libc6-dev");
                None
            }
        }
    });
    built.as_deref()
}

/// A simulated machine that has its own state file.
struct Machine {
    state: PathBuf,
    variables: Vec<(&'static str, &'static str)>,
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.state);
    }
}

impl Machine {
    fn new(variables: &[(&'static str, &'static str)]) -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("nvml-{}-{number}.state", std::process::id());
        let state = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = std::fs::remove_file(&state);
        Self { state, variables: variables.to_vec() }
    }

    fn command(&self, program: &Path, words: &[&str]) -> Command {
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SIMGPU_"))
        {
            command.env_remove(name);
        }
        command.args(words).env("SIMGPU_STATE", &self.state).env("LD_LIBRARY_PATH", libraries());
        command.envs(self.variables.iter().copied()).env_remove("LD_PRELOAD").stdin(Stdio::null());
        command
    }

    fn output(&self, program: &Path, words: &[&str]) -> Output {
        self.command(program, words).output().expect("the program runs")
    }

    /// Runs a program to its end, which must be without an error, and returns the output.
    fn says(&self, program: &Path, words: &[&str]) -> String {
        let output = self.output(program, words);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let complained = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{} {words:?}: {said}{complained}", program.display());
        said
    }

    /// Starts a process that holds memory until it is killed or its input ends.
    fn holder(&self, bytes: u64) -> Option<Child> {
        self.start(&["hold", &bytes.to_string()])
    }

    /// Starts a process, and returns when the process has begun. It goes on until it is killed or its input ends.
    fn start(&self, words: &[&str]) -> Option<Child> {
        let mut command = self.command(watch()?, words);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program runs");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("it is piped")).read_line(&mut line).expect("it speaks");
        assert_eq!(line, "holding\n");
        Some(child)
    }

    fn truth(&self) -> String {
        self.says(Path::new(env!("CARGO_BIN_EXE_simgpu-truth")), &[])
    }

    fn held(&self) -> u64 {
        self.figure("held")
    }

    /// Waits until the device has back all memory of dead processes.
    fn rests(&self) {
        let until = Instant::now() + Duration::from_secs(10);
        while self.figure("leaving") > 0 {
            assert!(Instant::now() < until, "the device does not get it back: {}", self.truth());
        }
    }

    fn figure(&self, name: &str) -> u64 {
        let truth = self.truth();
        let (_, figure) = truth.split_once(&format!("\"{name}\":")).expect("the truth has devices");
        figure.split(',').next().and_then(|figure| figure.parse().ok()).expect("a number")
    }
}

fn context(machine: &[(&'static str, &'static str)]) -> Option<(&'static Path, Machine)> {
    Some((watch()?, Machine::new(machine)))
}

#[test]
fn nvml_and_cuda_agree_after_every_change() {
    let Some((watch, machine)) = context(&[("SIMGPU_MEMORY", "512MiB"), ("SIMGPU_CONTEXT_BYTES", "100MiB")])
    else {
        return;
    };
    assert_eq!(machine.says(watch, &["agree"]), "agreed, something was used: yes\n");
}

#[test]
fn every_process_is_listed_with_its_memory_until_it_is_dead() {
    let Some((watch, machine)) = context(&[("SIMGPU_MEMORY", "1GiB"), ("SIMGPU_CONTEXT_BYTES", "10MiB")])
    else {
        return;
    };
    assert_eq!(machine.says(watch, &["show"]), format!("device 0: total {}, used 0\n", 1024 * MIB));
    let (Some(mut first), Some(mut second)) = (machine.holder(50 * MIB), machine.holder(7)) else { return };
    // An allocation of seven bytes takes a block of 2 MiB.
    let used = 72 * MIB;
    assert_eq!(machine.held(), used);
    assert_eq!(
        machine.says(watch, &["show"]),
        format!(
            "device 0: total {}, used {used}\nprocess {}: {}\nprocess {}: {}\n",
            1024 * MIB,
            first.id(),
            60 * MIB,
            second.id(),
            12 * MIB
        )
    );
    first.kill().expect("it can be killed");
    first.wait().expect("it can be waited for");
    // A dead process is in no list. Its memory counts as used until the device has it back.
    assert_eq!(machine.held(), used);
    machine.rests();
    let left = format!("used {0}\nprocess {1}: {0}\n", 12 * MIB, second.id());
    assert!(machine.says(watch, &["show"]).ends_with(&left));
    drop(second.stdin.take());
    assert!(second.wait().expect("it can be waited for").success());
    machine.rests();
    assert!(machine.says(watch, &["show"]).ends_with("used 0\n"));
}

#[test]
fn processes_that_compete_are_told_apart_by_their_own_pids() {
    let Some((watch, machine)) = context(&[("SIMGPU_NVML_WINDOW_MS", "20"), ("SIMGPU_NVML_SAMPLES", "each")])
    else {
        return;
    };
    let (Some(mut first), Some(mut second)) = (machine.start(&["spin"]), machine.start(&["spin"])) else {
        return;
    };
    let said = machine.says(watch, &["shares"]);
    for child in [&mut first, &mut second] {
        let (_, share) = said.split_once(&format!("process {}: ", child.id())).expect("it is listed");
        let share: u32 = share.lines().next().and_then(|share| share.parse().ok()).expect("a number");
        assert!((40..=52).contains(&share), "{said}");
        child.kill().expect("it can be killed");
        child.wait().expect("it can be waited for");
    }
    assert_eq!(said.lines().count(), 2, "{said}");
}

/// Returns the first line of a program while another process has the lock of the resource manager, and the first line after that.
fn heard_around_a_turn(machine: &Machine, words: &[&str]) -> [Option<String>; 2] {
    let shared = Shared::open_existing(&machine.state).expect("there is a machine");
    let turn = shared.lock_manager();
    let mut command = machine.command(watch().expect("it was compiled"), words);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program runs");
    let (said, heard) = mpsc::channel();
    let output = child.stdout.take().expect("it is piped");
    std::thread::spawn(move || BufReader::new(output).lines().try_for_each(|line| said.send(line.ok())));
    let before = heard.recv_timeout(Duration::from_millis(300)).ok().flatten();
    drop(turn);
    let after = heard.recv_timeout(Duration::from_secs(60)).ok().flatten();
    child.kill().expect("it can be killed");
    child.wait().expect("it can be waited for");
    [before, after]
}

#[test]
fn memory_and_nvml_wait_for_the_turn_of_the_resource_manager() {
    let Some((watch, machine)) = context(&[]) else { return };
    machine.says(watch, &["show"]);
    for (words, line) in [(["show"].as_slice(), "device 0: "), (&["hold", "7"], "holding")] {
        let [before, after] = heard_around_a_turn(&machine, words);
        assert_eq!(before, None, "{words:?} does not wait");
        assert!(after.as_ref().is_some_and(|said| said.starts_with(line)), "{words:?}: {after:?}");
    }
}

#[test]
fn a_watcher_takes_no_part() {
    let Some((watch, machine)) = context(&[("SIMGPU_DEVICES", "2")]) else { return };
    assert_eq!(machine.says(watch, &["show"]).lines().count(), 2);
    let truth = machine.truth();
    assert!(truth.contains("\"joined\":0"), "{truth}");
    assert!(truth.contains("\"processes\":[]"), "{truth}");
}

#[test]
fn starts_are_counted_and_the_private_table_supports_nothing() {
    let Some((watch, machine)) = context(&[]) else { return };
    let expected = "shutdown before init 0\nbefore init 1: Uninitialized\n\
                    what is not simulated 1, init 0 0, what is not simulated 3\nuse 0 0 0\n\
                    shutdown 0, use 0\nshutdown 0, use 1\nprivate table 0, 5120 bytes, entries 3 3\n";
    assert_eq!(machine.says(watch, &["count"]), expected);
}

#[test]
fn faults_reach_nvml() {
    let Some((watch, machine)) =
        context(&[("SIMGPU_FAULTS", "nvmlDeviceGetCount_v2=15@3;nvmlInitWithFlags=999")])
    else {
        return;
    };
    let said = machine.says(watch, &["count"]);
    assert!(said.contains("init 0 999, what is not simulated 3\nuse 0 15 0\n"), "{said}");
}

#[test]
fn faults_of_the_state_file_reach_the_first_call() {
    let Some((watch, machine)) = context(&[]) else { return };
    machine.says(watch, &["show"]);
    machine.says(Path::new(env!("CARGO_BIN_EXE_simgpu-truth")), &["--faults", "nvmlInit_v2=9"]);
    let output = machine.output(watch, &["show"]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("nvmlInit_v2(): 9"));
}

#[test]
fn unmodified_nvidia_smi_shows_the_simulated_device() {
    let folder = std::env::var_os("GPUSLICE_TEST_DRIVERS").map(PathBuf::from);
    let folder = folder.unwrap_or_else(|| repository().join("build/drivers"));
    let machine = Machine::new(&[("SIMGPU_MEMORY", "2GiB"), ("SIMGPU_CONTEXT_BYTES", "100MiB")]);
    let Some(mut holder) = machine.holder(156 * MIB) else { return };
    for series in ["470", "525", "535", "550", "555"] {
        let program = folder.join(series).join("nvidia-smi");
        if !program.exists() {
            println!(
                "SKIP nvidia-smi {series} on the simulated NVML: not in {}; to mend it: ci/drivers.sh",
                folder.display()
            );
            continue;
        }
        assert!(machine.says(&program, &["-L"]).starts_with("GPU 0: Simulated H100 (UUID: GPU-"), "{series}");
        let query = ["--query-gpu=memory.total,memory.used,memory.free", "--format=csv,noheader,nounits"];
        assert_eq!(machine.says(&program, &query), "2048, 256, 1792\n", "{series}");
        if series == "470" {
            // Programs of later series ask the private table for processes, and the simulated table has no answer.
            let query = ["--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"];
            assert_eq!(machine.says(&program, &query), format!("{}, 256\n", holder.id()));
        }
        let screen = machine.says(&program, &[]).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(screen.contains("256MiB / 2048MiB"), "{series}: {screen}");
    }
    holder.kill().expect("it can be killed");
    holder.wait().expect("it can be waited for");
}

#[test]
fn python_clients_read_the_simulated_device() {
    let python = repository().join("build/venv/bin/python");
    let machine = Machine::new(&[("SIMGPU_MEMORY", "2GiB"), ("SIMGPU_CONTEXT_BYTES", "100MiB")]);
    let Some(mut holder) = machine.holder(156 * MIB) else { return };
    let present = |module: &str| {
        python.exists() && machine.output(&python, &["-c", &format!("import {module}")]).status.success()
    };
    if present("pynvml") {
        let script = "from pynvml import *; nvmlInit(); d = nvmlDeviceGetHandleByIndex(0)
print(nvmlDeviceGetMemoryInfo(d).used >> 20, nvmlDeviceGetMemoryInfo(d, version=nvmlMemory_v2).free >> 20)
print([p.pid for p in nvmlDeviceGetComputeRunningProcesses(d)], nvmlDeviceGetMigMode(d), nvmlDeviceGetUtilizationRates(d).gpu)
try: nvmlDeviceGetProcessUtilization(d, 0)
except NVMLError_NotFound: print('idle')";
        let expected = format!("256 1792\n[{}] [0, 0] 0\nidle\n", holder.id());
        assert_eq!(machine.says(&python, &["-c", script]), expected);
    } else {
        println!("SKIP nvidia-ml-py on the simulated NVML: not in build/venv; to mend it: ci/clients.sh");
    }
    if present("nvitop") {
        let screen = machine.says(&python, &["-m", "nvitop", "--once", "--ascii"]);
        assert!(screen.contains("256.0MiB / 2048MiB") || screen.contains("256.0MiB / 2.00GiB"), "{screen}");
    } else {
        println!("SKIP nvitop on the simulated NVML: not in build/venv; to mend it: ci/clients.sh");
    }
    holder.kill().expect("it can be killed");
    holder.wait().expect("it can be waited for");
}
