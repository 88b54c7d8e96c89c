//! Gives other amounts to running pods whose users want them, if the GPUs have room.

use super::pod_changes::PodChange;
use super::{Extender, ExtenderState};
use crate::api::{Event, Failure, Metadata, timestamp};
use crate::objects::{ALLOC, Alloc, Part, RESIZE, Resize};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;
use tracing::{info, warn};

/// Time after which the extender tries a refused wish again.
const RESIZE_RETRY_PERIOD: Duration = Duration::from_secs(10);

/// Fulfils wishes until the future is dropped.
pub(super) async fn serve(extender: &Extender) {
    loop {
        let _new_or_late = tokio::time::timeout(RESIZE_RETRY_PERIOD, extender.wish.notified()).await;
        let wishes: Vec<PodChange> = extender.with(|state| state.wishes.all());
        for wish in wishes {
            let Err(why) = extender.resize(&wish).await else { continue };
            if wish.told.as_ref() == Some(&why) {
                continue;
            }
            warn!(pod = %format!("{}/{}", wish.pod.namespace, wish.pod.name), "not resized: {why}");
            let event = Event {
                is_warning: true,
                reason: "ResizeRefused",
                message: &why,
                component: "gpuslice-extender",
            };
            if extender.client.tell(&wish.pod, event).await.is_ok() {
                extender.with(|state| state.wishes.tell(&wish.pod.uid, why));
            }
        }
    }
}

impl Extender {
    /// Gives a pod the amounts that its user wants.
    ///
    /// The ledger counts the new amounts before the write. Otherwise a binding at the same time could get the same memory. If
    /// the apiserver refuses the write, the ledger returns to the old amounts. If the apiserver does not answer, or answers
    /// with 500 or more, the pod has the old or the new amounts. The larger ones then count until the pod changes.
    ///
    /// # Errors
    /// The wish is invalid, or there is no room. The caller reports the reason to the pod's user. The function only logs
    /// failures that the user cannot correct.
    async fn resize(&self, wish: &PodChange) -> Result<(), String> {
        let PodChange { pod, node, alloc, .. } = wish;
        let text = pod.annotations.get(RESIZE).map_or("", String::as_str);
        let parts = Resize::parse(text)?.parts(alloc)?;
        // Another extender has the Lease, and resizes the pod.
        let Ok(term) = self.lead(false).await else { return Ok(()) };
        let counted = self.with(|state| {
            let ExtenderState { ledger, .. } = state.complete().ok()?;
            Some(ledger.resize(node, &pod.uid, parts.values().flatten()))
        });
        // Before the extender has listed all nodes, an unknown GPU is no reason to refuse the wish.
        let Some(counted) = counted else { return Ok(()) };
        counted?;
        let is_led = term.as_ref().is_none_or(|term| term.check().is_ok());
        let written = if is_led { self.write_alloc(pod, alloc, parts).await } else { Ok(false) };
        match written {
            Ok(true) => info!(pod = %format!("{}/{}", pod.namespace, pod.name), "resized"),
            Ok(false) => self.with(|state| state.ledger.keep_size(&pod.uid)),
            Err(failure) => {
                warn!("a pod may have another size: {failure}");
                self.with(|state| state.ledger.unanswered(&pod.uid, &pod.resource_version));
            }
        }
        Ok(())
    }

    /// Writes the new parts of a pod. Returns false if another client has changed the pod since the extender read it.
    async fn write_alloc(
        &self,
        pod: &Metadata,
        alloc: &Alloc,
        parts: BTreeMap<String, Vec<Part>>,
    ) -> Result<bool, Failure> {
        let alloc = Alloc {
            generation: alloc.generation.saturating_add(1),
            at: timestamp(),
            c: parts,
            ..alloc.clone()
        };
        let Metadata { name, namespace, .. } = pod;
        let patch = json!({"metadata": pod.guarded(&json!({ALLOC: json!(alloc).to_string()}))});
        match self.client.patch(&format!("/api/v1/namespaces/{namespace}/pods/{name}"), &patch).await {
            Ok(_) => Ok(true),
            Err(failure) if failure.is_unsure() => Err(failure),
            Err(_) => Ok(false),
        }
    }
}
