//! Code, limits of a context and green contexts count against the quota to the byte, for as long as they live.

use crate::support::bench::{Bench, Host};
use crate::support::compiler;
use crate::support::living::Living;
use crate::support::outcome::{Outcome, but_refusals};
use crate::support::timed::within;
use gpuslice_policy::sizes::blocks::{BLOCK, taken};
use gpuslice_region::{Limits, Monitor, Trust};
use std::time::{Duration, Instant};

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
fn a_library_is_charged_at_its_first_use_in_a_context_and_given_back_with_it() {
    for door in ["dlsym", "first", "second"] {
        for how in ["data", "file"] {
            let bench = bench();
            let mut tenant = Tenant::through(&bench, door).with_context();
            for first_use in ["module", "libraryglobal", "librarymanaged"] {
                assert_eq!(tenant.does(&format!("library {how} 4194304")), CONTEXT);
                assert_eq!(tenant.does(&format!("use {first_use}")), CONTEXT + 4 * MIB, "{first_use}");
                tenant.does("use kernel");
                assert_eq!(tenant.does("use kernelfunction"), CONTEXT + 4 * MIB + CODE);
                assert_eq!(tenant.does("unlibrary"), CONTEXT);
            }
            tenant.end();
        }
    }
}

#[test]
fn a_question_for_no_kernels_does_not_read_the_list() {
    let bench = bench();
    let mut tenant = Tenant::in_context(&bench);
    tenant.does("library data 4194304");
    // The list has no room, and its address is no memory of the program.
    assert_eq!(tenant.does("use nokernels"), CONTEXT + 4 * MIB);
    tenant.end();
}

#[test]
fn code_that_a_launch_loads_is_charged_when_the_program_waits_for_it() {
    let bench = bench();
    let mut tenant = Tenant::in_context(&bench);
    tenant.does("library data 4194304");
    // The first handle that can be launched loads the variables; the launch loads the code.
    assert_eq!(tenant.does("use kernel"), CONTEXT + 4 * MIB);
    tenant.does("alloc 1000000");
    assert_eq!(tenant.order("use launch").0, 0);
    assert_eq!(tenant.does("wait"), CONTEXT + 4 * MIB + CODE + BLOCK);
    assert_eq!(tenant.does("free"), CONTEXT + 4 * MIB + CODE);
    assert_eq!(tenant.does("unlibrary"), CONTEXT);
    tenant.end();
}

/// The first uses of a library in a context.
const USES: [&str; 5] = ["kernel", "kernels", "module", "libraryglobal", "librarymanaged"];

#[test]
fn variables_of_libraries_that_do_not_fit_never_reach_the_device() {
    for door in ["dlsym", "first", "second"] {
        let bench = bench();
        let mut tenant = Tenant::through(&bench, door).with_context();
        tenant.does(&format!("library data {}", 6_u64 << 30));
        for first_use in USES {
            assert_eq!(tenant.answers(&format!("use {first_use}"), 2), CONTEXT, "{first_use}");
        }
        assert_eq!(bench.truth(0).peak, CONTEXT);
        tenant.end_saying("a module, code and variables, takes about");
    }
}

#[test]
fn libraries_are_refused_once_the_quota_is_full_and_fit_again_when_others_end() {
    for first_use in USES {
        let bench = bench();
        let mut tenant = Tenant::in_context(&bench);
        let mut held = CONTEXT;
        for number in 0..30 {
            tenant.does(&format!("library data {}", 200 * MIB));
            let expected = if number < 2 { 0 } else { 2 };
            held += if expected == 0 { 200 * MIB } else { 0 };
            assert_eq!(tenant.answers(&format!("use {first_use}"), expected), held, "{first_use} {number}");
        }
        (0..28).for_each(|_| assert_eq!(tenant.does("unlibrary"), held));
        assert_eq!(tenant.does("unlibrary"), held - 200 * MIB);
        tenant.does(&format!("library data {}", 200 * MIB));
        assert_eq!(tenant.does(&format!("use {first_use}")), held);
        assert_eq!(bench.truth(0).peak, held);
        tenant.end_saying("a module, code and variables, takes about");
    }
}

#[test]
fn variables_in_a_fat_binary_that_is_not_compressed_are_reserved() {
    let bench = bench();
    let mut tenant = Tenant::in_context(&bench);
    tenant.does("library fat 4194304");
    assert_eq!(tenant.does("use kernel"), CONTEXT + 4 * MIB);
    tenant.does(&format!("library fat {}", 6_u64 << 30));
    assert_eq!(tenant.answers("use kernel", 2), CONTEXT + 4 * MIB);
    assert_eq!(bench.truth(0).peak, CONTEXT + 4 * MIB);
    tenant.end_saying("a module, code and variables, takes about");
}

