//! Slices for the pods of a Kubernetes cluster.
//!
//! 1. `api`: the apiserver.
//! 2. `objects`: what pods and nodes say about slices.
//! 3. `placement`: which GPU a container gets.
//! 4. `grpc`: the kubelet's interfaces.
//! 5. `files`: the files of a slice.
//! 6. `plugin`: the device plugin of a node.
//! 7. `dra`: the driver of dynamically allocated resources of a node.
//! 8. `extender`: the extender of the scheduler.

#![forbid(unsafe_code)]

pub mod api;
pub mod dra;
pub mod extender;
mod files;
pub mod grpc;
pub mod objects;
pub mod placement;
pub mod plugin;
