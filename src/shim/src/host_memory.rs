//! Has the host room for so many bytes more? As far as the kernel says it now.
//!
//! Managed memory takes pages of the host when it is first used, so a yes is no promise. But a no comes as a status that
//! the program can deal with, and not as its end.

use gpuslice_policy::host_memory::{available, left_of_group};
use std::fs;

/// Where a container sees its control group, if that is of the second version.
const GROUP: &str = "/sys/fs/cgroup";

/// Whether the host, and the container's limit of host memory, have room for so many bytes. What the kernel does not say
/// is no limit.
pub(crate) fn has_room_for(bytes: u64) -> bool {
    let read = |path: &str| fs::read_to_string(path).ok();
    let of_group = |name: &str| read(&format!("{GROUP}/{name}"));
    let host = read("/proc/meminfo").and_then(|text| available(&text));
    let group = of_group("memory.max")
        .and_then(|most| left_of_group(&most, &of_group("memory.current")?, &of_group("memory.stat")?));
    [host, group].into_iter().flatten().all(|room| bytes <= room)
}
