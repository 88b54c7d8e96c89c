//! Specifications of the Container Device Interface, by which a container engine gives a container a slice.
//!
//! The format is that of <https://github.com/cncf-tags/container-device-interface>. The types here have only the fields that
//! gpuslice uses. Version 0.5.0 of the format has all of them.

use serde::Serialize;
use std::path::PathBuf;

/// Vendor and class of all devices: `--device gpuslice.dev/slice=NAME`.
pub const KIND: &str = "gpuslice.dev/slice";
/// The lowest version with all fields used here. Since this version, a device's name may begin with a digit.
pub const VERSION: &str = "0.5.0";

/// A specification: the content of a file in `/etc/cdi` or `/var/run/cdi`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    /// Version of the format: [`VERSION`].
    pub cdi_version: &'static str,
    /// Vendor and class: [`KIND`].
    pub kind: &'static str,
    /// The devices that a container can ask for.
    pub devices: Vec<CdiDevice>,
}

/// A device: a slice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CdiDevice {
    /// The word after [`KIND`] and `=`.
    pub name: String,
    /// The edits that the engine makes to a container that asks for the device.
    pub container_edits: Edits,
}

/// The edits that an engine makes to a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Edits {
    /// Variables, `NAME=value`. They win over those of the image and of the command line.
    pub env: Vec<String>,
    /// Files and folders of the host that the container sees.
    pub mounts: Vec<Mount>,
}

/// A file or folder of the host that a container sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Mount {
    /// The mount's path on the host.
    pub host_path: PathBuf,
    /// The mount's path in the container.
    pub container_path: &'static str,
    /// Options, as `mount` takes them.
    pub options: Vec<&'static str>,
}

impl Mount {
    /// Returns a mount from which a container may read and load code.
    #[must_use]
    pub fn read_only(host_path: PathBuf, container_path: &'static str) -> Self {
        Self { host_path, container_path, options: vec!["ro", "nosuid", "nodev", "bind"] }
    }

    /// Returns a mount that a container may write.
    #[must_use]
    pub fn writable(host_path: PathBuf, container_path: &'static str) -> Self {
        Self { host_path, container_path, options: vec!["rw", "nosuid", "nodev", "noexec", "bind"] }
    }
}

impl Spec {
    /// Returns a specification of these devices.
    #[must_use]
    pub fn of(devices: Vec<CdiDevice>) -> Self {
        Self { cdi_version: VERSION, kind: KIND, devices }
    }
}
