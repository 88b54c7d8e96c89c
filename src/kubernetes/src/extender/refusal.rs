//! Refusal of a node, with its reason.

use crate::metrics::Rejection;

/// Reason why a node has no room for a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The reason as a text for the pod's user.
    pub why: String,
    /// The reason as a label of the metrics.
    pub reason: Rejection,
}

impl Refusal {
    /// Returns true if the node has no room for the pod even without other pods.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.reason != Rejection::Full
    }
}
