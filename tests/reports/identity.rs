//! Identity of devices: a device is its UUID, for each number that CUDA and NVML give it and for each order of use.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::indexing_slicing,
    reason = "a test"
)]

use crate::support::bench::{Bench, Host};
use crate::support::outcome::{Outcome, is_refusal};
use std::collections::BTreeMap;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Quotas of CUDA's first two devices, and of a device that never exists.
const LIMITS: &str = "0=64MiB,1=128MiB,7=32MiB";
const QUOTAS: [u64; 2] = [64 * MIB, 128 * MIB];

/// Sizes of devices by UUID, without the prefix of the UUID.
type Sizes = BTreeMap<String, u64>;

/// The devices that a host was shown.
#[derive(Debug, PartialEq, Eq)]
struct Shown {
    /// Devices of CUDA, in its order.
    cuda: Vec<(String, u64)>,
    /// Devices of NVML by place, for each time that NVML was asked.
    nvml: Vec<BTreeMap<String, (String, u64)>>,
}

impl Shown {
    #[track_caller]
    fn of(outcome: &Outcome) -> Self {
        let mut shown = Self { cuda: Vec::new(), nvml: Vec::new() };
        for line in outcome.out.lines() {
            let words: Vec<_> = line.split(' ').collect();
            match words.as_slice() {
                ["cuda", _, uuid, total] => shown.cuda.push(((*uuid).to_owned(), total.parse().unwrap())),
                ["nvml", place, uuid, total, used, free, "0"] => {
                    let [total, used, free] = [total, used, free].map(|word| word.parse::<u64>().unwrap());
                    assert_eq!(used + free, total, "{outcome}");
                    if *place == "0" {
                        shown.nvml.push(BTreeMap::new());
                    }
                    let all = shown.nvml.last_mut().unwrap();
                    all.insert((*place).to_owned(), ((*uuid).to_owned(), total));
                }
                _ => {}
            }
        }
        shown
    }

    /// Returns the sizes by UUID that NVML showed, which must be the same each time.
    #[track_caller]
    fn sizes(&self) -> Sizes {
        let first = self.nvml.first().expect("NVML was asked");
        assert!(self.nvml.iter().all(|other| other == first), "{self:#?}");
        first.values().cloned().collect()
    }
}

/// Asserts that the only messages are that a list names missing devices, and that the quota is reached.
#[track_caller]
fn told(outcome: Outcome) -> Outcome {
    let is_known = |line: &str| line.contains("which CUDA does not show this process") || is_refusal(line);
    assert!(outcome.ended == "exit 0" && outcome.err.lines().all(is_known), "{outcome}");
    outcome
}

fn three() -> Bench {
    Bench::simulated_without_contexts().with_quick_nvml().with("SIMGPU_DEVICES", "3")
}

fn host<'bench>(bench: &'bench Bench, words: &[&str]) -> Host<'bench> {
    bench.host("identity", words)
}

/// Returns the UUIDs of all devices in the order of the bus, as NVML names them: `GPU-…` and `MIG-…`.
fn names(bench: &Bench) -> Vec<String> {
    host(bench, &["nvml"]).run().quiet();
    let report = bench.report();
    report.split("\"uuid\":\"").skip(1).filter_map(|rest| rest.split('"').next()).map(str::to_owned).collect()
}

/// Runs NVML alone, NVML before CUDA and CUDA before NVML, each in a slice of its own. Asserts that all show the same of the same
/// device. Returns the devices of the last run.
#[track_caller]
fn every_order(make: impl Fn() -> Bench, limits: &str) -> Shown {
    let run = |words: &[&str]| {
        let bench = make();
        Shown::of(&told(host(&bench, words).limited(limits).run()))
    };
    let alone = run(&["nvml"]);
    let first = run(&["nvml", "cuda", "nvml"]);
    let second = run(&["cuda", "nvml"]);
    assert_eq!(first.cuda, second.cuda);
    assert_eq!(alone.sizes(), second.sizes(), "NVML alone, and after CUDA");
    assert_eq!(first.sizes(), second.sizes(), "NVML before CUDA, and after");
    for (uuid, size) in &second.cuda {
        assert_eq!(second.sizes().get(uuid), Some(size), "CUDA and NVML");
    }
    second
}

