//! Examines the driver: its presence, its version, and its start.

use super::asking::ProbeOutcome;
use super::finding::Finding;
use super::probe::{Cuda, Nvml};
use std::path::Path;

/// The oldest version of CUDA with which gpuslice is tested. It comes with driver 470.
const OLDEST: i32 = 11040;

const MACHINE_OR_CONTAINER: &str = "install the NVIDIA driver; in a container, start it with --gpus all (docker) or \
    ask for a GPU (Kubernetes), so that the container toolkit brings the driver's libraries in";

/// Returns the findings about the driver. `kernel` is the version of the driver's kernel module, if it is loaded.
pub(super) fn examine(
    cuda: &ProbeOutcome<Cuda>,
    nvml: &ProbeOutcome<Nvml>,
    kernel: Option<&str>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    match cuda {
        ProbeOutcome::Answer(cuda, _) => findings.extend(examine_cuda(cuda)),
        ProbeOutcome::Hangs(step) => findings.push(hangs("driver.cuda", step)),
        ProbeOutcome::Failed { how, step, said } => findings.push(died("driver.cuda", how, step, said)),
    }
    match nvml {
        ProbeOutcome::Answer(nvml, _) => findings.extend(examine_nvml(nvml)),
        ProbeOutcome::Hangs(step) => findings.push(hangs("driver.nvml", step)),
        ProbeOutcome::Failed { how, step, said } => findings.push(died("driver.nvml", how, step, said)),
    }
    if let (ProbeOutcome::Answer(cuda, _), ProbeOutcome::Answer(nvml, _)) = (cuda, nvml) {
        findings.extend(compare(cuda, nvml, kernel));
    }
    findings
}

fn hangs(check: &'static str, step: &str) -> Finding {
    Finding::error(
        check,
        format!("the driver does not come back from {step}"),
        "look for NVRM or Xid lines in `dmesg`; if the driver is only slow to start, try `gpuslice doctor --timeout 60`, \
         and let nvidia-persistenced keep it started",
    )
}

fn died(check: &'static str, how: &str, step: &str, said: &str) -> Finding {
    let said = said.lines().next().unwrap_or_default();
    Finding::error(
        check,
        format!("the process that asks the driver ended at {step}: {how} {said}"),
        "reinstall the driver's libraries, of one version with the kernel module",
    )
}

fn examine_cuda(cuda: &Cuda) -> Vec<Finding> {
    let Some(path) = &cuda.path else {
        let why = cuda.missing.as_deref().unwrap_or("it has no cuInit");
        return vec![Finding::error(
            "driver.cuda",
            format!("libcuda.so.1 cannot be loaded: {why}"),
            MACHINE_OR_CONTAINER,
        )];
    };
    let version = cuda.version.map_or_else(
        || "its version is not told".to_owned(),
        |version| format!("CUDA {}.{}", version / 1000, version % 1000 / 10),
    );
    let what = format!("libcuda.so.1 is {}, {version}", path.display());
    let mut findings = vec![match cuda.version {
        Some(version) if version < OLDEST => Finding::warning(
            "driver.cuda",
            format!("{what}: older than what gpuslice is tested with"),
            "install driver 470 or newer",
        ),
        _ => Finding::ok("driver.cuda", what),
    }];
    if is_stub(path) {
        findings.push(stub(path));
    }
    findings.push(init(cuda));
    findings.extend(cuda.host_memory.iter().map(|device| {
        Finding::note(
            "driver.host-memory",
            format!(
                "memory of {device} is the host's, and what is free moves with programs that use no GPU: contexts and code \
                 count by estimates where NVML does not tell what a process holds"
            ),
            "nothing; set limits with room for these estimates",
        )
    }));
    findings.extend(look_ups(cuda));
    findings
}

/// Returns findings about functions that `cuGetProcAddress` returns although the driver does not export them, and about driver
/// functions that this version of gpuslice does not know.
fn look_ups(cuda: &Cuda) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !cuda.hidden.is_empty() {
        findings.push(Finding::error(
            "driver.look-ups",
            format!(
                "cuGetProcAddress gives addresses that the driver does not export, so that GPU work under a limit is \
                 refused: {}",
                cuda.hidden.join(", ")
            ),
            "use a newer gpuslice, or a driver of a series that gpuslice was tried with",
        ));
    }
    if !cuda.unknown.is_empty() {
        findings.push(Finding::warning(
            "driver.functions",
            format!(
                "the driver has functions that take memory or submit work and that gpuslice {} does not know: {}",
                env!("CARGO_PKG_VERSION"),
                cuda.unknown.join(", ")
            ),
            "use a newer gpuslice: calls of these functions are not limited",
        ));
    }
    findings
}

/// Returns true if `path` is a stub library of the CUDA toolkit. A stub exports the driver's names, and does nothing.
fn is_stub(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "stubs")
}

fn stub(path: &Path) -> Finding {
    Finding::error(
        "driver.stub",
        format!("{} is a stub to link with, not a driver", path.display()),
        "take the folder `stubs` out of LD_LIBRARY_PATH and of ld.so.conf",
    )
}

