//! Tests of precedence, and of operator's files that are refused.

use super::*;

#[test]
fn settings_of_the_operators_file_win_under_any_name() {
    for (env, file, quota) in [
        ("GPU_MEM_LIMIT", "GPU_MEM_LIMIT=1GiB", Some(GIB)),
        ("CUDA_DEVICE_MEMORY_LIMIT", "GPU_MEM_LIMIT=1GiB", Some(GIB)),
        ("CUDA_DEVICE_MEMORY_LIMIT_0", "GPU_MEM_LIMIT=1GiB", Some(GIB)),
        ("GPU_MEM_LIMIT", "CUDA_DEVICE_MEMORY_LIMIT=1g", Some(GIB)),
        ("GPU_MEM_LIMIT", "CUDA_DEVICE_MEMORY_LIMIT_0=1g", Some(GIB)),
        ("GPU_MEM_LIMIT", "CUDA_DEVICE_MEMORY_LIMIT_1=1g", None),
        ("GPU_MEM_LIMIT", "CUDA_DEVICE_MEMORY_LIMIT=0", None),
        ("GPU_MEM_LIMIT", "GPU_CORE_POLICY=fixed", Some(9 * GIB)),
    ] {
        let config = read(&[(env, "9g")], file).unwrap();
        assert_eq!(memory(&config, 0), quota, "{env} {file}");
    }
    let config = read(&[("GPU_MEM_LIMIT", "nonsense")], "GPU_MEM_LIMIT=1GiB").unwrap();
    assert_eq!(memory(&config, 0), Some(GIB));
    let config =
        read(&[("GPU_CORE_PERCENT", "100"), ("GPU_PRIORITY", "high")], "CUDA_DEVICE_SM_LIMIT=30").unwrap();
    assert_eq!((cores(&config, 0), config.priority), (300, Priority::High));
}

#[test]
fn the_fixed_file_wins_over_the_named_one_and_that_over_the_environment() {
    let env = variables(&[
        ("GPUSLICE_CONFIG", "/etc/slice"),
        ("GPU_MEM_LIMIT", "9g"),
        ("GPU_CORE_WEIGHT", "9"),
        ("GPU_CORE_POLICY", "equal"),
    ]);
    let named = FileRead::Contents(b"GPU_MEM_LIMIT=2g\nGPU_CORE_WEIGHT=2\n");
    let fixed = FileRead::Contents(b"# by the operator\r\n\r\n  GPU_MEM_LIMIT = 1g \r\n");
    let config = Config::from_sources(&env, &OperatorFiles { named, fixed }).unwrap();
    assert_eq!(memory(&config, 0), Some(GIB));
    assert_eq!(config.core_weight.get(), 2);
    assert!(config.warnings.is_empty());
}