/// The library loads such code when the program hands it in, because then it can still refuse the code. NVML says what the code
/// took if it knows the process. Otherwise the change of the device's free memory does.
#[test]
fn libraries_that_cannot_be_read_are_refused_once_the_quota_is_full() {
    for (pids, fit) in [("host", 2), ("none", 2)] {
        let bench = bench().with("SIMGPU_NVML_PIDS", pids);
        let mut tenant = Tenant::through(&bench, "dlsym");
        tenant.just("retain");
        tenant.just("current primary");
        let mut granted = 0;
        for size in [6 << 30, 700 * MIB].into_iter().chain([200 * MIB; 30]) {
            match tenant.order(&format!("library packed {size}")).0 {
                0 => {
                    granted += 1;
                    assert_eq!(tenant.order("use kernel").0, 0);
                    assert_eq!(tenant.order("use launch").0, 0);
                }
                2 => {}
                other => panic!("{other}"),
            }
            let truth = bench.truth(0);
            assert!(truth.held <= QUOTA && truth.held >= granted * 200 * MIB, "{pids}: {truth:?}");
        }
        assert_eq!(granted, fit, "{pids}");
        (0..granted).for_each(|_| tenant.just("unlibrary"));
        tenant.just(&format!("library packed {}", 200 * MIB));
        let (status, said) = tenant.living.end();
        assert!(status.success() && said.contains("a module, code and variables, takes about"), "{said}");
    }
}

#[test]
fn a_kernel_that_was_found_can_be_launched_in_any_context_within_the_quota() {
    let bench = bench().with("SIMGPU_MODULE_BYTES", "0");
    let mut tenant = Tenant::in_context(&bench);
    tenant.does("context usual");
    tenant.does(&format!("library data {}", 50 * MIB));
    assert_eq!(tenant.does("use kernel"), 2 * CONTEXT + 100 * MIB);
    assert_eq!(tenant.does("use launch"), 2 * CONTEXT + 100 * MIB);
    tenant.does("current primary");
    assert_eq!(tenant.does("use launch"), 2 * CONTEXT + 100 * MIB);
    // A later context gets the library as well, or is not made at all.
    assert_eq!(tenant.does("context usual"), 3 * CONTEXT + 150 * MIB);
    let before = 3 * CONTEXT + 150 * MIB;
    assert_eq!(tenant.answers("context usual", 2), before);
    assert_eq!(tenant.does("use launch"), before);
    assert_eq!(bench.truth(0).peak, before);
    tenant.just("end");
    assert_eq!(tenant.does("current primary"), 2 * CONTEXT + 100 * MIB);
    assert_eq!(tenant.does("unlibrary"), 2 * CONTEXT);
    tenant.end_saying("a context on this device takes about");
}

#[test]
fn a_kernel_that_was_found_without_a_context_is_loaded_with_the_first_one() {
    for (size, expected) in [(100 * MIB, 0), (450 * MIB, 2)] {
        let bench = bench().with("SIMGPU_MODULE_BYTES", "0");
        let mut tenant = Tenant::through(&bench, "dlsym");
        tenant.just(&format!("library data {size}"));
        tenant.just("use kernel");
        assert_eq!(tenant.order("retain").0, expected, "{size}");
        assert!(bench.truth(0).peak <= QUOTA, "{:?}", bench.truth(0));
        if expected == 0 {
            assert_eq!(tenant.does("current primary"), CONTEXT + size);
            assert_eq!(tenant.does("use launch"), CONTEXT + size);
            tenant.end();
        } else {
            assert_eq!(tenant.truth(), 0);
            tenant.just("unlibrary");
            tenant.just("retain");
            assert_eq!(tenant.does("current primary"), CONTEXT);
            tenant.end_saying("takes about");
        }
    }
}

#[test]
fn libraries_that_are_loaded_at_once_take_of_every_context() {
    let bench = bench().with("CUDA_MODULE_LOADING", "EAGER").with("SIMGPU_MODULE_BYTES", "0");
    let mut tenant = Tenant::in_context(&bench);
    tenant.does("context usual");
    assert_eq!(tenant.does(&format!("library data {}", 50 * MIB)), 2 * CONTEXT + 100 * MIB);
    assert_eq!(tenant.does("context usual"), 3 * CONTEXT + 150 * MIB);
    let held = 3 * CONTEXT + 150 * MIB;
    // 30 MiB in each of three contexts are more than the rest of the quota.
    assert_eq!(tenant.answers(&format!("library data {}", 30 * MIB), 2), held);
    assert_eq!(bench.truth(0).peak, held);
    tenant.does("use kernel");
    tenant.does("use launch");
    tenant.just("end");
    assert_eq!(tenant.does("current primary"), 2 * CONTEXT + 100 * MIB);
    assert_eq!(tenant.does("unlibrary"), 2 * CONTEXT);
    tenant.end_saying("a module, code and variables, takes about");
}

