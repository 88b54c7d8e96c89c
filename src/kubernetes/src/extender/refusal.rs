//! Refusal of a node, with its reason.

use crate::metrics::Rejection;

/// Reason for which a node has no room for a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Reason, for the pod's user.
    pub why: String,
    /// Reason, for the metrics.
    pub reason: Rejection,
}

impl Refusal {
    /// Returns true if the node has no room for the pod even without other pods.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.reason != Rejection::Full
    }
}
