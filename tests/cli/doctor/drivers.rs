//! Findings about drivers, CUDA runtimes and devices.

use super::{Machine, Told};
use crate::support::command::end;
use crate::support::terminal::Terminal;
use crate::support::{artefacts, compiler, skip};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

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
