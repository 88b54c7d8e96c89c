//! Payers of physical memory that several processes use: its maker pays, and after the maker a process that still uses it.
//!
//! After each step the tests compare the ledger of each slice with the bytes that the simulated GPU really holds.

use crate::support::bench::Bench;
use crate::support::chance::{Chance, seed};
use crate::support::sharers::{Actor, MIB, PIECE, QUOTA, Stage, through_each};

#[test]
fn an_import_is_charged_nothing_while_its_maker_has_it() {
    through_each(|stage| {
        let (mut maker, mut user) = (stage.actor("a", "maker"), stage.actor("a", "user"));
        maker.exports_to(&["user"]);
        stage.holds(PIECE);
        user.imports();
        stage.holds(PIECE);
        user.does(&format!("map 1 0 {PIECE}"));
        stage.holds(PIECE);
        stage.has_left(&mut user, QUOTA - PIECE);
        user.do_all(&["release 0", &format!("unmap 1 {PIECE}")]);
        stage.holds(PIECE);
        maker.does("release 0");
        stage.holds(0);
        stage.has_left(&mut maker, QUOTA);
    });
}

#[test]
fn a_process_that_still_uses_memory_that_its_maker_gave_up_pays_for_it() {
    through_each(|stage| {
        let (mut maker, mut user) = (stage.actor("a", "maker"), stage.actor("a", "user"));
        maker.exports_to(&["user"]);
        user.imports();
        user.does(&format!("map 1 0 {PIECE}"));
        maker.does("release 0");
        stage.holds(PIECE);
        stage.has_left(&mut maker, QUOTA - PIECE);
        user.does("release 0");
        stage.holds(PIECE);
        user.does(&format!("unmap 1 {PIECE}"));
        stage.holds(0);
        stage.has_left(&mut maker, QUOTA);
    });
}

#[test]
fn a_process_that_still_uses_memory_of_a_dead_maker_pays_for_it() {
    through_each(|stage| {
        let (mut maker, mut user) = (stage.actor("a", "maker"), stage.actor("a", "user"));
        let mut other = stage.actor("a", "other");
        maker.exports_to(&["user"]);
        maker.does(&format!("alloc 9 {}", 4 * MIB));
        user.imports();
        stage.holds(PIECE + 4 * MIB);
        maker.host.kill();
        // No process has reaped since the death. The first one that asks for the rest of the quota finds the new payer.
        stage.has_left(&mut other, QUOTA - PIECE);
        stage.holds(PIECE);
        user.does("release 0");
        stage.holds(0);
        stage.has_left(&mut other, QUOTA);
    });
}

#[test]
fn of_several_users_one_after_the_other_pays() {
    through_each(|stage| {
        let mut maker = stage.actor("a", "maker");
        let mut users: Vec<_> = ["one", "two", "three"].map(|name| stage.actor("a", name)).into();
        maker.exports_to(&["one", "two", "three"]);
        users.iter_mut().for_each(Actor::imports);
        stage.holds(PIECE);
        maker.host.kill();
        stage.holds(PIECE);
        // The first user after the maker releases the memory, and the next one dies.
        users[0].does("release 0");
        stage.holds(PIECE);
        users[1].host.kill();
        stage.holds(PIECE);
        stage.has_left(&mut users[0], QUOTA - PIECE);
        users[2].does("release 0");
        stage.holds(0);
    });
}

#[test]
fn a_user_that_dies_takes_nothing_with_it() {
    through_each(|stage| {
        let (mut maker, mut user) = (stage.actor("a", "maker"), stage.actor("a", "user"));
        maker.exports_to(&["user"]);
        user.imports();
        user.does(&format!("alloc 9 {}", 4 * MIB));
        user.host.kill();
        stage.holds(PIECE);
        maker.does("release 0");
        stage.holds(0);
    });
}

#[test]
fn a_maker_and_its_user_that_die_together_leave_nothing() {
    through_each(|stage| {
        let (mut maker, mut user) = (stage.actor("a", "maker"), stage.actor("a", "user"));
        let mut other = stage.actor("a", "other");
        maker.exports_to(&["user"]);
        user.imports();
        maker.host.kill();
        user.host.kill();
        stage.has_left(&mut other, QUOTA);
        stage.holds(0);
    });
}

#[test]
fn memory_imported_twice_is_used_until_both_are_given_up() {
    through_each(|stage| {
        let (mut maker, mut user) = (stage.actor("a", "maker"), stage.actor("a", "user"));
        maker.exports_to(&["user"]);
        user.do_all(&["receivefile 0", "import 0 0", "import 1 0", "close 0"]);
        maker.does("release 0");
        stage.holds(PIECE);
        user.does("release 0");
        stage.holds(PIECE);
        user.does("release 1");
        stage.holds(0);
        user.answers("release 1", 1);
        stage.holds(0);
    });
}

