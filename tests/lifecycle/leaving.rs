//! Leaving memory: the device gets back memory of a killed process only later. Until then no process gets it, and after that the
//! next process does.

use crate::support::bench::{Bench, Host};
use crate::support::command::{ask, json};
use crate::support::living::Living;
use crate::support::timed::within;
use gpuslice_region::{LEAVING, Monitor, Trust};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const QUOTA: u64 = 1000 * MIB;
/// Bytes that are most of the quota.
const MOST: u64 = 700 * MIB;
/// Time after which the simulated driver has memory of the dead back, where a test waits for it.
const TEARDOWN: Duration = Duration::from_millis(300);
const SECOND: Duration = Duration::from_secs(1);
/// Time of a call that waits for nothing.
const AT_ONCE: Duration = Duration::ZERO;

fn bench(memory: &str, teardown: &str) -> Bench {
    let bench = Bench::simulated_without_contexts()
        .with("SIMGPU_MEMORY", memory)
        .with("SIMGPU_CONTEXT_BYTES", "100MiB");
    bench.with("SIMGPU_TEARDOWN_MS", teardown)
}

/// Starts a process with a context.
fn begin(bench: &Bench) -> Living {
    begin_as(bench.host("modules", &["dlsym"]))
}

fn begin_as(host: Host<'_>) -> Living {
    begin_with_the_limits_of(host.limited(&QUOTA.to_string()))
}

fn begin_with_the_limits_of(host: Host<'_>) -> Living {
    let mut living = host.start();
    assert_eq!(living.hear().as_deref(), Some("init 0"));
    does(&mut living, "retain");
    does(&mut living, "current primary");
    living
}

#[track_caller]
fn answers(living: &mut Living, order: &str, status: u64) {
    assert_eq!(living.numbers(order).first(), Some(&status), "{order}");
}

#[track_caller]
fn does(living: &mut Living, order: &str) {
    answers(living, order, 0);
}

fn slice(bench: &Bench) -> Monitor {
    Monitor::open(&bench.region(), Trust::OwnerOnly).unwrap().expect("a process has made it")
}

#[test]
fn the_next_process_gets_the_memory_of_a_killed_one_once_it_is_there() {
    // The first round has no other process, so the region is initialised anew. The second round has one.
    for others in [0, 1] {
        let bench = bench("8GiB", "300");
        let _others: Vec<Living> = (0..others).map(|_| begin(&bench)).collect();
        for _ in 0..3 {
            let mut first = begin(&bench);
            does(&mut first, &format!("alloc {MOST}"));
            first.kill();
            let mut second = begin(&bench);
            does(&mut second, &format!("alloc {MOST}"));
            let truth = bench.truth(0);
            assert!(truth.peak <= QUOTA, "{others}: {truth:?}");
            second.kill();
        }
    }
}

#[test]
fn a_driver_without_memory_shortly_after_a_death_is_asked_again() {
    // The device is full and the quota is not, so the process waits for no part of the quota.
    let bench = bench("1100MiB", "300");
    let mut stays = begin(&bench);
    let mut first = begin(&bench);
    let slice = slice(&bench);
    let view = slice.devices().swap_remove(0);
    let limits = gpuslice_region::Limits { memory: Some(8 << 30), ..view.limits };
    slice.set_limits(view.device, limits);
    does(&mut first, &format!("alloc {MOST}"));
    first.kill();
    does(&mut stays, &format!("alloc {MOST}"));
    assert_eq!(slice.device_denials(view.device), 0);
    // No process has died lately, or the wait does not help. Then the driver's status stands.
    let began = Instant::now();
    answers(&mut stays, &format!("alloc {MOST}"), 2);
    assert!(began.elapsed() < LEAVING.duration() + Duration::from_secs(5));
    std::thread::sleep(LEAVING.duration());
    within(SECOND, AT_ONCE, || answers(&mut stays, &format!("alloc {MOST}"), 2));
    assert_eq!(slice.device_denials(view.device), 2);
}

