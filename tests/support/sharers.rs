//! Processes of one or two slices that share memory: orders for them, and checks of the memory held after each step.

use super::bench::Bench;
use super::compiler;
use super::living::Living;
use gpuslice_region::{Monitor, Trust};
use std::path::PathBuf;

pub(crate) const MIB: u64 = 1 << 20;
/// Quota of each slice.
pub(crate) const QUOTA: u64 = 64 * MIB;
/// Size of the shared piece.
pub(crate) const PIECE: u64 = 16 * MIB;

/// Ways in which a program reaches the driver's functions.
const DOORS: [&str; 3] = ["plain", "five", "linked"];

/// One GPU with up to two slices on it.
pub(crate) struct Stage {
    pub(crate) bench: Bench,
    door: &'static str,
}

/// A process that obeys orders.
pub(crate) struct Actor {
    pub(crate) host: Living,
    name: String,
}

impl Stage {
    pub(crate) fn new(door: &'static str) -> Self {
        // Only a driver that is new enough hands out the newest functions.
        Self { bench: Bench::simulated_without_contexts().with("SIMGPU_CUDA_VERSION", "13040"), door }
    }

    pub(crate) fn region(&self, slice: &str) -> PathBuf {
        self.bench.region_of(slice)
    }

    /// Starts a process of a slice.
    #[track_caller]
    pub(crate) fn actor(&self, slice: &str, name: &str) -> Actor {
        self.faulty(slice, name, "")
    }

    /// Starts a process of a slice under a driver with `faults`.
    #[track_caller]
    pub(crate) fn faulty(&self, slice: &str, name: &str, faults: &str) -> Actor {
        let program = if self.door == "linked" {
            compiler::linked("sharing.c", "sharing_linked", &[]).expect("sharing.c links")
        } else {
            compiler::plain("sharing")
        };
        let host = self.bench.program(&program, &[self.door, name]).set("SIMGPU_FAULTS", faults);
        let host = host.in_slice(slice).limited("64MiB").start();
        assert_eq!(host.hear().as_deref(), Some("ready"), "{name} through {}", self.door);
        Actor { host, name: name.to_owned() }
    }

    /// Returns the bytes that the ledger of a slice counts, without those of dead processes.
    #[track_caller]
    pub(crate) fn ledger(&self, slice: &str) -> u64 {
        let monitor = Monitor::open(&self.region(slice), Trust::AnyOwner).unwrap();
        let monitor = monitor.expect("the slice has a region");
        monitor.reap().expect("dead members can be found");
        let devices = monitor.devices();
        let held = monitor.held(devices.first().expect("a device").device);
        let of_processes: u64 = monitor.processes().iter().flat_map(|process| process.held.clone()).sum();
        assert_eq!(held, of_processes, "what the slice holds is what its processes hold");
        held
    }

    /// Asserts that the only slice holds `bytes`, by its ledger and in truth. Memory of dead processes may still leave the
    /// device.
    #[track_caller]
    pub(crate) fn holds(&self, bytes: u64) {
        assert_eq!(
            (self.ledger("a"), self.bench.truth(0).living()),
            (bytes, bytes),
            "ledger and truth, {}",
            self.door
        );
    }

    /// Asserts that the slices hold `a` and `b` by their ledgers, and `truth` together in truth.
    #[track_caller]
    pub(crate) fn hold(&self, a: u64, b: u64, truth: u64) {
        let all = (self.ledger("a"), self.ledger("b"), self.bench.truth(0).living());
        assert_eq!(all, (a, b, truth), "ledgers and truth, {}", self.door);
    }

    /// Asserts that the process can take `bytes`, the rest of the quota, and not one byte more.
    #[track_caller]
    pub(crate) fn has_left(&self, actor: &mut Actor, bytes: u64) {
        actor.answers(&format!("alloc 31 {}", bytes + 1), 2);
        actor.does(&format!("alloc 31 {bytes}"));
        actor.does("free 31");
    }
}

impl Actor {
    /// Returns the name to which other processes send.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Gives an order. Any answer is right.
    #[track_caller]
    pub(crate) fn tries(&mut self, order: &str) {
        self.asks(order);
    }

    /// Gives an order and returns the answer. Prints both, so that a failed test shows its steps.
    #[track_caller]
    pub(crate) fn asks(&mut self, order: &str) -> String {
        let answer = self.host.ask(order);
        println!("{}: {order}: {answer}", self.name);
        answer
    }

    #[track_caller]
    pub(crate) fn answers(&mut self, order: &str, expected: i64) {
        assert_eq!(self.asks(order), expected.to_string(), "{}: {order}", self.name);
    }

    #[track_caller]
    pub(crate) fn does(&mut self, order: &str) {
        self.answers(order, 0);
    }

    #[track_caller]
    pub(crate) fn do_all(&mut self, orders: &[&str]) {
        orders.iter().for_each(|order| self.does(order));
    }

    /// Makes memory that can be shared by descriptors and sends a descriptor of it.
    #[track_caller]
    pub(crate) fn exports_to(&mut self, others: &[&str]) {
        self.does(&format!("create 0 {PIECE} 1"));
        self.does("export 0 0");
        others.iter().for_each(|other| self.does(&format!("sendfile 0 {other}")));
        self.does("close 0");
    }

    /// Receives a descriptor, imports it as 0 and closes it.
    #[track_caller]
    pub(crate) fn imports(&mut self) {
        self.do_all(&["receivefile 0", "import 0 0", "close 0"]);
    }
}

/// Runs a scene once for each way to the driver.
pub(crate) fn through_each(scene: impl Fn(Stage)) {
    DOORS.into_iter().for_each(|door| scene(Stage::new(door)));
}
