//! Checks that slices in private folders hold their shares beside each other, and divide the GPU, while the agent runs.

use crate::TWO;
use crate::node::Node;
use crate::support::bench::{Bench, driver_copy};
use crate::support::container::may_have_containers;
use crate::support::living::Living;
use crate::support::neighbours::{BUSY, begin, neighbour};
use crate::support::{artefacts, compiler, timed};
use gpuslice_policy::compute::attribution::source::{Measured, Source};
use gpuslice_region::{Monitor, Trust};
use serde_json::Value;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Starts a program of the slice that is always busy, in a container.
pub(crate) fn busy(node: &Node, slice: &str) -> Living {
    begin(node.in_slice(slice, &compiler::plain("load"), &BUSY))
}

/// Starts a busy program in each of two slices. Each image has its own copy of the driver, so the slices cannot find each other
/// by locks of a library.
///
/// The simulated NVML names a process by its number in its container. So that the numbers differ, a shell starts the second one.
fn busy_apart(node: &Node) -> [(Living, TempDir); 2] {
    let load = compiler::plain("load");
    let program = |slice, program: &Path, arguments: &[&str]| {
        let driver = driver_copy();
        let variables = [format!("LD_LIBRARY_PATH={}", driver.path().display())];
        (begin(node.in_slice_with(slice, &variables, program, arguments)), driver)
    };
    let by_shell = ["-c", "\"$0\" \"$@\"; exit", &load.display().to_string(), BUSY[0], BUSY[1]];
    [program("a", &load, &BUSY), program("b", Path::new("/bin/sh"), &by_shell)]
}

/// Waits until both slices measure their time by `source`.
fn until_both_measure(node: &mut Node, source: Source) {
    node.until(&format!("both have {source:?}"), |node| (sources(node) == [source; 2]).then_some(()));
}

/// Starts a node with busy programs [apart](busy_apart), and waits until its agent relays between the slices.
fn node_that_relays() -> (Node, [(Living, TempDir); 2]) {
    let mut node = Node::start(&TWO.replace("priority = \"high\"\n", ""));
    let programs = busy_apart(&node);
    until_both_measure(&mut node, Source::Replayed);
    (node, programs)
}

/// Returns how each slice measures its time.
pub(crate) fn sources(node: &Node) -> Vec<Source> {
    let source = |slice| {
        let monitor = Monitor::open(&node.region(slice), Trust::AnyOwner).ok()??;
        let device = monitor.devices().first()?.device;
        Some(Measured::of_word(monitor.measure_source(device)).source)
    };
    ["a", "b", "c"].into_iter().filter_map(source).collect()
}

/// Returns the nanoseconds for which the GPU was busy for each process, in the order of their start.
fn busy_times(bench: &Bench) -> Vec<u64> {
    let truth: Value = serde_json::from_str(&bench.report()).unwrap();
    let processes = truth["processes"].as_array().unwrap();
    processes.iter().map(|process| process["devices"][0]["busy_ns"].as_u64().unwrap()).collect()
}

/// Measures for five seconds. Returns the percentage of the GPU's time that each process gets.
pub(crate) fn shares(bench: &Bench) -> Vec<f64> {
    let (began, before) = (Instant::now(), busy_times(bench));
    sleep(Duration::from_secs(5));
    let (after, passed) = (busy_times(bench), began.elapsed().as_secs_f64());
    after.iter().zip(before).map(|(after, before)| (after - before) as f64 / passed / 1e7).collect()
}

#[test]
fn slices_of_private_folders_hold_their_shares_while_the_agent_relays() {
    if !may_have_containers() {
        return;
    }
    let (mut node, _programs) = node_that_relays();
    let told = shares(&node.bench);
    println!("shares: {told:?} of 30 and 70");
    assert!((25.0..=32.0).contains(&told[0]) && (65.0..=72.0).contains(&told[1]), "{told:?} of 30 and 70");
    // Slices go on without the agent, and the next agent continues.
    node.end(libc::SIGKILL);
    node.until("the slices know that no process relays", |node| {
        sources(node).iter().all(|source| *source != Source::Replayed).then_some(())
    });
    node.begin();
    until_both_measure(&mut node, Source::Replayed);
}

