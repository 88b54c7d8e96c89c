//! The apiserver: the objects that are used here, and a client.

mod client;
mod event;
mod object;

pub use client::{Changes, Client, Failure};
pub use event::Event;
pub(crate) use object::timestamp;
pub use object::{Change, Container, List, ListMetadata, Metadata, Node, Pod, Resources};
