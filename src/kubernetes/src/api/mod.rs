//! The apiserver: a client, and the objects that the other modules use.

mod client;
mod event;
mod object;

pub use client::{Changes, Client, Failure};
pub use event::Event;
pub(crate) use object::timestamp;
pub use object::{Change, Container, List, ListMetadata, Metadata, Node, Pod, Resources};
