//! Examines the state of the devices, and the effect of that state on slices.

use super::finding::Finding;
use super::probe::{Nvml, ProbedGpu};
use gpuslice_slices::nvml::PROHIBITED;

/// Facts about the environment of the devices.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DeviceEnvironment {
    /// Folder of the pipes of an MPS daemon, if there is a daemon where programs look for one.
    pub(super) mps: Option<String>,
    /// True if this machine is Linux under Windows (WSL).
    pub(super) wsl: bool,
    /// True if this process is in a process-number namespace of its own.
    pub(super) own_pids: bool,
    /// Numbers of the local processes that are members of slices and hold device memory.
    pub(super) members: Vec<u32>,
}

/// NVML's status if the device or the driver does not support a question.
const NOT_SUPPORTED: u32 = 3;
/// NVML's status if this user may not ask a question.
const NO_PERMISSION: u32 = 4;

/// Returns the findings about the devices.
pub(super) fn examine(nvml: Option<&Nvml>, around: &DeviceEnvironment) -> Vec<Finding> {
    let mut findings = Vec::new();
    if around.wsl {
        findings.push(Finding::note(
            "devices.wsl",
            "this is WSL: NVML names no processes there, so a slice does not notice programs outside of slices",
            "nothing; quotas and shares hold",
        ));
    }
    if let Some(pipes) = &around.mps {
        findings.push(mps(&format!("an MPS daemon is at {pipes}")));
    }
    for device in nvml.map_or(&[][..], |nvml| &nvml.devices) {
        findings.extend(state(device, around.mps.is_none()));
        findings.push(attribution(device, around));
    }
    findings
}

fn mps(what: &str) -> Finding {
    Finding::warning(
        "devices.mps",
        format!(
            "{what}: kernels of several processes run at the same time, and the time of a slice contains its \
             neighbours'"
        ),
        "end it (echo quit | nvidia-cuda-mps-control), or unset CUDA_MPS_PIPE_DIRECTORY for programs in slices",
    )
}

/// Returns the findings about a device's modes.
fn state(device: &ProbedGpu, tell_mps: bool) -> Vec<Finding> {
    let name = format!("{} ({})", device.uuid, device.name);
    let mut findings = Vec::new();
    match device.compute_mode {
        Some(1 | 3) => findings.push(Finding::warning(
            "devices.compute-mode",
            format!("{name} is in exclusive mode: the second process that uses it gets CUDA error 46"),
            "nvidia-smi -c 0, as root; in a container, on the host",
        )),
        Some(PROHIBITED) => findings.push(Finding::error(
            "devices.compute-mode",
            format!("{name} is in prohibited mode: no program can use it"),
            "nvidia-smi -c 0, as root; in a container, on the host",
        )),
        _ => {}
    }
    if device.mig == Some(true) {
        findings.push(Finding::note(
            "devices.mig",
            format!(
                "{name} is divided into instances (MIG): each is a device of its own; NVML does not tell how busy \
                 its processes are"
            ),
            "name instances by MIG-<uuid> in lists; give each busy slice an instance of its own",
        ));
    }
    match device.virtualization {
        Some(2) => findings.push(Finding::note(
            "devices.vgpu",
            format!(
                "{name} is a vGPU: what it gets of the GPU's time, its host decides, and a share is of that"
            ),
            "",
        )),
        Some(3 | 4) => findings.push(Finding::warning(
            "devices.vgpu",
            format!(
                "{name} serves vGPUs: they are not slices, and their time and memory are not seen from here"
            ),
            "use the GPU for vGPUs or for slices, not for both",
        )),
        _ => {}
    }
    if tell_mps && device.mps.is_some_and(|processes| processes > 0) {
        findings.push(mps(&format!("{name} has processes under MPS")));
    }
    if findings.is_empty() {
        findings.push(Finding::ok("devices.state", format!("{name}: no MIG, no MPS, no exclusive mode")));
    }
    findings
}

/// Judges whether NVML tells which process uses a device.
fn attribution(device: &ProbedGpu, around: &DeviceEnvironment) -> Finding {
    let check = "devices.attribution";
    let unseen = "a slice does not notice programs outside of slices";
    let name = &device.uuid;
    let Some(processes) = &device.processes else {
        return Finding::warning(
            check,
            format!("NVML does not list the processes of {name}: contexts count an estimate, and {unseen}"),
            "use a driver or device that does; quotas hold without it",
        );
    };
    match device.utilisation {
        None | Some(NOT_SUPPORTED) => {
            return Finding::note(
                check,
                format!("NVML does not tell how busy each process keeps {name}: {unseen}"),
                "nothing; quotas and shares hold",
            );
        }
        Some(NO_PERMISSION) => {
            return Finding::warning(
                check,
                format!("NVML does not tell this user how busy each process keeps {name}: {unseen}"),
                "let all users read the accounting counters: options nvidia NVreg_RestrictProfilingToAdminUsers=0",
            );
        }
        Some(_) => {}
    }
    if around.members.iter().any(|member| processes.contains(member)) {
        return Finding::ok(
            check,
            format!("NVML names the processes of slices on {name} by their own numbers"),
        );
    }
    if around.own_pids || !around.members.is_empty() {
        return Finding::note(
            check,
            format!(
                "NVML may name processes on {name} by numbers of the host, not by those of this container: contexts are \
                 measured by free memory"
            ),
            "nothing; quotas and shares hold",
        );
    }
    Finding::ok(check, format!("NVML tells the processes of {name} and how busy they are"))
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    fn levels(device: ProbedGpu, around: &DeviceEnvironment) -> Vec<(&'static str, Level)> {
        let nvml = Nvml { devices: vec![device], ..Nvml::default() };
        examine(Some(&nvml), around).iter().map(|finding| (finding.check, finding.level)).collect()
    }

    fn usual() -> ProbedGpu {
        ProbedGpu {
            compute_mode: Some(0),
            processes: Some(vec![7]),
            utilisation: Some(0),
            ..ProbedGpu::default()
        }
    }

    #[test]
    fn each_mode_is_reported_with_its_effect_on_a_slice() {
        let around = DeviceEnvironment::default();
        let fine = ("devices.attribution", Level::Ok);
        assert_eq!(levels(usual(), &around), [("devices.state", Level::Ok), fine]);
        for (mode, level) in [(1, Level::Warning), (3, Level::Warning), (2, Level::Error)] {
            let device = ProbedGpu { compute_mode: Some(mode), ..usual() };
            assert_eq!(levels(device, &around), [("devices.compute-mode", level), fine]);
        }
        let divided = ProbedGpu { mig: Some(true), utilisation: Some(3), ..usual() };
        let expected = [("devices.mig", Level::Note), ("devices.attribution", Level::Note)];
        assert_eq!(levels(divided, &around), expected);
        let host = ProbedGpu { virtualization: Some(3), ..usual() };
        assert_eq!(levels(host, &around), [("devices.vgpu", Level::Warning), fine]);
    }

    #[test]
    fn numbers_that_are_not_the_containers_are_told() {
        let attribution = |own_pids, members: &[u32]| {
            let around =
                DeviceEnvironment { own_pids, members: members.to_vec(), ..DeviceEnvironment::default() };
            levels(usual(), &around).last().copied()
        };
        assert_eq!(attribution(true, &[7]), Some(("devices.attribution", Level::Ok)));
        assert_eq!(attribution(true, &[]), Some(("devices.attribution", Level::Note)));
        assert_eq!(attribution(false, &[8]), Some(("devices.attribution", Level::Note)));
    }
}
