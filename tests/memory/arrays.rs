//! Arrays count against the quota, each at the bytes that the driver takes for it, for as long as it lives.

use crate::support::bench::Bench;
use crate::support::outcome::Outcome;
use crate::support::skip_untold;
use gpuslice_policy::sizes::array::ArrayShape;
use gpuslice_policy::sizes::blocks::taken;

const QUOTA: &str = "67108864";
const FULL: u64 = 64 << 20;
/// The size that the driver reports is a multiple of this.
const TILE: u64 = 64 << 10;
const MIB: u64 = 1 << 20;

/// Ways of making an array, as the host names them.
const WAYS: &[&str] = &[
    "cuArrayCreate",
    "cuArrayCreate_v2",
    "cuArray3DCreate",
    "cuArray3DCreate_v2",
    "layers",
    "cuMipmappedArrayCreate",
];

/// Faults that keep the driver from telling the size of an array.
const CANNOT_TELL: &[&str] =
    &["cuDeviceGetAttribute=1", "cuArrayGetMemoryRequirements=801;cuMipmappedArrayGetMemoryRequirements=801"];

fn run(bench: &Bench, way: &str, faults: &str) -> Outcome {
    bench.host("arrays", &[way, QUOTA]).set("SIMGPU_FAULTS", faults).limited("64MiB").run().quiet()
}

/// Reads the lines of `cost`: the shape and levels of each array, and the bytes taken.
fn costs(outcome: &Outcome) -> Vec<(ArrayShape, u32, u64)> {
    let read = |line: &str| {
        let (what, how) = line.split_once(": ")?;
        let numbers: Vec<u64> = what.split(' ').map(|word| word.parse().unwrap()).collect();
        let &[width, height, depth, format, channels, flags, levels] = numbers.as_slice() else {
            return None;
        };
        let narrow = |number: u64| u32::try_from(number).unwrap();
        let (format, channels, flags) = (narrow(format), narrow(channels), narrow(flags));
        let rest = how.strip_prefix("make 0, takes ")?.strip_suffix(", end 0, left over 0")?;
        Some((
            ArrayShape { width, height, depth, format, channels, flags },
            narrow(levels),
            rest.parse().unwrap(),
        ))
    };
    outcome.out.lines().map(|line| read(line).unwrap_or_else(|| panic!("{line}\nin {outcome}"))).collect()
}

#[test]
fn arrays_fill_the_quota_to_its_last_byte_and_no_further() {
    let bench = Bench::simulated_without_contexts();
    let outcome = run(&bench, "fill", "");
    for way in WAYS {
        outcome.contains(&[
            &format!("{way}: make 0 0, taken {FULL}, one more 2 (untouched)"),
            &format!("  end 0, again refused, taken {}", FULL / 2),
            "  end 0, taken 0",
        ]);
    }
    assert_eq!((bench.truth(0).peak, bench.truth(0).held), (FULL, 0));
    let unlimited = Bench::simulated_without_contexts();
    let bare = unlimited.host("arrays", &["fill", QUOTA]).run().quiet();
    unlimited.host("arrays", &["fill", QUOTA]).loaded().run().quiet().same_as(&bare);
    assert!(unlimited.truth(0).peak > FULL, "{bare}");
}

#[test]
fn every_format_rank_and_kind_costs_the_bytes_that_the_driver_takes() {
    let bench = Bench::simulated_without_contexts();
    let bare = costs(&bench.host("arrays", &["costs", QUOTA]).run().quiet());
    let limited = costs(&run(&bench, "costs", ""));
    assert_eq!(bare.len(), 72 + 54 + 84);
    assert_eq!(bare.len(), limited.len());
    for ((shape, levels, truth), (asked, _, charged)) in bare.iter().zip(&limited) {
        assert_eq!(shape, asked);
        assert_eq!(*charged, truth.next_multiple_of(TILE), "{shape:?} of {levels} levels, really {truth}");
    }
}

#[test]
fn where_the_driver_cannot_tell_the_size_the_estimate_is_charged_and_is_enough() {
    let bench = Bench::simulated_without_contexts();
    let bare = costs(&bench.host("arrays", &["costs", QUOTA]).run().quiet());
    for faults in CANNOT_TELL {
        let limited = costs(&run(&bench, "costs", faults));
        for ((shape, levels, truth), (_, _, charged)) in bare.iter().zip(&limited) {
            assert_eq!(*charged, taken(shape.at_most(*levels)), "{shape:?} of {levels} levels");
            assert!(charged >= truth, "{shape:?} of {levels} levels: {charged} for {truth}");
        }
        assert_eq!(bare.len(), limited.len());
    }
    for faults in CANNOT_TELL {
        let bench = Bench::simulated_without_contexts();
        let outcome = run(&bench, "fill", faults);
        // A layer of one row is charged as a whole tile.
        for way in WAYS.iter().filter(|way| **way != "layers") {
            outcome.contains(&[&format!("{way}: make 0 0, taken {FULL}, one more 2 (untouched)")]);
        }
        assert_eq!((bench.truth(0).peak, bench.truth(0).held), (FULL, 0));
    }
}

#[test]
fn the_driver_is_asked_once_for_each_shape() {
    let faults = "cuArrayGetMemoryRequirements=801@2+;cuMipmappedArrayGetMemoryRequirements=801@2+";
    let outcome = run(&Bench::simulated_without_contexts(), "twice", faults);
    let charged: Vec<u64> = costs(&outcome).iter().map(|(_, _, charged)| *charged).collect();
    assert_eq!(charged.len(), 4);
    assert_eq!((charged[0], charged[2]), (charged[1], charged[3]), "{outcome}");
    // The estimate would be a different number.
    let (shape, levels, first) = costs(&outcome)[0];
    assert_ne!(taken(shape.at_most(levels)), first);
}

