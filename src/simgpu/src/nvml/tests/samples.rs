//! Tests of utilisation windows, and of the state that they come from.

use super::*;

#[test]
fn use_is_told_once_and_then_not_found_until_there_is_news() {
    let machine = machine(&[("SIMGPU_DEVICES", "2")]);
    machine.process(50, 0, 1);
    let slot = machine.process(100, 0, 1);
    let device = machine.device(0);
    assert_eq!(machine.used_by(machine.device(1), 0), Err(statuses::NOT_FOUND), "that one is idle");
    // The work begins twelve windows ago, and keeps the device busy for the first six of them.
    let start = clock::now() - 2000 * MS;
    machine.work(slot, 0, start, 1000 * MS);
    let since = machine.library.view.epoch_us + start / 1000;
    let found = machine.used_by(device, since).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].pid, 100);
    assert!((40..=60).contains(&found[0].sm), "{found:?}");
    assert!(found[0].timestamp > since && found[0].timestamp < since + 1_300_000, "{found:?}");
    assert_eq!(machine.used_by(device, found[0].timestamp), Err(statuses::NOT_FOUND));
}

#[test]
fn the_size_of_a_list_of_uses_is_told_without_looking_at_samples() {
    let machine = machine(&[]);
    let mut count = 0;
    let (device, none) = (machine.device(0), core::ptr::null_mut());
    let got = machine.nvml.nvmlDeviceGetProcessUtilization(device, none, &raw mut count, 0);
    assert_eq!((got, count), (Err(statuses::INSUFFICIENT_SIZE), 256));
}

#[test]
fn the_list_with_a_version_tells_the_same() {
    let machine = machine(&[]);
    let slot = machine.process(100, 0, 1);
    let start = clock::now() - 2000 * MS;
    machine.work(slot, 0, start, 1000 * MS);
    let device = machine.device(0);
    let last_seen = machine.library.view.epoch_us + start / 1000;
    let mut entries = [ProcessUse::default(); 2];
    let version = layouts::version::<ProcessUseList>(1);
    let mut list = ProcessUseList { version, count: 0, last_seen, entries: entries.as_mut_ptr() };
    let to: *mut ProcessUseList = &raw mut list;
    let small = machine.nvml.nvmlDeviceGetProcessesUtilizationInfo(device, to.cast());
    assert_eq!((small, list.count), (Err(statuses::INSUFFICIENT_SIZE), 256));
    list.count = 2;
    let to: *mut ProcessUseList = &raw mut list;
    assert_eq!(machine.nvml.nvmlDeviceGetProcessesUtilizationInfo(device, to.cast()), Ok(()));
    assert_eq!((list.count, entries[0].pid), (1, 100));
    list.version = 1;
    let to: *mut ProcessUseList = &raw mut list;
    let wrong = machine.nvml.nvmlDeviceGetProcessesUtilizationInfo(device, to.cast());
    assert_eq!(wrong, Err(statuses::ARGUMENT_VERSION_MISMATCH));
}

#[test]
fn samples_of_the_device_carry_the_wall_clock_and_come_oldest_first() {
    let machine = machine(&[]);
    let slot = machine.process(100, 0, 1);
    let start = clock::now() - 2000 * MS;
    machine.work(slot, 0, start, 1000 * MS);
    let since = machine.library.view.epoch_us + start / 1000;
    let (mut kind, mut count) = (0, 0);
    let (nvml, device) = (&machine.nvml, machine.device(0));
    let none = core::ptr::null_mut();
    assert_eq!(nvml.nvmlDeviceGetSamples(device, 1, since, &raw mut kind, &raw mut count, none), Ok(()));
    assert_eq!((kind, count), (1, 120));
    let mut samples = [layouts::Sample::default(); 120];
    let to = samples.as_mut_ptr().cast();
    assert_eq!(nvml.nvmlDeviceGetSamples(device, 1, since, &raw mut kind, &raw mut count, to), Ok(()));
    let samples = &samples[..count as usize];
    assert!((11..=13).contains(&samples.len()), "{samples:?}");
    assert!(samples.is_sorted_by_key(|sample| sample.timestamp));
    assert!(samples[0].timestamp > since);
    assert_eq!((samples[2].value, samples[9].value), (100, 0));
    let (second, newest) = (samples[1].timestamp, samples.last().unwrap().timestamp);
    let mut few = [layouts::Sample::default(); 2];
    count = 2;
    let to_few = few.as_mut_ptr().cast();
    assert_eq!(nvml.nvmlDeviceGetSamples(device, 1, since, &raw mut kind, &raw mut count, to_few), Ok(()));
    assert_eq!((count, few[1].timestamp), (2, second), "the oldest, when there is no room for all");
    assert_eq!(
        nvml.nvmlDeviceGetSamples(device, 1, newest, &raw mut kind, &raw mut count, to),
        Err(statuses::NOT_FOUND)
    );
    assert_eq!(nvml.nvmlDeviceGetSamples(device, 3, 0, &raw mut kind, &raw mut count, to), Err(3));
}

