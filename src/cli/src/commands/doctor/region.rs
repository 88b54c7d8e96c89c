//! Examines the regions: the place where a slice would have its region, and the existing regions.

use super::calls::{self, Room};
use super::finding::Finding;
use super::probe::ProbedGpu;
use crate::slices::{self, bounds};
use crate::system;
use gpuslice_policy::config::Config;
use gpuslice_region::{Monitor, RegionError, Trust, detached, file_space, names, probe_path};
use gpuslice_slices::discovery::FoundRegion;
use gpuslice_slices::figures;
use gpuslice_slices::overcommit::Committed;
use gpuslice_slices::process;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// State of the file at a region's path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RegionState {
    /// There is no file.
    Absent,
    /// A region with this many living processes.
    Living(usize),
    /// A region without a living process.
    Stale,
    /// A file that cannot be used, with the reason.
    Unusable(String),
    /// A region of another user, which this user cannot read.
    Foreign,
}

/// Facts about the regions of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Regions {
    /// Path of the region that a program started from here would use.
    pub(super) path: PathBuf,
    /// True if a setting names that path.
    pub(super) named: bool,
    /// Result of making a region in that place, without a name. An error is the fault.
    pub(super) trial: Result<(), String>,
    /// Size of the file system of that path.
    pub(super) room: Option<Room>,
    /// True if systemd may remove the region when this user logs out.
    pub(super) ends_with_session: bool,
    /// True if any user may remove other users' files in the folder.
    pub(super) removable: bool,
    /// State of the path.
    pub(super) own: RegionState,
    /// The regions in `/dev/shm`.
    pub(super) others: Vec<(PathBuf, RegionState)>,
    /// Regions that were removed while processes use them, at [`path`](Self::path) or with a usual name.
    pub(super) removed: Vec<String>,
    /// Facts about slices with living processes.
    pub(super) living: Living,
}

/// Facts about slices with living processes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Living {
    /// Numbers of processes that hold device memory, if a number means the same process in this process's namespace.
    pub(super) members: Vec<u32>,
    /// The limits on each GPU, by its UUID.
    pub(super) committed: BTreeMap<String, Committed>,
}

impl Regions {
    /// Reads the facts about the regions. If the library would refuse the configuration, `config` is `None`, and no setting names
    /// a region. `has_operator_file` is true if there is an operator's file in its fixed place.
    pub(super) fn look(config: Option<&Config>, has_operator_file: bool) -> Self {
        let named = config.and_then(|config| config.region.clone());
        let is_named = named.is_some();
        let mut region = names::of_program(named, has_operator_file);
        let path = region.path_now();
        let folder = path.parent().unwrap_or_else(|| Path::new("/")).to_owned();
        let mode = folder.metadata().map_or(0, |found| found.permissions().mode());
        if system::user() == 0 && !region.has_more_names {
            region.trust = Trust::AnyOwner;
        }
        let mut living = Living::default();
        let own = look_at(Monitor::open_program(&region), &mut living);
        let all = slices::all().unwrap_or_default().into_iter().filter(|other| *other != path);
        let trust = if system::user() == 0 { Trust::AnyOwner } else { Trust::OwnerOnly };
        let states = all.map(|path| (path.clone(), look_at(Monitor::open(&path, trust), &mut living)));
        // No remedy is due for a region that containers need, with processes or without.
        let is_kept = |path: &Path| bounds::kept(&FoundRegion::here(path.to_owned())).is_some();
        let others = states.filter(|(path, state)| *state != RegionState::Stale || !is_kept(path)).collect();
        let mut removed = detached();
        removed.retain(|region| region.path == path || names::is_usual(&region.path));
        Self {
            removed: removed.iter().map(ToString::to_string).collect(),
            trial: probe_path(&path).map_err(|error| error.to_string()),
            room: calls::room(&folder),
            ends_with_session: names::ends_with_session(&folder) && !is_lingering(),
            removable: mode & 0o1002 == 0o002,
            named: is_named,
            path,
            own,
            others,
            living,
        }
    }
}

/// Returns true if systemd keeps this user's services when the user logs out. It then keeps their regions too.
fn is_lingering() -> bool {
    let name = std::env::var_os("USER").or_else(|| std::env::var_os("LOGNAME"));
    name.is_some_and(|name| Path::new("/var/lib/systemd/linger").join(name).exists())
}

