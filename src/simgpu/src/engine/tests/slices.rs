//! Tests of time slices between clients.

use super::*;

/// Makes two clients. Each has `count` kernels of its length queued at the start.
fn two(d: &mut EngineState, lengths: [u64; 2], counts: [u64; 2]) -> [(ClientId, StreamId); 2] {
    [0, 1].map(|i| {
        let c = d.add_client(i as u32 + 1, T0).unwrap();
        let s = d.legacy_stream(c).unwrap();
        for _ in 0..counts[i] {
            d.enqueue(s, kernel(lengths[i]), T0).unwrap();
        }
        (c, s)
    })
}

#[test]
fn a_client_alone_is_never_interrupted() {
    let mut d = device();
    let c = d.add_client(1, T0).unwrap();
    d.add_client(2, T0).unwrap();
    let s = d.legacy_stream(c).unwrap();
    d.enqueue(s, kernel(10 * S), T0).unwrap();
    assert_eq!(wait(&mut d, Target::Stream(s), T0), (T0 + 10 * S, 1));
    assert_eq!(busy(&mut d, c, T0 + 20 * S), 10 * S);
}

#[test]
fn two_equal_clients_get_half_each_within_a_slice() {
    let mut d = plain_device();
    let [(a, _), (b, _)] = two(&mut d, [MS, MS], [1000, 1000]);
    let slice = d.config().slice_ns;
    for step in 1..2000 {
        let now = T0 + step * 777 * US;
        let (x, y) = (busy(&mut d, a, now), busy(&mut d, b, now));
        assert!(x.abs_diff(y) <= slice, "{x} {y}");
        assert_eq!(x + y, now - T0);
    }
}

#[test]
fn a_turn_is_as_long_as_it_is_set_and_a_pause_comes_before_the_others() {
    let slices = [DeviceConfig::DEFAULT.slice_ns, MS, 2 * MS, 10 * MS, 30 * MS];
    for (slice_ns, switch_ns) in slices.into_iter().flat_map(|slice| [(slice, 0), (slice, 200 * US)]) {
        let mut d = plain_device();
        d.set_config(DeviceConfig { slice_ns, switch_ns, ..*d.config() }, T0);
        let [(a, _), (b, _)] = two(&mut d, [S, S], [1, 1]);
        let end = T0 + 2 * slice_ns + switch_ns;
        assert_eq!((busy(&mut d, a, end), busy(&mut d, b, end)), (slice_ns, slice_ns));
        let later = end + switch_ns + slice_ns / 2;
        assert_eq!((busy(&mut d, a, later), busy(&mut d, b, later)), (slice_ns + slice_ns / 2, slice_ns));
    }
}

#[test]
fn clients_with_kernels_of_different_length_still_get_half_each() {
    for lengths in [[20 * US, 400 * MS], [50 * MS, 3 * US], [7 * MS, 11 * MS]] {
        let mut d = plain_device();
        let [(a, sa), (b, sb)] = two(&mut d, lengths, [100, 100]);
        let mut now = T0;
        while now < T0 + S {
            for (s, ns) in [(sa, lengths[0]), (sb, lengths[1])] {
                while d.enqueue(s, kernel(ns), now).is_ok() {}
            }
            now += MS;
        }
        let (x, y) = (busy(&mut d, a, now), busy(&mut d, b, now));
        assert_eq!(x + y, now - T0);
        assert!(x.abs_diff(y) <= 2 * d.config().slice_ns, "{lengths:?} {x} {y}");
    }
}

#[test]
fn many_clients_take_turns_in_a_round() {
    let mut d = plain_device();
    let clients: Vec<_> = (0..8)
        .map(|pid| {
            let c = d.add_client(pid, T0).unwrap();
            let s = d.legacy_stream(c).unwrap();
            d.enqueue(s, kernel(S), T0).unwrap();
            c
        })
        .collect();
    for (place, &c) in clients.iter().enumerate() {
        let turn = T0 + place as u64 * 2 * MS;
        assert_eq!(busy(&mut d, c, turn), 0);
        assert_eq!(busy(&mut d, c, turn + 2 * MS), 2 * MS);
    }
    for &c in &clients {
        assert_eq!(busy(&mut d, c, T0 + 160 * MS), 20 * MS);
    }
}

#[test]
fn an_event_interval_includes_the_neighbours_slices() {
    let mut d = plain_device();
    let (a, b) = (d.add_client(1, T0).unwrap(), d.add_client(2, T0).unwrap());
    let (sa, sb) = (d.legacy_stream(a).unwrap(), d.legacy_stream(b).unwrap());
    d.enqueue(sb, kernel(S), T0).unwrap();
    let start = mark(&mut d, a, sa, T0);
    d.enqueue(sa, kernel(10 * MS), T0).unwrap();
    let end = mark(&mut d, a, sa, T0);
    assert_eq!(d.elapsed_ns(start, end, T0 + S), Ok(20 * MS as i64));
    assert_eq!(busy(&mut d, a, T0 + S), 10 * MS);
}