#[test]
fn libraries_that_are_loaded_at_once_are_charged_at_once() {
    let bench = bench().with("CUDA_MODULE_LOADING", "EAGER");
    let mut tenant = Tenant::in_context(&bench);
    assert_eq!(tenant.does("library data 4194304"), CONTEXT + 4 * MIB + CODE);
    tenant.does("use kernel");
    tenant.does("use launch");
    assert_eq!(tenant.does("unlibrary"), CONTEXT);
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

#[test]
fn a_library_is_charged_in_each_context_by_itself() {
    let bench = bench();
    let mut tenant = Tenant::in_context(&bench);
    tenant.does("library data 4194304");
    tenant.does("use module");
    tenant.does("context usual");
    assert_eq!(tenant.does("use module"), 2 * CONTEXT + 8 * MIB);
    tenant.just("end");
    assert_eq!(tenant.does("current primary"), CONTEXT + 4 * MIB);
    tenant.does("context usual");
    tenant.does("use module");
    assert_eq!(tenant.does("unlibrary"), 2 * CONTEXT);
    tenant.end();
}

#[test]
fn limits_are_charged_while_they_are_set() {
    let bench = bench();
    let mut tenant = Tenant::in_context(&bench);
    // Stacks for all resident threads, the printf buffer, the heap, pending launches.
    for (limit, value) in [(0, 1280_u64), (1, 9 * MIB), (2, 100 * MIB), (4, 9000)] {
        let held = tenant.does(&format!("limit {limit} {value}"));
        assert!(held > CONTEXT, "{limit}");
        let default = [1024, MIB, 8 * MIB, 0, 2048][limit];
        assert_eq!(tenant.does(&format!("limit {limit} {default}")), CONTEXT, "{limit}");
    }
    tenant.end();
}

#[test]
fn a_limit_that_does_not_fit_is_refused_and_stays_as_it_was() {
    let bench = bench();
    let mut tenant = Tenant::in_context(&bench);
    let held = tenant.does("limit 2 104857600");
    assert_eq!(tenant.answers("limit 2 530000000", 2), held);
    assert_eq!(tenant.does("limit 2 104857600"), held);
    tenant.end_saying("set with cuCtxSetLimit takes about");
}

#[test]
fn a_limit_beyond_the_quota_never_reaches_the_device() {
    let bench = bench();
    let mut tenant = Tenant::in_context(&bench);
    // Stacks for all resident threads, the printf buffer, the heap, pending launches: each above 512 MiB.
    for (limit, value) in [(0, 8 << 10), (1, 600 * MIB), (2, 3 << 30), (4, 1 << 20)] {
        assert_eq!(tenant.answers(&format!("limit {limit} {value}"), 2), CONTEXT, "{limit}");
        assert_eq!(bench.truth(0).peak, CONTEXT, "{limit}");
    }
    tenant.end_saying("set with cuCtxSetLimit takes about");
}

#[test]
fn contexts_of_other_libraries_count_as_contexts() {
    for kind in ["usual", "gl", "gl2", "vdpau", "vdpau2"] {
        let bench = bench();
        let mut tenant = Tenant::through(&bench, "dlsym");
        for count in 1..=5 {
            assert_eq!(tenant.does(&format!("context {kind}")), count * CONTEXT);
        }
        assert_eq!(tenant.answers(&format!("context {kind}"), 2), 5 * CONTEXT);
        tenant.just("end");
        tenant.does("current usual 0");
        assert_eq!(tenant.does("left"), 4 * CONTEXT);
        tenant.end_saying("a context on this device takes about");
    }
}

#[test]
fn a_green_context_pays_for_itself_and_keeps_the_primary_one() {
    let bench = bench();
    let mut tenant = Tenant::through(&bench, "second");
    tenant.just("green");
    assert_eq!(tenant.truth(), CONTEXT + GREEN);
    assert_eq!(tenant.does("green current"), CONTEXT + GREEN);
    assert_eq!(tenant.does("green"), CONTEXT + 2 * GREEN);
    tenant.does("stream");
    assert_eq!(tenant.does("ungreen"), CONTEXT + GREEN);
    tenant.does("retain");
    // Memory that was made through the green context lives in the primary context.
    let held = tenant.does("alloc 1000000") + 4 * MIB;
    assert_eq!(tenant.does("load data 4194304"), held);
    assert_eq!(tenant.does("limit 2 18874368"), held + 10 * MIB);
    tenant.just("ungreen");
    assert_eq!(tenant.does("current primary"), held + 10 * MIB - GREEN);
    tenant.just("release");
    assert_eq!(tenant.truth(), 0);
    tenant.just("retain");
    assert_eq!(tenant.does("current primary"), CONTEXT);
    tenant.end();
}

/// Ends the only green context, and with it the primary one. Nothing of them is left, and a new primary context is charged alone.
#[track_caller]
fn ends_with_its_green_context(mut tenant: Tenant) {
    tenant.just("ungreen");
    assert_eq!(tenant.truth(), 0);
    tenant.just("retain");
    assert_eq!(tenant.does("current primary"), CONTEXT);
    tenant.end();
}

#[test]
fn an_executable_graph_of_a_green_context_ends_with_the_primary_one() {
    let bench = bench();
    let mut tenant = Tenant::through(&bench, "dlsym");
    tenant.just("green");
    tenant.does("green current");
    assert_eq!(tenant.order("instantiate 67108864"), (0, CONTEXT + GREEN + 64 * MIB));
    ends_with_its_green_context(tenant);
}

#[test]
fn memory_that_a_green_context_has_opened_is_closed_with_the_primary_one() {
    let bench = bench();
    let mut maker = Tenant::in_context(&bench);
    maker.just(&format!("lend {}", 16 * MIB));
    let mut user = Tenant::through(&bench, "dlsym");
    for order in ["green", "green current", "borrow", "ungreen"] {
        user.just(order);
    }
    // The two are of one slice. If the user still had the memory open, it would inherit the charge.
    assert_eq!(maker.order("free"), (0, CONTEXT));
    maker.end();
    user.end();
}

#[test]
fn the_last_green_context_takes_the_primary_one_with_it() {
    let bench = bench();
    let mut tenant = Tenant::through(&bench, "dlsym");
    tenant.just("green");
    tenant.does("green current");
    tenant.does("alloc 1000000");
    tenant.does("load data 4194304");
    ends_with_its_green_context(tenant);
}

#[test]
fn a_green_context_that_does_not_fit_is_refused_and_leaves_nothing() {
    let bench = bench();
    let mut tenant = Tenant::in_context(&bench);
    let held = tenant.does(&format!("alloc {}", (QUOTA - CONTEXT - GREEN) / BLOCK * BLOCK));
    assert_eq!(tenant.does("green"), held + GREEN);
    assert_eq!(tenant.answers("green", 2), held + GREEN);
    assert_eq!(tenant.does("ungreen"), held);
    tenant.end_saying("a context on this device takes about");
}

#[test]
fn a_neighbour_that_takes_memory_at_the_same_time_is_never_charged_to_us() {
    let bench = bench().with("CUDA_MODULE_LOADING", "EAGER");
    let mut tenant = Tenant::in_context(&bench);
    let neighbour = bench.host("modules", &["dlsym", "7000001"]).limited("200MiB");
    let neighbour = neighbour
        .set("GPUSLICE_REGION", &bench.region().with_file_name("other").display().to_string())
        .start();
    let (mut heard, mut rounds) = (Vec::new(), 0);
    while heard.len() < 3 || rounds < 10 {
        heard.extend(neighbour.heard());
        rounds += 1;
        let size = 1_000_000 + rounds % 100 * 30_000;
        tenant.does(&format!("load data {size}"));
        tenant.does(&format!("alloc {size}"));
        assert_eq!(tenant.does("unload") - tenant.does("free"), taken(size).max(BLOCK));
    }
    assert_eq!(tenant.does("left"), CONTEXT);
    assert!(heard.iter().any(|line| line.ends_with("left as before")), "{heard:?}");
    assert!(neighbour.end().0.success() && rounds >= 10, "{rounds}");
    tenant.end();
}

impl Tenant<'_> {
    /// Gives an order of which one driver call takes 300 ms longer. During that call the neighbour frees its memory, of as many
    /// bytes as the call takes: free memory is the same before and after. Returns the bytes that this tenant is charged for then.
    #[track_caller]
    fn does_while_frees(&mut self, order: &str, neighbour: &mut Self) -> u64 {
        let region = Monitor::open(&self.bench.region(), Trust::AnyOwner).unwrap().unwrap();
        let before = self.bench.truth(0).held;
        self.living.order(order);
        let until = Instant::now() + Duration::from_secs(10);
        while region.region().all_memory_calls().under_way == 0 {
            assert!(Instant::now() < until, "{order}: the call does not begin");
        }
        neighbour.just("free");
        let (status, held) = self.answer(order);
        assert_eq!((status, self.bench.truth(0).held), (0, before), "{order}: no free memory moved");
        held
    }
}

