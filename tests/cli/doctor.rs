//! `gpuslice doctor`: finds real faults, says how to mend them, and leaves nothing behind.

use crate::support::command::{Ended, OwnSlice, PROGRAM, RegionFile, ask, end, gpuslice, name};
use crate::support::terminal::Terminal;
use crate::support::{artefacts, compiler, executable, other_user, skip, skip_without_rights};
use gpuslice_region::layout::VERSION;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
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

/// Runs a line of shell in namespaces of mounts and of IPC, and then the doctor there. Returns `None` if that is not allowed here.
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

#[test]
fn without_a_driver_all_the_rest_is_looked_at_and_nothing_is_left() {
    let machine = Machine::new();
    machine
        .asks(&[])
        .has("driver.cuda", "error", "cannot be loaded")
        .has("driver.nvml", "warning", "cannot be loaded")
        .has("preload.active", "ok", "")
        .has("region.folder", "ok", "")
        .has_no("devices.state");
    assert_eq!(fs::read_dir(machine.folder.path()).unwrap().count(), 0, "something was left");
}

#[test]
fn a_driver_that_does_not_start_is_explained_by_its_status() {
    for (faults, check, words) in [
        ("cuInit=34", "driver.init", "STUB_LIBRARY"),
        ("cuInit=100", "driver.init", "NO_DEVICE"),
        ("cuInit=803", "driver.init", "different versions"),
        ("cuInit=35", "driver.init", "older than"),
        ("cuInit=4711", "driver.init", "returns 4711"),
        ("nvmlInit_v2=18", "driver.nvml", "different versions"),
        ("nvmlInit_v2=9", "driver.nvml", "not loaded"),
        ("cuInit=kill", "driver.cuda", "ended at cuInit: signal: 9"),
    ] {
        Machine::simulated().with("SIMGPU_FAULTS", faults).asks(&[]).has(check, "error", words);
    }
}

#[test]
fn a_driver_that_hangs_does_not_hang_the_doctor_and_its_child_is_ended() {
    let machine = Machine::simulated().with("SIMGPU_FAULTS", "cuInit=delay:600s;nvmlInit_v2=delay:600s");
    let begun = Instant::now();
    let told = machine.asks(&["--timeout", "1"]);
    assert!(begun.elapsed() < Duration::from_secs(120));
    told.has("driver.cuda", "error", "does not come back from cuInit")
        .has("driver.nvml", "error", "does not come back from nvmlInit_v2")
        .has("preload.active", "ok", "");
    let state = machine.path("state").display().to_string();
    let is_left = |path: &Path| {
        fs::read(path.join("environ")).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(&state))
    };
    let left: Vec<PathBuf> =
        fs::read_dir("/proc").unwrap().flatten().map(|e| e.path()).filter(|p| is_left(p)).collect();
    assert_eq!(left, Vec::<PathBuf>::new());
    // The doctor waits for a driver that is only slow.
    let slow = Machine::simulated().with("SIMGPU_FAULTS", "cuInit=delay:2s");
    slow.asks(&["--timeout", "120"]).has("driver.init", "ok", "");
}

#[test]
fn a_terminal_shows_the_subject_of_a_wait() {
    let machine = Machine::simulated().with("SIMGPU_FAULTS", "cuInit=delay:3s;nvmlInit_v2=delay:3s");
    let mut terminal = Terminal::sized(&mut machine.command(&["--timeout", "300"]), (200, 100));
    terminal.hears("asking the driver: up to ");
    terminal.hears("asking NVML: up to ");
    terminal.shows("cuInit succeeds");
    terminal.lacks("asking");
    let code = terminal.end().code();
    assert!([Some(0), Some(3)].contains(&code), "{code:?}: {}", terminal.screen());
    // Without a terminal the doctor prints no progress.
    assert_eq!(machine.asks(&["--timeout", "300"]).ended.err, "");
}

#[test]
fn no_context_is_made_and_no_memory_is_taken() {
    let machine = Machine::simulated();
    machine.asks(&[]);
    let truth =
        Command::new(artefacts::truth_reader()).env("SIMGPU_STATE", machine.path("state")).output().unwrap();
    let truth: Value = serde_json::from_slice(&truth.stdout).expect("this is JSON");
    assert_eq!(truth.pointer("/devices/0/peak"), Some(&0.into()), "{truth}");
}

