//! Tests deaths: the end of a client, and the death of a process in the middle of a change.

use super::*;
use crate::engine::rows::phase;
use crate::engine::table::List;

#[test]
fn a_removed_client_takes_its_queue_and_its_running_kernel_with_it() {
    let mut d = plain_device();
    let (a, b) = (d.add_client(1, T0).unwrap(), d.add_client(2, T0).unwrap());
    let (sa, sb) = (d.legacy_stream(a).unwrap(), d.legacy_stream(b).unwrap());
    for _ in 0..10 {
        d.enqueue(sa, kernel(S), T0).unwrap();
    }
    d.enqueue(sb, kernel(5 * MS), T0).unwrap();
    d.remove_client(a, T0 + MS).unwrap();
    assert_eq!(wait(&mut d, Target::Client(b), T0 + MS).0, T0 + 6 * MS);
    let truth = d.device_truth(T0 + S);
    assert_eq!((truth.busy_ns, truth.retired_busy_ns), (6 * MS, MS));
    assert_eq!(d.client_truth(a, T0 + S), Err(UnknownId));
    assert_eq!(d.enqueue(sa, kernel(1), T0 + S), Err(EnqueueError::NoStream));
    assert_eq!(d.remove_client(a, T0 + S), Err(UnknownId));
    assert_eq!(d.busy_between(Some(a), T0, T0 + S), Some(MS));
    let mut gone = Vec::new();
    d.each_removed(|truth| gone.push((truth.id, truth.pid, truth.busy_ns, truth.removed_ns)));
    assert_eq!(gone, [(a, 1, MS, T0 + MS)]);
}

#[test]
fn a_client_that_is_removed_while_it_waits_for_its_slice_leaves_the_round() {
    let mut d = plain_device();
    let clients = [1, 2, 3].map(|pid| d.add_client(pid, T0).unwrap());
    for c in clients {
        let s = d.legacy_stream(c).unwrap();
        d.enqueue(s, kernel(S), T0).unwrap();
    }
    d.remove_client(clients[1], T0 + MS).unwrap();
    let [x, y] = [clients[0], clients[2]].map(|c| busy(&mut d, c, T0 + 41 * MS));
    assert_eq!(x + y, 41 * MS);
    assert!(x.abs_diff(y) <= 2 * MS, "{x} {y}");
}

#[test]
fn streams_that_waited_for_a_removed_client_go_on() {
    let mut d = plain_device();
    let (a, b) = (d.add_client(1, T0).unwrap(), d.add_client(2, T0).unwrap());
    let (sa, sb) = (d.legacy_stream(a).unwrap(), d.legacy_stream(b).unwrap());
    let [own, second] = [(); 2].map(|()| d.add_stream(a, StreamKind::NonBlocking).unwrap());
    d.enqueue(sa, kernel(S), T0).unwrap();
    let e = mark(&mut d, a, sa, T0);
    let foreign = d.add_event(b).unwrap();
    d.enqueue(sa, Work::Record(foreign), T0).unwrap();
    d.enqueue(own, Work::Wait(e), T0).unwrap();
    d.enqueue(second, Work::Wait(e), T0).unwrap();
    d.enqueue(sb, Work::Wait(e), T0).unwrap();
    d.enqueue(sb, kernel(MS), T0).unwrap();
    d.remove_client(a, T0 + MS).unwrap();
    assert_eq!(wait(&mut d, Target::Stream(sb), T0 + MS).0, T0 + 2 * MS);
    assert_eq!(d.event_status(e, T0 + S), Err(UnknownId));
    assert_eq!(time(&mut d, foreign, T0 + S), Some(MS));
}

#[test]
fn a_removed_client_that_waited_leaves_nothing_to_its_successor() {
    let mut d = plain_device();
    let (a, b) = (d.add_client(1, T0).unwrap(), d.add_client(2, T0).unwrap());
    let (sa, sb) = (d.legacy_stream(a).unwrap(), d.legacy_stream(b).unwrap());
    let bytes = 25_000 * 1000;
    d.enqueue(sa, Work::Copy { direction: Direction::HostToDevice, bytes }, T0).unwrap();
    let e = mark(&mut d, a, sa, T0);
    d.enqueue(sb, Work::Wait(e), T0).unwrap();
    d.remove_client(b, T0).unwrap();
    let successor = d.add_client(3, T0).unwrap();
    let s = d.legacy_stream(successor).unwrap();
    assert_eq!(s.link, sb.link);
    d.enqueue(s, Work::Kernel { ns: 3 * MS, occupancy: 1 }, T0).unwrap();
    assert_eq!(wait(&mut d, Target::Client(successor), T0).0, T0 + 3 * MS);
    let truth = d.client_truth(successor, T0 + S).unwrap();
    assert_eq!((truth.busy_ns, truth.launches), (3 * MS, 1));
}

