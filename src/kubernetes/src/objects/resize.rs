//! The annotation of a pod by which its user requests other amounts than the pod started with.

use super::alloc::{Alloc, Part};
use super::annotation;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Name of the annotation.
pub const RESIZE: &str = "gpuslice.dev/resize";

/// Amounts of all slices of a container together. An amount that is not given stays.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Amounts {
    #[serde(rename = "memMiB")]
    mem_mib: Option<u64>,
    core: Option<u32>,
}

/// Amounts that the user of a pod wants for its containers.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Resize {
    v: u32,
    c: BTreeMap<String, Amounts>,
}

impl Resize {
    /// Reads the annotation.
    ///
    /// # Errors
    /// The errors of [`Alloc::parse`].
    pub fn parse(text: &str) -> Result<Self, String> {
        annotation::parse(RESIZE, text, |resize: &Self| resize.v)
    }

    /// Returns the parts of the containers with the new amounts, on the GPUs that the containers already have.
    ///
    /// # Errors
    /// A container has no slices, or an amount is invalid; the message contains both.
    pub fn parts(&self, alloc: &Alloc) -> Result<BTreeMap<String, Vec<Part>>, String> {
        let mut parts = alloc.c.clone();
        for (container, amounts) in &self.c {
            let has = parts.get_mut(container).filter(|parts| !parts.is_empty());
            let has = has.ok_or_else(|| format!("the container {container} has no slices"))?;
            let slices = u64::try_from(has.len()).unwrap_or(u64::MAX);
            let of_each = |what: &str, total: u64, most: u64| match total.checked_rem(slices) {
                Some(0) if (1..=most.saturating_mul(slices)).contains(&total) => {
                    Ok(total.checked_div(slices).unwrap_or(0))
                }
                _ => Err(format!("container {container}: {what} {total} is no amount of {slices} slices")),
            };
            let memory = amounts.mem_mib.map(|total| of_each("memMiB", total, u64::from(u32::MAX)));
            let core = amounts.core.map(|total| of_each("core", total.into(), 100));
            let (memory, core) = (memory.transpose()?, core.transpose()?);
            for part in has {
                part.mem_mib = memory.unwrap_or(part.mem_mib);
                part.core = core.map_or(part.core, |core| u32::try_from(core).unwrap_or(100));
            }
        }
        Ok(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alloc() -> Alloc {
        let part = |uuid| format!(r#"{{"uuid":"{uuid}","memMiB":4096,"core":0}}"#);
        let (a, b) = (part("GPU-a"), part("GPU-b"));
        let c = format!(r#"{{"one":[{a}],"two":[{a},{b}]}}"#);
        Alloc::parse(&format!(r#"{{"v":1,"uid":"u","node":"n","gen":1,"at":"","c":{c}}}"#)).unwrap()
    }

    fn resized(text: &str) -> Result<BTreeMap<String, Vec<Part>>, String> {
        Resize::parse(text)?.parts(&alloc())
    }

    #[test]
    fn totals_are_divided_and_other_amounts_stay() {
        let parts = resized(r#"{"v":1,"c":{"two":{"memMiB":6000,"core":50}}}"#).unwrap();
        assert_eq!(parts["one"], alloc().c["one"]);
        let amounts: Vec<_> =
            parts["two"].iter().map(|part| (part.uuid.as_str(), part.mem_mib, part.core)).collect();
        assert_eq!(amounts, [("GPU-a", 3000, 25), ("GPU-b", 3000, 25)]);
        assert_eq!(resized(r#"{"v":1,"c":{"one":{"core":40}}}"#).unwrap()["one"][0].mem_mib, 4096);
    }

    #[test]
    fn impossible_amounts_are_refused_with_the_container() {
        for (text, says) in [
            (r#"{"v":1,"c":{"three":{"core":1}}}"#, "the container three has no slices"),
            (r#"{"v":1,"c":{"two":{"memMiB":6001}}}"#, "container two: memMiB 6001 is no amount of 2 slices"),
            (r#"{"v":1,"c":{"one":{"memMiB":0}}}"#, "memMiB 0 is no amount"),
            (r#"{"v":1,"c":{"one":{"core":0}}}"#, "core 0 is no amount"),
            (r#"{"v":1,"c":{"one":{"core":101}}}"#, "core 101 is no amount"),
            (r#"{"v":2,"c":{}}"#, "has the version 2"),
            (r#"{"v":1,"c":{"one":{"core":-1}}}"#, "gpuslice.dev/resize cannot be read"),
        ] {
            let why = resized(text).unwrap_err();
            assert!(why.contains(says), "{why}");
        }
    }
}
