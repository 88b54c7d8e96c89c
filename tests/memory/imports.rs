//! Payers of memory that a handle opens, that comes from a pool or another interface, or that is checkpointed.
//!
//! After each step the tests compare the slice's ledger with the bytes that the simulated GPU really holds.

use crate::support::sharers::{MIB, PIECE, QUOTA, through_each};

#[test]
fn a_fabric_handle_is_shared_as_a_descriptor_is() {
    through_each(|stage| {
        let (mut maker, mut user) = (stage.actor("a", "maker"), stage.actor("a", "user"));
        maker.do_all(&[&format!("create 0 {PIECE} 8"), "exportfabric 0 0", "sendblob 0 user"]);
        user.do_all(&["receiveblob 0", "importfabric 0 0", "importfabric 1 0"]);
        stage.holds(PIECE);
        maker.host.kill();
        stage.holds(PIECE);
        user.does("release 1");
        stage.holds(PIECE);
        user.does("release 0");
        stage.holds(0);
    });
}

#[test]
fn memory_opened_by_a_handle_is_its_makers_to_pay() {
    for open in ["ipcopen", "ipcopen1"] {
        through_each(|stage| {
            let (mut maker, mut user) = (stage.actor("a", "maker"), stage.actor("a", "user"));
            maker.do_all(&[&format!("alloc 0 {PIECE}"), "ipcget 0 0", "sendblob 0 user"]);
            user.do_all(&["receiveblob 0", &format!("{open} 0 0")]);
            stage.holds(PIECE);
            stage.has_left(&mut user, QUOTA - PIECE);
            // The driver does not free an imported address, and a free of it releases no charge.
            user.answers("free 0", 1);
            stage.holds(PIECE);
            // A second open returns the same address and needs a second close.
            user.does(&format!("{open} 1 0"));
            user.answers("same 0 1", 1);
            maker.does("free 0");
            stage.holds(PIECE);
            stage.has_left(&mut maker, QUOTA - PIECE);
            user.does("ipcclose 0");
            stage.holds(PIECE);
            user.does("ipcclose 0");
            stage.holds(0);
            user.answers("ipcclose 0", 1);
            stage.has_left(&mut maker, QUOTA);
        });
    }
}

#[test]
fn memory_opened_by_a_handle_outlives_its_maker() {
    through_each(|stage| {
        let (mut maker, mut user) = (stage.actor("a", "maker"), stage.actor("a", "user"));
        let mut other = stage.actor("a", "other");
        maker.do_all(&[&format!("alloc 0 {PIECE}"), "ipcget 0 0", "sendblob 0 user", "sendblob 0 other"]);
        user.do_all(&["receiveblob 0", "ipcopen 0 0"]);
        other.do_all(&["receiveblob 0", "ipcopen1 0 0"]);
        maker.host.kill();
        stage.has_left(&mut other, QUOTA - PIECE);
        stage.holds(PIECE);
        user.host.kill();
        stage.holds(PIECE);
        other.does("ipcclose 0");
        stage.holds(0);
    });
}

#[test]
fn a_context_that_ends_ends_memory_lent_and_opened_in_it() {
    through_each(|stage| {
        let (mut maker, mut user) = (stage.actor("a", "maker"), stage.actor("a", "user"));
        maker.do_all(&[&format!("alloc 0 {PIECE}"), "ipcget 0 0", "sendblob 0 user"]);
        user.do_all(&["receiveblob 0", "ipcopen 0 0"]);
        maker.does("reset 0");
        stage.holds(PIECE);
        user.does("reset 0");
        stage.holds(0);
        // Now the context of the user ends first.
        maker.do_all(&[&format!("alloc 0 {PIECE}"), "ipcget 0 0", "sendblob 0 user"]);
        user.do_all(&["receiveblob 0", "ipcopen 0 0", "reset 0"]);
        stage.holds(PIECE);
        maker.does("reset 0");
        stage.holds(0);
    });
}

