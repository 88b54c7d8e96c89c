//! Code, limits of a context and green contexts count against the quota to the byte, for as long as they live.

mod late_quotas;
mod libraries;
mod limits_and_green;
mod look_ups;
mod neighbours;

use crate::support::bench::{Bench, Host};
use crate::support::living::Living;
use crate::support::outcome::but_refusals;

const MIB: u64 = 1 << 20;
const QUOTA: u64 = 512 * MIB;
/// Bytes of a context in these tests, of the code of a module without its variables, and of a green context.
const CONTEXT: u64 = 96 * MIB;
const CODE: u64 = 6 * MIB;
const GREEN: u64 = 5 * MIB;
/// Charge for a context if nothing reports its size: 4 MiB for each of the 132 multiprocessors.
const ESTIMATE: u64 = 528 * MIB;

/// A GPU of 1 GiB whose driver takes memory in pieces of 2 MiB.
fn bench() -> Bench {
    let bench = Bench::simulated_without_contexts()
        .with("SIMGPU_CONTEXT_BYTES", "96MiB")
        .with("SIMGPU_MODULE_BYTES", "5000000");
    bench.with("SIMGPU_MODULE_GRANULE", "2MiB").with("SIMGPU_GREEN_BYTES", "5MiB")
}

/// A host in a slice of its own.
struct Tenant<'bench> {
    bench: &'bench Bench,
    living: Living,
}

impl<'bench> Tenant<'bench> {
    fn through(bench: &'bench Bench, door: &str) -> Self {
        Self::started(bench, bench.host("modules", &[door]).limited(&QUOTA.to_string()))
    }

    fn started(bench: &'bench Bench, host: Host<'_>) -> Self {
        let living = host.start();
        assert_eq!(living.hear().as_deref(), Some("init 0"));
        Self { bench, living }
    }

    /// Starts a host and makes the primary context of the device current.
    fn in_context(bench: &'bench Bench) -> Self {
        Self::through(bench, "dlsym").with_context()
    }

    /// Makes the primary context of the device current.
    fn with_context(mut self) -> Self {
        self.just("retain");
        self.does("current primary");
        self
    }

    /// Returns the bytes that this process holds in truth.
    fn truth(&self) -> u64 {
        let report = self.bench.report();
        let (_before, process) = report
            .split_once(&format!("\"pid\":{},\"alive\":true", self.living.pid()))
            .expect("it is listed");
        let (_before, held) = process.split_once("\"held\":").expect("a figure");
        held.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap()
    }

    /// Gives an order. Returns its status and the bytes of the quota that are held after it.
    #[track_caller]
    fn order(&mut self, order: &str) -> (u64, u64) {
        self.living.order(order);
        self.answer(order)
    }

    /// Returns the answer to an order that was given, as [`order`](Self::order) does.
    #[track_caller]
    fn answer(&mut self, order: &str) -> (u64, u64) {
        match self.living.numbers_of_answer(order).as_slice() {
            [status, left] => (*status, QUOTA - left),
            other => panic!("{order}: {other:?}"),
        }
    }

    /// Asserts that an order succeeds and that the slice is then charged for the bytes that it holds in truth. Returns that
    /// charge.
    #[track_caller]
    fn does(&mut self, order: &str) -> u64 {
        self.answers(order, 0)
    }

    #[track_caller]
    fn answers(&mut self, order: &str, expected: u64) -> u64 {
        let (status, held) = self.order(order);
        let truth = self.truth();
        assert_eq!(status, expected, "{order}");
        assert_eq!(held, truth, "{order}: charged and held");
        held
    }

    /// Asserts that an order succeeds, without comparing: there is no context in which the host could ask for free memory.
    #[track_caller]
    fn just(&mut self, order: &str) {
        assert_eq!(self.order(order).0, 0, "{order}");
    }

    #[track_caller]
    fn end(self) {
        let ended = self.living.end();
        assert!(ended.0.success() && but_refusals(&ended.1).is_empty(), "{ended:?}");
    }

    #[track_caller]
    fn end_saying(self, words: &str) {
        let (status, said) = self.living.end();
        let count = said.lines().filter(|line| line.contains(words)).count();
        let rest: String = said.lines().filter(|line| !line.contains(words)).collect();
        assert!(status.success() && count == 1 && but_refusals(&rest).is_empty(), "{status}: {said}");
    }
}

