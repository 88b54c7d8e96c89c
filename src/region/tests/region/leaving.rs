//! Tests that memory of a dead process counts until the device has it back, and no longer.

use std::{thread, time::Duration};

use gpuslice_region::{DeviceRequest, LEAVING, Member, Reaped, Trust, Uuid};

use crate::puppet::{Puppet, directory, join, request};

const LIMIT: u64 = 1000;
/// Free bytes of the device while the puppet holds [`HELD`].
const FREE: u64 = 5000;
const HELD: u64 = 700;
/// Bytes of a context.
const CONTEXT: u64 = 80;

#[test]
fn memory_of_the_dead_is_granted_once_free_memory_shows_it() {
    let directory = directory();
    let path = directory.path().join("region");
    let (member, device) = join(&path, LIMIT);
    let mut puppet = Puppet::joined(&path, LIMIT);
    assert_eq!(puppet.ask(&format!("reserve {HELD}")), "Ok(())");
    member.note_available(device, FREE + HELD);
    puppet.kill();
    assert!(member.reserve(device, HELD).is_err(), "it leaves");
    assert_eq!((member.leaving(device), member.held(device)), (HELD, 0));
    assert!(member.has_recent_death(device));
    member.reserve(device, LIMIT - HELD).unwrap();
    // The member now holds 300 of the free bytes.
    let (free, living) = (FREE - (LIMIT - HELD), LIMIT - HELD);
    assert!(!member.end_leaving(device, || None), "the driver does not report it");
    for part in [0, HELD - 1] {
        assert!(!member.end_leaving(device, || Some(living + free + part)), "{part}");
        assert_eq!(member.leaving(device), HELD);
    }
    member.region().learn_context_bytes(device, CONTEXT);
    assert!(!member.end_leaving(device, || Some(living + free + HELD - CONTEXT / 8 - 1)));
    assert!(
        member.end_leaving(device, || Some(living + free + HELD - CONTEXT / 8)),
        "the ledger may have counted a context as more than the driver took"
    );
    assert_eq!(member.leaving(device), 0);
    member.reserve(device, HELD).unwrap();
}

#[test]
fn memory_of_a_process_that_dies_while_free_memory_is_read_goes_on_leaving() {
    let directory = directory();
    let path = directory.path().join("region");
    let (member, device) = join(&path, LIMIT);
    let mut puppets = [Puppet::joined(&path, LIMIT), Puppet::joined(&path, LIMIT)];
    puppets.iter_mut().for_each(|puppet| assert_eq!(puppet.ask(&format!("reserve {}", HELD / 2)), "Ok(())"));
    member.note_available(device, FREE + HELD);
    let [mut first, mut second] = puppets;
    first.kill();
    assert_eq!(member.reap().unwrap(), Reaped::Dead(1));
    // The memory of the first puppet is back. The second puppet held its memory when the free bytes were measured.
    let ended = member.end_leaving(device, || {
        second.kill();
        assert_eq!(member.reap().unwrap(), Reaped::Dead(1));
        Some(FREE + HELD)
    });
    assert_eq!((ended, member.leaving(device)), (true, HELD / 2));
}

#[test]
fn after_two_seconds_nothing_leaves() {
    let directory = directory();
    let path = directory.path().join("region");
    let (member, device) = join(&path, LIMIT);
    let mut puppet = Puppet::joined(&path, LIMIT);
    puppet.ask(&format!("reserve {HELD}"));
    member.note_available(device, FREE + HELD);
    puppet.kill();
    assert_eq!(member.reap().unwrap(), Reaped::Dead(1));
    assert_eq!(member.leaving(device), HELD);
    thread::sleep(Duration::from_nanos(LEAVING.nanos()));
    assert_eq!((member.leaving(device), member.has_recent_death(device)), (0, false));
    member.reserve(device, LIMIT).unwrap();
}

