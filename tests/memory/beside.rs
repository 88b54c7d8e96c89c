//! Calls of one thread on an object that another thread's call is about to end. The driver holds that call back.
//!
//! After each step the tests compare the slice's ledger with the bytes that the simulated GPU really holds.

use crate::support::sharers::{Actor, MIB, PIECE, Stage};
use crate::support::skip_untold;

const DESTROY: &str = "cuMemPoolDestroy=hold";

/// Has a second thread of an actor obey an order, until the driver holds it back. Returns false if the kernel does not show in
/// which system call a thread is.
#[track_caller]
fn begins(actor: &mut Actor, order: &str) -> bool {
    let answer = actor.asks(&format!("beside {order}"));
    if answer == "-2" {
        skip_untold(order);
        return false;
    }
    assert_eq!(answer, "0", "{order}");
    true
}

/// Lets the driver go on with the order of the second thread, and asserts the status of that order. From then on the calls in
/// `faults` go wrong.
#[track_caller]
fn ends(stage: &Stage, actor: &mut Actor, faults: &str, status: i64) {
    stage.bench.goes_wrong(faults);
    actor.answers("join", status);
}

#[test]
fn a_pool_that_the_driver_does_not_destroy_is_charged_once() {
    let stage = Stage::new("plain");
    let mut user = stage.faulty("a", "user", DESTROY);
    user.do_all(&["defaultpool 0", &format!("take 1 {} 0", 16 * MIB)]);
    if !begins(&mut user, "endpool 0") {
        return;
    }
    user.does(&format!("take 2 {} 0", 20 * MIB));
    ends(&stage, &mut user, "", 1);
    stage.holds(64 * MIB);
    user.do_all(&["freeasync 1", "freeasync 2"]);
    stage.holds(0);
}

#[test]
fn memory_that_was_taken_from_a_pool_before_its_end_goes_back_when_it_is_freed() {
    // The pool may be the one that the device allocates from.
    for prepare in [&["pool 0 0"][..], &["pool 0 0", "usepool 0"]] {
        let stage = Stage::new("plain");
        let mut user = stage.faulty("a", "user", DESTROY);
        user.do_all(prepare);
        user.does(&format!("take 1 {} 0", 32 * MIB));
        if !begins(&mut user, "endpool 0") {
            return;
        }
        user.does(&format!("take 2 {} 0", 32 * MIB));
        ends(&stage, &mut user, "", 0);
        stage.holds(64 * MIB);
        user.does("freeasync 1");
        stage.holds(32 * MIB);
        user.does("freeasync 2");
        stage.holds(0);
        user.does(&format!("alloc 3 {}", 64 * MIB));
    }
}

#[test]
fn a_thread_that_waits_asks_nothing_about_a_pool_that_has_ended() {
    let stage = Stage::new("plain");
    let mut user = stage.faulty("a", "user", "cuStreamSynchronize=hold");
    user.do_all(&["pool 0 0", &format!("take 1 {} 0", 32 * MIB)]);
    if !begins(&mut user, "wait") {
        return;
    }
    user.does("endpool 0");
    ends(&stage, &mut user, "cuMemPoolGetAttribute=kill", 0);
    stage.holds(32 * MIB);
    user.does("free 1");
    stage.holds(0);
}

#[test]
fn memory_that_is_lent_while_its_context_may_end_is_inherited() {
    let leave = "cuDevicePrimaryCtxRelease_v2";
    let stage = Stage::new("plain");
    // The driver does not end the context, so that the memory lives on.
    let mut maker = stage.faulty("a", "maker", &format!("{leave}=hold;{leave}=999"));
    let mut user = stage.actor("a", "user");
    maker.does(&format!("alloc 0 {PIECE}"));
    if !begins(&mut maker, "leave") {
        return;
    }
    maker.does("ipcget 0 0");
    ends(&stage, &mut maker, "", 999);
    maker.does("sendblob 0 user");
    user.do_all(&["receiveblob 0", "ipcopen 0 0"]);
    maker.does("free 0");
    stage.holds(PIECE);
    user.does("ipcclose 0");
    stage.holds(0);
}
