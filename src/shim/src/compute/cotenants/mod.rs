//! Other slices and other programs on the same GPUs.

pub(super) mod arbiter_client;
pub(super) mod program_sampler;
pub(super) mod slices;
pub(super) mod slicing_replay;
pub(super) mod state;
