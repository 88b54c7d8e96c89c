//! Calls of one thread on an object that another thread's call is about to end. The driver delays that call.
//!
//! After each step the tests compare the slice's ledger with the bytes that the simulated GPU really holds.

use crate::support::sharers::{Actor, PIECE, Stage};
use crate::support::skip_untold;

/// Has a second thread of an actor obey an order, until the driver delays it. Returns false if the kernel does not tell.
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

#[test]
fn memory_that_is_lent_while_its_context_may_end_is_inherited() {
    let leave = "cuDevicePrimaryCtxRelease_v2";
    let stage = Stage::new("plain");
    // The driver does not end the context, so that the memory lives on.
    let mut maker = stage.faulty("a", "maker", &format!("{leave}=delay:5s;{leave}=999"));
    let mut user = stage.actor("a", "user");
    maker.does(&format!("alloc 0 {PIECE}"));
    if !begins(&mut maker, "leave") {
        return;
    }
    maker.does("ipcget 0 0");
    maker.answers("join", 999);
    maker.does("sendblob 0 user");
    user.do_all(&["receiveblob 0", "ipcopen 0 0"]);
    maker.does("free 0");
    stage.holds(PIECE);
    user.does("ipcclose 0");
    stage.holds(0);
}
