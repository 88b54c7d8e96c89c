//! Tests of collectives.

use super::*;

const PAIR: Collective = Collective { key: 7, kernels: 2 };

fn part(ns: u64) -> Work {
    Work::Collective { collective: PAIR, ns, nodes: 1, occupancy: WHOLE_DEVICE }
}

/// Makes a device with a client and its stream. The stream has `work` queued at the start.
fn with(work: &[Work]) -> (Box<EngineState>, ClientId, StreamId) {
    let mut d = plain_device();
    let c = d.add_client(1, T0).unwrap();
    let s = d.legacy_stream(c).unwrap();
    for one in work {
        d.enqueue(s, *one, T0).unwrap();
    }
    (d, c, s)
}

fn here(state: &mut EngineState, now: u64) -> Vec<Collective> {
    state.advance(now);
    state.waiting().collect()
}

#[test]
fn a_kernel_that_waits_for_others_keeps_its_device_busy_and_then_runs_for_its_time() {
    let (mut d, c, s) = with(&[kernel(MS), part(3 * MS), kernel(2 * MS)]);
    assert_eq!((here(&mut d, T0), d.unmet()), (vec![], 1));
    assert_eq!(here(&mut d, T0 + 20 * MS), [PAIR]);
    d.release_collective(Collective { key: 8, ..PAIR });
    d.release_collective(Collective { kernels: 3, ..PAIR });
    assert_eq!((here(&mut d, T0 + 30 * MS), d.unmet()), (vec![PAIR], 1));
    d.release_collective(PAIR);
    assert_eq!((here(&mut d, T0 + 30 * MS), d.unmet()), (vec![], 0));
    assert_eq!(wait(&mut d, Target::Stream(s), T0 + 30 * MS).0, T0 + 35 * MS);
    let truth = d.client_truth(c, T0 + S).unwrap();
    assert_eq!((truth.busy_ns, truth.kernel_ns, truth.launches), (35 * MS, 35 * MS, 3));
}

#[test]
fn how_long_they_waited_is_foreseen_of_nothing_behind_them() {
    let (mut d, c, s) = with(&[part(3 * MS)]);
    let behind = d.enqueue(s, kernel(2 * MS), T0).unwrap();
    let event = mark(&mut d, c, s, T0);
    let other = d.add_stream(c, StreamKind::NonBlocking).unwrap();
    d.enqueue(other, Work::Wait(event), T0).unwrap();
    d.advance(T0 + 20 * MS);
    d.release_collective(PAIR);
    for target in [Target::Ticket(behind), Target::Event(event), Target::Stream(other), Target::Client(c)] {
        assert_eq!(d.completion(target, T0 + 20 * MS), Ok(Completion::NotBefore(T0 + 25 * MS)));
    }
    assert_eq!(wait(&mut d, Target::Event(event), T0 + 20 * MS).0, T0 + 25 * MS);
}

#[test]
fn a_kernel_goes_on_waiting_while_another_client_has_its_slice() {
    let (mut d, _, s) = with(&[part(MS)]);
    let other = d.add_client(2, T0).unwrap();
    let beside = d.legacy_stream(other).unwrap();
    d.enqueue(beside, kernel(S), T0).unwrap();
    // This instant is in the middle of the second slice, which belongs to the other client.
    let now = T0 + d.config().slice_ns * 3 / 2;
    assert_eq!(here(&mut d, now), [PAIR]);
    d.release_collective(PAIR);
    assert_eq!(wait(&mut d, Target::Stream(s), now).0, T0 + 2 * d.config().slice_ns + MS);
}

#[test]
fn a_collective_without_its_peers_waits_for_a_minute() {
    let (mut d, _, s) = with(&[part(MS)]);
    assert_eq!(wait(&mut d, Target::Stream(s), T0).0, T0 + 60 * S);
    assert_eq!(d.unmet(), 0);
}

#[test]
fn a_graph_that_waits_has_its_kernels_and_the_gaps_between_them() {
    let (mut d, c, s) = with(&[Work::Collective { collective: PAIR, ns: MS, nodes: 11, occupancy: 1000 }]);
    d.advance(T0 + MS);
    d.release_collective(PAIR);
    let gaps = 10 * d.config().graph_node_gap_ns;
    assert_eq!(wait(&mut d, Target::Stream(s), T0 + MS).0, T0 + 2 * MS + gaps);
    assert_eq!(d.client_truth(c, T0 + S).unwrap().launches, 11);
}

#[test]
fn no_kernel_of_a_removed_client_waits() {
    let (mut d, c, _) = with(&[part(MS), part(MS)]);
    assert_eq!(d.unmet(), 2);
    d.remove_client(c, T0 + MS).unwrap();
    assert_eq!((here(&mut d, T0 + MS), d.unmet()), (vec![], 0));
}

#[test]
fn a_repair_completes_a_kernel_that_waits_for_no_other() {
    let (mut d, _, s) = with(&[part(3 * MS)]);
    d.advance(T0 + MS);
    let oldest = d.streams.at(s.link).items.head;
    d.items.at_mut(oldest).unmet = 0;
    d.repair(T0 + MS);
    assert_eq!((here(&mut d, T0 + MS), d.unmet()), (vec![], 0));
    assert_eq!(wait(&mut d, Target::Stream(s), T0 + MS).0, T0 + 4 * MS);
}

#[test]
fn a_repair_finds_the_waiting_kernels() {
    let (mut d, _, s) = with(&[part(MS), part(MS)]);
    assert_eq!(here(&mut d, T0 + MS), [PAIR]);
    d.release_collective(PAIR);
    d.unmet = 9;
    d.repair(T0 + MS);
    assert_eq!((here(&mut d, T0 + 3 * MS), d.unmet()), (vec![PAIR], 1));
    d.release_collective(PAIR);
    assert_eq!(wait(&mut d, Target::Stream(s), T0 + 3 * MS).0, T0 + 4 * MS);
}