/// Asserts that CUDA shows the devices at these places of the bus, and that each has the quota of its number.
#[track_caller]
fn numbered(shown: &Shown, names: &[String], expected: &[usize]) {
    let uuid = |place: &usize| names[*place][4..].to_owned();
    let devices: Vec<_> = shown.cuda.iter().map(|(uuid, _)| uuid.clone()).collect();
    assert_eq!(devices, expected.iter().map(uuid).collect::<Vec<_>>());
    for (number, (_, size)) in shown.cuda.iter().enumerate() {
        assert_eq!(*size, QUOTAS.get(number).copied().unwrap_or(GIB), "CUDA's device {number}");
    }
    for (uuid, size) in shown.sizes() {
        if !devices.contains(&uuid) {
            assert_eq!(size, GIB, "{uuid} has no number");
        }
    }
}

#[test]
fn a_number_is_cudas_whatever_the_variable_says() {
    let all = names(&three());
    let beginning = |device: usize| all[device][..10].to_owned();
    let cases: [(String, &[usize]); 19] = [
        ("0,1,2".into(), &[0, 1, 2]),
        ("0,2,1".into(), &[0, 2, 1]),
        ("1,0,2".into(), &[1, 0, 2]),
        ("1,2,0".into(), &[1, 2, 0]),
        ("2,0,1".into(), &[2, 0, 1]),
        ("2,1,0".into(), &[2, 1, 0]),
        ("2".into(), &[2]),
        (" 1 , 2 ".into(), &[1, 2]),
        ("2gpus,+1".into(), &[2, 1]),
        (all[1].clone(), &[1]),
        (format!("{},{}", all[2], all[0]), &[2, 0]),
        (format!("{},{}", beginning(1), beginning(0)), &[1, 0]),
        (format!("{},0", beginning(2)), &[2, 0]),
        (format!("1,{}", all[0]), &[1, 0]),
        // The list ends at the first entry that names no device.
        ("1,3,0".into(), &[1]),
        ("2,-1,0".into(), &[2]),
        ("0,,1".into(), &[0]),
        ("1,GPU-,0".into(), &[1]),
        ("2,MIG-96bcaf2b,0".into(), &[2]),
    ];
    for (list, expected) in cases {
        println!("CUDA_VISIBLE_DEVICES={list}");
        let shown = every_order(|| three().with("CUDA_VISIBLE_DEVICES", &list), LIMITS);
        numbered(&shown, &all, expected);
    }
}

#[test]
fn without_the_variable_numbers_follow_the_bus() {
    let all = names(&three());
    numbered(&every_order(three, LIMITS), &all, &[0, 1, 2]);
}

#[test]
fn where_cuda_shows_nothing_no_number_means_anything() {
    for list in ["", "-1", "3", "0,0", "0,1,0", "GPU-x", "none"] {
        let bench = three().with("CUDA_VISIBLE_DEVICES", list);
        let shown = Shown::of(&told(host(&bench, &["nvml", "cuda", "nvml"]).limited(LIMITS).run()));
        assert_eq!((shown.cuda.len(), shown.sizes().into_values().max()), (0, Some(GIB)), "{list:?}");
        assert_eq!(shown.sizes().into_values().min(), Some(GIB), "{list:?}");
    }
}

#[test]
fn a_uuid_is_the_same_device_whatever_its_number() {
    let all = names(&three());
    let limits = format!("{}=64MiB,{}=128MiB,GPU-01234567-89=32MiB", all[2], &all[0][..9]);
    let expected: Sizes =
        all.iter().map(|name| name[4..].to_owned()).zip([128 * MIB, GIB, 64 * MIB]).collect();
    for list in ["0,1,2", "2,1,0", "1,2", "2"] {
        println!("CUDA_VISIBLE_DEVICES={list}");
        let shown = every_order(|| three().with("CUDA_VISIBLE_DEVICES", list), &limits);
        assert_eq!(shown.sizes(), expected);
    }
}

#[test]
fn the_other_names_of_the_limit_count_in_the_same_way() {
    let all = names(&three());
    for words in [["nvml"].as_slice(), &["cuda", "nvml"]] {
        let bench = three().with("CUDA_VISIBLE_DEVICES", "2,0");
        let limited = host(&bench, words).loaded().set("CUDA_DEVICE_MEMORY_LIMIT_0", "64m");
        let sizes = Shown::of(&limited.set("CUDA_DEVICE_MEMORY_LIMIT", "256m").run().quiet()).sizes();
        let size = |device: usize| sizes[&all[device][4..]];
        assert_eq!([size(2), size(0), size(1)], [64 * MIB, 256 * MIB, 256 * MIB]);
    }
}

