//! Tests of events.

use super::*;

#[test]
fn an_event_completes_with_the_work_before_it() {
    let mut d = plain_device();
    let c = d.add_client(1, T0).unwrap();
    let s = d.legacy_stream(c).unwrap();
    d.enqueue(s, kernel(MS), T0).unwrap();
    let e = mark(&mut d, c, s, T0);
    d.enqueue(s, kernel(MS), T0).unwrap();
    assert_eq!(d.event_status(e, T0 + MS - 1), Ok(EventStatus::Pending));
    assert_eq!(time(&mut d, e, T0 + MS), Some(MS));
}

#[test]
fn an_event_on_an_idle_stream_completes_at_once() {
    let mut d = plain_device();
    let c = d.add_client(1, T0).unwrap();
    let s = d.legacy_stream(c).unwrap();
    let e = mark(&mut d, c, s, T0 + 123);
    assert_eq!(time(&mut d, e, T0 + 123), Some(123));
}

#[test]
fn event_times_are_multiples_of_the_resolution() {
    let mut d = plain_device();
    let config = DeviceConfig { event_resolution_ns: 500, ..*d.config() };
    d.set_config(config, T0);
    let c = d.add_client(1, T0).unwrap();
    let s = d.legacy_stream(c).unwrap();
    let a = mark(&mut d, c, s, T0 + 100);
    d.enqueue(s, kernel(1450), T0 + 100).unwrap();
    let b = mark(&mut d, c, s, T0 + 100);
    assert_eq!(d.elapsed_ns(a, b, T0 + S), Ok(1500));
    assert_eq!(d.elapsed_ns(b, a, T0 + S), Ok(-1500));
}

#[test]
fn an_event_keeps_its_stream_and_the_kernel_that_waits_for_it_counts_as_running() {
    let mut d = plain_device();
    d.set_config(DeviceConfig { event_ns: 1000, ..*d.config() }, T0);
    let c = d.add_client(1, T0).unwrap();
    let (s, other) = (d.legacy_stream(c).unwrap(), d.add_stream(c, StreamKind::NonBlocking).unwrap());
    mark(&mut d, c, other, T0);
    let before = mark(&mut d, c, s, T0);
    d.enqueue(s, kernel(MS), T0).unwrap();
    let between = [mark(&mut d, c, s, T0), mark(&mut d, c, s, T0)][1];
    d.enqueue(s, kernel(MS), T0).unwrap();
    d.enqueue(s, kernel(MS), T0).unwrap();
    let end = mark(&mut d, c, s, T0);
    assert_eq!(time(&mut d, before, T0 + S), Some(0));
    assert_eq!(time(&mut d, between, T0 + S), Some(MS + 2000));
    assert_eq!(time(&mut d, end, T0 + S), Some(3 * MS + 3000));
    assert_eq!(busy(&mut d, c, T0 + S), 3 * MS + 3000);
}

#[test]
fn the_cost_of_an_event_passes_on_an_idle_stream() {
    let mut d = plain_device();
    d.set_config(DeviceConfig { event_ns: 1000, ..*d.config() }, T0);
    let c = d.add_client(1, T0).unwrap();
    let s = d.legacy_stream(c).unwrap();
    let first = mark(&mut d, c, s, T0);
    let second = mark(&mut d, c, s, T0);
    assert_eq!(d.elapsed_ns(first, second, T0), Ok(1000));
    d.enqueue(s, kernel(MS), T0 + 10_000).unwrap();
    let end = mark(&mut d, c, s, T0 + 10_000);
    assert_eq!(time(&mut d, end, T0 + S), Some(10_000 + MS));
    assert_eq!(busy(&mut d, c, T0 + S), MS);
}

#[test]
fn a_device_clock_that_runs_fast_shows_in_event_times() {
    let mut d = plain_device();
    let config = DeviceConfig { event_skew_ppm: 100, ..*d.config() };
    d.set_config(config, T0);
    let c = d.add_client(1, T0).unwrap();
    let s = d.legacy_stream(c).unwrap();
    let a = mark(&mut d, c, s, T0);
    d.enqueue(s, kernel(10 * MS), T0).unwrap();
    let b = mark(&mut d, c, s, T0);
    assert_eq!(d.elapsed_ns(a, b, T0 + S), Ok(10 * MS as i64 + 1000));
}

