//! What does a container engine have to know of a slice? A specification of the Container Device Interface.
//!
//! The form is that of <https://github.com/cncf-tags/container-device-interface>. Only the fields that are used here are
//! written, all of which version 0.5.0 has.

use serde::Serialize;
use std::path::PathBuf;

/// What every device of ours is, by vendor and class: `--device gpuslice.dev/slice=NAME`.
pub const KIND: &str = "gpuslice.dev/slice";
/// The lowest version that has all fields used here, and that lets a device's name begin with a digit.
pub const VERSION: &str = "0.5.0";

/// A specification: the content of a file in `/etc/cdi` or `/var/run/cdi`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    /// Of the form: [`VERSION`].
    pub cdi_version: &'static str,
    /// Vendor and class: [`KIND`].
    pub kind: &'static str,
    /// The devices that a container can ask for.
    pub devices: Vec<Device>,
}

/// A device: a slice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    /// What follows [`KIND`] and `=`.
    pub name: String,
    /// What the engine changes of a container that asks for it.
    pub container_edits: Edits,
}

/// What an engine changes of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Edits {
    /// Variables, `NAME=value`. They win over those of the image and of the command line.
    pub env: Vec<String>,
    /// What of the host the container sees.
    pub mounts: Vec<Mount>,
}

/// A file or folder of the host that a container sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Mount {
    /// Where it is on the host.
    pub host_path: PathBuf,
    /// Where it is in the container.
    pub container_path: &'static str,
    /// As `mount` takes them.
    pub options: Vec<&'static str>,
}

impl Mount {
    /// What a container may read, and load code from.
    #[must_use]
    pub fn read_only(host_path: PathBuf, container_path: &'static str) -> Self {
        Self { host_path, container_path, options: vec!["ro", "nosuid", "nodev", "bind"] }
    }

    /// What a container may write.
    #[must_use]
    pub fn writable(host_path: PathBuf, container_path: &'static str) -> Self {
        Self { host_path, container_path, options: vec!["rw", "nosuid", "nodev", "noexec", "bind"] }
    }
}

impl Spec {
    /// A specification of these devices.
    #[must_use]
    pub fn of(devices: Vec<Device>) -> Self {
        Self { cdi_version: VERSION, kind: KIND, devices }
    }
}
