//! Tests of the order of work within a client.

use super::*;

#[test]
fn work_of_a_stream_runs_in_order_one_after_the_other() {
    let mut d = plain_device();
    let c = d.add_client(1, T0).unwrap();
    let s = d.add_stream(c, StreamKind::NonBlocking).unwrap();
    let mut events = Vec::new();
    for ns in [5 * MS, 10, 3 * US] {
        d.enqueue(s, Work::Kernel { ns, occupancy: 1 }, T0).unwrap();
        events.push(mark(&mut d, c, s, T0));
    }
    let now = T0 + S;
    let times: Vec<_> = events.iter().map(|&e| time(&mut d, e, now).unwrap()).collect();
    assert_eq!(times, [5 * MS, 5 * MS + 10, 5 * MS + 10 + 3 * US]);
}

#[test]
fn small_kernels_of_different_streams_overlap_at_full_speed() {
    let mut d = plain_device();
    let c = d.add_client(1, T0).unwrap();
    let mut events = Vec::new();
    for _ in 0..4 {
        let s = d.add_stream(c, StreamKind::NonBlocking).unwrap();
        d.enqueue(s, Work::Kernel { ns: MS, occupancy: 250 }, T0).unwrap();
        events.push(mark(&mut d, c, s, T0));
    }
    for e in events {
        assert_eq!(time(&mut d, e, T0 + S), Some(MS));
    }
    let truth = d.client_truth(c, T0 + S).unwrap();
    assert_eq!((truth.busy_ns, truth.kernel_ns, truth.launches), (MS, 4 * MS, 4));
}

#[test]
fn kernels_that_do_not_fit_side_by_side_take_turns() {
    let mut d = plain_device();
    let c = d.add_client(1, T0).unwrap();
    let mut events = Vec::new();
    for _ in 0..3 {
        let s = d.add_stream(c, StreamKind::NonBlocking).unwrap();
        d.enqueue(s, Work::Kernel { ns: MS, occupancy: 400 }, T0).unwrap();
        events.push(mark(&mut d, c, s, T0));
    }
    let times: Vec<_> = events.iter().map(|&e| time(&mut d, e, T0 + S).unwrap()).collect();
    assert_eq!(times, [MS, MS, 2 * MS]);
}

#[test]
fn no_more_kernels_run_side_by_side_than_configured() {
    let mut d = plain_device();
    let config = DeviceConfig { concurrent: 2, ..*d.config() };
    d.set_config(config, T0);
    let c = d.add_client(1, T0).unwrap();
    for _ in 0..6 {
        let s = d.add_stream(c, StreamKind::NonBlocking).unwrap();
        d.enqueue(s, Work::Kernel { ns: MS, occupancy: 1 }, T0).unwrap();
    }
    assert_eq!(wait(&mut d, Target::Client(c), T0).0, T0 + 3 * MS);
}

#[test]
fn a_blocking_stream_waits_for_earlier_legacy_work_and_legacy_work_for_it() {
    let mut d = plain_device();
    let c = d.add_client(1, T0).unwrap();
    let legacy = d.legacy_stream(c).unwrap();
    let a = d.add_stream(c, StreamKind::Blocking).unwrap();
    let b = d.add_stream(c, StreamKind::Blocking).unwrap();
    let small = Work::Kernel { ns: MS, occupancy: 1 };
    d.enqueue(a, small, T0).unwrap();
    d.enqueue(legacy, small, T0).unwrap();
    let in_legacy = mark(&mut d, c, legacy, T0);
    d.enqueue(b, small, T0).unwrap();
    d.enqueue(a, small, T0).unwrap();
    let (in_a, in_b) = (mark(&mut d, c, a, T0), mark(&mut d, c, b, T0));
    let now = T0 + S;
    assert_eq!(time(&mut d, in_legacy, now), Some(2 * MS));
    assert_eq!(time(&mut d, in_a, now), Some(3 * MS));
    assert_eq!(time(&mut d, in_b, now), Some(3 * MS));
}