fn look_at(opened: Result<Option<Monitor>, RegionError>, living: &mut Living) -> RegionState {
    let monitor = match opened {
        Ok(Some(monitor)) => monitor,
        Ok(None) => return RegionState::Absent,
        Err(error) if is_of_others(&error) => return RegionState::Foreign,
        Err(error) => return RegionState::Unusable(error.to_string()),
    };
    let _not_now = monitor.reap();
    let processes = monitor.processes();
    let holds = |process: &&gpuslice_region::ProcessView| {
        process.held.iter().any(|bytes| *bytes > 0) && process::is_near(process)
    };
    living.members.extend(processes.iter().filter(holds).map(|process| process.pid));
    if processes.is_empty() {
        return RegionState::Stale;
    }
    for device in monitor.devices() {
        let committed = living.committed.entry(format!("GPU-{}", device.uuid)).or_default();
        committed.add(device.total, &device.limits);
    }
    RegionState::Living(processes.len())
}

fn is_of_others(error: &RegionError) -> bool {
    match error {
        RegionError::Owner { .. } => true,
        RegionError::System { source, .. } => source.kind() == std::io::ErrorKind::PermissionDenied,
        _ => false,
    }
}

/// Returns the findings about the regions.
pub(super) fn examine(regions: &Regions, gpus: &[ProbedGpu]) -> Vec<Finding> {
    let path = regions.path.display();
    let mut findings = vec![folder(regions)];
    let two_regions = u64::try_from(file_space(1).saturating_mul(2)).unwrap_or(u64::MAX);
    if regions.trial.is_ok() && regions.room.is_some_and(|room| room.free < two_regions) {
        findings.push(Finding::warning(
            "region.room",
            format!("there is room for one more region at most where {path} is"),
            "make room there, or name another place in GPUSLICE_REGION",
        ));
    }
    if regions.removable {
        findings.push(Finding::warning(
            "region.rights",
            format!("anybody can remove or replace {path}: new processes of its slice would then be refused the GPU"),
            "chmod +t its folder, or name a folder of this user's own",
        ));
    }
    if regions.ends_with_session {
        findings.push(Finding::warning(
            "region.logout",
            format!("systemd removes {path} when this user logs out: its slice goes on, but new processes of it are refused"),
            "`loginctl enable-linger`, or RemoveIPC=no in logind.conf, or name a path on another tmpfs in GPUSLICE_REGION",
        ));
    }
    findings.extend(regions.removed.iter().map(|removed| {
        Finding::warning(
            "region.removed",
            removed.clone(),
            "end them and start them again; where it goes at a user's last log-out, `loginctl enable-linger` keeps it",
        )
    }));
    findings.extend(own(regions));
    findings.extend(regions.others.iter().filter_map(|(path, state)| other(path, state)));
    let living = regions.others.iter().filter(|(_, state)| matches!(state, RegionState::Living(_))).count();
    let foreign = regions.others.iter().filter(|(_, state)| *state == RegionState::Foreign).count();
    if living + foreign > 0 {
        let what =
            format!("{living} other slices live in /dev/shm, {foreign} regions there are other users'");
        findings.push(Finding::ok("region.others", what));
    }
    findings.extend(overcommitted(&regions.living.committed, gpus));
    findings
}

/// Returns the warnings about GPUs whose limits sum to more than the GPU has.
fn overcommitted(committed: &BTreeMap<String, Committed>, gpus: &[ProbedGpu]) -> Vec<Finding> {
    let warning = |what| {
        Finding::warning(
            "region.overcommit",
            what,
            "nothing, if that is meant; else lower limits with `gpuslice set SLICE --mem SIZE --cores PERCENT`",
        )
    };
    let of = |(uuid, committed): (&String, &Committed)| {
        // NVML lists the devices in the order of their numbers.
        let number = gpus.iter().position(|gpu| gpu.uuid == *uuid);
        committed.warnings(&number.map_or_else(|| uuid.clone(), |number| format!("GPU {number}")))
    };
    committed.iter().flat_map(of).map(warning).collect()
}

