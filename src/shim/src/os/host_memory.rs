//! Free host memory, by the kernel's current figures.
//!
//! Managed memory takes pages of the host at its first use, so memory that is free now may not be free then. The check
//! is still useful: a program can handle the status of a refused request. Without the check the kernel might end the
//! program later.

use gpuslice_policy::host_memory::{available, left_of_group};
use std::fs;

/// The folder in which a container sees its control group (cgroup v2).
const GROUP: &str = "/sys/fs/cgroup";

/// Returns true if the host and the container's limit of host memory have room for `bytes` more bytes. If the kernel does not
/// give a figure, that figure does not limit.
pub(crate) fn has_room_for(bytes: u64) -> bool {
    let read = |path: &str| fs::read_to_string(path).ok();
    let of_group = |name: &str| read(&format!("{GROUP}/{name}"));
    let host = read("/proc/meminfo").and_then(|text| available(&text));
    let group = of_group("memory.max")
        .and_then(|most| left_of_group(&most, &of_group("memory.current")?, &of_group("memory.stat")?));
    [host, group].into_iter().flatten().all(|room| bytes <= room)
}
