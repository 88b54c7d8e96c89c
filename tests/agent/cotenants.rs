//! Checks that slices in private folders hold their shares beside each other, and divide the GPU, while the agent runs.

use crate::TWO;
use crate::node::{Node, may_have_containers};
use crate::support::living::Living;
use crate::support::neighbours::{BUSY, begin};
use crate::support::{artefacts, compiler};
use gpuslice_policy::compute::attribution::source::{Measured, Source};
use gpuslice_region::{Monitor, Trust};
use serde_json::Value;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Starts a program of the slice that is always busy, in a container.
pub(crate) fn busy(node: &Node, slice: &str) -> Living {
    begin(node.in_slice(slice, &compiler::plain("load"), &BUSY))
}

/// Returns how each slice measures its time.
fn sources(node: &Node) -> Vec<Source> {
    let source = |slice| {
        let monitor = Monitor::open(&node.region(slice), Trust::AnyOwner).ok()??;
        let device = monitor.devices().first()?.device;
        Some(Measured::of_word(monitor.measure_source(device)).source)
    };
    ["a", "b"].into_iter().filter_map(source).collect()
}

/// Returns the nanoseconds for which the GPU was busy for each process, in the order of their start.
fn busy_times(node: &Node) -> Vec<u64> {
    let truth: Value = serde_json::from_str(&node.bench.report()).unwrap();
    let processes = truth["processes"].as_array().unwrap();
    processes.iter().map(|process| process["devices"][0]["busy_ns"].as_u64().unwrap()).collect()
}

/// Measures for five seconds. Returns the percentage of the GPU's time that each process gets.
fn shares(node: &Node) -> Vec<f64> {
    let (began, before) = (Instant::now(), busy_times(node));
    sleep(Duration::from_secs(5));
    let (after, passed) = (busy_times(node), began.elapsed().as_secs_f64());
    after.iter().zip(before).map(|(after, before)| (after - before) as f64 / passed / 1e7).collect()
}

#[test]
fn slices_of_private_folders_hold_their_shares_while_the_agent_relays() {
    if !may_have_containers() {
        return;
    }
    let mut node = Node::start(&TWO.replace("priority = \"high\"\n", ""));
    let _programs = ["a", "b"].map(|slice| busy(&node, slice));
    node.until("both know each other", |node| {
        (sources(node) == [Source::Replayed, Source::Replayed]).then_some(())
    });
    let told = shares(&node);
    println!("shares: {told:?} of 30 and 70");
    assert!((25.0..=32.0).contains(&told[0]) && (65.0..=72.0).contains(&told[1]), "{told:?} of 30 and 70");
    // Slices go on without the agent, and the next agent continues.
    node.end(libc::SIGKILL);
    node.until("they know that nobody relays", |node| {
        sources(node).iter().all(|source| *source != Source::Replayed).then_some(())
    });
    node.begin();
    node.until("both know each other again", |node| {
        (sources(node) == [Source::Replayed, Source::Replayed]).then_some(())
    });
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
    let told = shares(&node);
    println!("shares: {told:?} of 25 and 75");
    assert!((20.0..=30.0).contains(&told[0]) && (65.0..=78.0).contains(&told[1]), "{told:?} of 25 and 75");
}

#[test]
fn slices_of_containers_with_private_folders_hold_their_shares_without_an_agent() {
    if !may_have_containers() {
        return;
    }
    let mut node = Node::start("");
    node.end(libc::SIGKILL);
    let environment =
        [format!("LD_PRELOAD={}", artefacts::library().display()), "GPU_CORE_PERCENT=40".to_owned()];
    let load = compiler::plain("load");
    let _programs = [(); 2].map(|()| begin(node.contained(&[], &environment, &load, &BUSY)));
    node.until("both get their shares", |node| {
        let told = shares(node);
        println!("shares: {told:?} of 40 and 40");
        told.iter().all(|share| (36.0..=41.5).contains(share)).then_some(())
    });
}