#[test]
fn beside_the_fixed_file_only_that_file_names_the_region() {
    let env = variables(&[("GPUSLICE_CONFIG", "/etc/slice"), ("GPUSLICE_REGION", "/r/9")]);
    let region = |named: &[u8], fixed| {
        let named = FileRead::Contents(named);
        let config = Config::from_sources(&env, &OperatorFiles { named, fixed }).unwrap();
        (config.region, config.warnings.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    assert_eq!(region(b"", FileRead::Absent), (Some("/r/9".into()), Vec::new()));
    assert_eq!(region(b"GPUSLICE_REGION=/r/2", FileRead::Absent), (Some("/r/2".into()), Vec::new()));
    let fixed = FileRead::Contents(b"GPUSLICE_REGION=/r/1");
    assert_eq!(region(b"GPUSLICE_REGION=/r/2", fixed), (Some("/r/1".into()), Vec::new()));
    let of_nobody = FileRead::Contents(b"GPU_MEM_LIMIT=1g");
    let warning = |said: &str| {
        format!(
            "gpuslice: {said} has no effect beside /run/gpuslice/conf/config: all programs here are one slice, and only \
             that file can name its region."
        )
    };
    assert_eq!(region(b"", of_nobody), (None, vec![warning("GPUSLICE_REGION=\"/r/9\"")]));
    let said = "/etc/slice:1: GPUSLICE_REGION=\"/r/2\"";
    assert_eq!(region(b"GPUSLICE_REGION=/r/2", of_nobody), (None, vec![warning(said)]));
}

#[test]
fn a_file_that_is_named_or_exists_has_to_be_readable() {
    let env = variables(&[("GPUSLICE_CONFIG", "/etc/slice")]);
    let refused = |named, fixed| lines(Config::from_sources(&env, &OperatorFiles { named, fixed }));
    assert_eq!(
        refused(FileRead::Absent, FileRead::Absent),
        [
            "gpuslice: GPUSLICE_CONFIG=\"/etc/slice\" names a file that is not there; name the operator's file, or \
          leave it out. GPU work is refused."
        ]
    );
    assert_eq!(
        refused(FileRead::Contents(b""), FileRead::Unreadable("Permission denied")),
        [
            "gpuslice: /run/gpuslice/conf/config cannot be read (Permission denied); let this process read it. GPU \
          work is refused."
        ]
    );
    let long = vec![b'\n'; (1 << 20) + 1];
    assert_eq!(
        refused(FileRead::Contents(&long), FileRead::Absent),
        ["gpuslice: /etc/slice is too long; write at most 1MiB. GPU work is refused."]
    );
    let env = variables(&[("GPUSLICE_CONFIG", "conf")]);
    assert_eq!(
        lines(Config::from_sources(&env, &NO_FILES)),
        [
            "gpuslice: GPUSLICE_CONFIG=\"conf\" is not an absolute path; write one that begins with a /. GPU work is \
          refused."
        ]
    );
}

#[test]
fn naming_the_fixed_file_changes_nothing_where_it_exists() {
    let env = variables(&[("GPUSLICE_CONFIG", FIXED_FILE)]);
    assert_eq!(operator_file(&env), Ok(Some(FIXED_FILE.into())));
    let read = FileRead::Contents(b"GPU_MEM_LIMIT=1g\nNONSENSE=1");
    // The file is read once, so there is one refusal.
    assert_eq!(lines(Config::from_sources(&env, &OperatorFiles { named: read, fixed: read })).len(), 1);
    assert_eq!(lines(Config::from_sources(&env, &NO_FILES)).len(), 1);
}

#[test]
fn a_line_that_is_no_setting_is_refused_by_its_number() {
    for (file, line) in [
        (
            "\nGPU_MEM_LIMIT 4g",
            "2: \"GPU_MEM_LIMIT 4g\" is not a setting; write KEY=value, a comment after a #, or nothing",
        ),
        (
            "export GPU_MEM_LIMIT=4g",
            "1: \"export GPU_MEM_LIMIT=4g\" is not a setting; write KEY=value, a comment after a #, or nothing",
        ),
        (
            "\u{feff}GPU_MEM_LIMIT=4g",
            "1: \"\\xef\\xbb\\xbfGPU_MEM_LIMIT=4g\" is not a setting; write KEY=value, a comment after a #, or nothing",
        ),
        ("GPU_MEM_LIMIT=", "1: GPU_MEM_LIMIT=\"\" has no value; write one, or remove the line"),
        ("GPU_MEM_LIMIT= # mine", "1: GPU_MEM_LIMIT=\"\" has no value; write one, or remove the line"),
        (
            "GPU_MEM_LIMIT=4g#mine",
            "1: GPU_MEM_LIMIT=\"4g#mine\" is not a size; write it like 4GiB, 1.5GiB, 4096MiB, 1500000000 or 50%",
        ),
        (
            "GPU_MEM_LIMIT='4g'",
            "1: GPU_MEM_LIMIT=\"\\'4g\\'\" has quotes around it, which belong to the value here, as in a file for docker \
             --env-file; write it without them",
        ),
        (
            "GPU_MEM_LIMIT=4g\n#\nGPU_MEM_LIMIT=8g",
            "3: GPU_MEM_LIMIT=\"8g\" was set in line 1 already; set it once",
        ),
    ] {
        let expected = format!("gpuslice: /run/gpuslice/conf/config:{line}. GPU work is refused.");
        assert_eq!(lines(read(&[], file)), [expected]);
    }
}

#[test]
fn an_unknown_key_in_a_file_is_refused_with_the_one_that_is_meant() {
    for (line, end) in [
        (
            "GPU_MEM_LIMTI=4g",
            "is not a setting of gpuslice; write GPU_MEM_LIMIT if that is meant, or remove the line",
        ),
        (
            "gpu_mem_limit=4g",
            "is not a setting of gpuslice; write GPU_MEM_LIMIT if that is meant, or remove the line",
        ),
        (
            "CUDA_DEVICE_MEMORY_LIMIT_01=4g",
            "is not a setting of gpuslice; write CUDA_DEVICE_MEMORY_LIMIT if that is meant, or remove the line",
        ),
        (
            "NONSENSE=4g",
            "is not a setting of gpuslice; write one of GPU_MEM_LIMIT, GPU_CORE_PERCENT, GPU_CORE_POLICY, \
             GPU_CORE_WEIGHT, GPU_CORE_BURST, GPU_CORE_METER, GPU_CORE_COPIES, GPU_PRIORITY, GPU_MEM_OVERSUBSCRIBE, \
             GPUSLICE_DEEPBIND, GPU_MEM_REPORT_TOTAL, GPUSLICE_REGION, GPUSLICE_LOG, CUDA_DEVICE_MEMORY_LIMIT, CUDA_DEVICE_SM_LIMIT, or remove the line",
        ),
        ("GPUSLICE_CONFIG=4g", "has no effect in a file; write the settings of that file here"),
    ] {
        let key = line.split('=').next().unwrap_or_default();
        let said = format!("gpuslice: /run/gpuslice/conf/config:2: {key}=\"4g\" {end}. GPU work is refused.");
        assert_eq!(lines(read(&[], &format!("GPU_CORE_PERCENT=30\n{line}"))), [said]);
        let named = FileRead::Contents(line.as_bytes());
        let env = variables(&[("GPUSLICE_CONFIG", "/etc/slice")]);
        let told = lines(Config::from_sources(&env, &OperatorFiles { named, fixed: FileRead::Absent }));
        assert_eq!(told.len(), 1, "{told:?}");
    }
    for key in ["CUDA_DEVICE_MEMORY_LIMIT_", "GPUSLICE_LIB"] {
        assert_eq!(lines(read(&[], &format!("{key}=/x"))).len(), 1, "{key}");
    }
}

#[test]
fn numbers_in_a_file_are_the_buss_and_in_the_environment_cudas() {
    let swapped = |place: u32| DeviceIdentity { bus: Some(place), ..device(1 - place) };
    let quotas =
        |config: &Config| [0, 1].map(|place| config.limits_for(swapped(place)).memory.map(Bytes::get));
    for (list, expected) in [
        ("GPU_MEM_LIMIT=0=1g,1=2g", [Some(GIB), Some(2 * GIB)]),
        ("GPU_MEM_LIMIT=0=1g", [Some(GIB), None]),
        ("CUDA_DEVICE_MEMORY_LIMIT_0=1g", [Some(GIB), None]),
        ("CUDA_DEVICE_MEMORY_LIMIT_0=1g\nCUDA_DEVICE_MEMORY_LIMIT=3g", [Some(GIB), Some(3 * GIB)]),
        ("GPU_MEM_LIMIT=GPU-8932=1g", [None, Some(GIB)]),
        ("GPU_MEM_LIMIT=1g", [Some(GIB); 2]),
    ] {
        let config = read(&[("GPU_CORE_PERCENT", "1=50")], list).unwrap();
        assert_eq!(quotas(&config), expected, "{list}");
        assert_eq!(config.counts_on_bus(), list.contains("=0=") || list.contains("_0="), "{list}");
        assert_eq!([0, 1].map(|place| config.limits_for(swapped(place)).cores.get()), [500, 1000], "{list}");
    }
    let config = read(&[], "GPU_CORE_PERCENT=1=50").unwrap();
    assert!(config.counts_on_bus());
    assert_eq!([0, 1].map(|place| config.limits_for(swapped(place)).cores.get()), [1000, 500]);
    assert!(!from_env(&[("GPU_MEM_LIMIT", "0=1g,1=2g")]).counts_on_bus());
    // A device with an unknown bus number has no limit here. The library refuses GPU work before such a device is used.
    assert_eq!(config.limits_for(DeviceIdentity { bus: None, ..device(1) }).cores, Permille::FULL);
}

#[test]
fn devices_that_a_list_in_a_file_leaves_out_are_named() {
    let devices =
        [DeviceIdentity { bus: Some(1), ..device(0) }, DeviceIdentity { bus: Some(0), ..device(1) }];
    let left = |env: Variables<'_>, file: &str| -> Vec<(String, Vec<String>)> {
        let config = read(env, file).unwrap();
        let left = config.left_out(&devices).into_iter();
        left.map(|(said, devices)| (said.to_string(), devices)).collect()
    };
    let said = "/run/gpuslice/conf/config:1: GPU_MEM_LIMIT=\"0=1g\"".to_owned();
    assert_eq!(left(&[("GPU_CORE_PERCENT", "0=30")], "GPU_MEM_LIMIT=0=1g"), [(said, vec!["1".to_owned()])]);
    let by_uuid = left(&[], "GPU_CORE_PERCENT=GPU-8932=30");
    assert_eq!(by_uuid.first().map(|(_, devices)| devices.as_slice()), Some(&["1".to_owned()][..]));
    for file in ["GPU_MEM_LIMIT=0=1g,1=2g", "GPU_MEM_LIMIT=1g", "GPU_CORE_POLICY=equal"] {
        assert_eq!(left(&[("GPU_MEM_LIMIT", "0=1g")], file), [], "{file}");
    }
}

#[test]
fn a_comment_may_stand_behind_a_value_in_a_file() {
    let file = "GPU_MEM_LIMIT=2GiB # two\nGPU_CORE_PERCENT = 30\t#\nGPUSLICE_REGION=/dev/shm/a#b # ours # and theirs\n";
    let config = read(&[], file).unwrap();
    assert_eq!((memory(&config, 0), cores(&config, 0)), (Some(2 * GIB), 300));
    assert_eq!(config.region, Some("/dev/shm/a#b".into()));
}

#[test]
fn the_settings_of_a_file_are_given_as_they_stand_in_it() {
    let settings = |text: &str| settings_of_file("/c", text.as_bytes());
    let all =
        settings("# limits\nGPU_CORE_PERCENT = 50 # of the time\n\nCUDA_DEVICE_MEMORY_LIMIT_1=2g\n").unwrap();
    let pairs: Vec<(&str, &str)> = all.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(pairs, [("GPU_CORE_PERCENT", "50"), ("CUDA_DEVICE_MEMORY_LIMIT_1", "2g")]);
    for (text, said) in [
        ("GPU_MEM_LIMIT=1g\nGPU_CORE=50\n", "/c:2: GPU_CORE=\"50\""),
        ("GPU_MEM_LIMIT=1g\nGPU_MEM_LIMIT=2g\n", "/c:2: GPU_MEM_LIMIT=\"2g\""),
        ("limits\n", "/c:1: \"limits\""),
    ] {
        assert_eq!(settings(text).unwrap_err().said.to_string(), said);
    }
}