#[test]
fn a_maker_that_imports_its_own_memory_pays_once_and_until_the_end() {
    through_each(|stage| {
        let mut maker = stage.actor("a", "maker");
        maker.do_all(&[&format!("create 0 {PIECE} 1"), "export 0 0", "import 1 0", "import 2 0", "close 0"]);
        stage.holds(PIECE);
        maker.do_all(&["release 0", "release 1"]);
        stage.holds(PIECE);
        maker.does("release 2");
        stage.holds(0);
    });
}

#[test]
fn memory_that_is_exported_twice_and_passed_on_is_charged_once() {
    through_each(|stage| {
        let (mut maker, mut user) = (stage.actor("a", "maker"), stage.actor("a", "user"));
        let mut third = stage.actor("a", "third");
        maker.do_all(&[&format!("create 0 {PIECE} 1"), "export 0 0", "export 1 0", "sendfile 1 user"]);
        user.imports();
        // The user exports memory that it imported.
        user.do_all(&["export 1 0", "sendfile 1 third", "close 1"]);
        third.imports();
        stage.holds(PIECE);
        maker.do_all(&["close 0", "close 1", "release 0"]);
        stage.holds(PIECE);
        user.does("release 0");
        stage.holds(PIECE);
        third.does("release 0");
        stage.holds(0);
    });
}

#[test]
fn a_retained_handle_or_a_mapping_keeps_a_user_paying() {
    through_each(|stage| {
        let (mut maker, mut user) = (stage.actor("a", "maker"), stage.actor("a", "user"));
        maker.exports_to(&["user"]);
        user.imports();
        user.do_all(&[&format!("map 1 0 {PIECE}"), "retain 2 1", "release 0"]);
        maker.host.kill();
        stage.holds(PIECE);
        user.does(&format!("unmap 1 {PIECE}"));
        stage.holds(PIECE);
        user.does("release 2");
        stage.holds(0);
    });
}

#[test]
fn an_import_that_the_driver_refuses_leaves_nothing() {
    through_each(|stage| {
        let mut maker = stage.actor("a", "maker");
        let mut user =
            stage.faulty("a", "user", "cuMemImportFromShareableHandle=719@1;cuIpcOpenMemHandle_v2=719@1");
        maker.exports_to(&["user"]);
        user.does("receivefile 0");
        user.answers("import 0 0", 719);
        maker.does("release 0");
        stage.holds(0);
        maker.do_all(&[&format!("alloc 0 {PIECE}"), "ipcget 0 0", "sendblob 0 user"]);
        user.does("receiveblob 0");
        user.answers("ipcopen 0 0", 719);
        maker.does("free 0");
        stage.holds(0);
    });
}

#[test]
fn a_forged_handle_is_the_drivers_to_refuse_and_changes_no_charge() {
    through_each(|stage| {
        let (mut maker, mut user) = (stage.actor("a", "maker"), stage.actor("a", "user"));
        maker.do_all(&[&format!("alloc 0 {PIECE}"), "ipcget 0 0", "sendblob 0 user"]);
        user.does("receiveblob 0");
        for byte in 0..64 {
            user.does(&format!("scribble 0 {byte} {}", 1 + byte));
            let opened = user.asks("ipcopen 1 0") == "0";
            // The driver may leave some bytes unread. Such a handle leads to the same memory.
            stage.holds(PIECE);
            if opened {
                user.does("ipcclose 1");
            }
            user.does(&format!("scribble 0 {byte} {}", 1 + byte));
        }
        // The process opens a handle of zeros first, and then the true handle.
        assert_ne!(user.asks("ipcopen 1 5"), "0", "a handle of zeros");
        user.does("ipcopen 1 0");
        stage.holds(PIECE);
        stage.has_left(&mut user, QUOTA - PIECE);
        user.does("ipcclose 1");
        // The memory is gone, and its handle leads to nothing.
        maker.does("free 0");
        assert_ne!(user.asks("ipcopen 1 0"), "0", "a handle of memory that was freed");
        stage.holds(0);
        stage.has_left(&mut maker, QUOTA);
    });
}

#[test]
fn memory_that_the_driver_fails_to_release_stays_with_its_payer() {
    through_each(|stage| {
        let mut maker = stage.faulty("a", "maker", "cuMemRelease=719@1;cuMemFree_v2=719@1");
        let mut user = stage.actor("a", "user");
        maker.exports_to(&["user"]);
        user.imports();
        maker.answers("release 0", 719);
        user.does("release 0");
        stage.holds(PIECE);
        maker.does("release 0");
        stage.holds(0);
        maker.do_all(&[&format!("alloc 0 {PIECE}"), "ipcget 0 0", "sendblob 0 user"]);
        user.do_all(&["receiveblob 0", "ipcopen 0 0"]);
        maker.answers("free 0", 719);
        user.does("ipcclose 0");
        stage.holds(PIECE);
        maker.does("free 0");
        stage.holds(0);
    });
}

