//! Slices at their quotas: orders for their processes, the figures of each region, and the ground truth.

use super::bench::Bench;
use super::living::Living;
use super::outcome::is_refusal;
use gpuslice_region::{Device, Limits, Monitor, Trust};
use serde_json::Value;
use std::path::PathBuf;

pub(crate) const MIB: u64 = 1 << 20;

/// One GPU with slices on it.
pub(crate) struct Ground {
    pub(crate) bench: Bench,
}

/// The figures of a device in a region.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Figures {
    pub(crate) held: u64,
    pub(crate) spilled: u64,
    pub(crate) refused: u64,
    pub(crate) unmet: u64,
}

impl Ground {
    pub(crate) fn region(&self, slice: &str) -> PathBuf {
        self.bench.region_of(slice)
    }

    /// Starts a process of a slice with `variables`.
    #[track_caller]
    pub(crate) fn actor(&self, slice: &str, quota: &str, variables: &[(&str, &str)]) -> Actor {
        let host = self.bench.host("spill", &[]).limited(quota).in_slice(slice).set_all(variables).start();
        assert_eq!(host.hear().as_deref(), Some("ready"));
        Actor(host)
    }

    fn monitor(&self, slice: &str) -> (Monitor, Device) {
        let monitor = Monitor::open(&self.region(slice), Trust::AnyOwner).expect("the region can be read");
        let monitor = monitor.expect("the slice has a region");
        monitor.reap().expect("dead members can be found");
        let device = monitor.devices().first().expect("a device").device;
        (monitor, device)
    }

    /// Returns the figures of a slice's region, without those of dead processes.
    #[track_caller]
    pub(crate) fn figures(&self, slice: &str) -> Figures {
        let (monitor, device) = self.monitor(slice);
        Figures {
            held: monitor.held(device),
            spilled: monitor.spilled(device),
            refused: monitor.quota_denials(device),
            unmet: monitor.device_denials(device),
        }
    }

    /// Changes the limits of a slice while it runs.
    pub(crate) fn change(&self, slice: &str, change: impl FnOnce(Limits) -> Limits) {
        let (monitor, device) = self.monitor(slice);
        monitor.set_limits(device, change(monitor.limits(device)));
    }

    /// Returns the bytes of managed memory that are on the host in truth: all of them now, and the largest peak of a process.
    pub(crate) fn on_host(&self) -> (u64, u64) {
        (self.each("on_host").iter().sum(), self.each("on_host_peak").into_iter().max().unwrap_or(0))
    }

    /// Returns the number of allocations that live in truth, on the device or on the host.
    pub(crate) fn live(&self) -> u64 {
        self.each("live").iter().sum()
    }

    /// Returns a figure of each process on the first device.
    fn each(&self, name: &str) -> Vec<u64> {
        let report: Value = serde_json::from_str(&self.bench.report()).expect("the truth is JSON");
        let processes = report.pointer("/processes").and_then(Value::as_array).expect("processes");
        let figure = |process: &Value| {
            process.pointer(&format!("/devices/0/{name}")).and_then(Value::as_u64).expect("a number")
        };
        processes.iter().map(figure).collect()
    }
}

/// A process that obeys orders.
pub(crate) struct Actor(pub(crate) Living);

impl Actor {
    #[track_caller]
    pub(crate) fn answers(&mut self, order: &str, expected: i64) {
        let answer = self.0.ask(order);
        println!("{order}: {answer}");
        assert_eq!(answer, expected.to_string(), "{order}");
    }

    #[track_caller]
    pub(crate) fn does(&mut self, order: &str) {
        self.answers(order, 0);
    }

    /// Asserts the figures that the process sees: free memory, the size of the device, and the same size from another function.
    #[track_caller]
    pub(crate) fn shows(&mut self, left: u64, quota: u64) {
        assert_eq!(self.0.numbers("info"), [left, quota, quota]);
    }

    /// Ends the process. Returns its lines on standard error, without those that say that the quota is reached.
    #[track_caller]
    pub(crate) fn said(self) -> Vec<String> {
        self.spoke().into_iter().filter(|line| !is_refusal(line)).collect()
    }

    /// Ends the process. Returns its lines on standard error that say that the quota is reached.
    #[track_caller]
    pub(crate) fn refusals(self) -> Vec<String> {
        self.spoke().into_iter().filter(|line| is_refusal(line)).collect()
    }

    fn spoke(self) -> Vec<String> {
        let (status, text) = self.0.end();
        assert!(status.success(), "{status}: {text}");
        text.lines().map(str::to_owned).collect()
    }
}