#[test]
fn a_copy_of_a_removed_client_frees_its_engine() {
    let mut d = plain_device();
    let (a, b) = (d.add_client(1, T0).unwrap(), d.add_client(2, T0).unwrap());
    let copy = Work::Copy { direction: Direction::HostToDevice, bytes: 25_000 * 1000 };
    for c in [a, a, b, a] {
        let s = d.add_stream(c, StreamKind::NonBlocking).unwrap();
        d.enqueue(s, copy, T0).unwrap();
    }
    d.remove_client(a, T0 + 100 * US).unwrap();
    assert_eq!(wait(&mut d, Target::Client(b), T0 + 100 * US).0, T0 + 1100 * US);
}

/// Damages a state as much as a death in the middle of any change can damage it. After that, no
/// list, count or free list is valid.
fn tear(d: &mut EngineState) {
    d.marked = List { head: 7, tail: 3 };
    d.runnable = List { head: 1, tail: 99_999 };
    for engine in &mut d.engines {
        engine.waiting = List { head: 1, tail: 1 };
    }
    // These rows are taken and never used.
    while d.items.take().is_some() {}
    while d.events.take().is_some() {}
    while d.streams.take().is_some() {}
    while d.clients.take().is_some() {}
    for link in d.streams.links() {
        let row = d.streams.at_mut(link);
        row.items = List { head: 5, tail: 5 };
        row.marked = 1;
        row.next_ready = link;
        row.waiters = link;
        row.next_waiter = link;
        row.queued = 9999;
        row.detours = 77;
        row.next_of_client = link;
        if row.phase != phase::RUNNING && row.phase != phase::ON_HOST {
            row.phase = phase::WAITING;
        }
    }
    for link in d.items.links() {
        d.items.at_mut(link).next = link;
    }
    for link in d.clients.links() {
        let row = d.clients.at_mut(link);
        row.ready = List { head: 2, tail: 2 };
        row.host = List { head: 2, tail: 2 };
        row.streams = 4000;
        row.running_count = 60;
        row.occupancy = 4_000_000;
        row.queued = 0;
        row.held = 5;
        row.area = 1;
        row.waits_for_slice = 1;
    }
}

#[test]
fn after_a_death_in_the_middle_of_a_change_everything_queued_is_still_done() {
    let mut d = device();
    let (a, b) = (d.add_client(1, T0).unwrap(), d.add_client(2, T0).unwrap());
    let (sa, sb) = (d.legacy_stream(a).unwrap(), d.legacy_stream(b).unwrap());
    let [s, after] = [(); 2].map(|()| d.add_stream(a, StreamKind::NonBlocking).unwrap());
    for _ in 0..20 {
        d.enqueue(sa, kernel(MS), T0).unwrap();
        d.enqueue(sb, kernel(MS), T0).unwrap();
        d.enqueue(s, Work::Copy { direction: Direction::HostToDevice, bytes: 25_000_000 }, T0).unwrap();
    }
    let e = mark(&mut d, a, sa, T0);
    d.enqueue(after, Work::Wait(e), T0).unwrap();
    d.enqueue(after, kernel(MS), T0).unwrap();
    d.enqueue(sb, Work::Host { token: 5 }, T0).unwrap();
    d.advance(T0 + 7 * MS + 1);
    tear(&mut d);
    d.repair(T0 + 7 * MS + 2);
    let (end, _) = wait(&mut d, Target::Client(a), T0 + 7 * MS + 2);
    assert_eq!(d.next_host_call(b, end + 100 * MS).map(|call| call.token), Some(5));
    let [x, y] = [a, b].map(|c| d.client_truth(c, end + S).unwrap());
    assert_eq!((x.busy_ns, x.launches, x.memory_busy_ns), (21 * MS, 21, 20 * (MS + 1500)));
    assert_eq!((y.busy_ns, y.launches, y.queued), (20 * MS, 20, 1));
    assert_eq!(d.device_truth(end + S).busy_ns, 41 * MS);
    for _ in 0..1000 {
        d.enqueue(sa, kernel(1), end + S).unwrap();
    }
    assert!(d.add_event(a).is_ok());
}

#[test]
fn a_record_that_was_announced_and_never_enqueued_is_complete_after_a_repair() {
    let mut d = plain_device();
    let c = d.add_client(1, T0).unwrap();
    let s = d.legacy_stream(c).unwrap();
    d.enqueue(s, kernel(MS), T0).unwrap();
    let e = mark(&mut d, c, s, T0);
    let lost = mark(&mut d, c, s, T0);
    let newest = d.items.links().find(|&link| d.items.at(link).order == d.last_order).unwrap();
    d.items.at_mut(newest).order = 0;
    tear(&mut d);
    d.repair(T0);
    assert_eq!(time(&mut d, e, T0 + S), Some(MS));
    assert!(time(&mut d, lost, T0 + S).is_some());
}

#[test]
fn a_client_that_died_half_made_is_gone_after_a_repair() {
    let mut d = plain_device();
    let a = d.add_client(1, T0).unwrap();
    let half = d.add_client(2, T0).unwrap();
    d.clients.at_mut(half.link).legacy = 0;
    tear(&mut d);
    d.repair(T0);
    assert_eq!(d.client_truth(half, T0), Err(UnknownId));
    assert!(d.client_truth(a, T0).is_ok());
    assert!(d.add_client(3, T0).is_ok());
}