#[test]
fn leaving_memory_is_shown_and_neither_free_nor_used() {
    let bench = bench("8GiB", "60000");
    let mut stays = begin(&bench);
    let mut first = begin(&bench);
    does(&mut first, &format!("alloc {MOST}"));
    first.kill();
    let slice = slice(&bench);
    let device = slice.devices()[0].device;
    slice.reap().expect("dead members can be found");
    let path = bench.region().display().to_string();
    let report = json(&["status", &path, "--json"]);
    let figure = |name: &str| report["slices"][0]["devices"][0][name].as_u64();
    let told = ["held", "held_by_dead", "leaving"].map(figure);
    assert_eq!(told, [Some(100 * MIB), Some(0), Some(MOST + 100 * MIB)], "{report}");
    ask(&["status", &path]).code(0).says("800.00 MiB leaving: exited processes held it");
    assert_eq!(stays.numbers("left"), [0, 100 * MIB]);
    // The memory never comes back. After two seconds it no longer counts, regardless of free memory.
    let began = Instant::now();
    does(&mut stays, &format!("alloc {MOST}"));
    assert!(began.elapsed() < LEAVING.duration() + Duration::from_secs(5));
    assert_eq!((slice.leaving(device), slice.held(device)), (0, MOST + 100 * MIB));
}

#[test]
fn memory_that_a_neighbour_gives_back_is_not_taken_for_leaving_memory() {
    let bench = bench("8GiB", "60000");
    let mut neighbour = begin_as(bench.host("modules", &["dlsym"]).in_slice("neighbour"));
    does(&mut neighbour, &format!("alloc {}", QUOTA - 100 * MIB));
    let mut stays = begin(&bench);
    let mut first = begin(&bench);
    does(&mut first, &format!("alloc {MOST}"));
    first.kill();
    does(&mut neighbour, "free");
    let slice = slice(&bench);
    slice.reap().expect("dead members can be found");
    assert_eq!(stays.numbers("left"), [0, 100 * MIB]);
    assert_eq!(slice.leaving(slice.devices()[0].device), MOST + 100 * MIB);
}

#[test]
fn nothing_is_back_while_a_ledger_has_bytes_that_the_driver_is_still_to_take() {
    let bench = bench("8GiB", "60000");
    let slow = bench.host("modules", &["dlsym"]).in_slice("neighbour");
    let mut neighbour = begin_as(slow.set("SIMGPU_FAULTS", "cuMemAlloc_v2=delay:60s"));
    let mut stays = begin(&bench);
    let mut first = begin(&bench);
    does(&mut first, &format!("alloc {MOST}"));
    // While the neighbour's call lasts, free memory plus the neighbour's charge is as much as before the death.
    neighbour.order(&format!("alloc {}", QUOTA - 100 * MIB));
    let beside =
        Monitor::open(&bench.region_of("neighbour"), Trust::OwnerOnly).unwrap().expect("it has joined");
    let device = beside.devices()[0].device;
    let until = Instant::now() + Duration::from_secs(60);
    while beside.held(device) < QUOTA {
        assert!(Instant::now() < until, "the neighbour reserves nothing");
        std::thread::yield_now();
    }
    first.kill();
    let slice = slice(&bench);
    slice.reap().expect("dead members can be found");
    assert_eq!(stays.numbers("left"), [0, 100 * MIB]);
    assert_eq!(slice.leaving(slice.devices()[0].device), MOST + 100 * MIB);
    assert_eq!(beside.all_memory_calls().under_way, 1, "the neighbour's call has ended meanwhile");
    neighbour.kill();
    beside.reap().expect("dead members can be found");
    assert_eq!(beside.all_memory_calls().under_way, 0);
}

#[test]
fn a_context_that_a_neighbour_makes_is_not_taken_for_unavailable_memory() {
    let bench = bench("8GiB", "60000");
    let slow = bench.host("modules", &["dlsym"]).in_slice("neighbour");
    let mut neighbour = slow.limited(&QUOTA.to_string()).start();
    assert_eq!(neighbour.hear().as_deref(), Some("init 0"));
    // The driver has given the neighbour a context, and NVML is slow to report its size. The library asks once before it makes
    // the context.
    bench.goes_wrong("nvmlDeviceGetMemoryInfo=delay:5s@2+");
    neighbour.order("retain");
    let until = Instant::now() + Duration::from_secs(60);
    while bench.truth(0).held < 100 * MIB {
        assert!(Instant::now() < until, "the neighbour makes no context");
        std::thread::yield_now();
    }
    bench.goes_wrong("");
    let _stays = begin(&bench);
    let beside =
        Monitor::open(&bench.region_of("neighbour"), Trust::OwnerOnly).unwrap().expect("it has joined");
    assert_eq!(beside.context_creations(None).under_way, 1, "the neighbour's context was measured meanwhile");
    assert_eq!(neighbour.hear().as_deref().map(|answer| answer.starts_with('0')), Some(true));
    let mut first = begin(&bench);
    does(&mut first, "left");
    first.kill();
    let slice = slice(&bench);
    slice.reap().expect("dead members can be found");
    let mut next = begin(&bench);
    does(&mut next, "left");
    assert_eq!(slice.leaving(slice.devices()[0].device), 100 * MIB);
}

