//! Which source wins, and what is refused in an operator's file?

use super::*;

#[test]
fn what_the_operators_file_sets_wins_under_any_name() {
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
        ("GPUSLICE_REGION", "/r/9"),
    ]);
    let named = FileRead::Contents(b"GPU_MEM_LIMIT=2g\nGPU_CORE_WEIGHT=2\n");
    let fixed = FileRead::Contents(b"# by the operator\r\n\r\n  GPU_MEM_LIMIT = 1g \r\n");
    let config = Config::from_sources(&env, &OperatorFiles { named, fixed }).unwrap();
    assert_eq!(memory(&config, 0), Some(GIB));
    assert_eq!(config.core_weight.get(), 2);
    assert_eq!(config.region, Some("/r/9".into()));
    assert!(config.warnings.is_empty());
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
    let config = Config::from_sources(&env, &OperatorFiles { named: read, fixed: read }).unwrap();
    assert_eq!(config.warnings.len(), 1);
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
        (
            "GPU_MEM_LIMIT=4g # mine",
            "1: GPU_MEM_LIMIT=\"4g # mine\" is not a size; write it like 4GiB, 4096MiB, 1500000000 or 50%",
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
fn an_unknown_key_in_a_file_is_warned_of() {
    let config = read(&[], "GPU_MEM_LIMTI=4g").unwrap();
    assert_eq!(
        warning(&config.warnings),
        "gpuslice: /run/gpuslice/conf/config:1: GPU_MEM_LIMTI=\"4g\" is not a setting of gpuslice; the line is ignored."
    );
    assert_eq!(
        warning(&read(&[], "GPUSLICE_CONFIG=/x").unwrap().warnings),
        "gpuslice: /run/gpuslice/conf/config:1: GPUSLICE_CONFIG=\"/x\" has no effect in a file; the line is ignored."
    );
    for key in ["CUDA_DEVICE_MEMORY_LIMIT_01", "CUDA_DEVICE_MEMORY_LIMIT_", "gpu_mem_limit"] {
        assert_eq!(read(&[], &format!("{key}=/x")).unwrap().warnings.len(), 1, "{key}");
    }
}