/// Returns the finding about the status that `cuInit` returned.
fn init(cuda: &Cuda) -> Finding {
    let Some(code) = cuda.init else {
        return Finding::error("driver.init", "libcuda.so.1 has no cuInit", "install the NVIDIA driver");
    };
    if code == 0 {
        let devices = match cuda.devices.len() {
            1 => "1 device".to_owned(),
            number => format!("{number} devices"),
        };
        return Finding::ok("driver.init", format!("cuInit succeeds and shows {devices}"));
    }
    let (name, mend) = explain(code);
    Finding::error("driver.init", format!("cuInit returns {code}, {name}"), mend)
}

/// Returns the meaning of a status of `cuInit`, and its remedy.
pub(super) fn explain(code: u32) -> (&'static str, &'static str) {
    match code {
        2 => (
            "CUDA_ERROR_OUT_OF_MEMORY: there is no memory to start with",
            "look with `free` and `nvidia-smi` at who has it",
        ),
        34 => (
            "CUDA_ERROR_STUB_LIBRARY: what was loaded is a stub to link with",
            "take the folder `stubs` out of LD_LIBRARY_PATH and of ld.so.conf",
        ),
        35 | 36 => (
            "the driver is older than what the program needs",
            "install a newer driver, or CUDA's compatibility package",
        ),
        46 => (
            "CUDA_ERROR_DEVICE_UNAVAILABLE: another process has the GPU for itself",
            "set its compute mode back: nvidia-smi -c 0",
        ),
        100 => (
            "CUDA_ERROR_NO_DEVICE: the driver's library sees no GPU",
            "load the kernel module (nvidia-smi says whether it is), look at CUDA_VISIBLE_DEVICES; in a container, \
             start it with --gpus all, so that /dev/nvidia* are there",
        ),
        101 => {
            ("CUDA_ERROR_INVALID_DEVICE", "look at CUDA_VISIBLE_DEVICES: it names a device that is not there")
        }
        304 => (
            "CUDA_ERROR_OPERATING_SYSTEM: a system call of the driver failed",
            "look at the rights of /dev/nvidia*, and whether the nvidia-uvm module is loaded",
        ),
        800 => (
            "CUDA_ERROR_NOT_PERMITTED: another preloaded library refuses it",
            "see the findings on preloading",
        ),
        802 => (
            "CUDA_ERROR_SYSTEM_NOT_READY: the machine's GPUs are not yet connected",
            "start the fabric manager, of the driver's version: systemctl start nvidia-fabricmanager",
        ),
        803 => (
            "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: library and kernel module are of different versions",
            "reload the kernel module or reboot after an update; in a container, take the libcuda.so of the image out",
        ),
        804 => (
            "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE: CUDA's compatibility package is for data centre GPUs",
            "take the folder `compat` out of LD_LIBRARY_PATH and of ld.so.conf",
        ),
        805..=808 => (
            "the MPS daemon cannot be used",
            "restart it (nvidia-cuda-mps-control), or unset CUDA_MPS_PIPE_DIRECTORY",
        ),
        999 => (
            "CUDA_ERROR_UNKNOWN: the kernel module did not answer as it should",
            "modprobe nvidia-uvm; after a suspend, reload it; look for NVRM or Xid lines in `dmesg`",
        ),
        _ => (
            "which the driver's documentation explains",
            "run `nvidia-smi`, and look for NVRM or Xid lines in `dmesg`",
        ),
    }
}

fn examine_nvml(nvml: &Nvml) -> Vec<Finding> {
    let Some(path) = &nvml.path else {
        let why = nvml.missing.as_deref().unwrap_or("it has no nvmlInit_v2");
        return vec![Finding::warning(
            "driver.nvml",
            format!(
                "libnvidia-ml.so.1 cannot be loaded ({why}): a slice does not notice programs outside of slices"
            ),
            "install it with the driver; in a container, add `utility` to NVIDIA_DRIVER_CAPABILITIES",
        )];
    };
    let version = nvml.driver.as_deref().map_or_else(String::new, |version| format!(", driver {version}"));
    let what = format!("libnvidia-ml.so.1 is {}{version}", path.display());
    match nvml.init {
        Some(0) => vec![Finding::ok("driver.nvml", what)],
        code => {
            let code = code.unwrap_or(13);
            let (name, mend) = explain_nvml(code);
            vec![Finding::error("driver.nvml", format!("{what}; nvmlInit returns {code}, {name}"), mend)]
        }
    }
}

/// Returns the meaning of a status of `nvmlInit`, and its remedy.
pub(super) fn explain_nvml(code: u32) -> (&'static str, &'static str) {
    match code {
        4 => (
            "NVML_ERROR_NO_PERMISSION",
            "look at the rights of /dev/nvidiactl and at the container's device rules",
        ),
        9 => (
            "NVML_ERROR_DRIVER_NOT_LOADED: the kernel module is not loaded",
            "modprobe nvidia; in a container, do it on the host and start the container with --gpus all",
        ),
        12 => ("NVML_ERROR_LIBRARY_NOT_FOUND", "reinstall the driver's libraries"),
        15 => ("NVML_ERROR_GPU_IS_LOST", "look for Xid lines in `dmesg`; reset the GPU or reboot"),
        18 => (
            "NVML_ERROR_LIB_RM_VERSION_MISMATCH: library and kernel module are of different versions",
            "reload the kernel module or reboot after an update; in a container, take the image's own libraries out",
        ),
        _ => (
            "which NVML's documentation explains",
            "run `nvidia-smi`, and look for NVRM or Xid lines in `dmesg`",
        ),
    }
}