#[test]
fn a_pointer_of_a_shared_pool_is_its_pools_to_pay() {
    through_each(|stage| {
        let (mut maker, mut user) = (stage.actor("a", "maker"), stage.actor("a", "user"));
        maker.do_all(&["pool 0 1", "take 1 33554432 0", "exportpool 0 0", "sendfile 0 user"]);
        maker.do_all(&["exportpointer 0 1", "sendblob 0 user"]);
        user.do_all(&["receivefile 0", "importpool 0 0", "receiveblob 0", "importpointer 1 0 0"]);
        stage.holds(32 * MIB);
        // No process can take from an imported pool. The driver says so, even if the quota has room.
        user.does(&format!("alloc 2 {}", 32 * MIB));
        user.answers("take 3 4096 0", 1);
        user.do_all(&["free 2", "freeasync 1"]);
        stage.holds(32 * MIB);
        user.do_all(&["importpointer 1 0 0", "free 1", "endpool 0"]);
        stage.holds(32 * MIB);
        // Memory that the maker frees goes back to its pool, also while another process has it open.
        user.do_all(&["importpool 0 0", "importpointer 1 0 0"]);
        maker.does("freeasync 1 1 0");
        stage.holds(0);
        user.does("free 1");
        stage.holds(0);
    });
}

#[test]
fn a_pointer_of_a_dead_pool_is_its_users_to_pay() {
    through_each(|stage| {
        let (mut maker, mut user) = (stage.actor("a", "maker"), stage.actor("a", "user"));
        let mut other = stage.actor("a", "other");
        maker.do_all(&["pool 0 1", "take 1 33554432 0", "exportpool 0 0", "sendfile 0 user"]);
        maker.do_all(&["exportpointer 0 1", "sendblob 0 user"]);
        user.do_all(&["receivefile 0", "importpool 0 0", "receiveblob 0", "importpointer 1 0 0"]);
        maker.host.kill();
        stage.has_left(&mut other, 32 * MIB);
        stage.holds(32 * MIB);
        user.does("freeasync 1");
        stage.holds(0);
    });
}

#[test]
fn memory_of_another_interface_is_not_charged() {
    through_each(|stage| {
        let mut user = stage.actor("a", "user");
        user.do_all(&["file 0 8388608", "external 0 0 8388608", "buffer 1 0 4194304", "mipmap 2 0 1024"]);
        stage.holds(0);
        stage.has_left(&mut user, QUOTA);
        // The ordinary calls free its mappings and release no charge.
        user.does(&format!("alloc 3 {PIECE}"));
        user.do_all(&["free 1", "endmipmap 2", "endexternal 0"]);
        stage.holds(PIECE);
        user.answers("endexternal 0", 400);
        user.answers("free 1", 1);
        stage.holds(PIECE);
    });
}

#[test]
fn memory_of_cuda_that_comes_back_as_anothers_is_still_its_makers_to_pay() {
    through_each(|stage| {
        let (mut maker, mut user) = (stage.actor("a", "maker"), stage.actor("a", "user"));
        maker.exports_to(&["user"]);
        user.do_all(&["receivefile 0", &format!("external 0 0 {PIECE}"), &format!("buffer 1 0 {PIECE}")]);
        stage.holds(PIECE);
        maker.does("release 0");
        stage.holds(PIECE);
        stage.has_left(&mut maker, QUOTA - PIECE);
        user.does("free 1");
        stage.holds(PIECE);
        user.does("endexternal 0");
        stage.holds(0);
    });
}