#[test]
fn functions_that_a_driver_hands_out_past_its_exports_are_reported_with_the_mend() {
    let hides =
        Machine::simulated().with("SIMGPU_PRIVATE_ENTRIES", "cuLaunchKernel,cuGraphLaunch/2").asks(&[]);
    hides.has(
        "driver.look-ups",
        "error",
        "refused: cuLaunchKernel (legacy), cuLaunchKernel (per-thread), cuGraphLaunch (per-thread)",
    );
    Machine::simulated()
        .with("SIMGPU_NEWER_NAMES", "1")
        .asks(&[])
        .has("driver.functions", "warning", "does not know: cuLaunchUnheardOf")
        .has_no("driver.look-ups");
    Machine::simulated()
        .asks(&[])
        .has_no("driver.functions")
        .has_no("driver.look-ups")
        .has_no("runtime.start");
}

/// Makes a machine with a CUDA runtime and cuBLAS. With `FAKE_EXPECTS` set, they expect a device of that size.
fn with_runtime() -> Machine {
    let machine = Machine::simulated();
    for name in ["libcudart.so.13", "libcublas.so.12"] {
        let library = compiler::compile(
            "fake_runtime.c",
            &format!("fake-{name}"),
            &["-shared", "-fPIC", &format!("-Wl,-soname,{name}")],
        );
        fs::copy(library.expect("it compiles"), machine.path(name)).unwrap();
    }
    let path = format!("{}:{}", artefacts::simulated_driver().display(), machine.folder.path().display());
    machine.with("LD_LIBRARY_PATH", &path)
}

#[test]
fn a_cuda_runtime_that_minds_the_quota_as_size_is_told_how_to_be_content() {
    with_runtime().asks(&[]).has("runtime.start", "ok", "under one: libcudart.so.13 and libcublas.so.12");
    let size = (16_u64 << 30).to_string();
    let minds = with_runtime().with("FAKE_EXPECTS", &size);
    let told = minds.asks(&[]);
    told.has(
        "runtime.start",
        "error",
        "libcudart.so.13 does not start: cudaGetDeviceCount returns 103 under a quota that is reported",
    );
    assert!(told.ended.out.contains("set GPU_MEM_REPORT_TOTAL=device"), "{}", told.ended.out);
    let content = minds.with("GPU_MEM_REPORT_TOTAL", "device").asks(&[]);
    content.has("runtime.start", "ok", "starts under one").has(
        "settings.value",
        "ok",
        "GPU_MEM_REPORT_TOTAL is device",
    );
    // The trials leave nothing behind.
    let left = fs::read_dir("/dev/shm")
        .unwrap()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().contains("-doctor-"));
    assert_eq!(left.count(), 0);
}

#[test]
fn a_cuda_runtime_that_never_starts_is_not_held_against_the_library() {
    for (refuses, words) in
        [("runtime", "cudaGetDeviceCount returns 103"), ("cublas", "cublasCreate returns 1")]
    {
        let told = with_runtime().with("FAKE_REFUSES", refuses).asks(&[]);
        told.has("runtime.start", "note", &format!("not even without gpuslice: {words}"));
    }
}

#[test]
fn instances_and_figures_that_nvml_does_not_tell_are_notes() {
    Machine::simulated()
        .with("SIMGPU_MIG", "2")
        .asks(&[])
        .has("devices.mig", "note", "divided into instances")
        .has("devices.attribution", "note", "how busy");
    Machine::simulated().with("SIMGPU_NVML_PIDS", "none").asks(&[]).has(
        "devices.attribution",
        "note",
        "how busy",
    );
}

#[test]
fn modes_that_are_in_the_way_of_slices_are_warned_of() {
    let Some(object) = compiler::compile(
        "odd_nvml.c",
        "odd_nvml.so",
        &["-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1"],
    ) else {
        return skip(
            "doctor on odd devices: odd_nvml.c does not compile; to mend it: apt-get install gcc libc6-dev",
        );
    };
    let machine = Machine::simulated();
    fs::copy(object, machine.path("libnvidia-ml.so.1")).unwrap();
    let folders = format!("{}:{}", machine.folder.path().display(), artefacts::simulated_driver().display());
    let machine = machine.with("LD_LIBRARY_PATH", &folders);
    machine.asks(&[]).has("devices.state", "ok", "GPU-odd").has_no("devices.compute-mode");
    let asks = |name: &str, value: &str| {
        let mut command = machine.command(&["--json"]);
        Told::of(end(command.env(name, value)))
    };
    asks("ODD_MODE", "3").has("devices.compute-mode", "warning", "exclusive");
    asks("ODD_MODE", "2").has("devices.compute-mode", "error", "prohibited");
    asks("ODD_VIRTUAL", "3").has("devices.vgpu", "warning", "serves vGPUs");
    asks("ODD_VIRTUAL", "2").has("devices.vgpu", "note", "vGPU");
    asks("ODD_MPS", "1").has("devices.mps", "warning", "under MPS");
    asks("ODD_DENIED", "4").has("devices.attribution", "warning", "this user");
    fs::create_dir(machine.path("mps")).unwrap();
    fs::write(machine.path("mps/control"), "").unwrap();
    let pipes = machine.path("mps").display().to_string();
    asks("CUDA_MPS_PIPE_DIRECTORY", &pipes).has("devices.mps", "warning", &pipes);
}

