//! Properties that every configuration has, with random contents.

use gpuslice_policy::config::{
    Burst, Config, DeviceIdentity, DeviceName, Fault, FileRead, OperatorFiles, PerDevice, Quota, Weight,
    gpu_uuid_text, keys, parse_uuid_text,
};
use gpuslice_policy::time::GpuTime;
use gpuslice_policy::units::{Bytes, Permille, Setting};
use proptest::collection::vec;
use proptest::prelude::*;

/// Returns the names of all settings.
fn keys() -> Vec<&'static str> {
    let of_devices = ["CUDA_DEVICE_MEMORY_LIMIT_0", "CUDA_DEVICE_MEMORY_LIMIT_63", "CUDA_DEVICE_SM_LIMIT_1"];
    keys::settings().chain(of_devices).collect()
}

/// Makes bytes that resemble values, so that they reach more than the first check.
fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), 0..64),
        "[0-9]{1,22}([kmgtKMGT]i?b?|%|ms|us)?".prop_map(String::into_bytes),
        "((GPU-|MIG-)?[0-9a-f]{0,8}-?=?[0-9]{0,6}[gm%]?,?){0,5}".prop_map(String::into_bytes),
        Just(b"/etc/slice".to_vec()),
        "(fixed|equal|strict|latency|auto|high|low|debug|warn:)/?[a-z]{0,4}".prop_map(String::into_bytes),
    ]
}

fn file() -> impl Strategy<Value = Vec<u8>> {
    let line = (proptest::sample::select(keys()), value())
        .prop_map(|(key, value)| [key.as_bytes(), b"=", &value].concat());
    prop_oneof![vec(any::<u8>(), 0..200), vec(line, 0..6).prop_map(|lines| lines.join(&b'\n'))]
}

fn read_as(kind: u8, contents: &[u8]) -> FileRead<'_> {
    match kind {
        0 => FileRead::Absent,
        1 => FileRead::Unreadable("Input/output error\n"),
        _ => FileRead::Contents(contents),
    }
}

fn quota() -> impl Strategy<Value = Quota> {
    prop_oneof![
        (1..u64::MAX).prop_map(|bytes| Quota::Size(Bytes::new(bytes))),
        (1..1_u64 << 20, 0..5_u32)
            .prop_map(|(count, unit)| Quota::Size(Bytes::new(count << (10 * unit.min(4))))),
        (1..u32::MAX).prop_map(Quota::Percent),
    ]
}

fn share() -> impl Strategy<Value = Permille> {
    (10..=1000_u16).prop_filter_map("at most the whole", Permille::new)
}