/// Starts a tenant whose function `slow` takes 300 ms longer each time, and a neighbour in a slice of its own.
fn neighbours<'bench>(bench: &'bench Bench, slow: &str) -> [Tenant<'bench>; 2] {
    let other = bench.region().with_file_name("other").display().to_string();
    let host = || bench.host("modules", &["dlsym"]).limited(&QUOTA.to_string());
    let slow = host().set("SIMGPU_FAULTS", &format!("{slow}=delay:300ms"));
    [slow, host().set("GPUSLICE_REGION", &other)].map(|host| Tenant::started(bench, host).with_context())
}

#[test]
fn code_is_charged_although_a_neighbour_gives_back_as_much_while_it_is_loaded() {
    let bench = bench().with("CUDA_MODULE_LOADING", "EAGER");
    let [mut tenant, mut neighbour] = neighbours(&bench, "cuModuleLoadData");
    neighbour.does(&format!("alloc {}", CODE + BLOCK));
    assert_eq!(tenant.does_while_frees("load data 1000000", &mut neighbour), CONTEXT + CODE + BLOCK);
    assert_eq!(tenant.does("unload"), CONTEXT);
    tenant.end();
    neighbour.end();
}

#[test]
fn code_that_free_memory_did_not_show_is_charged_by_the_next_measurement() {
    let bench = bench();
    let [mut tenant, mut neighbour] = neighbours(&bench, "cuModuleGetFunction");
    neighbour.does(&format!("alloc {CODE}"));
    tenant.does("load data 4194304");
    tenant.does_while_frees("use function", &mut neighbour);
    // Free memory moves now, and no ledger of the tenant explains by how much.
    neighbour.does("alloc 20971520");
    assert_eq!(tenant.does("load data 4194304"), CONTEXT + 8 * MIB + CODE);
    assert_eq!(tenant.does("unload"), CONTEXT + 4 * MIB + CODE);
    tenant.end();
    neighbour.end();
}

