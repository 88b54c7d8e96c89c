//! Calls that submit work to a stream, wait for it, or change how a stream runs it.

pub(crate) mod batches;
pub(crate) mod capture;
pub(crate) mod copies;
pub(crate) mod graph;
pub(crate) mod graph_cost;
pub(crate) mod host_copies;
pub(crate) mod launch;
pub(crate) mod stream;
pub(crate) mod stream_waits;
pub(crate) mod sync;
