//! Tests of the meaning of settings, and of the limits that devices get.

use super::*;
use crate::time::GpuTime;

#[test]
fn nothing_set_is_no_limit() {
    let config = from_env(&[]);
    assert_eq!(config, Config::default());
    assert!(config.is_unlimited());
    assert_eq!((memory(&config, 0), cores(&config, 0)), (None, 1000));
}

#[test]
fn an_empty_variable_is_an_unset_one() {
    let config = from_env(&[("GPU_MEM_LIMIT", ""), ("GPU_CORE_PERCENT", "  "), ("GPUSLICE_CONFIG", "")]);
    assert_eq!(config, Config::default());
    let config = from_env(&[("GPU_MEM_LIMIT", ""), ("CUDA_DEVICE_MEMORY_LIMIT", "1g")]);
    assert_eq!(memory(&config, 0), Some(GIB));
}

#[test]
fn a_whole_share_under_the_fixed_policy_is_no_limit() {
    for list in [
        &[("GPU_CORE_PERCENT", "100")] as Variables<'_>,
        &[("GPU_CORE_PERCENT", "100.0"), ("GPU_CORE_POLICY", "fixed")],
        &[("GPU_CORE_PERCENT", "0=100,1=100")],
        &[("GPU_CORE_BURST", "latency"), ("GPU_CORE_WEIGHT", "7"), ("GPU_CORE_COPIES", "1")],
        &[("CUDA_DEVICE_MEMORY_LIMIT", "0"), ("CUDA_DEVICE_SM_LIMIT", "0")],
        &[("CUDA_DEVICE_SM_LIMIT", "100")],
    ] {
        let config = from_env(list);
        assert!(config.is_unlimited(), "{list:?}");
    }
    // A program that names a region joins its slice. The share of that slice may be another one and may change.
    for share in ["GPU_CORE_PERCENT", "CUDA_DEVICE_SM_LIMIT"] {
        assert!(!from_env(&[(share, "100"), ("GPUSLICE_REGION", "/dev/shm/a")]).is_unlimited(), "{share}");
    }
    assert!(from_env(&[("GPUSLICE_REGION", "/dev/shm/a")]).is_unlimited());
    for list in [
        ("GPU_CORE_PERCENT", "99.9"),
        ("GPU_CORE_PERCENT", "7=30"),
        ("GPU_CORE_POLICY", "equal"),
        ("GPU_PRIORITY", "low"),
        ("GPU_MEM_LIMIT", "100%"),
        ("GPU_MEM_LIMIT", "7=1g"),
        ("CUDA_DEVICE_SM_LIMIT_2", "30"),
    ] {
        assert!(!from_env(&[list]).is_unlimited(), "{list:?}");
    }
}

