//! Finds processes that use a GPU without the preload library, so that no limit holds for them.
//!
//! Such a process is linked statically, or its loader does not read `/etc/ld.so.preload`, as that of musl, or its
//! environment lacks the library.

use crate::discovery::{Container, ContainerIdentity, mounts_of};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader};

/// The file name of the library, under which every process has it mapped.
const LIBRARY_FILE: &str = "/libgpuslice.so";

/// A process without the library.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnlimitedProcess {
    /// The container in which it is. None: it is in none of those that were looked at.
    pub container: Option<ContainerIdentity>,
    /// The process's number here.
    pub pid: u32,
}

/// Returns those of the processes that have not mapped the library. Leaves out processes that end meanwhile, and those at
/// which this process may not look.
#[must_use]
pub fn unlimited(pids: &BTreeSet<u32>, containers: &[Container]) -> Vec<UnlimitedProcess> {
    let look = |pid: &u32| {
        let mounts = mounts_of(*pid)?;
        let container = containers.iter().map(|one| &one.identity).find(|one| one.mounts == mounts);
        let maps = BufReader::new(File::open(format!("/proc/{pid}/maps")).ok()?);
        lacks_library(maps)?.then(|| UnlimitedProcess { container: container.cloned(), pid: *pid })
    };
    pids.iter().filter_map(look).collect()
}

/// Returns true if no mapping of `/proc/PID/maps` is one of the library. Returns none if that is not known. A process that
/// has ended has no mapping at all, and the function does not read a very long list to its end.
fn lacks_library(maps: impl BufRead) -> Option<bool> {
    /// Most bytes of the list that are read. A process has 65530 mappings at most by default.
    const MOST: u64 = 16 << 20;
    let mut bytes: u64 = 0;
    for line in maps.take(MOST).split(b'\n') {
        let line = line.ok()?;
        bytes = bytes.saturating_add(line.len() as u64).saturating_add(1);
        let line = String::from_utf8_lossy(&line);
        // The agent never replaces a library, but a package may. The kernel then marks the mapped file as deleted.
        if line.trim_end_matches(" (deleted)").ends_with(LIBRARY_FILE) {
            return Some(false);
        }
    }
    (0 < bytes && bytes < MOST).then_some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_found_among_mappings_in_any_folder() {
        let program = "7f00-7f01 r-xp 00000000 00:1f 77  /usr/bin/python3\n";
        let line = |path: &str| format!("{program}7f01-7f02 r-xp 00000000 00:1f 78  {path}\n{program}");
        for path in ["/usr/local/lib/gpuslice/libgpuslice.so", "/a b/libgpuslice.so (deleted)"] {
            assert_eq!(lacks_library(line(path).as_bytes()), Some(false), "{path}");
        }
        for path in ["/usr/lib/libgpuslice.so.txt", "/usr/lib/notlibgpuslice.so", "[heap]", ""] {
            assert_eq!(lacks_library(line(path).as_bytes()), Some(true), "{path}");
        }
        assert_eq!(lacks_library(&b""[..]), None, "it has ended");
    }

    #[test]
    fn this_process_has_no_library_and_a_missing_process_is_left_out() {
        let own = std::process::id();
        let found = unlimited(&BTreeSet::from([own, u32::MAX]), &[]);
        assert_eq!(found, [UnlimitedProcess { container: None, pid: own }]);
    }
}
