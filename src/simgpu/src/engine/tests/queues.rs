//! Tests the depth of queues, the sleep of callers, and the cost of calls.

use super::*;

#[test]
fn a_full_queue_asks_the_caller_to_come_back_when_its_oldest_item_is_done() {
    let mut d = plain_device();
    let c = d.add_client(1, T0).unwrap();
    let s = d.legacy_stream(c).unwrap();
    for _ in 0..1024 {
        d.enqueue(s, kernel(MS), T0).unwrap();
    }
    let full = EnqueueError::WouldBlock { retry_at: T0 + MS };
    assert_eq!(d.enqueue(s, kernel(MS), T0), Err(full));
    assert_eq!(d.enqueue(s, kernel(MS), T0 + MS - 1), Err(full));
    assert!(d.enqueue(s, kernel(MS), T0 + MS).is_ok());
    assert!(d.enqueue(s, kernel(MS), T0 + MS).is_err());
}

#[test]
fn a_full_client_has_no_room_on_its_other_streams() {
    let mut d = plain_device();
    let config = DeviceConfig { client_depth: 8, ..*d.config() };
    d.set_config(config, T0);
    let c = d.add_client(1, T0).unwrap();
    let [a, b] = [(); 2].map(|()| d.add_stream(c, StreamKind::NonBlocking).unwrap());
    for _ in 0..8 {
        d.enqueue(a, kernel(MS), T0).unwrap();
    }
    let full = EnqueueError::WouldBlock { retry_at: T0 + MS };
    assert_eq!(d.enqueue(b, kernel(MS), T0), Err(full));
    let other = d.add_client(2, T0).unwrap();
    let s = d.legacy_stream(other).unwrap();
    assert!(d.enqueue(s, kernel(MS), T0).is_ok());
}

#[test]
fn a_queue_behind_a_host_function_is_asked_for_again_and_again() {
    let mut d = plain_device();
    let c = d.add_client(1, T0).unwrap();
    let s = d.legacy_stream(c).unwrap();
    d.enqueue(s, Work::Host { token: 0 }, T0).unwrap();
    while d.enqueue(s, Work::Marker, T0).is_ok() {}
    assert_eq!(d.enqueue(s, Work::Marker, T0), Err(EnqueueError::WouldBlock { retry_at: T0 + MS }));
}

#[test]
fn when_every_place_of_the_device_is_taken_callers_wait() {
    let mut d = plain_device();
    let config = DeviceConfig { stream_depth: u32::MAX, client_depth: u32::MAX, ..*d.config() };
    d.set_config(config, T0);
    let c = d.add_client(1, T0).unwrap();
    let s = d.legacy_stream(c).unwrap();
    for _ in 0..ITEMS {
        d.enqueue(s, kernel(10), T0).unwrap();
    }
    assert_eq!(d.enqueue(s, kernel(10), T0), Err(EnqueueError::WouldBlock { retry_at: T0 + 10 }));
    assert!(d.enqueue(s, kernel(10), T0 + 10).is_ok());
}

#[test]
fn full_tables_refuse_and_take_again_after_a_release() {
    let mut d = plain_device();
    let clients: Vec<_> = (0..CLIENTS).map(|pid| d.add_client(pid as u32, T0).unwrap()).collect();
    assert_eq!(d.add_client(1, T0), Err(Refused::Full));
    let mut streams = Vec::new();
    while let Ok(s) = d.add_stream(clients[0], StreamKind::Blocking) {
        streams.push(s);
    }
    assert_eq!(streams.len(), STREAMS - CLIENTS);
    let mut events = 0;
    while d.add_event(clients[1]).is_ok() {
        events += 1;
    }
    assert_eq!(events, EVENTS);
    assert_eq!(d.add_event(clients[2]), Err(Refused::Full));
    d.remove_client(clients[1], T0).unwrap();
    assert!(d.add_event(clients[2]).is_ok());
    assert!(d.add_client(1, T0).is_ok());
    d.remove_stream(streams[5], T0).unwrap();
    assert!(d.add_stream(clients[2], StreamKind::Blocking).is_ok());
}

#[test]
fn a_sleeper_without_neighbours_wakes_once_at_the_completion() {
    let mut d = plain_device();
    let c = d.add_client(1, T0).unwrap();
    let s = d.add_stream(c, StreamKind::NonBlocking).unwrap();
    for _ in 0..500 {
        d.enqueue(s, kernel(10 * US), T0).unwrap();
    }
    let middle = mark(&mut d, c, s, T0);
    for _ in 0..500 {
        d.enqueue(s, kernel(10 * US), T0).unwrap();
    }
    let now = T0 + 1234;
    assert_eq!(wait(&mut d, Target::Event(middle), now), (T0 + 5 * MS, 1));
    assert_eq!(wait(&mut d, Target::Client(c), T0 + 5 * MS + 1), (T0 + 10 * MS, 1));
    assert_eq!(d.completion(Target::Client(c), T0 + 10 * MS), Ok(Completion::Done));
}

#[test]
fn a_context_with_many_streams_sleeps_for_the_time_they_need_together() {
    let mut d = plain_device();
    let c = d.add_client(1, T0).unwrap();
    for _ in 0..10 {
        let s = d.add_stream(c, StreamKind::NonBlocking).unwrap();
        d.enqueue(s, kernel(MS), T0).unwrap();
    }
    assert_eq!(wait(&mut d, Target::Client(c), T0), (T0 + 10 * MS, 1));
}

#[test]
fn a_hundred_thousand_small_kernels_a_second_are_no_trouble() {
    let mut d = device();
    let config = DeviceConfig { stream_depth: u32::MAX, client_depth: u32::MAX, ..DeviceConfig::DEFAULT };
    d.set_config(config, T0);
    let c = d.add_client(1, T0).unwrap();
    let s = d.add_stream(c, StreamKind::Blocking).unwrap();
    for _ in 0..100_000 {
        d.enqueue(s, kernel(10 * US), T0).unwrap();
    }
    let truth = d.client_truth(c, T0 + S).unwrap();
    assert_eq!((truth.busy_ns, truth.launches, truth.queued), (S, 100_000, 0));
}

#[test]
fn a_year_of_idleness_and_a_distant_future_cost_nothing() {
    let mut d = device();
    let c = d.add_client(1, T0).unwrap();
    let s = d.legacy_stream(c).unwrap();
    d.enqueue(s, kernel(MS), T0).unwrap();
    d.advance(T0 + 365 * 86_400 * S);
    d.enqueue(s, kernel(u64::MAX), T0 + 366 * 86_400 * S).unwrap();
    d.enqueue(s, kernel(u64::MAX), u64::MAX).unwrap();
    d.enqueue(s, Work::Fill { bytes: u64::MAX }, u64::MAX).unwrap();
    d.enqueue(s, Work::Graph { kernels_ns: u64::MAX, nodes: u32::MAX, occupancy: u16::MAX }, u64::MAX)
        .unwrap();
    d.advance(u64::MAX);
    assert!(matches!(d.completion(Target::Stream(s), 0), Ok(Completion::NotBefore(_))));
}

#[test]
fn an_instant_in_the_past_changes_nothing() {
    let mut d = plain_device();
    let c = d.add_client(1, T0).unwrap();
    let s = d.legacy_stream(c).unwrap();
    d.enqueue(s, kernel(10 * MS), T0).unwrap();
    assert_eq!(busy(&mut d, c, T0 + 3 * MS), 3 * MS);
    assert_eq!(busy(&mut d, c, T0), 3 * MS);
    assert_eq!(d.clock_ns(), T0 + 3 * MS);
}
