//! Finds processes that use a GPU without the preload library, so that no limit applies to them.
//!
//! Examples: a statically linked process; a process whose loader does not read `/etc/ld.so.preload`, like the loader of musl; a
//! process whose environment does not name the library.

use crate::discovery::{Container, ContainerIdentity, mounts_of};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader};

/// The file name of the library, under which every process has it mapped.
const LIBRARY_FILE: &str = "/libgpuslice.so";

/// A process without the library.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnlimitedProcess {
    /// The process's container. None if no container in the given list has it, or if it is a process of the host.
    pub container: Option<ContainerIdentity>,
    /// The process's number in this process's namespace.
    pub pid: u32,
}

/// Returns the processes of `pids` that have not mapped the library. Leaves out processes that end during this, and processes
/// at which this one may not look.
#[must_use]
pub fn unlimited(pids: &BTreeSet<u32>, containers: &[Container]) -> Vec<UnlimitedProcess> {
    among(pids, containers, mounts_of(1))
}

/// Returns the processes without the library. `host` is the mount namespace of the host: an agent that has a mount namespace of
/// its own finds the host's among those of containers.
fn among(pids: &BTreeSet<u32>, containers: &[Container], host: Option<u64>) -> Vec<UnlimitedProcess> {
    let look = |pid: &u32| {
        let mounts = mounts_of(*pid)?;
        let mut identities = containers.iter().map(|one| &one.identity);
        let container = identities.find(|one| one.mounts == mounts && host != Some(mounts));
        let maps = BufReader::new(File::open(format!("/proc/{pid}/maps")).ok()?);
        lacks_library(maps)?.then(|| UnlimitedProcess { container: container.cloned(), pid: *pid })
    };
    pids.iter().filter_map(look).collect()
}

/// Returns false if a mapping in `/proc/PID/maps` is one of the library, and true if none is. Returns none if there is no
/// mapping, because then the process has ended. Also returns none if the list is too long to read to its end.
fn lacks_library(maps: impl BufRead) -> Option<bool> {
    /// Most bytes of the list that this function reads. By default a process has at most 65530 mappings.
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

    #[test]
    fn a_program_of_the_host_is_in_no_container_for_an_agent_with_mounts_of_its_own() {
        let own = std::process::id();
        let mounts = mounts_of(own).unwrap();
        let identity = ContainerIdentity { mounts, id: None, name: None };
        let containers = [Container { identity: identity.clone(), witnesses: vec![own] }];
        let container = |host| {
            among(&BTreeSet::from([own]), &containers, host).into_iter().map(|one| one.container).next()
        };
        assert_eq!(container(Some(mounts)), Some(None));
        assert_eq!(container(Some(mounts.wrapping_add(1))), Some(Some(identity)));
    }
}