#[test]
fn threads_that_load_code_while_others_take_memory_stay_within_the_quota() {
    for (pids, quota) in [("host", 160 * MIB), ("none", 160 * MIB)] {
        let bench = bench().with("CUDA_MODULE_LOADING", "EAGER").with("SIMGPU_MODULE_BYTES", "2MiB");
        let bench = bench.with("SIMGPU_NVML_PIDS", pids);
        let outcome = bench.host("modules", &["dlsym", "2097152"]).limited(&quota.to_string()).run();
        outcome.contains(&["init 0, retain 0", "last 0 0, loaded some, left as before"]);
        // Each of four threads may have loaded a module that is not measured yet.
        let (peak, most) = (bench.truth(0).peak, quota + 4 * 4 * MIB);
        assert!(peak <= most, "{peak} of {most}\n{outcome}");
    }
}

/// Covers contexts and code.
#[test]
fn where_nvml_names_no_holders_the_difference_of_free_memory_is_charged() {
    let bench = bench().with("SIMGPU_NVML_PIDS", "none");
    let mut tenant = Tenant::through(&bench, "dlsym");
    tenant.just("retain");
    let (_, before) = tenant.order("current primary");
    assert_eq!(before, CONTEXT);
    assert_eq!(tenant.order("load data 9000000"), (0, before + 10 * MIB));
    assert_eq!(tenant.order("use function"), (0, before + 10 * MIB + CODE));
    assert_eq!(tenant.order("limit 2 18874368"), (0, before + 20 * MIB + CODE));
    assert_eq!(tenant.order("limit 2 8388608"), (0, before + 10 * MIB + CODE));
    assert_eq!(tenant.order("unload"), (0, before));
    assert_eq!(tenant.order("load data 450000000").0, 2);
    assert_eq!(tenant.order("left"), (0, before));
    tenant.end_saying("a module, code and variables, takes about");
}

#[test]
fn an_entry_of_no_bytes_in_a_container_of_an_old_driver_says_nothing() {
    let bench = bench().with("SIMGPU_NVML_PIDS", "mixed").with("SIMGPU_NVML_BYTES", "0");
    let bench = bench.with("SIMGPU_CUDA_VERSION", "12040");
    let mut tenant = Tenant::through(&bench, "dlsym");
    tenant.just("retain");
    let (_, before) = tenant.order("current primary");
    assert_eq!(before, CONTEXT, "by free memory");
    assert_eq!(tenant.order("load data 9000000"), (0, before + 10 * MIB));
    assert_eq!(tenant.order("use function"), (0, before + 10 * MIB + CODE));
    assert_eq!(tenant.order("unload"), (0, before));
    tenant.end();
}

