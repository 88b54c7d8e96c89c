//! Examines the parts of the machine or the container that a slice needs.

use super::calls::{self, Room};
use super::finding::Finding;
use gpuslice_region::{FIRST_PID_NAMESPACE, own_pid_namespace};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Inode of the initial IPC namespace of a machine.
const FIRST_IPC_NAMESPACE: u64 = 0xEFFF_FFFF;
/// Fewest free bytes that `/dev/shm` should have. They are enough for some regions, and for the programs' own files.
const LITTLE: u64 = 16 << 20;

/// Facts about the machine or the container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Machine {
    /// Kind of the container, if the doctor runs in one.
    pub(super) container: Option<&'static str>,
    /// Value of `NVIDIA_VISIBLE_DEVICES`.
    pub(super) visible: Option<String>,
    /// Value of `NVIDIA_DRIVER_CAPABILITIES`.
    pub(super) capabilities: Option<String>,
    /// The files `/dev/nvidia*`. The flag of a file is true if this user may use it.
    pub(super) files: Vec<(PathBuf, bool)>,
    /// Size of `/dev/shm`; `None` if that is no folder.
    pub(super) shm: Option<Room>,
    /// True if this process is in a process-number namespace of its own.
    pub(super) own_pids: bool,
    /// True if the doctor runs in a container that shares the host's `/dev/shm`.
    pub(super) host_ipc: bool,
    /// True if this machine is Linux under Windows (WSL).
    pub(super) wsl: bool,
}

impl Machine {
    /// Reads the facts about the machine.
    pub(super) fn look() -> Self {
        let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let inode = |path| fs::metadata(path).map_or(0, |found| found.ino());
        let pids = own_pid_namespace();
        let own_pids = pids != FIRST_PID_NAMESPACE && pids != 0;
        let container = container();
        Self {
            container,
            visible: variable("NVIDIA_VISIBLE_DEVICES"),
            capabilities: variable("NVIDIA_DRIVER_CAPABILITIES"),
            files: files(),
            shm: calls::room(Path::new("/dev/shm")).filter(|_| Path::new("/dev/shm").is_dir()),
            own_pids,
            host_ipc: (own_pids || container.is_some()) && inode("/proc/self/ns/ipc") == FIRST_IPC_NAMESPACE,
            wsl: Path::new("/dev/dxg").exists(),
        }
    }
}

fn container() -> Option<&'static str> {
    let places = [("/.dockerenv", "docker"), ("/run/.containerenv", "podman")];
    let found = places.into_iter().find(|(path, _)| Path::new(path).exists()).map(|(_, name)| name);
    found.or_else(|| std::env::var_os("KUBERNETES_SERVICE_HOST").map(|_| "Kubernetes"))
}

/// Returns the driver's device files, each with true if this user may use it. Opening the file of a GPU may start the GPU,
/// so the doctor only reads its rights. It also opens the control file, because a container's device rules and mounts may
/// forbid access that the rights allow.
fn files() -> Vec<(PathBuf, bool)> {
    let entries = fs::read_dir("/dev").into_iter().flatten().flatten().map(|entry| entry.path());
    let is_one = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.strip_prefix("nvidia")
            .is_some_and(|rest| rest == "ctl" || rest == "-uvm" || rest.parse::<u32>().is_ok())
    };
    let mut files: Vec<PathBuf> = entries.filter(is_one).collect();
    files.sort();
    files.into_iter().map(|path| (path.clone(), calls::may_use(&path) && !is_denied(&path))).collect()
}

fn is_denied(path: &Path) -> bool {
    let is_control = path.file_name().is_some_and(|name| name == "nvidiactl");
    let open = || fs::File::options().read(true).write(true).open(path);
    is_control && open().is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
}

/// Returns the findings about the machine.
pub(super) fn examine(machine: &Machine, has_driver: bool) -> Vec<Finding> {
    let mut findings = vec![shm(machine.shm)];
    if let Some(kind) = machine.container {
        findings.push(Finding::ok("machine.container", format!("this is a container ({kind})")));
    }
    findings.extend(brought_in(machine, has_driver));
    findings.extend(device_files(machine));
    if machine.host_ipc {
        findings.push(Finding::note(
            "machine.ipc",
            "this container shares the host's IPC (--ipc=host), and as a rule its /dev/shm: regions of other containers \
             lie in it; each container is a slice of its own all the same",
            "",
        ));
    }
    findings
}