#[test]
fn memory_leaves_until_the_bound_where_no_member_has_measured() {
    let directory = directory();
    let path = directory.path().join("region");
    let (member, device) = join(&path, LIMIT);
    let mut puppet = Puppet::joined(&path, LIMIT);
    puppet.ask(&format!("reserve {HELD}"));
    puppet.kill();
    assert!(member.reserve(device, LIMIT).is_err());
    member.note_available(device, FREE);
    assert!(!member.is_available_known(device), "measured while memory leaves");
    assert!(!member.end_leaving(device, || Some(u64::MAX)));
    assert_eq!(member.leaving(device), HELD);
    thread::sleep(Duration::from_nanos(LEAVING.nanos()));
    member.note_available(device, FREE);
    assert!(member.is_available_known(device));
    member.reserve(device, LIMIT).unwrap();
}

#[test]
fn nothing_leaves_where_a_process_gives_its_place_back() {
    let directory = directory();
    let path = directory.path().join("region");
    let (member, device) = join(&path, LIMIT);
    member.note_available(device, FREE);
    let (other, _) = join(&path, LIMIT);
    other.reserve(device, HELD).unwrap();
    other.leave();
    assert_eq!(member.leaving(device), 0);
}

#[test]
fn a_region_that_is_made_anew_keeps_leaving_memory_of_the_same_device() {
    for (uuid, leaving) in [(request(LIMIT).uuid, HELD), (Uuid([8; 16]), 0)] {
        let directory = directory();
        let path = directory.path().join("region");
        let mut puppet = Puppet::joined(&path, LIMIT);
        let (member, device) = join(&path, LIMIT);
        puppet.ask(&format!("reserve {HELD}"));
        member.note_available(device, FREE + HELD);
        member.leave();
        puppet.kill();
        let wanted = DeviceRequest { uuid, ..request(LIMIT) };
        let (member, _) = Member::join(&path, Trust::OwnerOnly, &[wanted]).unwrap();
        let device = member.device(&uuid).unwrap();
        assert_eq!(member.leaving(device), leaving);
        assert_eq!(member.reserve(device, LIMIT).is_ok(), leaving == 0);
    }
}

#[test]
fn contexts_that_others_make_are_counted_until_they_are_made_or_their_makers_die() {
    let directory = directory();
    let path = directory.path().join("region");
    let (member, _) = join(&path, LIMIT);
    let mut puppet = Puppet::joined(&path, LIMIT);
    let none = member.context_creations(Some(member.slot()));
    member.begin_context_creation();
    assert_eq!(member.context_creations(Some(member.slot())), none, "others'");
    assert_eq!(member.context_creations(None).under_way, 1);
    member.end_context_creation();
    let calls = member.context_creations(None);
    assert_eq!((calls.under_way, calls.began), (0, 1));
    puppet.ask("making");
    assert_eq!(member.context_creations(Some(member.slot())).under_way, 1);
    puppet.kill();
    member.reap().unwrap();
    assert_eq!(member.context_creations(Some(member.slot())).under_way, 0);
}

#[test]
fn memory_calls_are_counted_from_their_begin_until_they_end_or_their_process_dies() {
    let directory = directory();
    let path = directory.path().join("region");
    let (member, _) = join(&path, LIMIT);
    let mut puppet = Puppet::joined(&path, LIMIT);
    member.begin_memory_call();
    let own = member.memory_calls();
    assert_eq!((own.under_way, own.began), (1, 1));
    assert!(own.is_still_since(own, 1) && !own.is_still_since(own, 0));
    puppet.ask("taking");
    let all = member.region().all_memory_calls();
    assert_eq!((member.memory_calls(), all.under_way, all.began), (own, 2, 2), "others' are not its own");
    puppet.kill();
    member.reap().unwrap();
    assert_eq!(member.region().all_memory_calls(), own);
    member.end_memory_call();
    let ended = member.memory_calls();
    assert!(ended.is_still_since(ended, 0), "none is under way");
    member.begin_memory_call();
    member.end_memory_call();
    assert!(!member.memory_calls().is_still_since(ended, 0), "one came and went");
}
