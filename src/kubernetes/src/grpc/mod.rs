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

/// The messages and services by which the kubelet learns of a driver.
#[allow(warnings, clippy::all, clippy::pedantic, clippy::restriction, reason = "generated")]
pub mod plugin_registration {
    include!(concat!(env!("OUT_DIR"), "/dra/pluginregistration.rs"));
}

/// The messages and services of claims.
#[allow(warnings, clippy::all, clippy::pedantic, clippy::restriction, reason = "generated")]
pub mod dra {
    include!(concat!(env!("OUT_DIR"), "/dra/k8s.io.kubelet.pkg.apis.dra.v1.rs"));
}

/// The messages and services of the health of devices, under both names that kubelets ask for.
#[allow(warnings, clippy::all, clippy::pedantic, clippy::restriction, reason = "generated")]
pub mod dra_health {
    /// The messages, and the service as Kubernetes 1.34 to 1.36 name it.
    pub mod v1alpha1 {
        include!(concat!(env!("OUT_DIR"), "/dra/v1alpha1.rs"));
    }
    /// The service as later ones name it.
    pub mod v1beta1 {
        include!(concat!(env!("OUT_DIR"), "/dra/v1beta1.rs"));
    }
}
