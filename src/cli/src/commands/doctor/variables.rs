//! Finds variables whose names look like settings of gpuslice, and that no part of gpuslice reads.

use super::finding::Finding;
use gpuslice_policy::config::keys::{self, FILE_VARIABLES};

/// Prefixes of gpuslice's variables.
const BEGINNINGS: [&str; 4] = ["GPU_MEM_", "GPU_CORE_", "GPU_PRIORITY", "GPUSLICE_"];

/// Returns the findings about the variables of an environment.
pub(super) fn examine(environment: &[(String, Vec<u8>)]) -> Vec<Finding> {
    let set = environment.iter().filter(|(_, value)| !value.trim_ascii().is_empty());
    let mut names: Vec<&str> = set.map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names.into_iter().filter(|name| !keys::is_read(name)).filter_map(unread).collect()
}

/// Returns the warning about a variable that no part of gpuslice reads. Returns `None` if the name shows that the
/// variable belongs to another program.
fn unread(name: &str) -> Option<Finding> {
    if is_of_kubernetes(name) {
        return None;
    }
    let check = "settings.unknown";
    if name.starts_with("GPU_MEM_RESERV") {
        return Some(Finding::warning(
            check,
            format!("{name} is set, and nothing reserves memory: quotas may sum to more than the GPU has"),
            "unset it; to promise memory, let the quotas on a GPU sum to no more than it has (docs/guide/memory.md)",
        ));
    }
    let begins = BEGINNINGS.into_iter().find(|begins| name.starts_with(begins));
    // If a name begins like a setting, it is also compared with the variables for the places of files. Any other name counts only
    // if the library would warn of it.
    let family: Vec<&str> = keys::settings()
        .chain(FILE_VARIABLES)
        .filter(|known| begins.is_some_and(|begins| known.starts_with(begins)))
        .collect();
    let nearest = match family.as_slice() {
        [] => keys::resembled(name),
        [one] => Some(*one),
        several => keys::meant(name, several.iter().copied()).or_else(|| keys::resembled(name)),
    };
    let mend = match nearest {
        Some(known) => format!("rename it if {known} is meant, or unset it"),
        None if family.is_empty() => return None,
        None => format!("unset it; what is read and begins like it: {}", family.join(", ")),
    };
    Some(Finding::warning(check, format!("{name} is set, and no part of gpuslice reads it"), mend))
}

/// Returns true if Kubernetes could set a variable of this name. It does so for a Service whose name begins like gpuslice's own
/// names: `gpuslice`, `gpu-mem-…`.
fn is_of_kubernetes(name: &str) -> bool {
    let has_number = |(_, rest): (&str, &str)| rest.starts_with(|first: char| first.is_ascii_digit());
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.ends_with("_PORT")
        || name.split_once("_PORT_").is_some_and(has_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mends(name: &str) -> Option<String> {
        let environment = [(name.to_owned(), b"1".to_vec())];
        examine(&environment).into_iter().next().and_then(|finding| finding.mend)
    }

    #[test]
    fn the_nearest_name_is_told_and_far_ones_are_listed() {
        for (name, meant) in [
            ("GPU_MEM_LIMITS", "GPU_MEM_LIMIT"),
            ("GPU_MEM_LIMTI", "GPU_MEM_LIMIT"),
            ("GPU_MEM_OVERSUBSCRIPTION", "GPU_MEM_OVERSUBSCRIBE"),
            ("GPU_CORE_PERCENTAGE", "GPU_CORE_PERCENT"),
            ("GPU_CORE_WIGHT", "GPU_CORE_WEIGHT"),
            ("GPU_PRIORITY_CLASS", "GPU_PRIORITY"),
            ("GPUSLICE_CONF", "GPUSLICE_CONFIG"),
            ("GPUSLICE_LIBRARY", "GPUSLICE_LIB"),
            ("GPU_MEMORY_LIMIT", "GPU_MEM_LIMIT"),
            ("gpu_mem_limit", "GPU_MEM_LIMIT"),
            ("CUDA_DEVICE_SM_LIMITS", "CUDA_DEVICE_SM_LIMIT"),
        ] {
            let expected = format!("rename it if {meant} is meant, or unset it");
            assert_eq!(mends(name), Some(expected), "{name}");
        }
        let listed = mends("GPU_MEM_SIZE").unwrap_or_default();
        assert!(listed.ends_with(": GPU_MEM_LIMIT, GPU_MEM_OVERSUBSCRIBE, GPU_MEM_REPORT_TOTAL"), "{listed}");
        assert!(mends("GPU_CORE_LIMIT").unwrap_or_default().contains("GPU_CORE_PERCENT, GPU_CORE_POLICY"));
    }

    #[test]
    fn every_place_of_a_file_is_known() {
        let named = include_str!("../../../../slices/src/installed.rs")
            .split('"')
            .filter(|word| word.starts_with("GPUSLICE_"));
        let unknown: Vec<&str> = named.filter(|name| !FILE_VARIABLES.contains(name)).collect();
        assert_eq!(unknown, [""; 0]);
    }

    #[test]
    fn variables_of_gpuslice_and_of_other_software_are_no_finding() {
        for name in keys::settings().chain(FILE_VARIABLES) {
            assert_eq!(mends(name), None, "{name}");
        }
        for name in [
            "GPU_MAX_HEAP_SIZE",
            "GPUSLICE_SERVICE_HOST",
            "GPUSLICE_AGENT_SERVICE_PORT_METRICS",
            "GPUSLICE_PORT",
            "GPUSLICE_AGENT_PORT_9400_TCP_ADDR",
        ] {
            assert_eq!(mends(name), None, "{name}");
        }
        assert_eq!(examine(&[("GPU_MEM_LIMITS".to_owned(), b" ".to_vec())]), []);
    }
}
