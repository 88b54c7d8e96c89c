//! Programs that are always busy, on a GPU that several share.

use super::bench::Bench;
use super::living::Living;

/// Words for `load`: kernels of a millisecond, for longer than any test looks.
pub(crate) const BUSY: [&str; 2] = ["300", "1000000"];

/// What `unshare` is told to begin a container, with process numbers of its own, and to have a shell do this there.
pub(crate) const IN_A_CONTAINER: [&str; 7] =
    ["--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "sh", "-c"];

/// A process of nobody's that is always busy.
pub(crate) fn neighbour(bench: &Bench) -> Living {
    begin(bench.host("load", &BUSY).set("SIMGPU_GROUP", "away").start())
}

/// Lets one go that waits for that.
pub(crate) fn begin(mut program: Living) -> Living {
    assert_eq!(program.hear().as_deref(), Some("ready"));
    program.order("");
    program
}
