//! The annotation of a pod that has the parts of GPUs of each of its containers.

use super::annotation;
use gpuslice_region::Limits;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Name of the annotation.
pub const ALLOC: &str = "gpuslice.dev/alloc";

/// A part of a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// UUID of the GPU, in NVML's form.
    pub uuid: String,
    /// Mebibytes of the GPU's memory.
    #[serde(rename = "memMiB")]
    pub mem_mib: u64,
    /// Percent of the GPU's time. 0 means no limit; such a part reserves no time.
    pub core: u32,
}

impl Part {
    /// Returns the limits of a slice on the part's GPU. Memory and share are those of the part, and all other settings those of
    /// `rest`.
    #[must_use]
    pub fn limits(&self, rest: Limits) -> Limits {
        let cores_permille = match self.core {
            0 => Limits::NONE.cores_permille,
            percent => percent.saturating_mul(10),
        };
        Limits { memory: Some(self.mem_mib.saturating_mul(1 << 20)), cores_permille, ..rest }
    }
}

/// The parts of a pod's containers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alloc {
    /// [`ANNOTATION_VERSION`](annotation::ANNOTATION_VERSION).
    pub v: u32,
    /// UID of the pod. A later pod of the same name has another UID, so it does not get these parts.
    pub uid: String,
    /// Node that has the GPUs.
    pub node: String,
    /// Number of versions of the parts so far, from 1.
    #[serde(rename = "gen")]
    pub generation: u64,
    /// Time of the decision, in the form of RFC 3339.
    pub at: String,
    /// Parts by the container's name. All parts of one container are on different GPUs.
    pub c: BTreeMap<String, Vec<Part>>,
}

impl Alloc {
    /// Reads the annotation. Unknown keys are ignored.
    ///
    /// # Errors
    /// The text is not in the form of this annotation, or has another version. The message contains the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        annotation::parse(ALLOC, text, |alloc: &Self| alloc.v)
    }

    /// Returns all parts.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        self.c.values().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_annotation_has_the_documented_form() {
        let text = r#"{"v":1,"uid":"u","node":"n1","gen":1,"at":"2026-01-01T00:00:00Z","c":{"main":[{"uuid":"GPU-a","memMiB":4096,"core":30}]}}"#;
        let alloc = Alloc::parse(text).unwrap();
        assert_eq!(alloc.parts().next().unwrap().mem_mib, 4096);
        assert_eq!(serde_json::to_string(&alloc).unwrap(), text);
        assert!(Alloc::parse(&text.replace("\"core\"", "\"new\":0,\"core\"")).is_ok());
    }

    #[test]
    fn another_version_and_other_texts_are_refused_with_the_text() {
        for text in [r#"{"v":2,"uid":"u","node":"n","gen":1,"at":"","c":{}}"#, "{", "{\"v\":1}"] {
            let why = Alloc::parse(text).unwrap_err();
            assert!(why.contains(ALLOC) && why.contains(&format!("{text:?}")), "{why}");
        }
    }
}