#[test]
fn slices_of_private_folders_hear_from_the_agent_of_a_program_that_publishes_nothing() {
    if !may_have_containers() {
        return;
    }
    let (mut node, _programs) = node_that_relays();
    let mut program = neighbour(&node.bench);
    until_both_measure(&mut node, Source::ReplayedWhole);
    program.kill();
    until_both_measure(&mut node, Source::Replayed);
}

#[test]
fn slices_of_private_folders_divide_the_gpu_while_the_agent_runs() {
    if !may_have_containers() {
        return;
    }
    let slice = |name, weight| {
        format!("[[slices]]\nname = \"{name}\"\ngpu = 0\npolicy = \"equal\"\nweight = {weight}\n")
    };
    let mut node = Node::start(&[slice("a", 100), slice("b", 300)].concat());
    let _programs = ["a", "b"].map(|slice| busy(&node, slice));
    node.until("the agent divides the GPU", |node| {
        let divided = ["a", "b"].map(|slice| {
            let region = Monitor::open(&node.region(slice), Trust::AnyOwner).ok()??;
            let device = region.devices().first()?.device;
            (region.grant(device) != 0).then_some(())
        });
        divided.iter().all(Option::is_some).then_some(())
    });
    let told = shares(&node.bench);
    println!("shares: {told:?} of 25 and 75");
    assert!((20.0..=30.0).contains(&told[0]) && (65.0..=78.0).contains(&told[1]), "{told:?} of 25 and 75");
}

/// Number of measurements, of five seconds each, within which two programs must reach their shares.
const SETTLING: usize = 12;

/// Waits until two programs have 30 and 70 % of the GPU. Then fails unless they keep these shares in the next five seconds.
#[track_caller]
pub(crate) fn come_to_30_and_70(bench: &Bench) {
    let are_right = |told: &Vec<f64>| {
        println!("shares: {told:?} of 30 and 70");
        told.len() == 2 && (27.0..=31.5).contains(&told[0]) && (65.0..=71.5).contains(&told[1])
    };
    assert!((0..SETTLING).any(|_| are_right(&shares(bench))), "they do not come to their shares");
    // The slack is a point and a half of five seconds.
    timed::holds(Duration::from_millis(75), || shares(bench), are_right);
}

/// Generations of drivers, each with the settings by which the simulated NVML answers as that driver's NVML does in a container:
/// `docs/internals/simgpu.md`.
const DRIVERS: [(&str, &[(&str, &str)]); 4] = [
    ("before 535.113", &[("SIMGPU_NVML_PIDS", "offset"), ("SIMGPU_CUDA_VERSION", "12020")]),
    (
        "535.113 to 560",
        &[("SIMGPU_NVML_PIDS", "mixed"), ("SIMGPU_NVML_BYTES", "0"), ("SIMGPU_CUDA_VERSION", "12040")],
    ),
    ("565", &[("SIMGPU_NVML_PIDS", "mixed"), ("SIMGPU_CUDA_VERSION", "12070")]),
    ("from 570 on", &[("SIMGPU_NVML_PIDS", "foreign"), ("SIMGPU_CUDA_VERSION", "12080")]),
];

#[test]
fn slices_of_devices_hold_their_shares_without_the_agent() {
    if !may_have_containers() {
        return;
    }
    let mut node = Node::start(&TWO.replace("priority = \"high\"\n", ""));
    node.end(libc::SIGKILL);
    let _programs = ["a", "b"].map(|slice| busy(&node, slice));
    come_to_30_and_70(&node.bench);
}

#[test]
fn slices_of_variables_in_containers_hold_their_shares_without_the_agent() {
    if !may_have_containers() {
        return;
    }
    for (age, settings) in DRIVERS {
        println!("{age}");
        let bench = Bench::simulated_without_contexts();
        let bench = settings.iter().fold(bench, |bench, (name, value)| bench.with(name, value));
        let mut node = Node::start_on(bench, "");
        node.end(libc::SIGKILL);
        let load = compiler::plain("load");
        let program = |percent| {
            let library = format!("LD_PRELOAD={}", artefacts::library().display());
            let variables = [library, format!("GPU_CORE_PERCENT={percent}")];
            begin(node.contained(&[], &variables, &load, &BUSY))
        };
        let _programs = [program(30), program(70)];
        come_to_30_and_70(&node.bench);
    }
}
