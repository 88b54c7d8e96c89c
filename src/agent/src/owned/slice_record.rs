//! The file beside the operator's file of a slice. It has the limits that clients changed while the agent ran.

use super::terms::Terms;
use gpuslice_policy::config::{CorePolicy, Priority, Weight};
use gpuslice_policy::units::Permille;
use gpuslice_slices::slot::{Name, Places, write_whole};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::path::Path;

/// Most bytes that the agent reads of the file.
const MOST_RECORD_BYTES: u64 = 64 << 10;

/// The contents of the file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SliceRecord {
    /// The terms of the slice's entry in the configuration.
    pub(super) configured: Terms,
    /// The terms that apply to the slice.
    pub(super) holds: Terms,
    /// Number of changes of the slice.
    pub(super) generation: u64,
    /// The generation whose terms an agent has written into the region of the running processes. A file of an older agent lacks
    /// this field.
    #[serde(default)]
    pub(super) applied: u64,
}

pub(super) fn read(path: &Path) -> Option<SliceRecord> {
    let mut text = String::new();
    fs::File::open(path).ok()?.take(MOST_RECORD_BYTES).read_to_string(&mut text).ok()?;
    let kept: SliceRecord = serde_json::from_str(&text).ok()?;
    let is_right = |terms: &Terms| {
        terms.policy.parse::<CorePolicy>().is_ok()
            && terms.weight.to_string().parse::<Weight>().is_ok()
            && terms.priority.parse::<Priority>().is_ok()
            && Permille::new(terms.share_permille).is_some()
    };
    Some(kept).filter(|kept| is_right(&kept.holds))
}

pub(super) fn write(places: &Places, name: &Name, kept: &SliceRecord) -> Result<(), String> {
    let text = serde_json::to_string_pretty(kept).map_err(|error| error.to_string())?;
    write_whole(&places.owner_file(name), format!("{text}\n").as_bytes(), 0o644)
        .map_err(|problem| problem.to_string())
}

/// Returns the names of slices that an agent has made and that are not in the configuration.
pub(crate) fn left_behind(places: &Places, configured: &BTreeSet<Name>) -> Vec<Name> {
    // The agent's file marks the folder of a slice that an agent made. The other folders belong to other programs.
    Name::all_in(&places.slots())
        .filter(|name| !configured.contains(name) && places.owner_file(name).exists())
        .collect()
}
