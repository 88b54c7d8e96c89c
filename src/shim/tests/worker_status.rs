//! Is it known that the meter's thread does not live any more?
//!
//! The library's own modules are in no library that a test can be linked with, so these are taken in as sources.

#[allow(dead_code, reason = "the library uses the rest")]
#[path = "../src/os/reentrancy.rs"]
mod reentrancy;
/// The folder as the sources name it.
mod os {
    pub(crate) use super::reentrancy;
}
#[allow(dead_code, reason = "the library uses the rest")]
#[path = "../src/compute/measuring/worker_status.rs"]
mod life;

use life::WorkerStatus;
use std::panic::resume_unwind;

#[test]
fn a_thread_that_breaks_is_not_waited_for() {
    let life = WorkerStatus::default();
    assert!(life.begins());
    life.live(|| assert!(life.is_on()));
    assert!(life.is_on());
    life.live(|| resume_unwind(Box::new(())));
    assert!(!life.is_on() && !life.is_to_begin());
}