#[test]
fn another_interposer_is_found_however_it_is_preloaded() {
    let compile = |name: &str, flags: &[&str]| {
        let flags = [&["-shared", "-fPIC"], flags].concat();
        compiler::compile("interposer.c", name, &flags).expect("interposer.c compiles").display().to_string()
    };
    let machine = Machine::simulated();
    let asks = |preload: &str| {
        let mut command = machine.command(&["--json"]);
        Told::of(end(command.env("LD_PRELOAD", preload)))
    };
    let both = compile("libvgpu.so", &["-DDLSYM", "-DCALLS"]);
    asks(&both).has("preload.conflict", "error", "HAMi-core").has("preload.entries", "note", &both);
    let looks = compile("dlsym_only.so", &["-DDLSYM"]);
    asks(&looks).has("preload.conflict", "warning", "dlsym").has("preload.active", "ok", "");
    let behind = format!("{looks}:{}", artefacts::library().display());
    asks(&behind).has("preload.inherited", "error", "calls another library's dlsym");
    asks("libm.so.6").has_no("preload.conflict");
    asks("/nowhere/lib.so").has("preload.entries", "warning", "cannot be preloaded");
    let copy = machine.path("copy.so");
    fs::copy(artefacts::library(), &copy).unwrap();
    asks(&copy.display().to_string()).has("preload.conflict", "error", "another copy of gpuslice");
    // The loader preloads a library in /etc/ld.so.preload into the doctor's children, as into all programs.
    if let Some(told) = with_mounts(&format!("{OWN_ETC} && echo {both} > /etc/ld.so.preload"), &machine, &[])
    {
        told.has("preload.conflict", "error", "HAMi-core").has(
            "preload.entries",
            "note",
            "/etc/ld.so.preload",
        );
    }
}

#[test]
fn a_limit_that_programs_started_from_here_would_not_have_is_an_error() {
    let library = artefacts::library().display().to_string();
    let bare = || Machine::simulated().without("LD_PRELOAD");
    let told = bare().asks(&[]);
    told.has("preload.active", "ok", "").has(
        "preload.inherited",
        "error",
        "no libgpuslice.so in it and no limit: LD_PRELOAD is not set",
    );
    assert!(told.ended.out.contains(&format!("export LD_PRELOAD={library}; or")), "{}", told.ended.out);
    // An entrypoint has overwritten the variable.
    let told = bare().with("LD_PRELOAD", "libm.so.6").asks(&[]);
    told.has("preload.inherited", "error", "LD_PRELOAD is libm.so.6");
    assert!(told.ended.out.contains(&format!("LD_PRELOAD={library}:$LD_PRELOAD;")), "{}", told.ended.out);
    let wrong = "/nowhere/libgpuslice.so";
    let told = bare().with("LD_PRELOAD", wrong).asks(&[]);
    told.has("preload.inherited", "error", &format!("'{wrong}' from LD_PRELOAD cannot be preloaded"));
    // Beside other objects the library works as alone, and a copy works as the installed file does.
    bare().with("LD_PRELOAD", &format!("{library}:libm.so.6")).asks(&[]).has(
        "preload.inherited",
        "ok",
        &library,
    );
    let machine = bare();
    let copy = machine.path("copy.so");
    fs::copy(artefacts::library(), &copy).unwrap();
    let copy = copy.display().to_string();
    machine.with("LD_PRELOAD", &copy).asks(&[]).has("preload.inherited", "ok", &copy);
    // A user who sets no limit, or who uses `gpuslice run`, needs no variable.
    bare().without("GPU_MEM_LIMIT").asks(&[]).has_no("preload.inherited").has("settings.limit", "note", "");
    for brings in [
        &["nice", PROGRAM, "run", "--", "cat"][..],
        &["sh", "-c", "exec gpuslice run -- cat"],
        &["env", &format!("LD_PRELOAD={library}"), "cat"],
    ] {
        bare().asks(&[&["--"], brings].concat()).has_no("preload.inherited");
    }
    for leaves in [&["cat"][..], &["env", "LD_PRELOAD=/nowhere/libgpuslice.so", "cat"]] {
        bare().asks(&[&["--"], leaves].concat()).has("preload.inherited", "error", "");
    }
}

