//! The kubelet's interfaces, generated from `proto/`, and the relay that stands before a server.

mod relay;
pub(crate) mod socket;

/// The device plugin's messages and services.
#[allow(warnings, clippy::all, clippy::pedantic, clippy::restriction, reason = "generated")]
pub mod device_plugin {
    tonic::include_proto!("v1beta1");
}

/// The messages and services by which the kubelet tells which container has which device.
#[allow(warnings, clippy::all, clippy::pedantic, clippy::restriction, reason = "generated")]
pub mod pod_resources {
    tonic::include_proto!("v1");
}
