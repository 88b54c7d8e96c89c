//! Slices for the pods of a Kubernetes cluster.
//!
//! 1. `api`: the apiserver.
//! 2. `lease`: election of the process that acts.
//! 3. `objects`: requests and annotations of pods and nodes about slices.
//! 4. `placement`: choice of the GPUs for a container.
//! 5. `grpc`: the kubelet's interfaces.
//! 6. `files`: the files of a slice.
//! 7. `plugin`: the device plugin of a node.
//! 8. `dra`: the driver of dynamically allocated resources of a node.
//! 9. `extender`: the extender of the scheduler.

#![forbid(unsafe_code)]

pub mod api;
pub mod dra;
pub mod extender;
mod files;
pub mod grpc;
pub mod lease;
pub mod objects;
pub mod placement;
pub mod plugin;