#[test]
fn limits_of_operators_files_and_shares_are_looked_for_in_programs_as_well() {
    let bare = || Machine::simulated().without("LD_PRELOAD").without("GPU_MEM_LIMIT");
    for (name, value) in [
        ("GPU_CORE_PERCENT", "30"),
        ("GPU_CORE_POLICY", "equal"),
        ("CUDA_DEVICE_MEMORY_LIMIT", "2g"),
        ("GPU_MEM_LIMIT", "4Gigs"),
    ] {
        bare().with(name, value).asks(&[]).has("preload.inherited", "error", "not set");
    }
    let machine = bare();
    let file = machine.script("config", "GPU_MEM_LIMIT=1GiB\n");
    machine.with("GPUSLICE_CONFIG", &file).asks(&[]).has("preload.inherited", "error", "not set");
    let fixed = "mount -t tmpfs none /run && mkdir -p /run/gpuslice/conf && \
                 echo GPU_MEM_LIMIT=1GiB > /run/gpuslice/conf/config";
    if let Some(told) = with_mounts(fixed, &bare(), &[]) {
        told.has("preload.inherited", "error", "not set");
    }
    // The loader preloads this into every program, without a variable.
    let library = artefacts::library().display().to_string();
    let line = format!("{OWN_ETC} && echo {library} > /etc/ld.so.preload");
    let machine = bare().with("GPU_MEM_LIMIT", "4GiB");
    if let Some(told) = with_mounts(&line, &machine, &[]) {
        told.has("preload.inherited", "ok", &library);
    }
}

/// Line of shell that lets files be written to `/etc`.
const OWN_ETC: &str = "mount -t tmpfs none /mnt && mkdir /mnt/u /mnt/w && \
                       mount -t overlay -o lowerdir=/etc,upperdir=/mnt/u,workdir=/mnt/w none /etc";

#[test]
fn a_library_that_is_preloaded_from_another_place_is_found() {
    let machine = Machine::simulated();
    let (program, copy) = (machine.path("gpuslice"), machine.path("copy.so"));
    executable::copy(PROGRAM, &program, 0o755);
    fs::copy(artefacts::library(), &copy).unwrap();
    let copy = copy.display().to_string();
    let asks = |preload: &str| {
        let asked = machine.command(&["--json"]);
        let mut command = Command::new(&program);
        command.args(asked.get_args()).env_clear();
        command.envs(asked.get_envs().filter_map(|(name, value)| Some((name, value?))));
        Told::of(end(command.env_remove("GPUSLICE_LIB").env("LD_PRELOAD", preload)))
    };
    let told = asks(&copy);
    told.has("library.found", "note", &format!("{copy}, "))
        .has("library.version", "ok", "")
        .has("preload.active", "ok", &copy)
        .has("preload.inherited", "ok", &copy)
        .has_no("preload.conflict");
    asks(&format!("libm.so.6:{copy}")).has("library.found", "note", &format!("{copy}, "));
    asks("libm.so.6").has("library.found", "error", "is not at");
}

#[test]
fn programs_with_musl_that_ignore_the_file_of_preloads_are_told() {
    let machine = Machine::simulated();
    let library = artefacts::library().display().to_string();
    let (loader, musl) = ("/lib64/ld-linux-x86-64.so.2\0", "/lib/ld-musl-x86_64.so.1\0\0\0\0");
    let mut shell = fs::read("/bin/sh").unwrap();
    let at = shell.windows(loader.len()).position(|part| part == loader.as_bytes()).expect("it has a loader");
    shell[at..at + musl.len()].copy_from_slice(musl.as_bytes());
    let path = machine.path("sh");
    fs::write(&path, shell).unwrap();
    let line = format!("{OWN_ETC} && echo {library} > /etc/ld.so.preload");
    let with_musl = format!("{line} && mount --bind {} /bin/sh", path.display());
    if let Some(told) = with_mounts(&with_musl, &machine, &[]) {
        told.has_no("preload.musl");
    }
    let machine = machine.without("LD_PRELOAD");
    if let Some(told) = with_mounts(&with_musl, &machine, &[]) {
        told.has("preload.musl", "warning", "/bin/sh is loaded by /lib/ld-musl-x86_64.so.1");
        assert!(told.ended.out.contains(&format!("set LD_PRELOAD={library} ")), "{}", told.ended.out);
    }
    if let Some(told) = with_mounts(&line, &machine, &[]) {
        told.has_no("preload.musl");
    }
}

#[test]
fn real_programs_with_musl_are_told() {
    let compile = |name, flags| compiler::for_musl("doctor with programs for musl", "holder.c", name, flags);
    let Some(program) = compile("holder_musl", &[]) else { return };
    let program = program.display().to_string();
    let static_one = compile("holder_musl_static", &["-static"]).unwrap().display().to_string();
    let machine = Machine::simulated();
    machine.asks(&["--", &static_one]).has(
        "command.program",
        "error",
        &format!("{static_one} is linked statically: no loader runs"),
    );
    machine.asks(&["--", &program]).has_no("preload.musl");
    let library = artefacts::library().display().to_string();
    let line = format!("{OWN_ETC} && echo {library} > /etc/ld.so.preload");
    let machine = machine.without("LD_PRELOAD");
    let Some(told) = with_mounts(&line, &machine, &["--", &program]) else { return };
    let loader = "is loaded by /lib/ld-musl-x86_64.so.1: programs with musl ignore /etc/ld.so.preload";
    told.has("preload.musl", "warning", &format!("{program} {loader}"));
    assert!(told.ended.out.contains(&format!("set LD_PRELOAD={library} ")), "{}", told.ended.out);
}