/// Generates lists whose names cannot overlap: different numbers, or UUIDs with different first digits.
fn per_device<T: Copy + core::fmt::Debug + 'static>(
    value: &BoxedStrategy<T>,
) -> impl Strategy<Value = PerDevice<T>> {
    let items = (vec((any::<[u8; 16]>(), value.clone()), 1..8), any::<bool>());
    let list = items.prop_filter_map("names of devices", |(items, by_uuid)| {
        let named = (0_u8..).zip(items).map(|(n, (mut uuid, value))| {
            uuid[0] = n << 4;
            let name = if by_uuid { gpu_uuid_text(&uuid) } else { n.to_string() };
            Some((name.parse().ok()?, value))
        });
        Some(PerDevice { named: named.collect::<Option<_>>()?, others: None })
    });
    prop_oneof![value.clone().prop_map(PerDevice::everywhere), list]
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic_and_every_line_is_one_printable_line(
        env in vec((proptest::sample::select(keys()), value()), 0..8),
        named in (0_u8..4, file()),
        fixed in (0_u8..4, file()),
        total in any::<u64>(),
        ordinal in proptest::option::of(0_u32..3),
        uuid in any::<[u8; 16]>(),
    ) {
        let variables =
            |key: &str| env.iter().find(|(name, _)| *name == key).map(|(_, value)| value.clone());
        let files = OperatorFiles { named: read_as(named.0, &named.1), fixed: read_as(fixed.0, &fixed.1) };
        let lines: Vec<String> = match Config::from_sources(&variables, &files) {
            Err(rejected) => {
                prop_assert!(!rejected.malformed.is_empty());
                let warnings = rejected.warnings.iter().map(ToString::to_string);
                rejected.malformed.iter().map(ToString::to_string).chain(warnings).collect()
            }
            Ok(config) => {
                let total = Bytes::new(total);
                let limits = config.limits_for(DeviceIdentity { ordinal, bus: ordinal, uuid, total });
                prop_assert!(limits.memory.is_none_or(|quota| quota >= Bytes::new(1)));
                prop_assert!(limits.memory.is_none_or(|quota| quota <= total.max(Bytes::new(1))));
                prop_assert!(limits.cores >= Permille::LEAST);
                let unlimited = limits.memory.is_none() && limits.cores == Permille::FULL;
                prop_assert!(unlimited || !config.is_unlimited());
                prop_assert!(!config.divides() || !config.is_unlimited());
                let warnings = config.warnings.iter().chain(&limits.warnings).map(ToString::to_string);
                let ambiguous = config.ambiguous(&[uuid, uuid]).iter().map(ToString::to_string).collect::<Vec<_>>();
                warnings.chain(ambiguous).collect()
            }
        };
        for line in lines {
            prop_assert!(line.starts_with("gpuslice: "), "{}", line);
            prop_assert!(line.bytes().all(|byte| (0x20..0x7f).contains(&byte)), "{}", line);
            prop_assert!(line.len() < 2048, "{}", line);
        }
    }

    #[test]
    fn a_quota_is_read_as_it_is_written(quotas in per_device(&quota().boxed())) {
        prop_assert_eq!(quotas.setting().parse::<PerDevice<Quota>>(), Ok(quotas));
    }

    #[test]
    fn a_share_is_read_as_it_is_written(shares in per_device(&share().boxed())) {
        prop_assert_eq!(shares.setting().parse::<PerDevice<Permille>>(), Ok(shares));
    }

    #[test]
    fn a_burst_is_read_as_it_is_written(nanos in 1..=Burst::MOST.nanos(), beyond in 1..u64::MAX) {
        let burst = Burst::Span(GpuTime::from_nanos(nanos));
        prop_assert_eq!(burst.setting().parse::<Burst>(), Ok(burst));
        let long = Burst::Span(GpuTime::from_nanos(Burst::MOST.nanos().saturating_add(beyond)));
        prop_assert_eq!(long.setting().parse::<Burst>(), Err(Fault::LongBurst));
    }

    #[test]
    fn a_weight_is_read_as_it_is_written(number in 1..=1000_u16) {
        let weight: Weight = number.to_string().parse().unwrap();
        prop_assert_eq!(weight.get(), number);
        prop_assert_eq!(weight.setting().parse::<Weight>(), Ok(weight));
    }

    #[test]
    fn a_uuid_and_each_beginning_of_it_name_the_device(uuid in any::<[u8; 16]>(), length in 5..=40_usize) {
        let text = gpu_uuid_text(&uuid);
        prop_assert_eq!(parse_uuid_text(&text), Some(uuid));
        let beginning: DeviceName = text[..length].parse().unwrap();
        let device = DeviceIdentity { ordinal: None, bus: None, uuid, total: Bytes::ZERO };
        prop_assert!(beginning.matches(&device));
        prop_assert_eq!(beginning.to_string().parse::<DeviceName>(), Ok(beginning));
    }

    #[test]
    fn the_operators_quota_holds_whatever_the_environment_says(
        ordinal in proptest::option::of(0_u32..3),
        env in vec((proptest::sample::select(keys()), value()), 0..8),
    ) {
        let variables =
            |key: &str| env.iter().find(|(name, _)| *name == key).map(|(_, value)| value.clone());
        let uuid = [0x89; 16];
        for list in ["GPU-89898989=1GiB", "1=1GiB"] {
            let file = format!("GPU_MEM_LIMIT={list}");
            let fixed = FileRead::Contents(file.as_bytes());
            let config = Config::from_sources(&variables, &OperatorFiles { named: FileRead::Absent, fixed });
            if let Ok(config) = config {
                let device = DeviceIdentity { ordinal, bus: Some(1), uuid, total: Bytes::new(1 << 36) };
                prop_assert_eq!(config.limits_for(device).memory, Some(Bytes::GIB));
            }
        }
    }
}
