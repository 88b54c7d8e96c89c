//! Wakes pods that the extender has refused just before they had room.
//!
//! Example: a pod ends. The apiserver tells the scheduler and the extender at the same time. The scheduler at once asks the
//! extender about a waiting pod. The extender learns of the end a millisecond later, so it refuses the pod. The scheduler asks
//! again only after another event in the cluster, or after five minutes. So the extender changes an annotation of the pod,
//! which is such an event.

use super::Extender;
use super::waiting::GRACE;
use crate::api::{Metadata, timestamp};
use serde_json::json;
use tracing::{info, warn};

/// Annotation of a pod with the time at which the extender found room for it after a refusal.
const RETRY: &str = "gpuslice.dev/retry";

/// Wakes pods until the future is dropped.
pub(super) async fn serve(extender: &Extender) {
    loop {
        extender.freed.notified().await;
        tokio::time::sleep(GRACE).await;
        let due = extender.with(|state| state.waiting.due(&state.ledger, extender.order));
        for Metadata { namespace, name, uid, .. } in due {
            // The UID prevents the patch from changing a later pod of the same name.
            let patch = json!({"metadata": {"uid": uid, "annotations": {RETRY: timestamp()}}});
            match extender.client.patch(&format!("/api/v1/namespaces/{namespace}/pods/{name}"), &patch).await
            {
                Ok(_) => info!(pod = %format!("{namespace}/{name}"), "has room since its refusal"),
                Err(failure) => warn!(pod = %format!("{namespace}/{name}"), "not woken: {failure}"),
            }
        }
    }
}