#[test]
fn memory_of_another_slice_is_never_charged_here() {
    through_each(|stage| {
        let (mut maker, mut user) = (stage.actor("a", "maker"), stage.actor("b", "user"));
        maker.exports_to(&["user"]);
        user.imports();
        stage.hold(PIECE, 0, PIECE);
        stage.has_left(&mut user, QUOTA);
        maker.do_all(&[&format!("alloc 1 {PIECE}"), "ipcget 0 1", "sendblob 0 user"]);
        user.do_all(&["receiveblob 0", "ipcopen 1 0"]);
        stage.hold(2 * PIECE, 0, 2 * PIECE);
        // A known gap, in docs/limitations.md: the memory lives on, and no slice is charged for it.
        maker.do_all(&["release 0", "free 1"]);
        stage.hold(0, 0, 2 * PIECE);
        user.do_all(&["release 0", "ipcclose 1"]);
        stage.hold(0, 0, 0);
    });
}

/// Makes a random process take a random step with another one. The driver refuses orders that make no sense.
fn one_step(stage: &Stage, actors: &mut [Actor], born: &mut usize, chance: &mut Chance) {
    let (from, to) = (chance.index(actors.len()), chance.index(actors.len()));
    let (here, there) = (chance.index(4), chance.index(4));
    let (name, bytes) = (actors[to].name().to_owned(), (2 + 2 * chance.index(4) as u64) * MIB);
    match chance.index(16) {
        0 | 1 => actors[from].tries(&format!("create {here} {bytes} 9")),
        2 => actors[from].tries(&format!("alloc {here} {bytes}")),
        3..=5 => {
            actors[from].tries(&format!("export {there} {here}"));
            // The process has a descriptor to send only if the export succeeded.
            if actors[from].asks(&format!("sendfile {there} {name}")) == "0" {
                actors[to].does(&format!("receivefile {there}"));
                actors[to].tries(&format!("import {here} {there}"));
                actors[to].tries(&format!("close {there}"));
            }
            actors[from].tries(&format!("close {there}"));
        }
        6 | 7 => {
            actors[from].tries(&format!("ipcget {here} {here}"));
            actors[from].does(&format!("sendblob {here} {name}"));
            actors[to].does(&format!("receiveblob {there}"));
            actors[to].tries(&format!("ipcopen {there} {there}"));
        }
        8 => actors[from].tries(&format!("map {} {here} {}", 8 + there, 2 * MIB)),
        9 => actors[from].tries(&format!("unmap {} {}", 8 + there, 2 * MIB)),
        10 => actors[from].tries(&format!("retain {here} {}", 8 + there)),
        11 | 12 => actors[from].tries(&format!("release {here}")),
        13 => actors[from].tries(&format!("ipcclose {here}")),
        14 => actors[from].tries(&format!("free {here}")),
        _ => {
            println!("{} is killed", actors[from].name());
            actors[from].host.kill();
            *born += 1;
            actors[from] = stage.actor("a", &format!("actor{born}"));
        }
    }
}

#[test]
fn after_any_sequence_of_calls_and_deaths_the_ledger_is_the_truth() {
    let mut chance = seed("sharing");
    let stage = Stage::new("plain");
    let mut born = 4;
    let mut actors: Vec<_> = (1..=born).map(|number| stage.actor("a", &format!("actor{number}"))).collect();
    for step in 0..400 {
        one_step(&stage, &mut actors, &mut born, &mut chance);
        let truth = stage.bench.truth(0);
        assert!(truth.peak <= QUOTA, "step {step}: {truth:?}");
        stage.holds(truth.living());
    }
    actors.iter_mut().for_each(|actor| {
        actor.host.kill();
    });
    stage.holds(0);
}

#[test]
fn an_event_of_another_process_is_waited_for_as_without_the_library() {
    let bench = Bench::simulated_without_contexts();
    let bare = bench.host("shared_event", &[]).run();
    bare.says(&[
        "opened 0, pending 600, waits 0, held 600",
        "waited 0, done 0, recorded 0, destroyed 0",
        "the other ended with 0",
    ]);
    let paced = bench.host("shared_event", &[]).limited("512MiB").set("GPU_CORE_PERCENT", "50").run();
    paced.quiet().same_as(&bare);
    assert_eq!(bench.truth_at_rest(0).held, 0, "an event costs no memory");
}
