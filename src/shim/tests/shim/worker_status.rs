//! Tests that a worker thread counts as not running if it has panicked or could not start.

use crate::measuring::worker_status::WorkerStatus;
use std::panic::resume_unwind;

#[test]
fn a_worker_that_panics_does_not_run() {
    let status = WorkerStatus::default();
    assert!(status.try_start());
    status.run(|| assert!(status.is_running()));
    assert!(status.is_running());
    status.run(|| resume_unwind(Box::new(())));
    assert!(!status.is_running() && !status.is_unstarted());
}

#[test]
fn a_worker_that_could_not_start_is_not_started_by_a_later_caller() {
    let status = WorkerStatus::default();
    assert!(status.try_start());
    status.set_failed();
    assert!(!status.try_start());
    assert!(!status.is_running());
}