#[test]
fn numbers_of_different_gpus_are_cudas_where_the_bus_orders_them() {
    let all = names(&three());
    let make = || three().with("SIMGPU_FASTEST", "2").with("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    numbered(&every_order(make, LIMITS), &all, &[0, 1, 2]);
    let chosen = || make().with("CUDA_VISIBLE_DEVICES", "2,0");
    numbered(&every_order(chosen, LIMITS), &all, &[2, 0]);
}

#[test]
fn numbers_of_different_gpus_are_guessed_aloud_until_cuda_has_told_them() {
    let all = names(&three());
    let bench = three().with("SIMGPU_FASTEST", "2");
    let guessed = host(&bench, &["nvml"]).limited(LIMITS).run();
    assert_eq!(guessed.ended, "exit 0");
    assert!(
        guessed.err.lines().count() == 1 && guessed.err.contains("CUDA_DEVICE_ORDER=PCI_BUS_ID"),
        "{guessed}"
    );
    // The library does not guess if no limit names a number.
    host(&bench, &["nvml"]).limited("64MiB").run().quiet();
    host(&bench, &["nvml"]).limited(&format!("{}=64MiB", all[1])).run().quiet();
    // CUDA shows only the fastest device, as its first. The library must not guess another one.
    let only = three().with("SIMGPU_FASTEST", "2").with("CUDA_VISIBLE_DEVICES", "0");
    numbered(&Shown::of(&told(host(&only, &["cuda", "nvml"]).limited(LIMITS).run())), &all, &[2]);
    // CUDA has reported the order, to this process or to another one of the slice.
    let holds = host(&bench, &["cuda", "hold"]).limited(LIMITS).start();
    while holds.hear().is_some_and(|line| line != "holds") {}
    numbered(&Shown::of(&told(host(&bench, &["cuda", "nvml"]).limited(LIMITS).run())), &all, &[2, 0, 1]);
    let seen = Shown::of(&host(&bench, &["nvml"]).limited(LIMITS).run()).sizes();
    let size = |device: usize| seen[&all[device][4..]];
    assert_eq!([size(2), size(0)], [64 * MIB, 128 * MIB]);
}

#[test]
fn an_instance_is_a_device_by_every_name_of_it() {
    let make = || three().with("SIMGPU_MIG", "0,2");
    let all = names(&make());
    assert!(all.len() == 4 && all[1].starts_with("MIG-") && all[2].starts_with("MIG-"), "{all:?}");
    let parent = Shown::of(&host(&make(), &["nvml"]).run().quiet()).nvml[0]["1"].0.clone();
    let cases: [(String, usize); 8] = [
        (all[1].clone(), 1),
        (all[2].clone(), 2),
        (all[2][..10].to_owned(), 2),
        (format!("MIG-GPU-{parent}/1/0"), 1),
        (format!("MIG-GPU-{parent}/2/0"), 2),
        (format!("GPU-{parent}"), 1),
        ("1".to_owned(), 1),
        // CUDA shows no whole device beside an instance.
        (format!("0,{},2", all[2]), 2),
    ];
    for (list, expected) in cases {
        println!("CUDA_VISIBLE_DEVICES={list}");
        for limits in ["0=64MiB".to_owned(), format!("{}=64MiB", all[expected])] {
            let run = |words: &[&str]| {
                let bench = make().with("CUDA_VISIBLE_DEVICES", &list);
                Shown::of(&host(&bench, words).limited(&limits).run().quiet())
            };
            let (alone, after) = (run(&["nvml"]), run(&["cuda", "nvml"]));
            let instance = all[expected][4..].to_owned();
            assert_eq!(after.cuda, [(instance.clone(), 64 * MIB)]);
            for shown in [alone, after] {
                let other = all[3 - expected][4..].to_owned();
                let size = |uuid: &str| shown.sizes().get(uuid).copied();
                assert_eq!((size(&instance), size(&other)), (Some(64 * MIB), Some(GIB)), "{shown:#?}");
                // The whole device is shown as large as the slice's part of it.
                assert_eq!(size(&parent), Some(64 * MIB), "{shown:#?}");
            }
        }
    }
}

#[test]
fn memory_of_an_instance_is_counted_there_and_at_the_whole_gpu() {
    let make = || three().with("SIMGPU_MIG", "0,2");
    let all = names(&make());
    let bench = make().with("CUDA_VISIBLE_DEVICES", &all[2]);
    let words = ["cuda", "take", "0", "67108864", "take", "0", "536870912", "nvml"];
    let outcome = host(&bench, &words).limited("512MiB").run().quiet();
    outcome.contains(&["take 0 0", "take 0 2"]);
    assert_eq!([0, 1, 2, 3].map(|device| bench.truth(device).peak), [0, 0, 64 * MIB, 0]);
    let of = |place: &str| {
        let line = outcome.out.lines().find(|line| line.starts_with(&format!("nvml {place} ")));
        let words = line.expect("it is shown").split(' ').skip(3);
        words.map(|word| word.parse::<u64>().unwrap()).collect::<Vec<_>>()
    };
    let (whole, [first, second]) = (of("1"), ["1.0", "1.1"].map(of));
    // The slice may have 512 MiB of the other instance too.
    assert_eq!((whole[0], first[0], second[0]), (GIB, GIB / 2, GIB / 2), "{outcome}");
    assert_eq!((whole[1], first[1]), (second[1], 0), "{outcome}");
    assert!(second[1] >= 64 * MIB && second[1] + second[2] == GIB / 2, "{outcome}");
}

#[test]
fn processes_share_the_quota_of_a_device_that_each_knows_by_another_number() {
    let all = names(&three());
    let bench = three().with("GPU_MEM_LIMIT", &format!("{}=64MiB", all[1]));
    let first = host(&bench, &["cuda", "take", "0", "41943040", "hold"]).loaded();
    let first = first.set("CUDA_VISIBLE_DEVICES", "1").start();
    while first.hear().is_some_and(|line| line != "holds") {}
    let words = ["cuda", "take", "2", "25165825", "take", "2", "25165824", "take", "0", "536870912", "nvml"];
    let second = host(&bench, &words).loaded().set("CUDA_VISIBLE_DEVICES", "0,2,1").run().quiet();
    second.contains(&["take 2 2", "take 2 0", "take 0 0"]);
    second.contains(&[&format!("nvml 1 {} {} {} 0 0", &all[1][4..], 64 * MIB, 64 * MIB)]);
    assert_eq!(bench.truth(1).peak, 64 * MIB);
}

#[test]
fn a_device_that_cannot_be_told_from_others_is_refused_with_words() {
    let faults = "cuDeviceGetUuid=999;cuDeviceGetUuid_v2=999";
    let refused = host(&three(), &["cuda", "nvml"]).limited("64MiB").set("SIMGPU_FAULTS", faults).run();
    assert_eq!(refused.ended, "exit 0");
    refused.contains(&["cuda 800"]);
    assert!(refused.err.lines().count() == 1 && refused.err.contains("does not tell UUID"), "{refused}");
    // Without a limit the library does not ask for the UUID.
    let free = host(&three(), &["cuda"]).loaded().set("SIMGPU_FAULTS", faults).run().quiet();
    assert_eq!(free.out.lines().count(), 3, "{free}");
}

#[test]
fn each_device_has_its_own_quota_to_the_byte() {
    let all = names(&three());
    let limits = format!("0=64MiB,{}=32MiB", all[0]);
    let bench = three().with("CUDA_VISIBLE_DEVICES", "2,1,0");
    let takes = ["take", "0", "67108864", "take", "0", "1", "take", "1", "1073741824"];
    let more = ["take", "2", "33554432", "take", "2", "1", "nvml"];
    let words: Vec<_> = ["cuda"].into_iter().chain(takes).chain(more).collect();
    let outcome = host(&bench, &words).limited(&limits).run().quiet();
    let taken: Vec<_> = outcome.out.lines().filter(|line| line.starts_with("take")).collect();
    assert_eq!(taken, ["take 0 0", "take 0 2", "take 1 0", "take 2 0", "take 2 2"], "{outcome}");
    assert_eq!([0, 1, 2].map(|device| bench.truth(device).peak), [32 * MIB, GIB, 64 * MIB]);
}

/// Prepares a host under these lines of an operator's file.
fn under<'bench>(bench: &'bench Bench, words: &[&str], lines: &str) -> Host<'bench> {
    let file = bench.file("config", lines).display().to_string();
    host(bench, words).loaded().set("GPUSLICE_CONFIG", &file)
}