#[test]
fn a_late_quota_counts_memory_that_is_there() {
    let bench = bench();
    let mut tenant = without_a_quota(&bench);
    let orders =
        ["retain", "current primary", "green", "load data 4194304", "use function", "limit 2 18874368"];
    tenant.unlimited(&orders);
    let held = CONTEXT + GREEN + 4 * MIB + CODE + 10 * MIB;
    assert_eq!(tenant.truth(), held);
    let slice = slice(&bench);
    let device = slice.devices()[0].device;
    // Before the quota is set, contexts are estimated, and code is charged at the loss of free memory.
    assert_eq!(slice.held(device), held - CONTEXT + ESTIMATE - GREEN + 4 * MIB);
    limit(&slice, Some(QUOTA));
    assert_eq!(tenant.does("left"), held);
    tenant.does("unload");
    tenant.just("ungreen");
    tenant.just("release");
    assert_eq!((tenant.truth(), slice.held(device)), (0, 0));
    tenant.end();
}

fn slice(bench: &Bench) -> Monitor {
    Monitor::open(&bench.region(), Trust::OwnerOnly).unwrap().expect("the tenant has made it")
}

/// Gives the slice a quota, or takes it away.
fn limit(slice: &Monitor, quota: Option<u64>) {
    let view = slice.devices().swap_remove(0);
    slice.set_limits(view.device, Limits { memory: quota, ..view.limits });
}

/// Starts a host in a slice that has a share of GPU time and no quota.
fn without_a_quota(bench: &Bench) -> Tenant<'_> {
    Tenant::started(bench, bench.host("modules", &["dlsym"]).loaded().set("GPU_CORE_PERCENT", "50"))
}

impl Tenant<'_> {
    /// Asserts that orders succeed in a slice without a quota. Such a host is shown the device's free memory.
    #[track_caller]
    fn unlimited(&mut self, orders: &[&str]) {
        orders.iter().for_each(|order| assert_eq!(self.living.numbers(order).first(), Some(&0), "{order}"));
    }
}

#[test]
fn a_quota_that_comes_late_counts_several_contexts_each_for_itself() {
    let bench = bench();
    let mut tenant = without_a_quota(&bench);
    tenant.unlimited(&["context usual", "context usual", "context usual"]);
    let slice = slice(&bench);
    limit(&slice, Some(QUOTA));
    assert_eq!(tenant.does("alloc 1000000"), 3 * CONTEXT + BLOCK);
    tenant.just("end");
    assert_eq!(slice.held(slice.devices()[0].device), 2 * CONTEXT);
    tenant.does("current usual 0");
    // Contexts and code that are made without a quota are measured once there is one again.
    limit(&slice, None);
    tenant.unlimited(&["context usual", "load data 4194304", "use function"]);
    limit(&slice, Some(QUOTA));
    assert_eq!(tenant.does("left"), 3 * CONTEXT + 4 * MIB + CODE);
    tenant.end();
}

#[test]
fn a_late_quota_counts_code_that_a_launch_loaded_before() {
    let bench = bench();
    let mut tenant = without_a_quota(&bench);
    tenant.unlimited(&[
        "retain",
        "current primary",
        "library data 4194304",
        "use kernel",
        "use launch",
        "wait",
    ]);
    let slice = slice(&bench);
    limit(&slice, Some(QUOTA));
    assert_eq!(tenant.does("alloc 1000000"), CONTEXT + 4 * MIB + CODE + BLOCK);
    tenant.end();
}

#[test]
fn a_quota_that_comes_while_nvml_fails_counts_by_estimates_until_it_answers() {
    let bench = bench();
    let mut tenant = without_a_quota(&bench);
    tenant.unlimited(&["retain", "current primary"]);
    bench.goes_wrong("nvmlInit_v2=999");
    let slice = slice(&bench);
    limit(&slice, Some(QUOTA));
    assert_eq!(tenant.order("left"), (0, QUOTA), "all of the quota and more");
    assert_eq!(slice.held(slice.devices()[0].device), ESTIMATE);
    bench.goes_wrong("");
    let end = Instant::now() + Duration::from_secs(30);
    while tenant.order("left").1 != CONTEXT {
        assert!(Instant::now() < end, "{:?}", tenant.order("left"));
    }
    tenant.end();
}