#[test]
fn use_is_the_mean_over_all_windows_and_one_entry_per_process() {
    let sample = |timestamp_us, pid, sm| ProcessSample { timestamp_us, pid, sm, memory: 2 * sm, reserved: 0 };
    let samples = [sample(10, 1, 30), sample(20, 1, 31), sample(20, 2, 8), sample(5, 1, 99)];
    let share = |pid, timestamp_us, sm, memory| Share { pid, timestamp_us, sm, memory };
    assert_eq!(shares(&[10, 20, 30, 40], &samples), [share(1, 20, 15, 30), share(2, 20, 2, 4)]);
    assert_eq!(shares(&[], &samples), []);
}

#[test]
fn processes_that_cannot_be_told_apart_are_in_no_list() {
    let machine = machine(&[("SIMGPU_NVML_PIDS", "none")]);
    machine.process(100, 0, GIB);
    let device = machine.device(0);
    assert_eq!(machine.compute(device), []);
    assert_eq!(machine.used_by(device, 0), Err(statuses::NOT_SUPPORTED));
    assert_eq!(machine.memory(device).used, GIB);
}

#[test]
fn lists_may_say_the_same_of_every_process_whatever_it_holds() {
    for (bytes, said) in [("0", 0), ("64MiB", 64 << 20)] {
        let machine = machine(&[("SIMGPU_NVML_BYTES", bytes)]);
        machine.process(100, 0, GIB);
        machine.process(200, 0, 1);
        let device = machine.device(0);
        assert_eq!(machine.compute(device).iter().map(|entry| entry.used).collect::<Vec<_>>(), [said, said]);
        assert_eq!(machine.memory(device).used, GIB + 1);
    }
}

#[test]
fn numbers_are_those_that_a_container_would_be_told() {
    for (pids, listed, sampled) in [
        ("own", &[100, 200][..], [100, 200]),
        ("offset", &[1_000_100, 1_000_200], [1_000_100, 1_000_200]),
        ("mixed", &[100, 200], [1_000_100, 1_000_200]),
        ("translated", &[100, 200], [100, 200]),
        ("foreign", &[100], [100, 1_000_200]),
    ] {
        let machine = machine(&[("SIMGPU_NVML_PIDS", pids), ("SIMGPU_GROUP", "home")]);
        let start = clock::now() - 2000 * MS;
        for (pid, group) in [(100, &b"home"[..]), (200, b"away")] {
            let slot = machine.process_of(pid, group, 0, 1);
            machine.work(slot, 0, start, 500 * MS);
        }
        let device = machine.device(0);
        assert_eq!(
            machine.compute(device).iter().map(|entry| entry.pid).collect::<Vec<_>>(),
            listed,
            "{pids}"
        );
        let since = machine.library.view.epoch_us + start / 1000;
        let used = machine.used_by(device, since).unwrap();
        assert_eq!(used.iter().map(|entry| entry.pid).collect::<Vec<_>>(), sampled, "{pids}");
    }
}

#[test]
fn the_environment_sets_the_windows() {
    for (each, samples) in [(0, "one"), (1, "each")] {
        let windows = [("SIMGPU_NVML_WINDOW_MS", "20"), ("SIMGPU_NVML_LAG_MS", "40")];
        let machine = machine(&[windows[0], windows[1], ("SIMGPU_NVML_SAMPLES", samples)]);
        let mut state = machine.library.shared.lock();
        let config = *state.engine(0).config();
        assert_eq!((config.sample_period_ns, config.sample_lag_ns), (20 * MS, 40 * MS));
        assert_eq!(config.sample_each, each);
    }
}

#[test]
fn a_watcher_changes_the_machine_only_when_asked_to_and_no_process_uses_it() {
    let machine = machine(&[("SIMGPU_DEVICES", "2")]);
    let opened = |pairs: &[(&str, &str)]| {
        let library = NvmlLibrary::open(machine.path.clone(), variables(pairs)).unwrap();
        let state = library.shared.lock();
        state.settings.count()
    };
    assert_eq!(opened(&[]), 2);
    let slot = machine.process(100, 0, 1);
    assert_eq!(opened(&[("SIMGPU_DEVICES", "3")]), 2, "somebody uses it");
    machine.library.shared.life_lock(slot).unwrap().unlock();
    assert_eq!(opened(&[("SIMGPU_DEVICES", "3")]), 3);
}

#[test]
fn a_state_file_that_took_the_place_of_the_old_one_is_noticed() {
    let machine = machine(&[]);
    assert!(!machine.library.replaced());
    std::fs::remove_file(&machine.path).unwrap();
    assert!(!machine.library.replaced(), "there is none to change to");
    std::fs::write(&machine.path, b"").unwrap();
    assert!(machine.library.replaced());
}