#[test]
fn there_is_no_time_without_two_complete_records() {
    let mut d = plain_device();
    let c = d.add_client(1, T0).unwrap();
    let s = d.legacy_stream(c).unwrap();
    let fresh = d.add_event(c).unwrap();
    let done = mark(&mut d, c, s, T0);
    d.enqueue(s, kernel(MS), T0).unwrap();
    let pending = mark(&mut d, c, s, T0);
    assert_eq!(d.elapsed_ns(done, fresh, T0), Err(ElapsedError::NotRecorded));
    assert_eq!(d.elapsed_ns(done, pending, T0), Err(ElapsedError::NotReady));
    d.remove_event(done).unwrap();
    assert_eq!(d.elapsed_ns(done, pending, T0 + S), Err(ElapsedError::NoEvent));
}

#[test]
fn a_second_record_takes_the_event_over() {
    let mut d = plain_device();
    let c = d.add_client(1, T0).unwrap();
    let s = d.legacy_stream(c).unwrap();
    let e = mark(&mut d, c, s, T0);
    d.enqueue(s, kernel(MS), T0).unwrap();
    d.enqueue(s, Work::Record(e), T0).unwrap();
    d.enqueue(s, kernel(MS), T0).unwrap();
    d.enqueue(s, Work::Record(e), T0).unwrap();
    assert_eq!(d.event_status(e, T0 + MS), Ok(EventStatus::Pending));
    assert_eq!(time(&mut d, e, T0 + S), Some(2 * MS));
}

#[test]
fn a_wait_holds_a_stream_until_the_record_of_another_one() {
    let mut d = plain_device();
    let c = d.add_client(1, T0).unwrap();
    let [a, b] = [(); 2].map(|()| d.add_stream(c, StreamKind::NonBlocking).unwrap());
    d.enqueue(a, Work::Kernel { ns: 3 * MS, occupancy: 1 }, T0).unwrap();
    let e = mark(&mut d, c, a, T0);
    d.enqueue(b, Work::Wait(e), T0).unwrap();
    d.enqueue(b, Work::Kernel { ns: MS, occupancy: 1 }, T0).unwrap();
    let done = mark(&mut d, c, b, T0);
    assert_eq!(d.completion(Target::Event(done), T0), Ok(Completion::NotBefore(T0 + 4 * MS)));
    assert_eq!(time(&mut d, done, T0 + S), Some(4 * MS));
}

#[test]
fn a_wait_is_for_the_record_at_the_time_of_the_call() {
    let mut d = plain_device();
    let c = d.add_client(1, T0).unwrap();
    let [a, b, other] = [(); 3].map(|()| d.add_stream(c, StreamKind::NonBlocking).unwrap());
    d.enqueue(a, Work::Kernel { ns: 3 * MS, occupancy: 1 }, T0).unwrap();
    let e = mark(&mut d, c, a, T0);
    d.enqueue(b, Work::Wait(e), T0).unwrap();
    let after = mark(&mut d, c, b, T0);
    d.enqueue(other, Work::Record(e), T0 + MS).unwrap();
    assert_eq!(time(&mut d, e, T0 + MS), Some(MS));
    assert_eq!(time(&mut d, after, T0 + S), Some(3 * MS));
}

#[test]
fn a_wait_for_an_event_that_was_never_recorded_holds_nothing() {
    let mut d = plain_device();
    let c = d.add_client(1, T0).unwrap();
    let s = d.legacy_stream(c).unwrap();
    let e = d.add_event(c).unwrap();
    let ticket = d.enqueue(s, Work::Wait(e), T0).unwrap();
    assert_eq!(d.completion(Target::Ticket(ticket), T0), Ok(Completion::Done));
    assert_eq!(d.completion(Target::Event(e), T0), Ok(Completion::Done));
}

#[test]
fn a_client_can_wait_for_the_event_of_another_one() {
    let mut d = plain_device();
    let (a, b) = (d.add_client(1, T0).unwrap(), d.add_client(2, T0).unwrap());
    let (sa, sb) = (d.legacy_stream(a).unwrap(), d.legacy_stream(b).unwrap());
    d.enqueue(sa, kernel(3 * MS), T0).unwrap();
    let e = mark(&mut d, a, sa, T0);
    d.enqueue(sb, Work::Wait(e), T0).unwrap();
    d.enqueue(sb, kernel(MS), T0).unwrap();
    assert_eq!(wait(&mut d, Target::Stream(sb), T0).0, T0 + 4 * MS);
}

#[test]
fn a_destroyed_event_still_releases_the_streams_that_wait() {
    let mut d = plain_device();
    let c = d.add_client(1, T0).unwrap();
    let [a, b] = [(); 2].map(|()| d.add_stream(c, StreamKind::NonBlocking).unwrap());
    d.enqueue(a, kernel(MS), T0).unwrap();
    let e = mark(&mut d, c, a, T0);
    let ticket = d.enqueue(b, Work::Wait(e), T0).unwrap();
    d.remove_event(e).unwrap();
    let again = d.add_event(c).unwrap();
    assert_ne!(e, again);
    assert_eq!(wait(&mut d, Target::Ticket(ticket), T0).0, T0 + MS);
    assert_eq!(d.event_status(again, T0 + S), Ok(EventStatus::Fresh));
    assert_eq!(d.event_status(e, T0 + S), Err(UnknownId));
}

