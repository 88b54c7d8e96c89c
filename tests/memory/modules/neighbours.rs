//! Code is charged by what it took, also while neighbours take and free memory, and where NVML names no process.

use super::{CODE, CONTEXT, MIB, QUOTA, Tenant, bench};
use crate::support::bench::Bench;
use gpuslice_policy::sizes::blocks::{BLOCK, taken};
use gpuslice_region::{Monitor, Trust};
use std::time::{Duration, Instant};

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
