//! Which variables look like settings of ours and are read by nobody?

use super::finding::Finding;
use gpuslice_policy::config::Config;
use gpuslice_region::operator::Operator;
use std::cell::RefCell;
use std::collections::BTreeSet;

/// How variables of ours begin.
const BEGINNINGS: [&str; 4] = ["GPU_MEM_", "GPU_CORE_", "GPU_PRIORITY", "GPUSLICE_"];
/// Those that are no settings: they say where files are.
const PLACES: [&str; 4] = ["GPUSLICE_LIB", "GPUSLICE_SIMGPU", "GPUSLICE_TRUTH", "GPUSLICE_READ_LIB"];
/// From where on names are alike, by Jaro's measure: as it is where options are mistyped.
const ALIKE: f64 = 0.7;

/// What is found of the variables of an environment.
pub(super) fn examine(environment: &[(String, Vec<u8>)]) -> Vec<Finding> {
    let read = read();
    let set = environment.iter().filter(|(_, value)| !value.trim_ascii().is_empty());
    let mut names: Vec<&str> = set.map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names.into_iter().filter(|name| !read.contains(*name)).filter_map(|name| unread(name, &read)).collect()
}

/// The variables that are read: whatever the library asks for, and the places of files.
fn read() -> BTreeSet<String> {
    let names = RefCell::new(BTreeSet::from(PLACES.map(str::to_owned)));
    let ask = |name: &str| {
        names.borrow_mut().insert(name.to_owned());
        None
    };
    let _unlimited = Config::from_sources(&ask, &Operator::default().files());
    names.into_inner()
}

/// What is said of a variable that is not read; nothing where it is not ours by its name.
fn unread(name: &str, read: &BTreeSet<String>) -> Option<Finding> {
    let begins = BEGINNINGS.into_iter().find(|begins| name.starts_with(begins))?;
    if is_of_kubernetes(name) {
        return None;
    }
    let check = "settings.unknown";
    if name.starts_with("GPU_MEM_RESERV") {
        return Some(Finding::warning(
            check,
            format!("{name} is set, and nothing reserves memory: quotas may sum to more than the GPU has"),
            "unset it; to promise memory, let the quotas on a GPU sum to no more than it has (docs/operating.md)",
        ));
    }
    let rest = |known: &str| known.strip_prefix(begins).map(str::to_owned);
    let own = rest(name).unwrap_or_default();
    let family: Vec<&String> = read.iter().filter(|known| known.starts_with(begins)).collect();
    let alike = |known: &&String| rest(known).map_or(0.0, |rest| strsim::jaro(&own, &rest));
    let nearest = family.iter().copied().max_by(|a, b| alike(a).total_cmp(&alike(b)));
    let mend = match nearest.filter(|known| alike(known) > ALIKE || family.len() == 1) {
        Some(known) => format!("rename it if {known} is meant, or unset it"),
        None => {
            let names: Vec<&str> = family.into_iter().map(String::as_str).collect();
            format!("unset it; what is read and begins like it: {}", names.join(", "))
        }
    };
    Some(Finding::warning(check, format!("{name} is set, and no part of gpuslice reads it"), mend))
}

/// Whether Kubernetes sets a variable of this name for a Service that is named like us: `gpuslice`, `gpu-mem-…`.
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
        ] {
            let expected = format!("rename it if {meant} is meant, or unset it");
            assert_eq!(mends(name), Some(expected), "{name}");
        }
        let listed = mends("GPU_MEM_SIZE").unwrap_or_default();
        assert!(listed.ends_with(": GPU_MEM_LIMIT, GPU_MEM_OVERSUBSCRIBE"), "{listed}");
        assert!(mends("GPU_CORE_LIMIT").unwrap_or_default().contains("GPU_CORE_PERCENT, GPU_CORE_POLICY"));
    }

    #[test]
    fn every_place_of_a_file_is_known() {
        let named = include_str!("../installed.rs").split('"').filter(|word| word.starts_with("GPUSLICE_"));
        let unknown: Vec<&str> = named.filter(|name| !PLACES.contains(name)).collect();
        assert_eq!(unknown, [""; 0]);
    }

    #[test]
    fn what_is_read_is_no_finding_nor_is_what_others_set() {
        for name in read() {
            assert_eq!(mends(&name), None, "{name}");
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
