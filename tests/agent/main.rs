//! Checks that `gpuslice-agent` makes slices, reports their use as regions and the simulated GPU have it, and stays unharmed by
//! files that tenants write.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::float_arithmetic,
    reason = "a test"
)]

mod browser;
mod changes;
mod clients;
mod cost;
mod cotenants;
mod defects;
mod engine;
mod engines;
mod figures;
mod kubernetes;
mod memory_answers;
mod monitoring;
mod node;
mod openmetrics;
mod page;
mod places;
mod prometheus;
mod questions;
mod readme;
mod schema;
#[path = "../support/mod.rs"]
mod support;
mod tenants;
mod unlimited;
mod users;
mod ways;

use gpuslice_region::{DeviceRequest, Limits, Member, Trust, Uuid};
use node::Node;
use std::fs;
use support::compiler;
use support::living::Living;

const MIB: u64 = 1 << 20;
pub(crate) const TWO: &str = "[[slices]]\nname = \"a\"\ngpu = 0\nmemory = \"256MiB\"\ncores = 30\npriority = \"high\"\n\
    [[slices]]\nname = \"b\"\ngpu = 0\nmemory = \"25%\"\ncores = 70\n";

/// Starts `witness`, a program that takes memory on order, in a slice.
fn witness(node: &Node, slice: &str, bytes: u64) -> Living {
    let program = node.in_slice(slice, &compiler::plain("witness"), &[&bytes.to_string()]);
    assert_eq!(program.hear().as_deref(), Some("ready"));
    program
}

/// Waits until the kernel has killed the first process of a container whose parent was ended.
fn dies(node: &mut Node, pid: u64) {
    node.until("it is dead", |_| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.map_or(true, |stat| stat.contains(") Z ")).then_some(())
    });
}

/// Returns the UUID of the node's first GPU.
pub(crate) fn gpu_of(node: &Node) -> Uuid {
    let uuid = node
        .scrape()
        .0
        .keys()
        .find_map(|(name, labels)| (name == "gpuslice_gpu_info").then(|| labels["uuid"].clone()));
    let digits = uuid.expect("there is a GPU").trim_start_matches("GPU-").replace('-', "");
    let bytes: Vec<u8> =
        (0..16).map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).unwrap()).collect();
    Uuid(bytes.try_into().unwrap())
}

/// Makes this process join a slice that the agent made.
pub(crate) fn join(node: &Node, slice: &str) -> Member {
    let limits = Limits { memory: Some(256 * MIB), cores_permille: 300, ..Limits::NONE };
    let wanted = [DeviceRequest { uuid: gpu_of(node), total: 1 << 30, limits }];
    Member::join(&node.region(slice), Trust::AnyOwner, &wanted).expect("it can be joined").0
}
