//! Tests the parts of the agent on a node, and their client of the apiserver. The kubelet and the apiserver of the tests answer
//! like real ones, over real sockets.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a test"
)]

#[path = "../support/apiserver.rs"]
#[allow(dead_code, reason = "the extender's tests use the rest")]
mod apiserver;
mod client;
mod dra;
#[path = "../support/kubelet.rs"]
mod kubelet;
#[path = "../support/machine.rs"]
mod machine;
mod plugin;
#[path = "../support/raw.rs"]
mod raw;

use std::time::Duration;

/// Longest wait for an event. It is long, because the machine may be under other load.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
