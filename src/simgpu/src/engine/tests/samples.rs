//! Tests of NVML utilisation.

use super::*;

const PERIOD: u64 = 100 * MS;

fn sampled_device() -> (Box<EngineState>, ClientId, StreamId) {
    let mut d = plain_device();
    let config = DeviceConfig { sample_period_ns: PERIOD, sample_each: 1, ..*d.config() };
    d.set_config(config, T0);
    let (c, s) = join(&mut d, 42);
    (d, c, s)
}

/// Makes a new process on the device, with a stream.
fn join(d: &mut EngineState, pid: u32) -> (ClientId, StreamId) {
    let c = d.add_client(pid, T0).unwrap();
    (c, d.legacy_stream(c).unwrap())
}

fn processes(d: &mut EngineState, now: u64, since_ns: u64) -> Vec<(u64, u32, u32)> {
    let mut all = Vec::new();
    let mut give = |s: ProcessSample| all.push(((s.timestamp_us * 1000).wrapping_sub(T0) / MS, s.pid, s.sm));
    d.process_samples(now, since_ns / 1000, &mut give);
    all
}

#[test]
fn utilisation_is_the_floor_of_the_busy_share_of_the_last_whole_window() {
    let (mut d, _, s) = sampled_device();
    d.enqueue(s, kernel(39_999 * US), T0 + 10 * MS).unwrap();
    assert_eq!(d.utilization(T0 + 99 * MS).gpu, 0);
    assert_eq!(d.utilization(T0 + 100 * MS).gpu, 39);
    assert_eq!(d.utilization(T0 + 199 * MS).gpu, 39);
    assert_eq!(d.utilization(T0 + 200 * MS).gpu, 0);
}

#[test]
fn a_process_without_activity_has_no_sample() {
    let (mut d, _, s) = sampled_device();
    let other = d.add_client(43, T0).unwrap();
    d.enqueue(s, kernel(150 * MS), T0).unwrap();
    assert_eq!(processes(&mut d, T0 + 99 * MS, 0), []);
    assert_eq!(processes(&mut d, T0 + S, 0), [(100, 42, 100), (200, 42, 50)]);
    d.remove_client(other, T0 + S).unwrap();
}

#[test]
fn samples_that_were_seen_are_not_given_again() {
    let (mut d, _, s) = sampled_device();
    d.enqueue(s, kernel(150 * MS), T0).unwrap();
    assert_eq!(processes(&mut d, T0 + S, T0 + 100 * MS), [(200, 42, 50)]);
    assert_eq!(processes(&mut d, T0 + S, T0 + 200 * MS), []);
}

#[test]
fn each_process_is_charged_with_its_own_slices_only() {
    let (mut d, _, s) = sampled_device();
    let (_, other) = join(&mut d, 43);
    d.enqueue(s, kernel(S), T0).unwrap();
    d.enqueue(other, kernel(S), T0).unwrap();
    assert_eq!(processes(&mut d, T0 + 100 * MS, 0), [(100, 42, 50), (100, 43, 50)]);
    assert_eq!(d.utilization(T0 + 100 * MS).gpu, 100);
}

/// Makes a device where a window names only one process for each engine.
fn device_that_names_one() -> (Box<EngineState>, ClientId, StreamId) {
    let (mut d, c, s) = sampled_device();
    // The period is not a multiple of a time slice. So windows end in the slices of both processes.
    let config = DeviceConfig { sample_each: 0, slice_ns: 3 * MS, ..*d.config() };
    d.set_config(config, T0);
    (d, c, s)
}

#[test]
fn a_window_names_the_process_whose_turn_its_end_is_with_all_of_the_engines_use() {
    let (mut d, _, s) = device_that_names_one();
    let (_, other) = join(&mut d, 43);
    d.enqueue(s, kernel(S), T0).unwrap();
    d.enqueue(other, kernel(S), T0).unwrap();
    let named = processes(&mut d, T0 + 600 * MS, 0);
    // The slices take 3 ms. The first window ends in the 34th slice, which belongs to the second process. The second
    // window ends in the 67th slice.
    let turns = [100, 200, 300, 400, 500, 600].map(|end| (end, 42 + u32::from((end - 1) / 3 % 2 == 1), 100));
    assert_eq!(named, turns);
    assert!(named.iter().any(|(_, pid, _)| *pid == 42) && named.iter().any(|(_, pid, _)| *pid == 43));
}