#[test]
fn shapes_beyond_the_kept_answers_cost_their_size() {
    run(&Bench::simulated_without_contexts(), "many", "").says(&["done"]);
}

#[test]
fn sparse_and_deferred_arrays_cost_their_mapped_memory_while_it_is_mapped() {
    let bench = Bench::simulated_without_contexts();
    let outcome = run(&bench, "unbacked", "");
    for kind in ["40", "80", "41"] {
        let from = outcome.out.lines().position(|line| line.starts_with(&format!("kind {kind}: ")));
        let lines: Vec<_> = outcome.out.lines().skip(from.expect("the kind is tried")).take(7).collect();
        let expected = [
            format!("kind {kind}: make 0 0, taken 0"),
            format!("  map 0 0 0, release 0, taken {}", 6 * MIB),
            format!("  tail unmap 0, taken {}", 6 * MIB),
            format!("  unmap 0, taken {}", 4 * MIB),
            format!("  release 0, taken {}", 2 * MIB),
            format!("  end 0, taken {}", 2 * MIB),
            "  end 0, taken 0".to_owned(),
        ];
        assert_eq!(lines, expected, "{outcome}");
    }
    let bare = bench.host("arrays", &["unbacked", QUOTA]).run().quiet();
    outcome.same_as(&bare);
}

#[test]
fn memory_mapped_while_another_thread_may_end_the_arrays_context_stays_charged() {
    // The driver does not end the context, so that the array lives on.
    let leave = "cuDevicePrimaryCtxRelease_v2";
    let faults = format!("{leave}=delay:5s;{leave}=999");
    let outcome = run(&Bench::simulated_without_contexts(), "mapped_beside", &faults);
    if outcome.out == "untold\n" {
        return skip_untold("memory that is mapped beside a slow call");
    }
    outcome.says(&[
        &format!("make 0, begin 0, map 0, release 0, left 999, taken {}", 2 * MIB),
        "end 0, taken 0",
    ]);
}

#[test]
fn memory_mapped_to_an_array_goes_back_with_its_context() {
    let bench = Bench::simulated_without_contexts();
    let outcome = run(&bench, "mapped_in_context", "");
    outcome.says(&[&format!("context 0, make 0, map 0 0, release 0, taken {}", 4 * MIB), "ends 0, taken 0"]);
    run(&bench, "mapped_in_context", "cuMemMapArrayAsync=719")
        .says(&[&format!("context 0, make 0, map 719 0, release 0, taken {}", 2 * MIB), "ends 0, taken 0"]);
}

#[test]
fn a_level_of_a_mipmapped_array_costs_and_gives_back_nothing() {
    run(&Bench::simulated_without_contexts(), "levels", "")
        .says(&["make 0, level 0, taken by it 0, its end 400, given back 0", "end 0, taken 0"]);
}

#[test]
fn an_array_that_the_driver_fails_to_end_stays_charged() {
    // To learn the size, the library itself creates and ends an array first. So the fault hits the second end.
    run(
        &Bench::simulated_without_contexts(),
        "failing",
        "cuArrayDestroy=719@2;cuMipmappedArrayDestroy=719@2",
    )
    .says(&[
        &format!("make 0 0, taken {}", 2 * MIB),
        &format!("end 719 719, taken {}", 2 * MIB),
        "end 0 0, taken 0",
    ]);
}

#[test]
fn arrays_go_back_with_their_context_and_with_no_other() {
    run(&Bench::simulated_without_contexts(), "contexts", "cuCtxDestroy_v2=719@1").says(&[
        "context 0",
        &format!("make 0 0, taken {}", 3 * MIB),
        &format!("fails to end 719, taken {}", 3 * MIB),
        &format!("make 0, taken {}", 4 * MIB),
        &format!("ends 0, taken {MIB}"),
        "resets 0",
        "taken 0",
    ]);
}

#[test]
fn an_array_that_the_driver_refuses_costs_nothing() {
    let bench = Bench::simulated_without_contexts();
    let bare = bench.host("arrays", &["odd", QUOTA]).run().quiet();
    bench.host("arrays", &["odd", QUOTA]).loaded().run().quiet().same_as(&bare);
    run(&bench, "odd", "").same_as(&bare);
    bare.contains(&["unknown format: 1, untouched", "then: taken 0"]);
    let faults = "cuArrayCreate=719;cuArrayCreate_v2=719;cuArray3DCreate=719;cuArray3DCreate_v2=719;cuMipmappedArrayCreate=719";
    let outcome = run(&bench, "fill", faults);
    // If the question fails too, a layer of one row is charged as a tile, and half of the quota's rows exceed the quota.
    for way in WAYS.iter().filter(|way| **way != "layers") {
        outcome.contains(&[&format!("{way}: make 719 719, taken 0, one more 719 (untouched)")]);
    }
}

#[test]
fn an_array_that_no_device_has_room_for_is_refused() {
    let outcome = run(&Bench::simulated_without_contexts(), "huge", "");
    outcome.says(&[
        "huge: 2, untouched",
        "huge, mipmapped: 2, untouched",
        "huge, first generation: 2, untouched",
        "huge and flat: 2, untouched",
        "then: taken 0",
    ]);
}

#[test]
fn a_capture_is_spoiled_by_the_programs_own_call_only() {
    let bench = Bench::simulated_without_contexts();
    let bare = bench.host("arrays", &["capturing", QUOTA]).run().quiet();
    run(&bench, "capturing", "").same_as(&bare);
    bare.contains(&["mode 0: 0, begin 0, make 900, end 901", "mode 2: 0, begin 0, make 0, end 0"]);
    run(&bench, "refused_in_capture", "").says(&["stream 0, begin 0, make 2, end 0"]);
}
