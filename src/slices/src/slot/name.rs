//! Names of slices.

use std::fmt;
use std::fs;
use std::path::Path;
use std::str::FromStr;

/// Most characters of a name: the kubelet accepts no more in the name of a device.
const NAME_LENGTH: usize = 63;

/// Start of the names of slices that are devices of the kubelet. A number follows.
pub const SLOT: &str = "slot-";
/// Start of the names of slices that are made for a Kubernetes resource claim. The claim's UID follows.
pub const CLAIM: &str = "claim-";

/// A name that a slice can have as a CDI device, a folder and a label.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

impl Name {
    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true if the slice is a device of the kubelet: `slot-3`.
    #[must_use]
    pub fn is_slot(&self) -> bool {
        self.0.strip_prefix(SLOT).is_some_and(|number| number.parse::<u32>().is_ok())
    }

    /// Returns true if the slice is made for a resource claim: `claim-<uid>`.
    #[must_use]
    pub fn is_claim(&self) -> bool {
        self.0.starts_with(CLAIM)
    }

    /// Returns true if the kubelet owns the slice. The agent removes such a slice when no pod has it.
    #[must_use]
    pub fn is_of_kubelet(&self) -> bool {
        self.is_slot() || self.is_claim()
    }

    /// Returns the entries of a folder whose names can be names of slices. Returns none of them if the folder cannot be read.
    pub fn all_in(folder: &Path) -> impl Iterator<Item = Self> + use<> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl FromStr for Name {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let usual = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        let ends = [text.bytes().next(), text.bytes().last()];
        let ends_well = ends.iter().all(|byte| byte.is_some_and(|byte| byte.is_ascii_alphanumeric()));
        if ends_well && text.len() <= NAME_LENGTH && text.bytes().all(usual) {
            return Ok(Self(text.to_owned()));
        }
        Err(format!(
            "a slice's name begins and ends with a letter or digit and has up to {NAME_LENGTH} letters, digits and any of - _ ."
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_form_that_cdi_allows() {
        for good in ["a", "7", "team-1", "2026.01_x", &"x".repeat(63)] {
            assert!(good.parse::<Name>().is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "-x", "x-", "a b", "a:b", "ä", &"x".repeat(64)] {
            assert!(bad.parse::<Name>().is_err(), "{bad}");
        }
    }

    #[test]
    fn names_of_the_kubelet_are_known() {
        let is_of_kubelet = |name: &str| name.parse::<Name>().unwrap().is_of_kubelet();
        assert!(["slot-0", "slot-12", "claim-0b2f"].into_iter().all(is_of_kubelet));
        assert!(
            !["slot-", "slot", "slot-a", "claims", "my-slot-1"]
                .into_iter()
                .filter(|name| name.parse::<Name>().is_ok())
                .any(is_of_kubelet)
        );
    }
}