#[test]
fn a_window_that_ends_in_a_pause_names_the_process_that_ran_last() {
    let (mut d, _, s) = device_that_names_one();
    let (_, other) = join(&mut d, 43);
    d.enqueue(s, kernel(30 * MS), T0).unwrap();
    d.enqueue(other, kernel(10 * MS), T0 + 40 * MS).unwrap();
    assert_eq!(processes(&mut d, T0 + 200 * MS, 0), [(100, 43, 40)], "and an idle window names no process");
}

#[test]
fn each_engine_names_its_own_process() {
    let (mut d, _, s) = device_that_names_one();
    let (_, other) = join(&mut d, 43);
    d.enqueue(s, kernel(30 * MS), T0).unwrap();
    d.enqueue(other, Work::Copy { direction: Direction::HostToDevice, bytes: 25_000 * 20_000 }, T0).unwrap();
    let mut seen = Vec::new();
    d.process_samples(T0 + 100 * MS, 0, |s| seen.push((s.pid, s.sm, s.memory)));
    assert_eq!(seen, [(42, 30, 0), (43, 0, 20)]);
}

#[test]
fn of_processes_the_newest_windows_are_remembered() {
    let (mut d, _, s) = sampled_device();
    d.enqueue(s, kernel(100 * S), T0).unwrap();
    let ends = processes(&mut d, T0 + 20 * S, 0).into_iter().map(|(end, ..)| end);
    assert_eq!(ends.collect::<Vec<_>>(), (129..=200).map(|end| end * 100).collect::<Vec<_>>());
}

#[test]
fn two_contexts_of_one_process_make_one_sample() {
    let (mut d, _, s) = sampled_device();
    let (_, other) = join(&mut d, 42);
    d.enqueue(s, kernel(20 * MS), T0).unwrap();
    d.enqueue(other, kernel(30 * MS), T0).unwrap();
    assert_eq!(processes(&mut d, T0 + 100 * MS, 0), [(100, 42, 50)]);
}

#[test]
fn a_lagging_sampler_shows_its_samples_late() {
    let (mut d, _, s) = sampled_device();
    let config = DeviceConfig { sample_lag_ns: 250 * MS, ..*d.config() };
    d.set_config(config, T0);
    d.enqueue(s, kernel(50 * MS), T0).unwrap();
    assert_eq!(processes(&mut d, T0 + 349 * MS, 0), []);
    assert_eq!(d.utilization(T0 + 349 * MS).gpu, 0);
    assert_eq!(processes(&mut d, T0 + 350 * MS, 0), [(100, 42, 50)]);
    assert_eq!(d.utilization(T0 + 350 * MS).gpu, 50);
}

#[test]
fn copies_and_fills_show_as_memory_utilisation() {
    let (mut d, c, s) = sampled_device();
    let up = d.add_stream(c, StreamKind::NonBlocking).unwrap();
    let copy = Work::Copy { direction: Direction::HostToDevice, bytes: 25_000 * 20_000 };
    d.enqueue(up, copy, T0).unwrap();
    d.enqueue(s, kernel(20 * MS), T0).unwrap();
    d.enqueue(s, Work::Fill { bytes: 10_000_000_000 }, T0).unwrap();
    let sample = d.utilization(T0 + 100 * MS);
    assert_eq!((sample.gpu, sample.memory), (30, 30));
    let mut seen = Vec::new();
    assert_eq!(d.process_samples(T0 + 100 * MS, 0, |s| seen.push((s.sm, s.memory))), 1);
    assert_eq!(seen, [(30, 30)]);
}

#[test]
fn idle_windows_have_device_samples_and_old_ones_are_forgotten() {
    let (mut d, _, s) = sampled_device();
    d.enqueue(s, kernel(50 * MS), T0).unwrap();
    let mut seen = Vec::new();
    d.device_samples(T0 + S, 0, |s| seen.push(s.gpu));
    assert_eq!(seen, [50, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    seen.clear();
    d.device_samples(T0 + 3600 * S, 0, |s| seen.push(s.gpu));
    assert_eq!(seen, [0; DEVICE_SAMPLES]);
}
