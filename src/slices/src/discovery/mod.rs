//! Finds the regions of containers. Their folders have the same names as the host's.
//!
//! A mount namespace identifies a container. The search opens the root directory of one of the container's processes and looks
//! into the folders below it. A container may put anything into its folders. The search therefore follows no link, opens only
//! regular files, and bounds the number of files of each container.

mod container;
mod engine;
mod machine;
mod opening;
mod region;

pub use container::{Container, ContainerIdentity, FileId, MountedFolder, mounts_of};
pub use machine::Machine;
pub use region::{FoundRegion, find};