#[test]
fn a_late_quota_where_nvml_knows_no_process_leaves_estimates_and_nvml_alone() {
    let bench = bench().with("SIMGPU_NVML_PIDS", "none").with("GPU_CORE_METER", "events");
    let mut tenant = without_a_quota(&bench);
    tenant.unlimited(&["retain", "current primary"]);
    let (quota, slice) = (2 * ESTIMATE, slice(&bench));
    limit(&slice, Some(quota));
    assert_eq!(tenant.living.numbers("left"), [0, quota - ESTIMATE]);
    bench.goes_wrong("nvmlInit_v2=kill");
    // Longer than the time for which the library does not ask an NVML that fails.
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(tenant.living.numbers("alloc 1000000"), [0, quota - ESTIMATE - BLOCK]);
    tenant.end();
}

#[test]
fn without_a_quota_nothing_waits_for_nvml() {
    let slow = ["nvmlDeviceGetComputeRunningProcesses_v2=delay:3s", "nvmlInit_v2=delay:3s"];
    // If the library does not ask NVML for times either, it does not ask NVML at all.
    for (fault, meter) in [(slow[0], "auto"), (slow[1], "auto"), ("nvmlInit_v2=kill", "events")] {
        let bench = bench().with("SIMGPU_FAULTS", fault).with("GPU_CORE_METER", meter);
        let mut tenant = without_a_quota(&bench);
        let orders = ["retain", "current primary", "load data 4194304", "use function", "green"];
        let late = ["library data 4194304", "use kernel", "use launch", "wait", "wait", "unload", "release"];
        for order in orders.into_iter().chain(late) {
            println!("{fault}: {order}");
            within(Duration::from_millis(1500), Duration::ZERO, || tenant.unlimited(&[order]));
        }
        tenant.end();
    }
}

#[test]
fn nvml_that_fails_is_left_alone_for_a_while() {
    for quota in [Some(QUOTA), None] {
        let bench = bench();
        let mut tenant = without_a_quota(&bench);
        limit(&slice(&bench), quota);
        tenant.unlimited(&["retain", "current primary", "library data 4194304", "use kernel", "use launch"]);
        // Each wait of the program looks for code that the launch has loaded: a thousand tries would take 50 s.
        let lists = "nvmlDeviceGetComputeRunningProcesses_v2";
        bench.goes_wrong(&format!("{lists}=delay:50ms;{lists}=999"));
        let began = Instant::now();
        (0..1000).for_each(|_| tenant.unlimited(&["wait"]));
        assert!(began.elapsed() < Duration::from_secs(15), "{quota:?}: {:?}", began.elapsed());
        bench.goes_wrong("");
        let end = Instant::now() + Duration::from_secs(30);
        while quota.is_some() && tenant.order("wait").1 != tenant.truth() {
            assert!(Instant::now() < end, "{:?}", tenant.order("wait"));
        }
        tenant.end();
    }
}

#[test]
fn without_a_limit_none_of_this_is_anybodys_business() {
    let bench = bench();
    let bare = bench.host("modules", &["dlsym", "2097152"]).run().quiet();
    // The second run must find the device as the first did.
    bench.truth_at_rest(0);
    bench.host("modules", &["dlsym", "2097152"]).loaded().run().quiet().same_as(&bare);
}

/// Makes NVML as slow as on a machine with several GPUs.
fn slow_nvml(bench: Bench) -> Bench {
    bench.with("SIMGPU_NVML_INIT_MS", "300").with("SIMGPU_NVML_LIST_US", "4500")
}

/// Runs 900 look-ups under a quota, each of which loads 100 KiB. Returns the outcome, and a function that finds a figure in it by
/// the text before and after it.
fn look_ups(bench: &Bench) -> (Outcome, impl Fn(&str, &str) -> u64) {
    let host = bench.host("many_look_ups", &[]).limited(&QUOTA.to_string());
    let outcome = host.preload(&compiler::wrapper("wrap_nvml")).run().quiet();
    let lines: Vec<String> = outcome.out.lines().map(str::to_owned).collect();
    let figure = move |before: &str, after: &str| {
        let find = |line: &String| line.strip_prefix(before)?.strip_suffix(after)?.parse().ok();
        lines.iter().find_map(find).unwrap_or_else(|| panic!("{before}: {lines:?}"))
    };
    (outcome, figure)
}

#[test]
fn look_ups_in_a_row_ask_nvml_for_a_twentieth_of_the_time_and_open_it_once() {
    let bench = slow_nvml(bench()).with("SIMGPU_MODULE_BYTES", "100KiB").with("SIMGPU_MODULE_GRANULE", "1");
    let (outcome, figure) = look_ups(&bench);
    // Two lists for the context; at 4.5 ms each three at once and one for each 90 ms that have begun.
    let most = 2 + 3 + 1 + figure("900_look_ups ", "") / 90_000_000;
    assert!(figure("nvml: 1 inits, 0 shutdowns, ", " lists") <= most, "at most {most}: {outcome}");
}