#[test]
fn a_policy_without_a_neighbour_in_sight_is_warned_of() {
    let container = |region: &str| {
        let machine = Machine::simulated().with("KUBERNETES_SERVICE_HOST", "10.0.0.1");
        machine.with("SIMGPU_STATE", "/dev/shm/state").with("GPUSLICE_REGION", region)
    };
    let shm = "mount -t tmpfs none /dev/shm && chmod 1777 /dev/shm";
    let asks = |line: &str, machine: Machine| with_mounts(line, &machine, &[]);
    let equal = |region: &str| container(region).with("GPU_CORE_POLICY", "equal");
    if let Some(told) = asks(shm, equal("/dev/shm/region")) {
        told.has("region.sight", "warning", "in /dev/shm, and each container has a /dev/shm of its own");
        assert!(told.ended.out.contains("GPU_CORE_POLICY=equal has no effect"), "{}", told.ended.out);
        assert!(told.ended.out.contains("give all containers one folder"), "{}", told.ended.out);
    }
    if let Some(told) = asks(shm, container("/dev/shm/region").with("GPU_PRIORITY", "low")) {
        told.has("region.sight", "warning", "GPU_PRIORITY=low has no effect");
    }
    if let Some(told) = asks(shm, container("/dev/shm/region")) {
        told.has_no("region.sight");
    }
    if let Some(told) = asks(&format!("{shm} && echo x > /dev/shm/gpuslice-0-1"), equal("/dev/shm/region")) {
        told.has_no("region.sight");
    }
    let folder = "mount -t tmpfs none /run && mkdir -p /run/shared /run/gpuslice/region";
    if let Some(told) = asks(folder, equal("/run/shared/region")) {
        told.has_no("region.sight");
    }
    if let Some(told) = asks(folder, equal("/run/gpuslice/region/region")) {
        told.has("region.sight", "note", "while gpuslice-agent runs on the node");
    }
}

#[test]
fn an_operators_file_that_not_all_users_can_read_is_warned_of() {
    if !other_user::is_root() {
        return skip("doctor on a file's mode: needs root; to mend it: run the tests as root");
    }
    let machine = Machine::simulated();
    let file = machine.script("config", "GPU_CORE_PERCENT=20\n");
    let machine = machine.with("GPUSLICE_CONFIG", &file);
    machine.asks(&[]).has_no("settings.rights");
    for mode in [0o600, 0o640, 0o604] {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let told = machine.asks(&[]);
        told.has("settings.rights", "warning", &format!("{file} has mode {mode:04o}"));
        assert!(told.ended.out.contains(&format!("chmod a+r {file}")), "{}", told.ended.out);
    }
    let fixed = "mount -t tmpfs none /run && mkdir -p /run/gpuslice/conf && umask 077 && \
                 echo GPU_MEM_LIMIT=1GiB > /run/gpuslice/conf/config";
    if let Some(told) = with_mounts(fixed, &Machine::simulated(), &[]) {
        told.has("settings.rights", "warning", "/run/gpuslice/conf/config has mode 0600");
    }
}

#[test]
fn unknown_variables_are_warned_of() {
    let with = |name: &str, value: &str| Machine::simulated().with(name, value).asks(&[]);
    let told = with("GPU_MEM_LIMITS", "4GiB");
    told.has("settings.unknown", "warning", "GPU_MEM_LIMITS is set");
    assert!(told.ended.out.contains("rename it if GPU_MEM_LIMIT is meant"), "{}", told.ended.out);
    let told = with("GPU_MEM_RESERVE", "2GiB");
    told.has("settings.unknown", "warning", "quotas may sum to more than the GPU has");
    let memory = ["GPU_MEM_LIMT", "gpu_mem_limit", "GPU_MEMORY_LIMIT"];
    for name in ["GPU_CORE_LIMIT", "GPUSLICE_REGIONS", "GPU_PRIORITY_CLASS"].into_iter().chain(memory) {
        with(name, "1").has("settings.unknown", "warning", &format!("{name} is set"));
    }
    // A malformed setting does not hide the finding about an unknown one.
    let machine = Machine::simulated().with("GPU_CORE_PERCENT", "x").with("GPU_MEM_LIMITS", "4GiB");
    machine.asks(&[]).has("settings.malformed", "error", "").has("settings.unknown", "warning", "");
    for (name, value) in
        [("GPU_MEM_LIMITS", ""), ("GPUSLICE_LOG", "warn"), ("GPUSLICE_SERVICE_HOST", "10.0.0.1")]
    {
        with(name, value).has_no("settings.unknown");
    }
}

