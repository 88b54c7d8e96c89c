//! What objects of the apiserver say about slices: requests of containers, annotations of pods and nodes.

mod alloc;
mod inventory;
mod request;

pub use alloc::{ALLOC, Alloc, Part, VERSION};
pub use inventory::{Gpu, INVENTORY, Inventory};
pub(crate) use request::whole;
pub use request::{CORE_PERCENT, MEMORY_MIB, Request, SLICE, requests};