#[test]
fn a_non_blocking_stream_does_not_know_of_the_legacy_stream() {
    let mut d = plain_device();
    let c = d.add_client(1, T0).unwrap();
    let legacy = d.legacy_stream(c).unwrap();
    let free = d.add_stream(c, StreamKind::NonBlocking).unwrap();
    let small = Work::Kernel { ns: MS, occupancy: 1 };
    d.enqueue(legacy, small, T0).unwrap();
    d.enqueue(free, small, T0).unwrap();
    d.enqueue(legacy, small, T0).unwrap();
    let (f, l) = (mark(&mut d, c, free, T0), mark(&mut d, c, legacy, T0));
    assert_eq!(time(&mut d, f, T0 + S), Some(MS));
    assert_eq!(time(&mut d, l, T0 + S), Some(2 * MS));
}

#[test]
fn the_legacy_stream_of_one_client_does_not_hold_another_client() {
    let mut d = plain_device();
    let (a, b) = (d.add_client(1, T0).unwrap(), d.add_client(2, T0).unwrap());
    let legacy = d.legacy_stream(a).unwrap();
    d.enqueue(legacy, Work::Host { token: 1 }, T0).unwrap();
    let s = d.add_stream(b, StreamKind::Blocking).unwrap();
    d.enqueue(s, kernel(MS), T0).unwrap();
    assert_eq!(wait(&mut d, Target::Client(b), T0).0, T0 + MS);
}

#[test]
fn the_legacy_stream_is_idle_only_when_blocking_streams_are() {
    let mut d = plain_device();
    let c = d.add_client(1, T0).unwrap();
    let legacy = d.legacy_stream(c).unwrap();
    let s = d.add_stream(c, StreamKind::Blocking).unwrap();
    d.enqueue(s, kernel(MS), T0).unwrap();
    assert_eq!(wait(&mut d, Target::Stream(legacy), T0).0, T0 + MS);
    let free = d.add_stream(c, StreamKind::NonBlocking).unwrap();
    d.enqueue(free, kernel(MS), T0 + MS).unwrap();
    assert_eq!(d.completion(Target::Stream(legacy), T0 + MS), Ok(Completion::Done));
}

#[test]
fn a_copy_runs_beside_a_kernel_and_two_copies_one_way_take_turns() {
    let mut d = plain_device();
    let c = d.add_client(1, T0).unwrap();
    let bytes = 25_000 * 1000; // one millisecond
    let mut at = |work| {
        let s = d.add_stream(c, StreamKind::NonBlocking).unwrap();
        d.enqueue(s, work, T0).unwrap();
        mark(&mut d, c, s, T0)
    };
    let k = at(kernel(MS));
    let up = at(Work::Copy { direction: Direction::HostToDevice, bytes });
    let up_too = at(Work::Copy { direction: Direction::HostToDevice, bytes });
    let down = at(Work::Copy { direction: Direction::DeviceToHost, bytes });
    let now = T0 + S;
    let times = [k, up, up_too, down].map(|e| time(&mut d, e, now).unwrap());
    assert_eq!(times, [MS, MS, 2 * MS, MS]);
    let truth = d.client_truth(c, now).unwrap();
    assert_eq!((truth.busy_ns, truth.memory_busy_ns), (MS, 2 * MS));
}

#[test]
fn a_fill_takes_the_multiprocessors_and_is_told_apart_from_kernels() {
    let mut d = plain_device();
    let c = d.add_client(1, T0).unwrap();
    let s = d.legacy_stream(c).unwrap();
    let other = d.add_stream(c, StreamKind::NonBlocking).unwrap();
    d.enqueue(s, Work::Fill { bytes: 1_000_000_000 }, T0).unwrap();
    d.enqueue(other, kernel(MS), T0).unwrap();
    assert_eq!(wait(&mut d, Target::Client(c), T0).0, T0 + 2 * MS);
    let truth = d.client_truth(c, T0 + S).unwrap();
    assert_eq!((truth.busy_ns, truth.kernel_busy_ns, truth.kernel_ns), (2 * MS, MS, MS));
    assert_eq!((truth.memory_busy_ns, truth.launches), (MS, 1));
}