#[test]
fn an_object_for_several_devices_costs_nothing_and_keeps_memory_bound_to_it() {
    for (bind, unbinds) in [("bind", true), ("bind2", false), ("bindaddress", true), ("bindaddress2", false)]
    {
        through_each(|stage| {
            let mut maker = stage.actor("a", "maker");
            maker.does(&format!("group 0 {PIECE}"));
            stage.holds(0);
            maker.does(&format!("create 1 {PIECE} 0"));
            maker.does(&format!("map 2 1 {PIECE}"));
            let bound = if bind.starts_with("binda") { 2 } else { 1 };
            maker.does(&format!("{bind} 0 {bound} {PIECE}"));
            maker.does(&format!("unmap 2 {PIECE}"));
            maker.does("release 1");
            stage.holds(PIECE);
            stage.has_left(&mut maker, QUOTA - PIECE);
            if unbinds {
                maker.does(&format!("unbind 0 {PIECE}"));
                stage.holds(0);
                maker.does("release 0");
            } else {
                // The multicast object itself lives while it is mapped.
                maker.does(&format!("map 3 0 {PIECE}"));
                maker.does("release 0");
                stage.holds(PIECE);
                maker.does(&format!("unmap 3 {PIECE}"));
            }
            stage.holds(0);
        });
    }
}

#[test]
fn memory_that_the_driver_does_not_bind_is_not_kept() {
    through_each(|stage| {
        let mut maker = stage.actor("a", "maker");
        maker.does(&format!("group 0 {PIECE}"));
        maker.does(&format!("create 1 {PIECE} 0"));
        maker.answers(&format!("bind 0 1 {}", 2 * PIECE), 1);
        maker.answers("unbind 0 2097152", 1);
        maker.does("release 1");
        stage.holds(0);
    });
}

#[test]
fn a_checkpointed_process_keeps_its_charge_so_that_its_restore_fits() {
    through_each(|stage| {
        let (mut sleeper, mut other) = (stage.actor("a", "sleeper"), stage.actor("a", "other"));
        let pid = sleeper.host.pid();
        sleeper.do_all(&[&format!("alloc 0 {PIECE}"), &format!("create 1 {PIECE} 0")]);
        other.answers(&format!("state {pid}"), 0);
        other.does(&format!("lock {pid}"));
        other.answers(&format!("state {pid}"), 1);
        // A call of the locked process waits and delays no other process.
        sleeper.host.order("release 1");
        stage.has_left(&mut other, QUOTA - 2 * PIECE);
        other.does(&format!("checkpoint {pid}"));
        other.answers(&format!("state {pid}"), 2);
        assert_eq!((stage.ledger("a"), stage.bench.truth(0).held), (2 * PIECE, 0));
        // The device has room, but the slice has not.
        other.answers(&format!("alloc 0 {}", QUOTA - 2 * PIECE + 1), 2);
        other.does(&format!("alloc 0 {}", QUOTA - 2 * PIECE));
        other.does(&format!("restore {pid}"));
        stage.holds(QUOTA);
        other.does("free 0");
        assert_eq!(sleeper.host.heard(), None);
        other.does(&format!("unlock {pid}"));
        assert_eq!(sleeper.host.hear().as_deref(), Some("0"));
        stage.holds(PIECE);
        assert!(stage.bench.truth(0).peak <= QUOTA);
    });
}

#[test]
fn a_process_checkpoints_itself() {
    through_each(|stage| {
        let mut sleeper = stage.actor("a", "sleeper");
        let pid = sleeper.host.pid();
        sleeper.does(&format!("alloc 0 {PIECE}"));
        sleeper.do_all(&[&format!("lock {pid}"), &format!("checkpoint {pid}")]);
        assert_eq!((stage.ledger("a"), stage.bench.truth(0).held), (PIECE, 0));
        sleeper.do_all(&[&format!("restore {pid}"), &format!("unlock {pid}")]);
        stage.holds(PIECE);
        sleeper.does("free 0");
        stage.holds(0);
    });
}

#[test]
fn a_process_that_dies_checkpointed_gives_its_charge_back() {
    through_each(|stage| {
        let (mut sleeper, mut other) = (stage.actor("a", "sleeper"), stage.actor("a", "other"));
        let pid = sleeper.host.pid();
        sleeper.does(&format!("alloc 0 {PIECE}"));
        other.do_all(&[&format!("lock {pid}"), &format!("checkpoint {pid}")]);
        sleeper.host.kill();
        stage.has_left(&mut other, QUOTA);
        stage.holds(0);
    });
}