#[test]
fn a_library_that_cannot_work_is_reported_with_its_fault() {
    let machine = Machine::simulated();
    let asks = |library: &Path| {
        let mut command = machine.command(&["--json"]);
        Told::of(end(command.env("GPUSLICE_LIB", library)))
    };
    asks(Path::new("/nowhere.so")).has("library.found", "error", "/nowhere.so");
    let other = artefacts::system_object("libm.so.6").expect("every system has it");
    asks(&other).has("library.found", "error", "does not export").has("preload.active", "error", "");
    let copy = machine.path("libgpuslice.so");
    let changed = |from: &[u8], to: &[u8]| {
        let mut bytes = fs::read(artefacts::library()).unwrap();
        let at = bytes.windows(from.len()).position(|part| part == from).expect("it is there");
        bytes[at..at + to.len()].copy_from_slice(to);
        fs::write(&copy, bytes).unwrap();
        asks(&copy)
    };
    let of_version = |version: u32| [&b"gpuslice\0\0\0\0"[..], &version.to_ne_bytes()].concat();
    let note = of_version(VERSION);
    changed(&note, &of_version(3)).has("library.version", "error", "regions of version 3");
    let version = [&note[..], b"0.1.0"].concat();
    let older = [&note[..], b"0.0.9"].concat();
    changed(&version, &older).has("library.version", "warning", "the library is 0.0.9");
    changed(b"\x7fELF\x02", b"\x7fELF\x01").has("library.found", "error", "another architecture");
    changed(b"GLIBC_2.34\0", b"GLIBC_9.99\0").has("library.c-library", "error", "needs glibc 9.99");
    fs::copy(artefacts::library(), &copy).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o600)).unwrap();
    asks(&copy).has("library.rights", "warning", "all users");
    let spaced = machine.path("a b.so");
    fs::copy(artefacts::library(), &spaced).unwrap();
    asks(&spaced).has("preload.active", "error", "space or colon");
}

#[test]
fn commands_into_which_nothing_can_be_preloaded_are_found() {
    let machine = Machine::simulated();
    machine.asks(&["--", "no-such-program"]).has("command.program", "error", "not found");
    machine.asks(&["--", "/etc/passwd"]).has("command.program", "error", "cannot be executed");
    match compiler::compile("holder.c", "holder_static", &["-static"]) {
        Some(program) => {
            let program = program.display().to_string();
            machine.asks(&["--", &program]).has("command.program", "error", "linked statically");
        }
        None => skip(
            "doctor with a static program: cc -static does not work; to mend it: apt-get install libc6-dev",
        ),
    }
    let foreign = machine.script("foreign", "");
    let mut bytes = fs::read(PROGRAM).unwrap();
    bytes[18] = 183;
    fs::write(&foreign, bytes).unwrap();
    machine.asks(&["--", &foreign]).has("command.program", "error", "another architecture (aarch64)");
    let script = "#!/bin/sh\nset -e\nunset LD_PRELOAD\nexport LD_PRELOAD=libother.so\nexec \"$@\"\n";
    let script = machine.script("entrypoint.sh", script);
    machine
        .asks(&["--", "nice", &script, "python"])
        .has("command.environment", "error", "entrypoint.sh:3: `unset LD_PRELOAD` takes")
        .has("command.environment", "error", "entrypoint.sh:4: `export LD_PRELOAD=libother.so` sets")
        .has("command.program", "ok", "is a script for /bin/sh");
    machine.asks(&["--", "sudo", "-u", "worker", "cat"]).has(
        "command.environment",
        "error",
        "as another user",
    );
    machine.asks(&["--", "env", "-i", "sh"]).has("command.environment", "error", "empty environment");
    machine.asks(&["--", "sh", "-c", "LD_PRELOAD= exec x"]).has(
        "command.environment",
        "error",
        "takes LD_PRELOAD out",
    );
    let fine = machine.script("fine.sh", "#!/bin/sh\nLD_PRELOAD=libm.so.6:$LD_PRELOAD exec \"$@\"\n");
    machine.asks(&["--", &fine]).has_no("command.environment");
}