/// Runs `act` while a neighbour loads code: the driver has given the neighbour the memory, and is slow to report how much.
/// Returns the result and the neighbour, which has its answer.
fn beside_a_load<T>(bench: &Bench, act: impl FnOnce() -> T) -> (T, Living) {
    let neighbour = bench.host("modules", &["dlsym"]).in_slice("neighbour");
    let mut neighbour = begin_as(neighbour.set("CUDA_MODULE_LOADING", "EAGER"));
    // The library asks four times before it loads code.
    bench.goes_wrong("cuMemGetInfo_v2=delay:5s@5+");
    let loaded = bench.truth(0).held + 150 * MIB;
    neighbour.order("load data 0");
    let until = Instant::now() + Duration::from_secs(60);
    while bench.truth(0).held < loaded {
        assert!(Instant::now() < until, "the neighbour loads no code");
        std::thread::yield_now();
    }
    bench.goes_wrong("");
    let result = act();
    let beside =
        Monitor::open(&bench.region_of("neighbour"), Trust::OwnerOnly).unwrap().expect("it has joined");
    assert_eq!(beside.all_memory_calls().under_way, 1, "the neighbour's code was measured meanwhile");
    assert_eq!(neighbour.hear().as_deref().map(|answer| answer.starts_with('0')), Some(true));
    (result, neighbour)
}

#[test]
fn code_that_a_neighbour_loads_is_not_taken_for_unavailable_memory() {
    let bench = bench("8GiB", "60000").with("SIMGPU_MODULE_BYTES", "150MiB");
    let (mut known, mut first) = (begin(&bench), begin(&bench));
    let (_stays, _neighbour) = beside_a_load(&bench, || begin(&bench));
    first.kill();
    let slice = slice(&bench);
    slice.reap().expect("dead members can be found");
    does(&mut known, "left");
    assert_eq!(slice.leaving(slice.devices()[0].device), 100 * MIB);
}

/// Starts two processes of a slice while a neighbour loads code, so that no measurement is exact. Afterwards the second one
/// allocates, and dies with 102 MiB. Returns the first one and the neighbour.
fn one_of_two_that_began_beside_a_load(bench: &Bench) -> [Living; 2] {
    let ((stays, mut first), neighbour) = beside_a_load(bench, || (begin(bench), begin(bench)));
    does(&mut first, &format!("alloc {}", 2 * MIB));
    first.kill();
    slice(bench).reap().expect("dead members can be found");
    [stays, neighbour]
}

#[test]
fn leaving_memory_of_a_slice_whose_processes_began_together_is_not_taken_for_returned() {
    let bench = bench("8GiB", "60000").with("SIMGPU_MODULE_BYTES", "150MiB");
    let [mut stays, _neighbour] = one_of_two_that_began_beside_a_load(&bench);
    assert_eq!(stays.numbers("left"), [0, QUOTA - 202 * MIB]);
    let slice = slice(&bench);
    assert_eq!(slice.leaving(slice.devices()[0].device), 102 * MIB);
}

#[test]
fn an_allocation_measures_available_memory_in_a_slice_whose_processes_began_together() {
    let bench = bench("8GiB", "300").with("SIMGPU_MODULE_BYTES", "150MiB");
    let [mut stays, _neighbour] = one_of_two_that_began_beside_a_load(&bench);
    let rest = QUOTA - 200 * MIB;
    within(LEAVING.duration(), TEARDOWN, || does(&mut stays, &format!("alloc {rest}")));
    let slice = slice(&bench);
    assert_eq!(slice.leaving(slice.devices()[0].device), 0);
    assert!(bench.truth(0).peak <= QUOTA + 250 * MIB);
}