#[test]
fn a_switch_costs_time_in_which_no_client_is_busy() {
    let mut d = device();
    d.set_config(DeviceConfig { slice_ns: 2 * MS, ..*d.config() }, T0);
    let [(a, _), (b, _)] = two(&mut d, [MS, MS], [1000, 1000]);
    let now = T0 + 10 * (2 * MS + 50 * US) - 50 * US;
    let (x, y) = (busy(&mut d, a, now), busy(&mut d, b, now));
    assert_eq!((x, y), (10 * MS, 10 * MS));
}

#[test]
fn a_client_that_runs_dry_gives_up_its_slice_at_once() {
    let mut d = plain_device();
    let [(a, sa), (b, _)] = two(&mut d, [100 * US, S], [1, 1]);
    assert_eq!(wait(&mut d, Target::Stream(sa), T0).0, T0 + 100 * US);
    assert_eq!(busy(&mut d, b, T0 + MS), 900 * US);
    assert_eq!(busy(&mut d, a, T0 + MS), 100 * US);
}

#[test]
fn a_newcomer_waits_for_the_end_of_the_slice_in_progress() {
    let mut d = plain_device();
    let (a, b) = (d.add_client(1, T0).unwrap(), d.add_client(2, T0).unwrap());
    let (sa, sb) = (d.legacy_stream(a).unwrap(), d.legacy_stream(b).unwrap());
    d.enqueue(sa, kernel(S), T0).unwrap();
    d.enqueue(sb, kernel(MS), T0 + 5 * MS).unwrap();
    assert_eq!(wait(&mut d, Target::Stream(sb), T0 + 5 * MS).0, T0 + 7 * MS);
}

#[test]
fn small_kernels_of_different_clients_do_not_overlap() {
    let mut d = plain_device();
    let clients = [1, 2].map(|pid| d.add_client(pid, T0).unwrap());
    for c in clients {
        let s = d.legacy_stream(c).unwrap();
        d.enqueue(s, Work::Kernel { ns: MS, occupancy: 1 }, T0).unwrap();
    }
    assert_eq!(wait(&mut d, Target::Client(clients[1]), T0).0, T0 + 2 * MS);
}

#[test]
fn a_copy_goes_on_during_the_neighbours_slice() {
    let mut d = plain_device();
    let [(_, _), (b, _)] = two(&mut d, [S, S], [1, 0]);
    let s = d.add_stream(b, StreamKind::NonBlocking).unwrap();
    let bytes = 25_000 * 10_000;
    d.enqueue(s, Work::Copy { direction: Direction::HostToDevice, bytes }, T0).unwrap();
    assert_eq!(wait(&mut d, Target::Stream(s), T0), (T0 + 10 * MS, 1));
}

#[test]
fn a_waiter_under_slicing_wakes_a_few_times_and_at_the_right_instant() {
    let mut d = device();
    d.set_config(DeviceConfig { slice_ns: 2 * MS, ..*d.config() }, T0);
    let [(a, sa), _] = two(&mut d, [100 * US, S], [1000, 10]);
    let (now, woken) = wait(&mut d, Target::Stream(sa), T0);
    // The client has 50 slices, its neighbour has 49, and there is a switch between each two.
    assert_eq!(now, T0 + 100 * MS + 49 * (2 * MS + 2 * 50 * US));
    assert!(woken < 20, "{woken}");
    assert_eq!(busy(&mut d, a, now), 100 * MS);
}

#[test]
fn busy_time_can_be_had_for_any_window_of_the_last_minute() {
    let mut d = plain_device();
    let [(a, _), (b, _)] = two(&mut d, [300 * S, 300 * S], [1, 1]);
    d.advance(T0 + 60 * S);
    for from in [T0, T0 + 10 * S, T0 + 59 * S] {
        let to = from + S;
        let (x, y) = (d.busy_between(Some(a), from, to), d.busy_between(Some(b), from, to));
        assert_eq!((x, y), (Some(500 * MS), Some(500 * MS)));
        assert_eq!(d.busy_between(None, from, to), Some(S));
    }
    assert_eq!(d.busy_between(None, T0, T0 + 61 * S), None);
    d.advance(T0 + 1000 * S);
    assert_eq!(d.busy_between(None, T0, T0 + S), None);
    assert_eq!(d.busy_between(None, T0 + 599 * S, T0 + 601 * S), Some(S));
}

#[test]
fn busy_milliseconds_are_told_when_they_are_over() {
    let mut d = plain_device();
    let [(a, _), (b, _)] = two(&mut d, [300 * S, 300 * S], [1, 1]);
    d.advance(T0 + 60 * S + MS / 2);
    let (from, mut told) = ((T0 + 59 * S) / MS, Vec::new());
    assert_eq!(d.each_span(from, |serial, ms, busy_ns| told.push((serial, ms, busy_ns))), from + 1000);
    for client in [a, b] {
        let own: Vec<_> = told.iter().filter(|span| span.0 == client.serial()).collect();
        assert_eq!(own.iter().map(|span| u64::from(span.2)).sum::<u64>(), 500 * MS);
        assert!(own.iter().all(|span| (from..from + 1000).contains(&span.1)));
    }
}
