//! Figures that NVML reports, and drivers whose NVML hangs or comes late.

use crate::support::command::{GIB, OwnSlice, PROGRAM, end, gpuslice, name};
use crate::support::timed::within;
use crate::support::{artefacts, compiler};
use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

#[test]
fn a_driver_that_hangs_does_not_hide_the_figures_of_the_region() {
    let slice = OwnSlice::join("hung");
    let status = |faults: &str| {
        let mut command = gpuslice(&["status", &slice.name, "--json"]);
        command.env("LD_LIBRARY_PATH", artefacts::simulated_driver()).env("SIMGPU_FAULTS", faults);
        let folder = tempfile::tempdir_in("/dev/shm").expect("a folder can be made");
        end(command.env("SIMGPU_STATE", folder.path().join("state"))).code(0)
    };
    assert_eq!(status("").err, "");
    for call in ["nvmlInit_v2", "nvmlDeviceGetHandleByIndex_v2"] {
        let told = status(&format!("{call}=delay:600s")).complains("NVML does not answer");
        let report: Value = serde_json::from_str(&told.out).expect("this is JSON");
        assert_eq!(report.pointer("/slices/0/devices/0/limit"), Some(&(8 * GIB).into()));
        assert_eq!(report.pointer("/slices/0/devices/0/unaccounted"), Some(&Value::Null));
    }
}

/// `gpuslice` on a machine with its own simulated GPUs.
struct Machine(tempfile::TempDir, &'static [(&'static str, &'static str)]);

impl Machine {
    fn with(settings: &'static [(&str, &str)]) -> Self {
        Self(tempfile::tempdir_in("/dev/shm").expect("a folder can be made"), settings)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = gpuslice(arguments);
        command.env("LD_LIBRARY_PATH", artefacts::simulated_driver());
        command.env("SIMGPU_STATE", self.0.path().join("state")).envs(self.1.iter().copied());
        command
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&end(&mut self.command(arguments)).code(0).out).expect("this is JSON")
    }
}

#[test]
fn gpus_have_the_numbers_that_nvidia_smi_shows_and_their_products_names() {
    for (settings, numbers) in [
        (&[("SIMGPU_DEVICES", "2")][..], [(0, None), (1, None)]),
        // A process sees one instance and no other device.
        (&[("SIMGPU_DEVICES", "2"), ("SIMGPU_MIG", "0,2")], [(1, Some(0)), (1, None)]),
    ] {
        let machine = Machine::with(settings);
        let name = name(&format!("numbered-{}", settings.len()));
        let mut run =
            machine.command(&["run", "--mem", "1GiB", "--name", &name, "--", PROGRAM, "demo-worker"]);
        let mut run = run.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it can be started");
        let mut line = String::new();
        let mut out = BufReader::new(run.stdout.take().expect("it is piped"));
        out.read_line(&mut line).expect("it is text");
        let status = machine.json(&["status", &name, "--json"]);
        let devices = status["slices"][0]["devices"].as_array().expect("there are devices");
        let number = |device: &Value| (device["index"].as_u64(), device["instance"].as_u64());
        assert!(!devices.is_empty(), "{status}");
        for (device, (index, instance)) in devices.iter().zip(numbers) {
            assert_eq!(number(device), (Some(index), instance), "{status}");
            assert!(device["product"].as_str().is_some_and(|name| name.contains("Simulated")), "{status}");
        }
        let gpu = &status["gpus"][0];
        assert_eq!((number(gpu), &gpu["uuid"]), (number(&devices[0]), &devices[0]["uuid"]), "{status}");
        assert!(gpu["used"].as_u64() >= devices[0]["held"].as_u64() && gpu["used"].is_u64(), "{status}");
        let listing = machine.json(&["list", "--json"]);
        let own = listing["slices"].as_array().into_iter().flatten().find(|own| own["name"] == name.as_str());
        let own = own.expect("it is listed");
        for field in ["uuid", "index", "instance", "product"] {
            assert_eq!(own["devices"][0][field], devices[0][field], "{field}: {listing}");
        }
        let text = end(&mut machine.command(&["list"])).code(0).out;
        let row = text.lines().find(|line| line.contains(&name)).expect("it is listed");
        let shown = if settings.len() == 2 { " 1:0 " } else { " 0 " };
        let short: String = devices[0]["uuid"].as_str().expect("it is reported").chars().take(12).collect();
        assert!(
            row.contains(shown) && row.contains(&format!(" {short} ")) && row.contains("Simulated"),
            "{row}"
        );
        drop(run.stdin.take());
        assert!(run.wait().expect("it is our child").success());
    }
}

/// Example: the driver is loaded anew, and NVML is not there meanwhile. The command calls NVML again after half a minute. Its
/// clock jumps ahead, so that the test need not wait for so long.
#[test]
fn status_that_goes_on_asks_nvml_again() {
    let machine = Machine::with(&[]);
    let name = name("silence");
    let mut run = machine.command(&["run", "--mem", "1GiB", "--name", &name, "--", PROGRAM, "demo-worker"]);
    let mut run = run.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it can be started");
    let mut ready = BufReader::new(run.stdout.take().expect("it is piped"));
    ready.read_line(&mut String::new()).expect("it is text");
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder can be made");
    let mut watching = machine.command(&["status", &name, "--watch", "0.2", "--json"]);
    let watching = watching.env("LD_LIBRARY_PATH", folder.path()).stdout(Stdio::piped());
    let watching = watching.env("LD_PRELOAD", compiler::wrapper("wrap_ahead"));
    let mut watching = watching.env("AHEAD", folder.path().join("ahead")).spawn().expect("it can be started");
    let out = BufReader::new(watching.stdout.take().expect("it is piped"));
    let mut reports = serde_json::Deserializer::from_reader(out).into_iter::<Value>();
    let mut index = || {
        let report = reports.next().expect("it goes on").expect("this is JSON");
        report["slices"][0]["devices"][0]["index"].clone()
    };
    assert_eq!(index(), Value::Null);
    let library = "libnvidia-ml.so.1";
    fs::copy(artefacts::simulated_driver().join(library), folder.path().join(library)).expect("it is built");
    assert!((0..5).all(|_| index().is_null()), "it asks NVML for each report");
    fs::write(folder.path().join("ahead"), "").expect("it can be written");
    assert!((0..50).any(|_| index() == 0), "it does not ask NVML again");
    drop(reports);
    assert!(watching.wait().expect("it is our child").success());
    drop(run.stdin.take());
    assert!(run.wait().expect("it is our child").success());
}

#[test]
fn list_waits_a_second_at_most_for_nvml_and_shows_uuids_without_it() {
    let slice = OwnSlice::join("quick");
    let machine = Machine::with(&[("SIMGPU_FAULTS", "nvmlInit_v2=delay:600s")]);
    let list = || end(&mut machine.command(&["list"])).code(0).complains("NVML does not answer");
    let told = within(Duration::from_secs(4), Duration::from_secs(1), list);
    let row = told.out.lines().find(|line| line.contains(&slice.name)).expect("it is listed");
    assert_eq!(row.split_whitespace().collect::<Vec<_>>()[1..3], ["-", "GPU-11111111"], "{row}");
}