#[test]
fn a_share_of_gpu_time_is_a_limit_like_any_other() {
    for (list, share) in [
        (&[("GPU_CORE_PERCENT", "30")] as Variables<'_>, 300),
        (&[("GPU_CORE_PERCENT", "0=99.9,1=100")], 999),
        (&[("GPU_CORE_PERCENT", "1"), ("GPU_CORE_POLICY", "fixed")], 10),
        (&[("CUDA_DEVICE_SM_LIMIT", "30"), ("CUDA_DEVICE_SM_LIMIT_7", "50")], 300),
    ] {
        let config = from_env(list);
        assert!(config.warnings.is_empty(), "{list:?}");
        assert!(!config.is_unlimited(), "{list:?}");
        assert_eq!(cores(&config, 0), share, "{list:?}");
    }
}

#[test]
fn a_list_limits_the_devices_it_names_and_no_other() {
    let config = from_env(&[("GPU_MEM_LIMIT", " 1 = 4GiB , GPU-8932f937=50% ")]);
    assert_eq!(memory(&config, 0), Some(40 * GIB));
    assert_eq!(memory(&config, 1), Some(4 * GIB));
    assert_eq!(memory(&config, 2), None);
    let config = from_env(&[("GPU_CORE_PERCENT", "0=12.5,MIG-89898989-8989-8989-8989-898989898989=30")]);
    assert_eq!((cores(&config, 0), cores(&config, 1)), (125, 300));
    let hidden = DeviceIdentity { ordinal: None, ..device(0) };
    assert_eq!(config.limits_for(hidden).cores, Permille::FULL);
    assert_eq!(config.share_of(hidden), None);
    assert_eq!(config.share_of(device(0)).map(Permille::get), Some(125));
}

#[test]
fn a_device_named_by_number_and_by_uuid_gets_the_smaller_limit_and_a_warning() {
    let config = from_env(&[("GPU_MEM_LIMIT", "0=4GiB,GPU-8932f937=2GiB")]);
    let limits = config.limits_for(device(0));
    assert_eq!(limits.memory, Some(Bytes::new(2 * GIB)));
    assert!(warning(&limits.warnings).ends_with("d9f6 twice; the smaller limit is used."), "{limits:?}");
}

#[test]
fn a_quota_larger_than_the_device_is_the_device_and_a_warning() {
    for quota in ["500GiB", "101%", "18446744073709551615"] {
        let config = from_env(&[("GPU_MEM_LIMIT", quota)]);
        let limits = config.limits_for(device(0));
        assert_eq!(limits.memory, Some(Bytes::new(80 * GIB)));
        assert_eq!(
            warning(&limits.warnings),
            format!(
                "gpuslice: GPU_MEM_LIMIT=\"{quota}\" is more than device \
                 GPU-8932f937-d72c-4106-c12f-20bd9faed9f6 holds; its 80GiB are the quota."
            )
        );
    }
    assert!(from_env(&[("GPU_MEM_LIMIT", "80GiB")]).limits_for(device(0)).warnings.is_empty());
    let config = from_env(&[("CUDA_DEVICE_MEMORY_LIMIT", "1g"), ("CUDA_DEVICE_MEMORY_LIMIT_0", "900g")]);
    let limits = config.limits_for(device(0));
    assert!(warning(&limits.warnings).contains("CUDA_DEVICE_MEMORY_LIMIT_0=\"900g\""));
}

#[test]
fn a_percentage_is_rounded_down_to_a_mib_and_never_to_nothing() {
    let config = from_env(&[("GPU_MEM_LIMIT", "33%")]);
    for (total, quota) in
        [(1000 << 20, 330 << 20), ((100 << 20) + 99, 33 << 20), (1 << 20, 1 << 20), (5, 5), (0, 1)]
    {
        let limits = config.limits_for(DeviceIdentity { total: Bytes::new(total), ..device(0) });
        assert_eq!(limits.memory, Some(Bytes::new(quota)), "{total}");
    }
}

#[test]
fn hamis_names_have_hamis_meaning() {
    let config = from_env(&[
        ("CUDA_DEVICE_MEMORY_LIMIT", "3000m"),
        ("CUDA_DEVICE_MEMORY_LIMIT_1", "2G"),
        ("CUDA_DEVICE_MEMORY_LIMIT_2", "0"),
        ("CUDA_DEVICE_MEMORY_LIMIT_3", "1048576"),
        ("CUDA_DEVICE_SM_LIMIT", "30"),
        ("CUDA_DEVICE_SM_LIMIT_1", "100"),
        ("CUDA_DEVICE_SM_LIMIT_2", "0"),
        ("CUDA_DEVICE_SM_LIMIT_3", "101"),
    ]);
    let quotas = [0, 1, 2, 3].map(|ordinal| memory(&config, ordinal));
    assert_eq!(quotas, [Some(3000 << 20), Some(2 * GIB), Some(3000 << 20), Some(1 << 20)]);
    assert_eq!([0, 1, 2, 3].map(|ordinal| cores(&config, ordinal)), [300, 1000, 300, 1000]);
    let config = from_env(&[("CUDA_DEVICE_MEMORY_LIMIT_0", "1g")]);
    assert_eq!((memory(&config, 0), memory(&config, 1)), (Some(GIB), None));
}

#[test]
fn values_that_hami_would_misread_are_refused() {
    for value in
        ["4GiB", "4gb", "0x10", "010", "4 g", "-1", "g", "50%", "99999999999999999999", "17179869184g"]
    {
        assert_eq!(lines(read(&[("CUDA_DEVICE_MEMORY_LIMIT_0", value)], "")).len(), 1, "{value}");
    }
    for value in ["30%", "-1", "12.5", "x", "0x1e", "030"] {
        assert_eq!(lines(read(&[("CUDA_DEVICE_SM_LIMIT", value)], "")).len(), 1, "{value}");
    }
}

#[test]
fn our_names_win_over_hamis_which_are_then_not_looked_at() {
    let config = from_env(&[
        ("GPU_MEM_LIMIT", "1=4GiB"),
        ("CUDA_DEVICE_MEMORY_LIMIT", "nonsense"),
        ("CUDA_DEVICE_MEMORY_LIMIT_0", "1g"),
        ("GPU_CORE_PERCENT", "100"),
        ("CUDA_DEVICE_SM_LIMIT", "30"),
    ]);
    assert_eq!((memory(&config, 0), memory(&config, 1), cores(&config, 0)), (None, Some(4 * GIB), 1000));
}

#[test]
fn every_other_setting_is_read() {
    let config = from_env(&[
        ("GPU_CORE_POLICY", "Best-Effort"),
        ("GPU_CORE_WEIGHT", " 1000 "),
        ("GPU_CORE_BURST", "50ms"),
        ("GPU_CORE_METER", "nvml"),
        ("GPU_CORE_COPIES", "1"),
        ("GPU_PRIORITY", "low"),
        ("GPU_MEM_OVERSUBSCRIBE", "1"),
        ("GPUSLICE_DEEPBIND", "1"),
        ("GPU_MEM_REPORT_TOTAL", "Device"),
        ("GPUSLICE_REGION", "/dev/shm/mine"),
        ("GPUSLICE_LOG", "info:/tmp/a:b"),
    ]);
    assert_eq!((config.core_policy, config.core_weight.get()), (CorePolicy::BestEffort, 1000));
    assert_eq!(config.core_burst.span(), GpuTime::from_millis(50));
    assert_eq!((config.core_meter, config.core_copies), (CoreMeter::Nvml, true));
    assert_eq!((config.priority, config.oversubscribe, config.deepbind), (Priority::Low, true, true));
    assert_eq!(config.report_total, ReportTotal::Device);
    assert_eq!(config.region, Some("/dev/shm/mine".into()));
    assert_eq!(config.log, Log { level: LogLevel::Info, path: Some("/tmp/a:b".into()) });
}

#[test]
fn the_defaults_are_the_contracts() {
    let config = Config::default();
    assert_eq!((config.core_weight.get(), config.core_burst.span()), (100, GpuTime::from_millis(20)));
    assert_eq!("latency".parse::<Burst>().unwrap().span(), GpuTime::from_millis(200));
    assert_eq!(
        (config.core_meter, config.core_copies, config.oversubscribe),
        (CoreMeter::Auto, false, false)
    );
    assert_eq!((config.priority, config.log.level), (Priority::Normal, LogLevel::Warn));
    assert_eq!(config.report_total, ReportTotal::Quota);
}