#[test]
fn a_path_of_no_regular_file_is_not_opened() {
    let machine = Machine::simulated();
    let fifo = machine.path("fifo");
    assert!(Command::new("mkfifo").args(["-m", "755"]).arg(&fifo).status().unwrap().success());
    let fifo = fifo.display().to_string();
    // A reader that opens a pipe without a writer waits for ever.
    let asks = |arguments: &[&str], library: &Path| {
        let mut asked = machine.command(&[&["--json"], arguments].concat());
        asked.env("GPUSLICE_LIB", library);
        let variables = asked.get_envs().filter_map(|(name, value)| Some((name, value?)));
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", "60", PROGRAM]).args(asked.get_args()).env_clear().envs(variables);
        Told::of(end(&mut command))
    };
    asks(&["--", &fifo], &artefacts::library()).has("command.program", "error", "cannot be executed");
    asks(&[], Path::new(&fifo)).has("library.found", "error", "fifo");
}

#[test]
fn a_program_with_rights_of_its_own_is_found_and_really_loads_nothing() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let program = folder.path().join("other");
    executable::copy(PROGRAM, &program, 0o755);
    if chown(&program, Some(65534), None).is_err() {
        return skip(
            "doctor with a setuid program: a file cannot be given away; to mend it: run the tests as root",
        );
    }
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).unwrap();
    let machine = Machine::simulated();
    machine.asks(&["--", &program.display().to_string()]).has("command.rights", "error", "preloads nothing");
    // The program itself confirms the finding: the library is not in it.
    let mut probe = Command::new(&program);
    let said = end(probe.args(["doctor-probe", "preloaded"]).env("LD_PRELOAD", artefacts::library()));
    assert!(said.out.contains("\"secure\":true") && !said.out.contains("libgpuslice.so"), "{said:?}");
}

#[test]
fn places_that_cannot_hold_a_region_are_found_by_trying() {
    let at = |path: &str| Machine::simulated().with("GPUSLICE_REGION", path);
    at("/nowhere/region").asks(&[]).has("region.folder", "error", "/nowhere/region");
    at("/proc/region").asks(&[]).has("region.folder", "error", "/proc/region");
    let tmpfs = |options: &str| format!("mount -t tmpfs -o {options} none /mnt");
    let on = at("/mnt/region");
    if let Some(told) = with_mounts(&tmpfs("size=64k"), &on, &[]) {
        told.has("region.folder", "error", "No space left");
    }
    if let Some(told) = with_mounts(&tmpfs("size=2m,mode=1777"), &on, &[]) {
        told.has("region.room", "warning", "one more region");
    }
    if let Some(told) = with_mounts(&tmpfs("size=64m,mode=777"), &on, &[]) {
        told.has("region.rights", "warning", "anybody can remove");
    }
    if let Some(told) = with_mounts(&tmpfs("ro"), &on, &[]) {
        told.has("region.folder", "error", "Read-only");
    }
    let overlay = "mount -t tmpfs none /mnt && mkdir /mnt/l /mnt/u /mnt/w /mnt/o && \
                   mount -t overlay -o lowerdir=/mnt/l,upperdir=/mnt/u,workdir=/mnt/w none /mnt/o";
    if let Some(told) = with_mounts(overlay, &at("/mnt/o/region"), &[]) {
        told.has("region.folder", "error", "/mnt/o/region: this file system forgets the lock");
    }
}

#[test]
fn existing_regions_are_reported_with_their_state() {
    let machine = Machine::simulated();
    let region = machine.path("region");
    fs::write(&region, [&b"gpuslice"[..], &3_u32.to_ne_bytes(), &[0; 64]].concat()).unwrap();
    machine.asks(&[]).has("region.own", "error", "region of version 3");
    fs::write(&region, "something else").unwrap();
    machine.asks(&[]).has("region.own", "error", "begins with");
    fs::remove_file(&region).unwrap();
    fs::create_dir(&region).unwrap();
    machine.asks(&[]).has("region.own", "error", "a directory");
    let damaged = RegionFile::of(&name("doctor-damaged"));
    fs::write(&damaged.0, "something else").unwrap();
    machine.asks(&[]).has("region.unusable", "warning", &damaged.0.display().to_string());
    let slice = OwnSlice::join("doctor");
    let path = slice.member.path().display().to_string();
    let named = Machine::simulated().with("GPUSLICE_REGION", &path);
    named.asks(&[]).has("region.own", "note", "1 processes live");
    Machine::simulated().asks(&[]).has("region.others", "ok", "");
    let OwnSlice { member, region: _region, .. } = slice;
    member.leave();
    Machine::simulated().asks(&[]).has("region.stale", "note", &path);
    named.asks(&[]).has("region.own", "ok", "no process lives");
}

