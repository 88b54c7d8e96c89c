//! Tests of the messages about configurations that cannot be enforced, or only in part.

use super::*;

#[test]
fn every_malformed_value_is_one_line_that_shows_a_right_one() {
    for (key, value, line) in [
        (
            "GPU_MEM_LIMIT",
            "4Gigs",
            "=\"4Gigs\" is not a size; write it like 4GiB, 1.5GiB, 4096MiB, 1500000000 or 50%",
        ),
        (
            "GPU_MEM_LIMIT",
            "0",
            "=\"0\" is a quota of nothing; write a size like 4GiB, or leave it out for no quota",
        ),
        (
            "GPU_MEM_LIMIT",
            "99999999999999999999",
            "=\"99999999999999999999\" is more than any device holds; write a size like 4GiB or 50%",
        ),
        (
            "GPU_MEM_LIMIT",
            "0=4g,1=4Gigs",
            "=\"0=4g,1=4Gigs\" is malformed: \"1=4Gigs\" is not a size; write it like 4GiB, 1.5GiB, 4096MiB, 1500000000 or 50%",
        ),
        (
            "GPU_MEM_LIMIT",
            "0=4g,",
            "=\"0=4g,\" is malformed: \"\" is not an item of a list; write a list like 0=VALUE,1=VALUE or GPU-<uuid>=VALUE",
        ),
        (
            "GPU_MEM_LIMIT",
            "0=4g,0=5g",
            "=\"0=4g,0=5g\" is malformed: \"0=5g\" names a device that the list has named before; name each device once",
        ),
        (
            "GPU_MEM_LIMIT",
            "GPU=4g",
            "=\"GPU=4g\" is malformed: \"GPU=4g\" does not name a device; name it by its number or its UUID like 0, GPU-8932f937 or MIG-<uuid>",
        ),
        (
            "GPU_CORE_PERCENT",
            "0.5",
            "=\"0.5\" is not a share of a GPU; write a number from 1 to 100 like 30 or 12.5, without a % sign",
        ),
        ("GPU_CORE_POLICY", "fair", "=\"fair\" is not known; write fixed, equal or best-effort"),
        ("GPU_CORE_WEIGHT", "1001", "=\"1001\" is not a weight; write a whole number from 1 to 1000"),
        (
            "GPU_CORE_BURST",
            "20",
            "=\"20\" is not a burst; write strict, latency or a duration like 20ms, 500us or 1s",
        ),
        ("GPU_CORE_METER", "cupti", "=\"cupti\" is not known; write auto, events or nvml"),
        ("GPU_MEM_REPORT_TOTAL", "1", "=\"1\" is not known; write quota or device"),
        (
            "GPU_CORE_COPIES",
            "perhaps",
            "=\"perhaps\" is not a switch; write 1 (or true, yes, on) or 0 (or false, no, off)",
        ),
        (
            "GPU_CORE_PERCENT",
            "12,5",
            "=\"12,5\" has a comma, which separates the items of a list; write 12.5",
        ),
        (
            "GPU_MEM_LIMIT",
            "4 GiB",
            "=\"4 GiB\" has a space before its unit; write it without, like 4GiB or 50%",
        ),
        ("GPU_MEM_LIMIT", "1.5", "=\"1.5\" is no whole number of bytes; write its unit as well, like 1.5GiB"),
        (
            "GPU_MEM_LIMIT",
            "\"4GiB\"",
            "=\"\\\"4GiB\\\"\" has quotes around it, which belong to the value here, as in a file for docker --env-file; \
             write it without them",
        ),
        (
            "GPU_MEM_LIMIT",
            "2GiB # two",
            "=\"2GiB # two\" has a comment behind it, which belongs to the value in the environment; write the value alone",
        ),
        ("GPU_PRIORITY", "urgent", "=\"urgent\" is not known; write high, normal or low"),
        (
            "GPU_MEM_OVERSUBSCRIBE",
            "2",
            "=\"2\" is not a switch; write 1 (or true, yes, on) or 0 (or false, no, off)",
        ),
        ("GPUSLICE_REGION", "r", "=\"r\" is not an absolute path; write one that begins with a /"),
        (
            "CUDA_DEVICE_MEMORY_LIMIT_3",
            "x",
            "=\"x\" is not a size as HAMi takes it; write it like 4g, 4096m or 1500000000",
        ),
        (
            "CUDA_DEVICE_SM_LIMIT",
            "x",
            "=\"x\" is not a share as HAMi takes it; write a whole number from 0 to 100 like 30",
        ),
    ] {
        assert_eq!(
            lines(read(&[(key, value)], "")),
            [format!("gpuslice: {key}{line}. GPU work is refused.")]
        );
    }
}

#[test]
fn all_malformed_values_are_told_at_once() {
    let list = [("GPU_MEM_LIMIT", "x"), ("GPU_CORE_PERCENT", "x"), ("GPU_PRIORITY", "x")];
    assert_eq!(lines(read(&list, "nonsense")).len(), 4);
}