#[test]
fn look_ups_and_loads_in_a_row_ask_the_driver_for_a_twentieth_of_the_time() {
    let slow = "cuMemGetInfo_v2=delay:8ms";
    let bench = bench()
        .with("SIMGPU_FAULTS", slow)
        .with("SIMGPU_MODULE_BYTES", "100KiB")
        .with("SIMGPU_MODULE_GRANULE", "1");
    let (outcome, figure) = look_ups(&bench);
    // 1800 questions of the look-ups take 14.4 s, and 3600 of the loads take 28.8 s.
    for row in ["900_look_ups ", "start_with_900_look_ups "] {
        assert!(figure(row, "") < 2_000_000_000, "{row}: {outcome}");
    }
}

#[test]
fn a_load_whose_image_does_not_show_its_memory_is_measured_beyond_the_budget() {
    // The driver loads code at once. Or the variables are so small that they may fit into memory that the driver has.
    for (loading, bytes) in [("EAGER", 4194304), ("LAZY", 1_000_000)] {
        let bench = bench().with("SIMGPU_FAULTS", "cuMemGetInfo_v2=delay:8ms");
        let bench = bench.with("CUDA_MODULE_LOADING", loading);
        let mut tenant = Tenant::in_context(&bench);
        for _ in 0..4 {
            tenant.does(&format!("load data {bytes}"));
        }
        tenant.end();
    }
}

#[test]
fn variables_of_an_unmeasured_load_are_charged_at_once_and_refused_beyond_the_quota() {
    let bench = bench().with("SIMGPU_FAULTS", "cuMemGetInfo_v2=delay:8ms");
    let mut tenant = Tenant::in_context(&bench);
    for count in 1..=4 {
        assert_eq!(tenant.does("load data 4194304"), CONTEXT + count * 4 * MIB);
    }
    tenant.answers("load data 450000000", 2);
    tenant.end_saying("a module, code and variables, takes about");
}

#[test]
fn memory_of_an_unmeasured_look_up_is_charged_at_the_next_wait() {
    let bench = bench().with("SIMGPU_FAULTS", "cuMemGetInfo_v2=delay:8ms");
    let mut tenant = Tenant::in_context(&bench);
    // After the first look-up the budget is spent for more than 0.1 s.
    for count in 1..=3 {
        tenant.just("load data 4194304");
        tenant.just("use function");
        assert_eq!(tenant.does("wait"), CONTEXT + count * (4 * MIB + CODE));
    }
    tenant.end();
}

#[test]
fn memory_that_a_neighbour_took_beside_a_look_up_is_given_back_at_a_wait() {
    // A list that takes 30 ms spends the budget of look-ups for half a second.
    let bench = bench().with("SIMGPU_NVML_LIST_US", "30000");
    let slow = bench.host("modules", &["dlsym"]).set("SIMGPU_FAULTS", "cuModuleGetFunction=delay:200ms");
    let mut tenant = Tenant::started(&bench, slow.limited(&QUOTA.to_string())).with_context();
    let mut neighbour = Tenant::started(&bench, bench.host("modules", &["dlsym"]));
    neighbour.unlimited(&["retain", "current primary"]);
    for _ in 0..3 {
        tenant.does("load data 4194304");
        tenant.living.order("use function");
        neighbour.unlimited(&["alloc 20000000"]);
        assert!(tenant.living.hear().is_some_and(|answer| answer.starts_with("0 ")));
        let end = Instant::now() + Duration::from_secs(30);
        while tenant.order("wait").1 != CONTEXT + 4 * MIB + CODE {
            assert!(Instant::now() < end, "{:?}", tenant.order("wait"));
        }
        neighbour.unlimited(&["free"]);
        assert_eq!(tenant.does("unload"), CONTEXT);
    }
    neighbour.living.end();
    tenant.end();
}

#[test]
fn a_look_up_that_is_repeated_is_measured_once_and_again_after_code_has_ended() {
    let program =
        compiler::linked("look_ups.c", "look_ups", &[]).expect("it links with the simulated driver");
    // 200 look-ups with two calls of `cuMemGetInfo_v2` each would take 40 s. NVML does not know the process, so that no look-up
    // is put off.
    let bench = Bench::simulated_without_contexts().with("SIMGPU_FAULTS", "cuMemGetInfo_v2=delay:100ms");
    let bench = bench.with("SIMGPU_NVML_PIDS", "none");
    let outcome = bench.program(&program, &[]).limited("768MiB").run().quiet();
    outcome.says(&["looked up 0, asked a few times", "looked up 0, asked a few times"]);
}