#[test]
fn a_later_quota_measures_available_memory_although_nvml_knows_no_process() {
    const MORE: u64 = 4 << 30;
    let bench = bench("16GiB", "300").with("SIMGPU_NVML_PIDS", "none");
    // A context is as large as its estimate.
    let bench = bench.with("SIMGPU_CONTEXT_BYTES", "530MiB");
    let [mut stays, mut first] = [(); 2].map(|()| {
        begin_with_the_limits_of(bench.host("modules", &["dlsym"]).loaded().set("GPU_CORE_PERCENT", "50"))
    });
    let slice = slice(&bench);
    let view = slice.devices().swap_remove(0);
    slice.set_limits(view.device, gpuslice_region::Limits { memory: Some(MORE), ..view.limits });
    // Each process learns at a wait that NVML knows no process. Its next allocation measures.
    does(&mut stays, "wait");
    does(&mut first, "wait");
    does(&mut stays, &format!("alloc {}", 2 * MIB));
    does(&mut first, &format!("alloc {}", MORE / 2));
    first.kill();
    within(LEAVING.duration(), TEARDOWN, || does(&mut stays, &format!("alloc {}", MORE / 2)));
}

#[test]
fn two_processes_that_wait_for_the_same_memory_do_not_wait_for_each_other() {
    let bench = bench("8GiB", "300");
    let mut waiting = [begin(&bench), begin(&bench)];
    let mut first = begin(&bench);
    does(&mut first, &format!("alloc {MOST}"));
    first.kill();
    within(LEAVING.duration(), TEARDOWN, || {
        waiting.iter_mut().for_each(|process| process.order(&format!("alloc {}", MOST / 2)));
        for process in &waiting {
            assert_eq!(process.hear().as_deref().map(|answer| answer.starts_with('0')), Some(true));
        }
    });
    let truth = bench.truth(0);
    assert!(truth.peak <= QUOTA, "{truth:?}");
}

#[test]
fn nothing_leaves_after_a_process_gave_all_back_and_too_large_an_allocation_does_not_wait() {
    let bench = bench("8GiB", "60000");
    let mut stays = begin(&bench);
    let mut first = begin(&bench);
    does(&mut first, &format!("alloc {MOST}"));
    does(&mut first, "free");
    does(&mut first, "reset");
    first.kill();
    let slice = slice(&bench);
    slice.reap().expect("dead members can be found");
    assert_eq!(slice.leaving(slice.devices()[0].device), 0);
    does(&mut stays, &format!("alloc {}", QUOTA - 100 * MIB));
    does(&mut stays, "free");
    let mut second = begin(&bench);
    does(&mut second, &format!("alloc {MOST}"));
    second.kill();
    within(SECOND, AT_ONCE, || answers(&mut stays, &format!("alloc {QUOTA}"), 2));
}

#[test]
fn the_first_context_of_a_slice_waits_for_leaving_memory_and_no_longer() {
    let bench = bench("8GiB", "300");
    let mut first = begin(&bench);
    does(&mut first, &format!("alloc {}", QUOTA - 150 * MIB));
    // The slice ends with this process, and forgets the sizes of contexts.
    first.kill();
    let mut second = within(LEAVING.duration(), TEARDOWN, || begin(&bench));
    does(&mut second, &format!("alloc {}", QUOTA - 150 * MIB));
    let truth = bench.truth(0);
    assert!(truth.peak <= QUOTA, "{truth:?}");
}

#[test]
fn code_measured_after_its_load_waits_no_longer_than_for_leaving_memory() {
    // The size of code is unknown before it is loaded, and the code does not fit beside the leaving memory.
    let bench =
        bench("8GiB", "300").with("CUDA_MODULE_LOADING", "EAGER").with("SIMGPU_MODULE_BYTES", "150MiB");
    let (mut stays, mut first) = (begin(&bench), begin(&bench));
    does(&mut first, &format!("alloc {MOST}"));
    first.kill();
    within(LEAVING.duration(), TEARDOWN, || does(&mut stays, "load data 0"));
    let slice = slice(&bench);
    let device = slice.devices()[0].device;
    assert_eq!((slice.held(device), slice.leaving(device)), (250 * MIB, 0));
}
