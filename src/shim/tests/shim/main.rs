//! Parts of the library without a driver: two locks, and the status of a worker thread.
//!
//! The library is a cdylib, so no test can be linked with its modules. This file includes them as sources instead, in modules
//! with the names that they import.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::arithmetic_side_effects,
    clippy::disallowed_types,
    reason = "a test"
)]

mod credit;
mod spin_lock;
mod worker_status;

#[path = "../../src/os"]
#[allow(dead_code, reason = "the library uses the rest")]
mod os {
    pub(crate) mod futex;
    pub(crate) mod reentrancy;
    pub(crate) mod spin_lock;
    pub(crate) mod time_word;
}

#[path = "../../src/compute/limiter"]
#[allow(dead_code, reason = "the library uses the rest")]
mod limiter {
    pub(crate) mod credit;
}

#[path = "../../src/compute/measuring"]
#[allow(dead_code, reason = "the library uses the rest")]
mod measuring {
    pub(crate) mod worker_status;
}
