//! Calls that make contexts, load code or change limits of a context: their memory is measured.

pub(crate) mod context;
pub(crate) mod green;
pub(crate) mod image;
pub(crate) mod library;
pub(crate) mod library_first_use;
pub(crate) mod library_handles;
pub(crate) mod limits;
pub(crate) mod measured;
pub(crate) mod module;