#[test]
fn work_can_follow_a_ticket_of_another_stream() {
    let mut d = plain_device();
    let c = d.add_client(1, T0).unwrap();
    let [a, b] = [(); 2].map(|()| d.add_stream(c, StreamKind::NonBlocking).unwrap());
    let first = d.enqueue(a, Work::Kernel { ns: MS, occupancy: 1 }, T0).unwrap();
    d.enqueue(a, Work::Kernel { ns: 9 * MS, occupancy: 1 }, T0).unwrap();
    d.enqueue(b, Work::After(first), T0).unwrap();
    d.enqueue(b, Work::Kernel { ns: MS, occupancy: 1 }, T0).unwrap();
    assert_eq!(wait(&mut d, Target::Stream(b), T0).0, T0 + 2 * MS);
}

#[test]
fn names_survive_as_words() {
    let mut d = plain_device();
    let c = d.add_client(1, T0).unwrap();
    let e = d.add_event(c).unwrap();
    assert_eq!(EventId::from_bits(e.to_bits()), e);
    assert_eq!(ClientId::from_bits(c.to_bits()), c);
    let s = d.legacy_stream(c).unwrap();
    assert_ne!(s.to_bits(), 0);
    assert_eq!(StreamId::from_bits(s.to_bits()), s);
    for bits in [0, 1, u64::MAX, u64::from(u32::MAX), 1 << 32] {
        assert_eq!(d.event_status(EventId::from_bits(bits), T0), Err(UnknownId));
    }
}

#[test]
fn a_shared_event_is_one_event_with_a_name_for_each_client() {
    let mut d = plain_device();
    let [maker, user] = [1, 2].map(|pid| d.add_client(pid, T0).unwrap());
    let [s, other] = [maker, user].map(|client| d.legacy_stream(client).unwrap());
    let made = d.add_event(maker).unwrap();
    let number = d.share_event(made).unwrap();
    assert_eq!(d.share_event(made), Ok(number));
    assert_eq!(d.import_event(user, made, number + 1), Err(Refused::Gone));
    let opened = d.import_event(user, made, number).unwrap();
    assert_eq!(d.event_status(opened, T0), Ok(EventStatus::Fresh));

    d.enqueue(s, kernel(MS), T0).unwrap();
    d.enqueue(s, Work::Record(made), T0).unwrap();
    d.enqueue(other, Work::Wait(opened), T0).unwrap();
    let after = d.enqueue(other, Work::Marker, T0).unwrap();
    assert_eq!(d.event_status(opened, T0 + MS - 1), Ok(EventStatus::Pending));
    assert_eq!(d.completion(Target::Event(opened), T0 + MS - 1), Ok(Completion::NotBefore(T0 + MS)));
    assert_eq!(d.completion(Target::Event(opened), T0 + MS), Ok(Completion::Done));
    assert_eq!(d.completion(Target::Ticket(after), T0 + MS), Ok(Completion::Done));

    d.enqueue(other, kernel(MS), T0 + MS).unwrap();
    d.enqueue(other, Work::Record(opened), T0 + MS).unwrap();
    assert_eq!(d.event_status(made, T0 + MS), Ok(EventStatus::Pending));
    assert!(matches!(d.event_status(made, T0 + 2 * MS), Ok(EventStatus::Done { .. })));
}

#[test]
fn a_shared_event_outlives_the_client_that_made_it() {
    let mut d = plain_device();
    let [maker, user] = [1, 2].map(|pid| d.add_client(pid, T0).unwrap());
    let s = d.legacy_stream(maker).unwrap();
    d.enqueue(s, kernel(S), T0).unwrap();
    let made = mark(&mut d, maker, s, T0);
    let number = d.share_event(made).unwrap();
    let opened = d.import_event(user, made, number).unwrap();
    d.remove_event(made).unwrap();
    assert_eq!(d.import_event(user, made, number), Err(Refused::Gone));
    assert_eq!(d.event_status(opened, T0 + MS), Ok(EventStatus::Pending));
    d.remove_client(maker, T0 + MS).unwrap();
    assert!(matches!(d.event_status(opened, T0 + MS), Ok(EventStatus::Done { .. })));
    let again = d.add_event(user).unwrap();
    assert_eq!(d.event_status(again, T0 + MS), Ok(EventStatus::Fresh));
}
