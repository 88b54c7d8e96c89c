//! Limits of a context, contexts of other libraries and green contexts are charged while they last.

use super::{CONTEXT, GREEN, MIB, QUOTA, Tenant, bench};
use gpuslice_policy::sizes::blocks::BLOCK;

#[test]
fn limits_are_charged_while_they_are_set() {
    let bench = bench();
    let mut tenant = Tenant::in_context(&bench);
    // The limits are those of stacks for all resident threads, the printf buffer, the heap, and pending launches.
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
    // The limits are those of stacks for all resident threads, the printf buffer, the heap, and pending launches. With these
    // values, each takes more than 512 MiB.
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
    // Both processes are of one slice. If the user still had the memory open, it would inherit the charge.
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