#[test]
fn a_graph_is_one_item_with_gaps_between_its_kernels() {
    let mut d = plain_device();
    let c = d.add_client(1, T0).unwrap();
    let s = d.legacy_stream(c).unwrap();
    d.enqueue(s, Work::Graph { kernels_ns: MS, nodes: 11, occupancy: 1000 }, T0).unwrap();
    assert_eq!(wait(&mut d, Target::Stream(s), T0).0, T0 + MS + 15 * US);
    assert_eq!(d.client_truth(c, T0 + S).unwrap().launches, 11);
}

#[test]
fn a_host_function_holds_its_stream_until_it_is_finished() {
    let mut d = plain_device();
    let c = d.add_client(1, T0).unwrap();
    let s = d.add_stream(c, StreamKind::NonBlocking).unwrap();
    d.enqueue(s, kernel(MS), T0).unwrap();
    d.enqueue(s, Work::Host { token: 77 }, T0).unwrap();
    d.enqueue(s, kernel(MS), T0).unwrap();
    assert_eq!(d.next_host_call(c, T0), None);
    assert_eq!(d.completion(Target::Stream(s), T0 + MS), Ok(Completion::NeedsHost));
    let call = d.next_host_call(c, T0 + 5 * MS).unwrap();
    assert_eq!(call, HostCall { stream: s, token: 77 });
    assert_eq!(d.next_host_call(c, T0 + 5 * MS), None);
    assert_eq!(d.completion(Target::Stream(s), T0 + 6 * MS), Ok(Completion::NeedsHost));
    d.finish_host_call(call, T0 + 7 * MS).unwrap();
    assert_eq!(d.finish_host_call(call, T0 + 7 * MS), Err(UnknownId));
    assert_eq!(wait(&mut d, Target::Stream(s), T0 + 7 * MS).0, T0 + 8 * MS);
}

#[test]
fn a_marker_is_done_when_everything_before_it_is() {
    let mut d = plain_device();
    let c = d.add_client(1, T0).unwrap();
    let s = d.legacy_stream(c).unwrap();
    d.enqueue(s, kernel(MS), T0).unwrap();
    let marker = d.enqueue(s, Work::Marker, T0).unwrap();
    d.enqueue(s, kernel(MS), T0).unwrap();
    assert_eq!(d.completion(Target::Ticket(marker), T0 + MS - 1), Ok(Completion::NotBefore(T0 + MS)));
    assert_eq!(d.completion(Target::Ticket(marker), T0 + MS), Ok(Completion::Done));
}

#[test]
fn a_destroyed_stream_still_does_its_work() {
    let mut d = plain_device();
    let c = d.add_client(1, T0).unwrap();
    let s = d.add_stream(c, StreamKind::NonBlocking).unwrap();
    let ticket = d.enqueue(s, kernel(MS), T0).unwrap();
    d.remove_stream(s, T0).unwrap();
    assert_eq!(d.enqueue(s, kernel(MS), T0), Err(EnqueueError::NoStream));
    assert_eq!(d.completion(Target::Ticket(ticket), T0 + MS - 1), Ok(Completion::NotBefore(T0 + MS)));
    assert_eq!(d.completion(Target::Ticket(ticket), T0 + MS), Ok(Completion::Done));
    assert_eq!(busy(&mut d, c, T0 + S), MS);
    let again = d.add_stream(c, StreamKind::NonBlocking).unwrap();
    assert_ne!(again, s);
    assert_eq!(d.completion(Target::Stream(s), T0 + S), Err(UnknownId));
    let legacy = d.legacy_stream(c).unwrap();
    assert_eq!(d.remove_stream(legacy, T0 + S), Err(UnknownId));
}
