//! Slices for the pods of a Kubernetes cluster.
//!
//! 1. `api`: the apiserver.
//! 2. `lease`: election of the process that acts.
//! 3. `objects`: requests and annotations of pods and nodes about slices.
//! 4. `placement`: choice of the GPUs for a container.
//! 5. `topology`: places of the GPUs in the machine.
//! 6. `grpc`: the kubelet's interfaces.
//! 7. `files`: the files of a slice.
//! 8. `metrics`: durations and failures of the calls of kubelets and schedulers.
//! 9. `web`: the server of metrics and health checks.
//! 10. `plugin`: the device plugin of a node.
//! 11. `dra`: the driver of dynamically allocated resources of a node.
//! 12. `extender`: the extender of the scheduler.

#![forbid(unsafe_code)]

pub mod api;
pub mod dra;
pub mod extender;
mod files;
pub mod grpc;
pub mod lease;
pub mod metrics;
pub mod objects;
pub mod placement;
pub mod plugin;
pub mod topology;
pub mod web;