#[test]
fn a_long_or_unprintable_value_is_shortened_and_escaped() {
    let long = "7".repeat(MAX_VALUE_BYTES + 1);
    let told = lines(read(&[("GPU_MEM_LIMIT", &long)], ""));
    let expected = format!("=\"{}...\" is too long; write at most 16384 bytes.", "7".repeat(80));
    assert!(told[0].contains(&expected), "{told:?}");
    let env = |key: &str| (key == "GPU_MEM_LIMIT").then(|| b"\xff\n\x1b[31m\"".to_vec());
    let told = lines(Config::from_sources(&env, &NO_FILES));
    assert!(told[0].contains(r#"="\xff\n\x1b[31m\"" is not text;"#), "{told:?}");
    let told = lines(read(&[("GPUSLICE_REGION", "/dev/shm/a\0b")], ""));
    assert!(told[0].contains(r#"="/dev/shm/a\x00b" is not text;"#), "{told:?}");
}

#[test]
fn a_malformed_log_setting_refuses_nothing() {
    let config = from_env(&[("GPUSLICE_LOG", "loud")]);
    assert_eq!(config.log, Log::default());
    assert_eq!(
        warning(&config.warnings),
        "gpuslice: GPUSLICE_LOG=\"loud\" is not a log level; write off, error, warn, info or debug, or a level:path. \
         Logging goes on at level warn to standard error."
    );
    let rejected = read(&[("GPUSLICE_LOG", "debug:/l"), ("GPU_MEM_LIMIT", "x")], "").unwrap_err();
    assert_eq!(rejected.log, Log { level: LogLevel::Debug, path: Some("/l".into()) });
}

#[test]
fn settings_without_effect_are_warned_of_and_no_others() {
    for list in [
        &[("GPU_PRIORITY", "high"), ("GPU_MEM_OVERSUBSCRIBE", "1")] as Variables<'_>,
        &[("GPU_CORE_WEIGHT", "300"), ("GPU_CORE_POLICY", "equal"), ("GPU_CORE_BURST", "latency")],
        &[("GPU_CORE_BURST", "latency"), ("GPU_CORE_PERCENT", "30")],
    ] {
        assert!(from_env(list).warnings.is_empty(), "{list:?}");
    }
    for (list, line) in [
        (
            &[("GPU_CORE_WEIGHT", "300"), ("GPU_CORE_PERCENT", "30")] as Variables<'_>,
            "GPU_CORE_WEIGHT=\"300\" has no effect under policy fixed; it has with GPU_CORE_POLICY=equal or best-effort.",
        ),
        (
            &[("GPU_CORE_BURST", "latency"), ("GPU_MEM_LIMIT", "1g")],
            "GPU_CORE_BURST=\"latency\" has no effect on a slice that has all of its devices' time; it has with \
             GPU_CORE_PERCENT below 100.",
        ),
    ] {
        let config = from_env(list);
        assert_eq!(warning(&config.warnings), format!("gpuslice: {line}"));
        assert_eq!(config.warnings[0].level(), LogLevel::Warn);
    }
    let refused = read(&[("GPU_CORE_WEIGHT", "300"), ("GPU_MEM_LIMIT", "x")], "").unwrap_err();
    assert_eq!((refused.malformed.len(), refused.warnings), (1, Vec::new()));
}

#[test]
fn a_quota_in_powers_of_1000_is_reported_at_the_info_level() {
    let config = from_env(&[("GPU_MEM_LIMIT", "4gb")]);
    assert_eq!(
        warning(&config.warnings),
        "gpuslice: GPU_MEM_LIMIT=\"4gb\": 4gb is 4000000000 bytes, 7 % less than 4GiB."
    );
    assert_eq!(config.warnings[0].level(), LogLevel::Info);
}

#[test]
fn a_device_of_a_list_that_is_not_there_is_told_with_those_that_the_list_leaves_out() {
    let device =
        |ordinal, uuid| DeviceIdentity { ordinal: Some(ordinal), bus: None, uuid, total: Bytes::new(1) };
    let (one, two) = (device(0, UUID), device(1, OTHER));
    let told = |key: &str, value: &str, devices: &[DeviceIdentity]| -> Vec<String> {
        from_env(&[(key, value)]).absent(devices).iter().map(ToString::to_string).collect()
    };
    for (key, value, devices, end) in [
        ("GPU_MEM_LIMIT", "0=4g,7=1g", &[one][..], "names device 7, which CUDA does not show this process."),
        (
            "GPU_CORE_PERCENT",
            "0=40,GPU-1=30",
            &[one, two],
            "names device GPU-1, which CUDA does not show this process; of device 1, which it shows, it says nothing.",
        ),
        (
            "CUDA_DEVICE_MEMORY_LIMIT_7",
            "1g",
            &[one, two],
            "names device 7, which CUDA does not show this process; of devices 0, 1, which it shows, it says nothing.",
        ),
    ] {
        assert_eq!(told(key, value, devices), [format!("gpuslice: {key}=\"{value}\" {end}")]);
    }
    assert!(told("GPU_MEM_LIMIT", "0=4g,GPU-8932=1g", &[one]).is_empty());
    assert!(told("GPU_MEM_LIMIT", "4g", &[one, two]).is_empty());
    assert_eq!(told("GPU_MEM_LIMIT", "0=4g,7=1g,8=1g", &[one]).len(), 2);
}

#[test]
fn the_beginning_of_several_uuids_is_ambiguous() {
    let config = from_env(&[("GPU_MEM_LIMIT", "GPU-89=4g"), ("GPU_CORE_PERCENT", "GPU-8932=100")]);
    assert!(config.ambiguous(&[UUID]).is_empty());
    let told: Vec<String> = config.ambiguous(&[UUID, OTHER]).iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "gpuslice: GPU_MEM_LIMIT=\"GPU-89=4g\" is malformed: \"GPU-89\" is the beginning of several devices' UUIDs; \
          write more of the UUID. GPU work is refused."
        ]
    );
}
