//! Examines whether several users of a container have a slice each.

use super::finding::Finding;
use super::machine::Machine;
use super::region::{RegionState, Regions};
use gpuslice_policy::config::FIXED_FILE;
use gpuslice_region::names::FILE_PREFIX;
use std::collections::BTreeSet;
use std::path::Path;

/// Returns a finding if users of this container have separate slices. The `regions` belong to programs with limits.
pub(super) fn examine(regions: &Regions, machine: &Machine) -> Option<Finding> {
    if machine.container.is_none() && !machine.own_pids {
        return None;
    }
    let (own, container) = parts(&regions.path)?;
    let is_used = |state: &RegionState| matches!(state, RegionState::Living(_) | RegionState::Foreign);
    let used = regions.others.iter().filter(|(_, state)| is_used(state));
    let users =
        used.filter_map(|(path, _)| parts(path)).filter(|(user, of)| *of == container && *user != own);
    let users: BTreeSet<u32> = users.map(|(user, _)| user).collect();
    if users.is_empty() {
        return None;
    }
    let users = users.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    Some(Finding::warning(
        "region.users",
        format!(
            "users {users} of this container have slices beside that of user {own}, each with the whole quota and share"
        ),
        format!("set the limits in {FIXED_FILE}: all users of the container are one slice then"),
    ))
}

/// Returns the user and the mount namespace in the name of a region, if no setting has named the region.
fn parts(region: &Path) -> Option<(u32, u64)> {
    let mut words = region.file_name()?.to_str()?.strip_prefix(FILE_PREFIX)?.split('-');
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use std::slice;

    fn users(own: &str, others: &[(&str, RegionState)], own_pids: bool) -> Option<String> {
        let others = others.iter().map(|(path, state)| (PathBuf::from(path), state.clone())).collect();
        let regions = Regions { path: own.into(), others, ..super::super::region::fine() };
        let machine = Machine { own_pids, ..Machine::default() };
        examine(&regions, &machine).map(|finding| finding.what)
    }

    #[test]
    fn users_are_told_whose_slices_are_of_the_same_container() {
        let (own, other) =
            ("/dev/shm/gpuslice-0-77", ("/dev/shm/gpuslice-1001-77-2", RegionState::Living(1)));
        let told = users(own, &[other.clone(), ("/dev/shm/gpuslice-7-77", RegionState::Foreign)], true);
        assert!(told.is_some_and(|told| told.starts_with("users 7, 1001 of this container")));
        assert_eq!(users(own, slice::from_ref(&other), false), None, "it is no container");
        assert_eq!(users("/dev/shm/gpuslice-all-66-77", &[other], true), None, "there is an operator's file");
        for (path, state) in [
            ("/dev/shm/gpuslice-1001-78", RegionState::Living(1)),
            ("/dev/shm/gpuslice-1001-run-77", RegionState::Living(1)),
            ("/dev/shm/gpuslice-0-77-2", RegionState::Living(1)),
            ("/dev/shm/gpuslice-1001-77", RegionState::Stale),
        ] {
            assert_eq!(users(own, &[(path, state)], true), None, "{path}");
        }
    }
}
