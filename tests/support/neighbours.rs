//! Programs that are always busy, on a GPU that several share.

use super::bench::Bench;
use super::living::Living;

/// Arguments of `load`: kernels of 1 ms, for longer than any test runs.
pub(crate) const BUSY: [&str; 2] = ["300", "1000000"];

/// Arguments of `unshare` that start a container with its own process numbers, in which a shell runs the next argument.
pub(crate) const IN_A_CONTAINER: [&str; 7] =
    ["--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "sh", "-c"];

/// Starts a process that is always busy and belongs to no slice.
pub(crate) fn neighbour(bench: &Bench) -> Living {
    begin(bench.host("load", &BUSY).set("SIMGPU_GROUP", "away").start())
}

/// Lets a program begin that waits for an order.
pub(crate) fn begin(mut program: Living) -> Living {
    assert_eq!(program.hear().as_deref(), Some("ready"));
    program.order("");
    program
}
