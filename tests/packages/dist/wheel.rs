//! The wheel: `pip` installs it in a virtual environment, where the command finds its library.

use super::release::{VERSION, release, run};
use crate::support::bench::Bench;
use crate::support::{artefacts, compiler, skip};
use std::fs;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Makes a virtual environment with the wheel, without a package index.
fn installed(wheel: &Path) -> Option<TempDir> {
    let folder = tempfile::tempdir().unwrap();
    // This Python made the wheel.
    let python = artefacts::repository().join("build/venv/bin/python");
    let made = Command::new(python).args(["-m", "venv"]).arg(folder.path().join("venv")).output();
    if !made.is_ok_and(|made| made.status.success()) {
        skip("the wheel of a release: venv fails; to mend it: apt-get install python3-venv, then ci/dist.sh");
        return None;
    }
    let mut pip = Command::new(folder.path().join("venv/bin/pip"));
    run(pip.args(["install", "--quiet", "--disable-pip-version-check", "--no-index"]).arg(wheel));
    Some(folder)
}

#[test]
fn a_wheel_in_a_virtual_environment_limits_a_program() {
    let Some(release) = release("the wheel of a release") else { return };
    let wheel = release.join(format!("gpuslice-{VERSION}-py3-none-manylinux_2_31_x86_64.whl"));
    if !wheel.exists() {
        return skip("the wheel of a release: ci/dist.sh made none, and said why; to mend it: ci/dist.sh");
    }
    let Some(folder) = installed(&wheel) else { return };
    let venv = folder.path().join("venv").canonicalize().unwrap();
    let command = venv.join("bin/gpuslice");
    assert_eq!(run(Command::new(&command).arg("--version")), format!("gpuslice {VERSION}\n"));
    assert!(venv.join("share/man/man1/gpuslice-run.1").exists());

    let bench = Bench::simulated_without_contexts().with_quick_nvml();
    let witness = compiler::plain("witness").display().to_string();
    let words = ["run", "--mem", "64MiB", "--region"];
    let region = bench.region().display().to_string();
    let program = [region.as_str(), "--", &witness, "16777216"];
    let mut program = bench.program(&command, &[&words[..], &program].concat()).start();
    assert_eq!(program.hear().as_deref(), Some("ready"));
    let children = format!("/proc/{0}/task/{0}/children", program.pid());
    let child = fs::read_to_string(children).unwrap();
    let maps = fs::read_to_string(format!("/proc/{}/maps", child.trim())).unwrap();
    let library = venv.join("lib/gpuslice/libgpuslice.so").display().to_string();
    assert!(maps.contains(&library), "{library} is not in {maps}");
    assert!(program.ask("take 67108864").starts_with("2 "), "it passes the quota");
    assert!(program.ask("take 33554432").starts_with("0 "));
    let (status, said) = program.end();
    assert!(status.success(), "{said}");

    let mut pip = Command::new(venv.join("bin/pip"));
    run(pip.args(["uninstall", "--quiet", "--disable-pip-version-check", "--yes", "gpuslice"]));
    assert!(!venv.join("lib/gpuslice").exists() && !command.exists());
}
