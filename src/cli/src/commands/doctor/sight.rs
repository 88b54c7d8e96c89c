//! Examines whether a slice with a policy sees the slices with which it divides the GPU.

use super::finding::Finding;
use super::machine::Machine;
use super::region::Regions;
use gpuslice_policy::config::{Config, CorePolicy, Priority};
use gpuslice_policy::units::Setting as _;
use gpuslice_region::names::MOUNTED;
use std::path::Path;

/// Name of the check.
const SIGHT_CHECK: &str = "region.sight";
/// Folders that each container has of its own, unless it shares the host's folder.
const PRIVATE: [&str; 2] = ["/dev/shm", "/tmp"];

/// Returns a finding if a policy or a priority has no effect, because the slice sees no other slice.
pub(super) fn examine(config: &Config, regions: &Regions, machine: &Machine) -> Option<Finding> {
    let asked = asked(config)?;
    let folder = regions.path.parent()?;
    if folder == Path::new(MOUNTED) {
        return Some(Finding::note(
            SIGHT_CHECK,
            format!(
                "the folder {MOUNTED} has this slice alone: {asked} divides the GPU while gpuslice-agent runs on the node"
            ),
            "nothing, if the agent runs there",
        ));
    }
    let is_container = machine.container.is_some() || machine.own_pids;
    let is_private = PRIVATE.iter().any(|private| folder.starts_with(private));
    let is_alone = regions.others.iter().all(|(path, _)| path.parent() != Some(folder));
    (is_container && !machine.host_ipc && is_private && is_alone).then(|| {
        let folder = folder.display();
        Finding::warning(
            SIGHT_CHECK,
            format!(
                "no other slice has its region in {folder}, and each container has a {folder} of its own: without \
                 gpuslice-agent {asked} has no effect between containers"
            ),
            "run gpuslice-agent on the node; or give all containers one folder, and name a region in it with GPUSLICE_REGION",
        )
    })
}

/// Returns the setting that makes slices divide the GPU, or none.
fn asked(config: &Config) -> Option<String> {
    match (config.core_policy, config.priority) {
        (CorePolicy::Fixed, Priority::Normal) => None,
        (CorePolicy::Fixed, priority) => Some(format!("GPU_PRIORITY={}", priority.setting())),
        (policy, _) => Some(format!("GPU_CORE_POLICY={}", policy.setting())),
    }
}
