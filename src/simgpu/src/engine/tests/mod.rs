//! Tests the engine in virtual time.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "the numbers of the tests are small"
)]

use super::*;

mod collectives;
mod events;
mod faults;
mod queues;
mod random;
mod samples;
mod slices;
mod streams;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;
/// Start of the tests. The machine has been up for some time.
const T0: u64 = 1_000 * S;

/// Makes a device as in a new file: all bytes are zero.
fn device() -> Box<EngineState> {
    let layout = std::alloc::Layout::new::<EngineState>();
    // SAFETY: `alloc_zeroed` needs a layout whose size is not zero. `EngineState` has such a size.
    let memory = unsafe { std::alloc::alloc_zeroed(layout) }.cast::<EngineState>();
    assert!(!memory.is_null());
    // SAFETY: `from_raw` needs a valid value from the global allocator, with the type's layout. `alloc_zeroed` made it with that
    // layout, and the type consists of integers for which zero is valid.
    unsafe { Box::from_raw(memory) }
}

/// Makes a device without overheads, so that all times in the tests are round numbers.
fn plain_device() -> Box<EngineState> {
    let mut state = device();
    let config = DeviceConfig {
        slice_ns: 2 * MS,
        switch_ns: 0,
        event_resolution_ns: 1,
        event_ns: 0,
        copy_overhead_ns: 0,
        ..DeviceConfig::DEFAULT
    };
    state.set_config(config, T0);
    state
}

fn kernel(ns: u64) -> Work {
    Work::Kernel { ns, occupancy: WHOLE_DEVICE }
}

/// Enqueues a record of a new event at the instant `at`.
fn mark(state: &mut EngineState, client: ClientId, stream: StreamId, at: u64) -> EventId {
    let event = state.add_event(client).unwrap();
    state.enqueue(stream, Work::Record(event), at).unwrap();
    event
}

/// Returns the instant of an event's completion, in nanoseconds after the start of the test.
fn time(state: &mut EngineState, event: EventId, now: u64) -> Option<u64> {
    match state.event_status(event, now).unwrap() {
        EventStatus::Done { time_ns } => Some(time_ns - T0),
        _ => None,
    }
}

fn busy(state: &mut EngineState, client: ClientId, now: u64) -> u64 {
    state.client_truth(client, now).unwrap().busy_ns
}

/// Sleeps as the engine says until the target is complete. Returns the instant and the number of wake-ups.
fn wait(state: &mut EngineState, target: Target, from: u64) -> (u64, u32) {
    let (mut now, mut woken) = (from, 0);
    loop {
        match state.completion(target, now).unwrap() {
            Completion::Done => return (now, woken),
            Completion::NotBefore(instant) => {
                assert!(instant > now);
                now = instant;
            }
            Completion::NeedsHost => panic!("stuck at {now}"),
        }
        woken += 1;
        assert!(woken < 1_000_000);
    }
}

#[test]
fn a_state_of_zeroes_is_a_device_with_the_usual_properties() {
    let state = device();
    assert_eq!(*state.config(), DeviceConfig::DEFAULT);
    assert_eq!(DeviceConfig::DEFAULT, DeviceConfig::DEFAULT.checked());
}

#[test]
fn the_state_of_a_device_stays_below_its_bound() {
    assert!(size_of::<EngineState>() < 20 << 20, "{}", size_of::<EngineState>());
}
