//! The parts of the agent on a node, and their client of the apiserver, against a kubelet and an apiserver that answer as real
//! ones do, over real sockets.
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

/// Time within which an event comes that the test waits for, on a machine under other load.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