fn folder(regions: &Regions) -> Finding {
    let path = regions.path.display();
    let by = if regions.named { ", as a setting names it" } else { "" };
    match &regions.trial {
        Ok(()) => {
            let room =
                regions.room.map_or_else(String::new, |room| format!(", {} free", figures::size(room.free)));
            Finding::ok(
                "region.folder",
                format!("a region can be made at {path}{by}: file locks are kept{room}"),
            )
        }
        Err(why) => {
            let (what, mend) = split(why);
            Finding::error("region.folder", format!("no region can be made: {what}"), mend)
        }
    }
}

/// Splits a message of the library into the fault and its remedy.
fn split(message: &str) -> (&str, &str) {
    message.split_once("; ").unwrap_or((message, "name another path in GPUSLICE_REGION"))
}

fn own(regions: &Regions) -> Option<Finding> {
    let path = regions.path.display();
    match &regions.own {
        RegionState::Absent => None,
        RegionState::Living(count) => {
            let what = format!("{count} processes live in {path}: a program started from here joins them");
            Some(Finding::note("region.own", what, ""))
        }
        RegionState::Stale => Some(Finding::ok(
            "region.own",
            format!("{path} is there and no process lives in it: the next process makes it anew"),
        )),
        RegionState::Unusable(why) => {
            let (what, mend) = split(why);
            Some(Finding::error("region.own", what, mend))
        }
        RegionState::Foreign => Some(Finding::error(
            "region.own",
            format!("{path} belongs to another user, or may not be opened"),
            "name another path in GPUSLICE_REGION, or let that user give the right to read and write it",
        )),
    }
}

fn other(path: &Path, state: &RegionState) -> Option<Finding> {
    let shown = path.display();
    match state {
        RegionState::Stale => Some(Finding::note(
            "region.stale",
            format!("{shown} is left of a slice without a process"),
            format!("nothing: its next process makes it anew; or gpuslice remove {shown}"),
        )),
        RegionState::Unusable(why) => {
            let (what, mend) = split(why);
            Some(Finding::warning("region.unusable", what, mend))
        }
        RegionState::Absent | RegionState::Living(_) | RegionState::Foreign => None,
    }
}

/// Returns facts about regions without a fault.
#[cfg(test)]
pub(super) fn fine() -> Regions {
    Regions {
        path: "/dev/shm/gpuslice-0-1".into(),
        named: false,
        trial: Ok(()),
        room: Some(Room { total: 1 << 30, free: 1 << 30 }),
        ends_with_session: false,
        removable: false,
        own: RegionState::Absent,
        others: Vec::new(),
        removed: Vec::new(),
        living: Living::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    fn worst(regions: &Regions) -> (&'static str, Level) {
        let findings = examine(regions, &[]);
        findings.iter().max_by_key(|finding| finding.level).map(|f| (f.check, f.level)).unwrap()
    }

    #[test]
    fn an_unusable_region_of_the_own_slice_is_an_error_and_of_another_a_warning() {
        assert_eq!(worst(&fine()).1, Level::Ok);
        let version = RegionState::Unusable("x: region of version 3; remove it".to_owned());
        let own = Regions { own: version.clone(), ..fine() };
        assert_eq!(worst(&own), ("region.own", Level::Error));
        let other = Regions { others: vec![("/dev/shm/gpuslice-0-2".into(), version)], ..fine() };
        assert_eq!(worst(&other), ("region.unusable", Level::Warning));
        let stale = Regions { others: vec![("/dev/shm/gpuslice-0-2".into(), RegionState::Stale)], ..fine() };
        assert_eq!(worst(&stale), ("region.stale", Level::Note));
        assert_eq!(worst(&Regions { ends_with_session: true, ..fine() }), ("region.logout", Level::Warning));
        let removed = vec!["x was removed while in use by process 7".to_owned()];
        assert_eq!(worst(&Regions { removed, ..fine() }), ("region.removed", Level::Warning));
        let trial = Err("x: this file system forgets; name a path on a tmpfs".to_owned());
        assert_eq!(worst(&Regions { trial, ..fine() }), ("region.folder", Level::Error));
    }

    #[test]
    fn a_folder_without_room_or_without_the_sticky_bit_is_a_warning() {
        let room = Some(Room { total: 1 << 30, free: 2 << 20 });
        assert_eq!(worst(&Regions { room, ..fine() }), ("region.room", Level::Warning));
        assert_eq!(worst(&Regions { removable: true, ..fine() }), ("region.rights", Level::Warning));
    }
}
