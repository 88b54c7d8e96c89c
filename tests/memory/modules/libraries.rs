//! Libraries are charged in each context at their first use there, and given back with it.

use super::{CODE, CONTEXT, MIB, QUOTA, Tenant, bench};
use gpuslice_policy::sizes::blocks::BLOCK;

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
