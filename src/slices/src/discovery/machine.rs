//! The processes of this machine.

use super::container::{Container, namespace, namespace_of_self};
use super::engine::container_of;
use crate::numbers::Numbers;
use crate::process::{is_near, start_of};
use gpuslice_region::ProcessView;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;

/// The processes of this machine that this process can see, by their namespaces.
#[derive(Debug, Clone, Default)]
pub struct Machine {
    /// Processes by the inode of their mount namespace.
    by_mounts: BTreeMap<u64, Vec<u32>>,
    numbers: Numbers,
    /// Numbers of containers with no process at which this process may look.
    hidden: BTreeSet<String>,
}

impl Machine {
    /// Looks at all processes. Leaves out processes that end during this, and processes at which this one may not look.
    ///
    /// # Errors
    /// `/proc` is missing or cannot be read.
    pub fn look() -> io::Result<Self> {
        let mut machine = Self::default();
        for entry in fs::read_dir("/proc")? {
            let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            match (namespace(pid, "mnt"), namespace(pid, "pid")) {
                (Ok(mounts), Ok(numbers)) => {
                    machine.by_mounts.entry(mounts).or_default().push(pid);
                    machine.numbers.add(numbers, pid);
                }
                (Err(error), _) if error.kind() == io::ErrorKind::PermissionDenied => {
                    machine.hidden.extend(container_of(pid));
                }
                _ => {}
            }
        }
        if !machine.hidden.is_empty() {
            let seen: BTreeSet<String> =
                machine.by_mounts.values().flatten().filter_map(|pid| container_of(*pid)).collect();
            machine.hidden.retain(|id| !seen.contains(id));
        }
        Ok(machine)
    }

    /// Returns the number of containers into which this process may not look.
    #[must_use]
    pub fn hidden(&self) -> usize {
        self.hidden.len()
    }

    /// Returns the containers, except for the one in which this process is.
    #[must_use]
    pub fn containers(&self) -> Vec<Container> {
        let own = namespace_of_self("mnt");
        let others = self.by_mounts.iter().filter(|(mounts, _)| own.as_ref().ok() != Some(mounts));
        others.map(|(mounts, pids)| Container::of(*mounts, pids)).collect()
    }

    /// Returns the number of a slice's process in this process's namespace, or none if this process does not see it.
    #[must_use]
    pub fn number_of(&self, process: &ProcessView) -> Option<u32> {
        if is_near(process) {
            return Some(process.pid);
        }
        let number = self.numbers.find(process.pid_namespace, process.pid)?;
        // The kernel reuses numbers, so the start time must be the same too.
        (start_of(number) == Some(process.start)).then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_on_the_machine_and_in_no_container_of_it() {
        let machine = Machine::look().unwrap();
        let own = namespace_of_self("mnt").unwrap();
        assert!(machine.by_mounts[&own].contains(&std::process::id()));
        assert!(machine.containers().iter().all(|container| container.identity.mounts != own));
    }
}