/// Returns the version in a file's name. Example: `550.54.15` in `libcuda.so.550.54.15`.
fn version_in(path: &Path) -> Option<&str> {
    let version = path.file_name()?.to_str()?.split_once(".so.")?.1;
    version.contains('.').then_some(version)
}

/// Judges whether the libraries and the kernel module have the same version.
fn compare(cuda: &Cuda, nvml: &Nvml, kernel: Option<&str>) -> Option<Finding> {
    let library = |path: &Option<std::path::PathBuf>| path.as_deref().and_then(version_in).map(str::to_owned);
    let named = [
        ("libcuda.so.1", library(&cuda.path)),
        ("libnvidia-ml.so.1", library(&nvml.path)),
        ("the kernel module", kernel.map(str::to_owned)),
    ];
    let known: Vec<(&str, String)> =
        named.into_iter().filter_map(|(name, version)| Some((name, version?))).collect();
    let first = known.first()?;
    let told = || {
        let each: Vec<String> = known.iter().map(|(name, version)| format!("{name} {version}")).collect();
        each.join(", ")
    };
    if known.iter().any(|(_, version)| *version != first.1) {
        return Some(Finding::error(
            "driver.versions",
            format!("parts of the driver are of different versions: {}", told()),
            "install one version; after an update reboot or reload the module; in a container, take the image's own \
             libraries out",
        ));
    }
    (known.len() > 1).then(|| Finding::ok("driver.versions", format!("all of one version: {}", told())))
}

/// Returns the version in `/proc/driver/nvidia/version`. It follows the module's kind and two spaces.
pub(super) fn kernel_version(text: &str) -> Option<&str> {
    let line = text.lines().find(|line| line.starts_with("NVRM version:"))?;
    line.split_ascii_whitespace()
        .find(|word| word.contains('.') && word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'))
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    fn answer<T>(answer: T) -> ProbeOutcome<T> {
        ProbeOutcome::Answer(answer, String::new())
    }

    fn libraries(cuda: &str, nvml: &str) -> (ProbeOutcome<Cuda>, ProbeOutcome<Nvml>) {
        let cuda = Cuda { path: Some(cuda.into()), version: Some(12040), init: Some(0), ..Cuda::default() };
        let nvml = Nvml { path: Some(nvml.into()), init: Some(0), ..Nvml::default() };
        (answer(cuda), answer(nvml))
    }

    fn level(findings: &[Finding], check: &str) -> Option<Level> {
        findings.iter().find(|finding| finding.check == check).map(|finding| finding.level)
    }

    #[test]
    fn parts_of_different_versions_are_an_error_and_unknown_versions_are_not() {
        let (cuda, nvml) = libraries("/l/libcuda.so.550.54.15", "/l/libnvidia-ml.so.550.54.15");
        assert_eq!(level(&examine(&cuda, &nvml, Some("550.54.15")), "driver.versions"), Some(Level::Ok));
        assert_eq!(level(&examine(&cuda, &nvml, Some("535.1")), "driver.versions"), Some(Level::Error));
        let (cuda, nvml) = libraries("/l/libcuda.so.550.54.15", "/l/libnvidia-ml.so.535.1");
        assert_eq!(level(&examine(&cuda, &nvml, None), "driver.versions"), Some(Level::Error));
        let (cuda, nvml) = libraries("/l/libcuda.so.1", "/l/libnvidia-ml.so.1");
        assert_eq!(level(&examine(&cuda, &nvml, Some("535.1")), "driver.versions"), None);
    }

    #[test]
    fn the_modules_version_is_read_whatever_the_modules_kind() {
        let text =
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.82.01  Wed Oct 27\nGCC version:  gcc 9.3.0";
        assert_eq!(kernel_version(text), Some("470.82.01"));
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build";
        assert_eq!(kernel_version(open), Some("550.54.15"));
        assert_eq!(kernel_version("GCC version: 9.3.0"), None);
    }

    #[test]
    fn a_stub_an_old_driver_and_one_that_does_not_start_are_told_apart() {
        let (ProbeOutcome::Answer(cuda, _), nvml) =
            libraries("/cuda/lib64/stubs/libcuda.so", "/l/libnvidia-ml.so.1")
        else {
            panic!("no answer")
        };
        let old = Cuda { version: Some(11000), init: Some(100), ..cuda };
        let findings = examine(&answer(old), &nvml, None);
        assert_eq!(level(&findings, "driver.stub"), Some(Level::Error));
        assert_eq!(level(&findings, "driver.cuda"), Some(Level::Warning));
        assert_eq!(level(&findings, "driver.init"), Some(Level::Error));
    }
}