fn shm(room: Option<Room>) -> Finding {
    let size = gpuslice_slices::figures::size;
    match room {
        None => Finding::error(
            "machine.shm",
            "there is no /dev/shm, where regions are unless they are named",
            "mount a tmpfs there, or name another place in GPUSLICE_REGION",
        ),
        Some(room) if room.free < LITTLE => Finding::warning(
            "machine.shm",
            format!(
                "/dev/shm has {} free of {}; a slice takes 1.2 MiB of it",
                size(room.free),
                size(room.total)
            ),
            "remove files that no program uses there; give a container more: --shm-size=1g",
        ),
        Some(room) => Finding::ok(
            "machine.shm",
            format!("/dev/shm has {} free of {}", size(room.free), size(room.total)),
        ),
    }
}

/// Returns the findings about the settings that the container toolkit reads.
fn brought_in(machine: &Machine, has_driver: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    match machine.visible.as_deref() {
        Some(none @ ("none" | "void")) => findings.push(Finding::warning(
            "machine.nvidia",
            format!("NVIDIA_VISIBLE_DEVICES is {none}: the container toolkit brings no GPU in"),
            "ask for a GPU where the container is started: --gpus all, or nvidia.com/gpu in Kubernetes",
        )),
        Some(devices) => {
            findings.push(Finding::ok("machine.nvidia", format!("NVIDIA_VISIBLE_DEVICES is {devices}")));
        }
        None if machine.container.is_some() && !has_driver => findings.push(Finding::note(
            "machine.nvidia",
            "NVIDIA_VISIBLE_DEVICES is not set: the container toolkit was not asked for a GPU",
            "start the container with --gpus all",
        )),
        None => {}
    }
    let capabilities = machine.capabilities.as_deref().unwrap_or("all");
    let has = |wanted: &str| capabilities.split(',').any(|word| word == "all" || word == wanted);
    let missing: Vec<&str> = ["compute", "utility"].into_iter().filter(|wanted| !has(wanted)).collect();
    if !missing.is_empty() {
        findings.push(Finding::warning(
            "machine.nvidia",
            format!("NVIDIA_DRIVER_CAPABILITIES is {capabilities}, without {}", missing.join(" and ")),
            "set it to compute,utility: libcuda comes with the first, NVML with the second",
        ));
    }
    findings
}

fn device_files(machine: &Machine) -> Option<Finding> {
    let closed: Vec<String> = machine
        .files
        .iter()
        .filter(|(_, usable)| !usable)
        .map(|(path, _)| path.display().to_string())
        .collect();
    if !closed.is_empty() {
        return Some(Finding::error(
            "machine.device-files",
            format!("this user may not use {}", closed.join(", ")),
            "chmod a+rw on the host, or give the user the group that owns them; a container gets the right to use them with \
             --gpus all",
        ));
    }
    let names: Vec<_> =
        machine.files.iter().filter_map(|(path, _)| Some(path.file_name()?.to_string_lossy())).collect();
    (!names.is_empty()).then(|| Finding::ok("machine.device-files", format!("/dev has {}", names.join(", "))))
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    fn worst(machine: Machine) -> (&'static str, Level) {
        let room = Some(Room { total: 1 << 30, free: 1 << 30 });
        let findings = examine(&Machine { shm: machine.shm.or(room), ..machine }, false);
        findings.iter().max_by_key(|finding| finding.level).map(|f| (f.check, f.level)).unwrap()
    }

    #[test]
    fn resources_that_a_container_was_not_given_are_reported() {
        let of = |name: &str| Some(name.to_owned());
        assert_eq!(worst(Machine::default()).1, Level::Ok);
        let void = Machine { visible: of("void"), ..Machine::default() };
        assert_eq!(worst(void), ("machine.nvidia", Level::Warning));
        let utility = Machine { capabilities: of("utility"), ..Machine::default() };
        assert_eq!(worst(utility), ("machine.nvidia", Level::Warning));
        let both = Machine { capabilities: of("utility,compute"), visible: of("all"), ..Machine::default() };
        assert_eq!(worst(both).1, Level::Ok);
        let unasked = Machine { container: Some("docker"), ..Machine::default() };
        assert_eq!(worst(unasked), ("machine.nvidia", Level::Note));
    }

    #[test]
    fn files_that_cannot_be_used_and_a_full_shm_are_told() {
        let closed = Machine { files: vec![("/dev/nvidia0".into(), false)], ..Machine::default() };
        assert_eq!(worst(closed), ("machine.device-files", Level::Error));
        let full = Machine { shm: Some(Room { total: 64 << 20, free: 1 << 20 }), ..Machine::default() };
        assert_eq!(worst(full), ("machine.shm", Level::Warning));
        let room = examine(&Machine::default(), false);
        assert_eq!(room.first().map(|finding| finding.level), Some(Level::Error));
    }
}