#[test]
fn settings_are_read_as_the_library_reads_them() {
    let with = |name: &str, value: &str| Machine::simulated().with(name, value).asks(&[]);
    with("GPU_MEM_LIMIT", "4Gigs").has(
        "settings.malformed",
        "error",
        "GPU_MEM_LIMIT=\"4Gigs\" is not a size",
    );
    with("GPU_CORE_PERCENT", "101").has("settings.malformed", "error", "GPU_CORE_PERCENT");
    with("GPUSLICE_CONFIG", "/nowhere/config").has("settings.malformed", "error", "/nowhere/config");
    with("GPU_MEM_LIMIT", "").has("settings.limit", "note", "not limited");
    with("CUDA_DEVICE_MEMORY_LIMIT", "2g").has("settings.value", "ok", "GPU_MEM_LIMIT is 4GiB");
    let machine = Machine::simulated();
    let file = machine.script("config", "GPU_CORE_PERCENT=20\nGPU_MEM_LIMIT=1GiB\n");
    let machine = machine.with("GPUSLICE_CONFIG", &file).with("GPU_CORE_PERCENT", "30");
    machine
        .asks(&[])
        .has("settings.value", "ok", "GPU_CORE_PERCENT is 20, by an operator's file, which wins over 30")
        .has("settings.value", "ok", "GPU_MEM_LIMIT is 1GiB, by an operator's file, which wins over 4GiB")
        .has_no("settings.left-out");
    let machine = Machine::simulated().with("SIMGPU_DEVICES", "2");
    let file = machine.script("config", "GPU_MEM_LIMIT=1=1GiB\n");
    let told = machine.with("GPUSLICE_CONFIG", &file).asks(&[]);
    told.has(
        "settings.left-out",
        "warning",
        "GPU_MEM_LIMIT=\"1=1GiB\" sets no limit for these devices of this machine: 0",
    );
    let machine = Machine::simulated();
    let file = machine.script("config", "GPU_MEM_LIMT=1GiB\n");
    let told = machine.with("GPUSLICE_CONFIG", &file).asks(&[]);
    told.has("settings.malformed", "error", "config:1: GPU_MEM_LIMT=\"1GiB\" is not a setting of gpuslice");
}

#[test]
fn resources_that_a_container_was_not_given_are_reported() {
    let with = |name: &str, value: &str| Machine::simulated().with(name, value).asks(&[]);
    with("NVIDIA_VISIBLE_DEVICES", "void").has("machine.nvidia", "warning", "brings no GPU in");
    with("NVIDIA_DRIVER_CAPABILITIES", "compute").has("machine.nvidia", "warning", "without utility");
    with("NVIDIA_VISIBLE_DEVICES", "all").has("machine.nvidia", "ok", "is all");
    let machine = Machine::simulated();
    if let Some(told) = with_mounts("mount -t tmpfs -o size=8m none /dev/shm", &machine, &[]) {
        told.has("machine.shm", "warning", "free of 8.00 MiB");
    }
    let forbidden = "mount -t tmpfs -o nodev none /mnt && mknod -m 666 /mnt/ctl c 195 255 && mount -t tmpfs none /dev && \
                     mknod -m 666 /dev/null c 1 3 && mkdir /dev/shm && touch /dev/nvidiactl && \
                     mount --bind /mnt/ctl /dev/nvidiactl";
    if let Some(told) = with_mounts(forbidden, &machine, &[]) {
        told.has("machine.device-files", "error", "may not use /dev/nvidiactl");
    }
}

#[test]
fn a_stub_of_the_toolkit_is_told_from_a_driver() {
    let machine = Machine::simulated();
    let stubs = machine.path("stubs");
    fs::create_dir(&stubs).unwrap();
    for library in ["libcuda.so.1", "libnvidia-ml.so.1"] {
        fs::copy(artefacts::simulated_driver().join(library), stubs.join(library)).unwrap();
    }
    let machine = machine.with("LD_LIBRARY_PATH", &stubs.display().to_string());
    machine.asks(&[]).has("driver.stub", "error", "is a stub");
}

#[test]
fn a_real_driver_on_a_machine_without_a_gpu_is_described() {
    let drivers = artefacts::real_drivers();
    if drivers.is_empty() {
        skip(
            "doctor on real drivers: none in GPUSLICE_TEST_DRIVERS or build/drivers; to mend it: ci/drivers.sh",
        );
    }
    if Path::new("/dev/nvidia0").exists() {
        return skip(
            "doctor on real drivers without a GPU: this machine has one; elsewhere: on a machine without a GPU",
        );
    }
    for (series, folder) in drivers {
        let machine = Machine::new().with("LD_LIBRARY_PATH", &folder.display().to_string());
        machine
            .asks(&[])
            .has("driver.cuda", "ok", &format!("libcuda.so.{series}."))
            .has("driver.init", "error", "cuInit returns 100, CUDA_ERROR_NO_DEVICE")
            .has("driver.nvml", "error", "nvmlInit returns 9")
            .has("driver.versions", "ok", &format!("libnvidia-ml.so.1 {series}."));
    }
}
