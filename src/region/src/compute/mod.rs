//! The compute ledger: GPU time that a slice may use, has used and owes.
//!
//! `gpuslice_policy::compute` has the arithmetic of these words, as pure functions.

pub(crate) mod coupling;
pub(crate) mod debts;
pub(crate) mod grants;
pub(crate) mod history;
pub(crate) mod intervals;
pub(crate) mod ledger;
pub(crate) mod rate_limit;
pub(crate) mod reclaim;
pub(crate) mod sampler_lease;
