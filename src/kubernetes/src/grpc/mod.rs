//! The kubelet's interfaces, generated from `proto/`, and the relay that stands before a server.

mod relay;
pub(crate) mod socket;

/// Messages and services of the device plugin.
#[allow(warnings, clippy::all, clippy::pedantic, clippy::restriction, reason = "generated")]
pub mod device_plugin {
    tonic::include_proto!("v1beta1");
}

/// Messages and services by which the kubelet lists the devices of each container.
#[allow(warnings, clippy::all, clippy::pedantic, clippy::restriction, reason = "generated")]
pub mod pod_resources {
    tonic::include_proto!("v1");
}

/// Messages and services by which the kubelet finds a driver.
#[allow(warnings, clippy::all, clippy::pedantic, clippy::restriction, reason = "generated")]
pub mod plugin_registration {
    include!(concat!(env!("OUT_DIR"), "/dra/pluginregistration.rs"));
}

/// Messages and services of claims.
#[allow(warnings, clippy::all, clippy::pedantic, clippy::restriction, reason = "generated")]
pub mod dra {
    include!(concat!(env!("OUT_DIR"), "/dra/k8s.io.kubelet.pkg.apis.dra.v1.rs"));
}

/// Messages and services of the health of devices, under both names that kubelets use.
#[allow(warnings, clippy::all, clippy::pedantic, clippy::restriction, reason = "generated")]
pub mod dra_health {
    /// Messages, and the service under the name of Kubernetes 1.34 and newer.
    pub mod v1alpha1 {
        include!(concat!(env!("OUT_DIR"), "/dra/v1alpha1.rs"));
    }
    /// Service under the name of later versions.
    pub mod v1 {
        include!(concat!(env!("OUT_DIR"), "/dra/v1.rs"));
    }
}