#[test]
fn a_module_is_charged_the_devices_loss_through_every_entry_point() {
    for loading in ["LAZY", "EAGER"] {
        for door in ["dlsym", "first", "second"] {
            let bench = bench().with("CUDA_MODULE_LOADING", loading);
            let mut tenant = Tenant::through(&bench, door).with_context();
            let code = if loading == "LAZY" { 0 } else { CODE };
            for how in ["data", "ex", "text", "file"] {
                assert_eq!(tenant.does(&format!("load {how} 9000000")), CONTEXT + 10 * MIB + code, "{how}");
                assert_eq!(tenant.does("use function"), CONTEXT + 10 * MIB + CODE, "{how}");
                tenant.does("use global");
                assert_eq!(tenant.does("unload"), CONTEXT);
            }
            assert_eq!(tenant.does("load fat"), CONTEXT + code);
            assert_eq!(tenant.does("unload"), CONTEXT);
            tenant.end();
        }
    }
}

#[test]
fn code_that_is_loaded_late_is_charged_when_it_is() {
    let bench = bench();
    let mut tenant = Tenant::in_context(&bench);
    assert_eq!(tenant.does("load data 4194304"), CONTEXT + 4 * MIB);
    assert_eq!(tenant.does("use enumerate"), CONTEXT + 4 * MIB);
    assert_eq!(tenant.does("use load"), CONTEXT + 4 * MIB + CODE);
    assert_eq!(tenant.does("unload"), CONTEXT);
    tenant.end();
}

#[test]
fn a_module_that_does_not_fit_is_refused_and_leaves_nothing() {
    let bench = bench().with("CUDA_MODULE_LOADING", "EAGER");
    let mut tenant = Tenant::in_context(&bench);
    let room = QUOTA - CONTEXT - 8 * MIB;
    let held = tenant.does(&format!("alloc {room}"));
    // First the variables alone are too large, so the driver is not asked. Then only the code does not fit.
    for size in [64 * MIB, 4 * MIB] {
        for order in ["load data", "load ex", "load text", "load file", "library data", "library file"] {
            assert_eq!(tenant.answers(&format!("{order} {size}"), 2), held, "{order} {size}");
        }
    }
    assert!(bench.truth(0).peak <= QUOTA + 64 * MIB + CODE, "{:?}", bench.truth(0));
    assert_eq!(tenant.does("load data"), held + CODE);
    tenant.end_saying("a module, code and variables, takes about");
}

#[test]
fn variables_that_do_not_fit_never_reach_the_device() {
    let bench = bench();
    let mut tenant = Tenant::in_context(&bench);
    tenant.answers("load data 1000000000", 2);
    assert_eq!(bench.truth(0).peak, CONTEXT);
    tenant.end_saying("takes about");
}

#[test]
fn late_code_beyond_the_quota_stands_and_nothing_else_is_granted() {
    let bench = bench();
    let mut tenant = Tenant::in_context(&bench);
    tenant.does("load data 2097152");
    tenant.does(&format!("alloc {}", QUOTA - CONTEXT - 2 * MIB - 100));
    assert_eq!(tenant.order("use function"), (0, QUOTA));
    assert_eq!(tenant.order("alloc 1").0, 2);
    tenant.does("free");
    assert_eq!(tenant.does("unload"), CONTEXT);
    tenant.end_saying("nothing else is granted until there is");
}

#[test]
fn code_goes_back_with_its_context() {
    let bench = bench();
    let mut tenant = Tenant::in_context(&bench);
    // The release comes first: a reset takes back no use, so a release after it would not be the last.
    for ending in ["release", "reset"] {
        for order in
            ["load data 4194304", "use function", "library data 2097152", "use module", "limit 1 5000000"]
        {
            tenant.does(order);
        }
        tenant.just(ending);
        assert_eq!(tenant.truth(), 0);
        tenant.just("retain");
        assert_eq!(tenant.does("current primary"), CONTEXT, "{ending}");
        assert_eq!(tenant.does("unlibrary"), CONTEXT, "{ending}");
    }
    tenant.end();
}

impl Tenant<'_> {
    /// Asserts that orders succeed in a slice without a quota. Such a host is shown the device's free memory.
    #[track_caller]
    fn unlimited(&mut self, orders: &[&str]) {
        orders.iter().for_each(|order| assert_eq!(self.living.numbers(order).first(), Some(&0), "{order}"));
    }
}