#[test]
fn a_number_in_an_operators_file_is_the_buss_whatever_the_tenant_sets() {
    let all = names(&three());
    let sizes: Sizes = all.iter().map(|name| name[4..].to_owned()).zip([64 * MIB, 128 * MIB, GIB]).collect();
    let lists = [
        "GPU_MEM_LIMIT=0=64MiB,1=128MiB\n",
        "CUDA_DEVICE_MEMORY_LIMIT_0=64m\nCUDA_DEVICE_MEMORY_LIMIT_1=128m\n",
    ];
    for (variable, value) in [
        ("CUDA_VISIBLE_DEVICES", "0,1,2"),
        ("CUDA_VISIBLE_DEVICES", "1,0"),
        ("CUDA_VISIBLE_DEVICES", "2,1"),
        ("CUDA_VISIBLE_DEVICES", "1"),
        ("CUDA_VISIBLE_DEVICES", all[0].as_str()),
        ("CUDA_VISIBLE_DEVICES", ""),
        ("SIMGPU_FASTEST", "2"),
        ("GPU_MEM_LIMIT", "2=1GiB"),
        ("GPUSLICE_LOG", "warn"),
    ] {
        println!("{variable}={value}");
        for lines in lists {
            for words in [&["nvml"][..], &["nvml", "cuda", "nvml"], &["cuda", "nvml"]] {
                let bench = three();
                let outcome = under(&bench, words, lines).set(variable, value).run();
                let shown = Shown::of(&told(outcome));
                assert_eq!(shown.sizes(), sizes, "{words:?}");
                for (uuid, size) in &shown.cuda {
                    assert_eq!(sizes.get(uuid), Some(size), "{words:?}");
                }
            }
        }
    }
}

