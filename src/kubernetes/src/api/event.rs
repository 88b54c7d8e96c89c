//! Events of pods, which `kubectl describe` shows.

use super::client::{Client, Failure};
use super::object::{Metadata, timestamp};
use serde_json::json;

/// An event of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event<'a> {
    /// True if the pod's user should do something.
    pub is_warning: bool,
    /// One word for programs, such as `Resized`.
    pub reason: &'a str,
    /// A sentence for users.
    pub message: &'a str,
    /// Program that reports the event.
    pub component: &'a str,
}

impl Client {
    /// Reports an event of a pod.
    ///
    /// # Errors
    /// See [`Failure`].
    pub async fn tell(&self, pod: &Metadata, event: Event<'_>) -> Result<(), Failure> {
        let Metadata { name, namespace, uid, .. } = pod;
        let now = timestamp();
        let object = json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"generateName": format!("{name}."), "namespace": namespace},
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": uid},
            "type": if event.is_warning { "Warning" } else { "Normal" },
            "reason": event.reason, "message": event.message,
            "source": {"component": event.component}, "reportingComponent": event.component,
            "firstTimestamp": now, "lastTimestamp": now, "count": 1,
        });
        self.post(&format!("/api/v1/namespaces/{namespace}/events"), &object).await
    }
}
