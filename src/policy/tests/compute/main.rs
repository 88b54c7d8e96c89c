//! Tests of the control loop in virtual time, with the pure functions, a GPU, hosts and faults.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::float_arithmetic,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::print_stdout,
    clippy::panic,
    missing_debug_implementations,
    unreachable_pub,
    reason = "a test: it ends where something is wrong, and prints figures"
)]

mod accuracy;
mod arbitrate;
mod attribution;
mod batches;
mod chance;
mod changes;
mod counts;
mod debt;
mod faults;
mod gpu;
mod long;
mod machine;
mod meter;
mod newcomers;
mod nvml_only;
mod program;
mod scenario;
mod sharing;
mod shim;
mod side_by_side;
mod slice;
mod start;
mod waits;
mod watch;
mod workloads;
mod world;