#[test]
fn no_order_of_cudas_gets_a_byte_more_than_an_operators_file_gives() {
    let two = || Bench::simulated_without_contexts().with_quick_nvml().with("SIMGPU_DEVICES", "2");
    let cases: [(&str, &[&str], [u64; 2]); 3] = [
        (
            "1,0",
            &["take", "0", "134217728", "take", "0", "1", "take", "1", "67108864", "take", "1", "1"],
            [64, 128],
        ),
        (
            "0,1",
            &["take", "0", "67108864", "take", "0", "1", "take", "1", "134217728", "take", "1", "1"],
            [64, 128],
        ),
        ("1", &["take", "0", "134217728", "take", "0", "1"], [0, 128]),
    ];
    for (list, takes, peaks) in cases {
        let bench = two();
        let words = [&["cuda"][..], takes].concat();
        let host = under(&bench, &words, "GPU_MEM_LIMIT=0=64MiB,1=128MiB").set("CUDA_VISIBLE_DEVICES", list);
        let outcome = told(host.run());
        let refused =
            outcome.out.lines().filter(|line| line.starts_with("take") && line.ends_with(" 2")).count();
        assert_eq!(refused, takes.len() / 6, "{outcome}");
        assert_eq!([0, 1].map(|device| bench.truth(device).peak), peaks.map(|peak| peak * MIB), "{outcome}");
    }
}

#[test]
fn a_gpus_number_in_an_operators_file_holds_for_each_of_its_instances() {
    let make = || three().with("SIMGPU_MIG", "0,2");
    let all = names(&make());
    for instance in [1, 2] {
        let bench = make().with("CUDA_VISIBLE_DEVICES", &all[instance]);
        let shown = Shown::of(&under(&bench, &["cuda", "nvml"], "GPU_MEM_LIMIT=1=64MiB").run().quiet());
        assert_eq!(shown.cuda, [(all[instance][4..].to_owned(), 64 * MIB)]);
        assert_eq!([1, 2].map(|device| shown.sizes()[&all[device][4..]]), [64 * MIB; 2], "{shown:#?}");
    }
}

#[test]
fn numbers_in_an_operators_file_that_nvml_does_not_tell_refuse() {
    for (fault, words) in [
        ("nvmlInit_v2=999", "cannot be opened to tell these"),
        ("nvmlDeviceGetHandleByIndex_v2=999", "does not tell that of GPU-"),
        ("nvmlDeviceGetUUID=999", "does not tell that of GPU-"),
    ] {
        let bench = three();
        let refused = under(&bench, &["cuda"], "GPU_CORE_PERCENT=0=50").set("SIMGPU_FAULTS", fault).run();
        refused.contains(&["cuda 800"]);
        assert!(refused.err.lines().count() == 1 && refused.err.contains(words), "{refused}");
        // One limit for all devices needs no order of the bus, and CUDA's own numbers do not need it either.
        let bench = three();
        let all = under(&bench, &["cuda"], "GPU_MEM_LIMIT=64MiB").set("SIMGPU_FAULTS", fault).run().quiet();
        assert_eq!(Shown::of(&all).cuda.iter().filter(|(_, size)| *size == 64 * MIB).count(), 3);
        let bench = three();
        host(&bench, &["cuda"]).limited("0=64MiB").set("SIMGPU_FAULTS", fault).run().quiet();
    }
}
