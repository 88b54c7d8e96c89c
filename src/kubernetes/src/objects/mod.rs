//! The parts of the apiserver's objects that concern slices: requests of containers, annotations of pods and nodes, and
//! disruption budgets.

mod alloc;
mod annotation;
mod budget;
mod constraints;
mod foreign;
mod inventory;
mod request;
mod resize;

pub use alloc::{ALLOC, Alloc, Part};
pub use annotation::ANNOTATION_VERSION;
pub use budget::{Budget, Labels};
pub use constraints::{Constraints, GPU_MODEL, GPU_TOPOLOGY, Topology};
pub use foreign::foreign;
pub(crate) use foreign::taken;
pub use inventory::{Gpu, INVENTORY, Inventory};
pub(crate) use request::whole;

pub use request::{CORE_PERCENT, MEMORY_MIB, Request, SLICE, requests};
pub use resize::{RESIZE, Resize};
