//! Binds a pod to a node. Before that, writes the pod's parts of GPUs into an annotation of the pod.

use super::ledger::Pending;
use super::wire::{Binding, Bound};
use super::{Extender, ExtenderState};
use crate::api::{Failure, Metadata, Pod, timestamp};
use crate::lease::Term;
use crate::metrics::Verb;
use crate::objects::{ALLOC, ANNOTATION_VERSION, Alloc, Part, requests};
use axum::Json;
use axum::extract::State as Shared;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use tracing::warn;

pub(super) async fn bind(
    Shared(extender): Shared<Arc<Extender>>,
    Json(binding): Json<Binding>,
) -> Json<Bound> {
    // The binding runs in a task of its own, so that it finishes even if the scheduler closes the connection.
    let bound = tokio::spawn(async move {
        let begun = Instant::now();
        let bound = extender.bind(&binding).await;
        extender.metrics.count(Verb::Bind, begun.elapsed(), bound.is_err());
        bound
    });
    let error = match bound.await {
        Ok(Ok(())) => String::new(),
        Ok(Err(why)) => why,
        Err(error) => error.to_string(),
    };
    if !error.is_empty() {
        warn!("not bound: {error}");
    }
    Json(Bound { error })
}

/// Reason why a pod is not bound, or may not be.
enum Unbound {
    /// The apiserver refuses the binding, or the extender has not sent it.
    Surely(String),
    /// The apiserver does not answer, or answers with an error of its own. So the pod may be bound.
    Maybe(String),
}

impl From<Failure> for Unbound {
    /// Returns the reason after a binding that failed.
    fn from(failure: Failure) -> Self {
        let text = failure.to_string();
        if failure.is_unsure() { Self::Maybe(text) } else { Self::Surely(text) }
    }
}

impl Extender {
    /// Chooses the GPUs, writes them on the pod, and binds it.
    ///
    /// The ledger counts the pod from the choice on. Several bindings run at the same time, and without the count two pods
    /// could get the same memory. If the apiserver refuses the binding, the ledger forgets the pod. If the apiserver does not
    /// answer, or answers with an error of its own, the pod may be bound. The ledger then counts the pod until the apiserver
    /// shows it as bound, ended or deleted.
    async fn bind(&self, binding: &Binding) -> Result<(), String> {
        let Binding { pod: name, namespace, uid, node } = binding;
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        let pod = self.client.get::<Pod>(&path).await.map_err(|failure| failure.to_string())?;
        let pod = pod.filter(|pod| pod.metadata.uid == *uid);
        let pod = pod.ok_or_else(|| format!("the pod {namespace}/{name} of the UID {uid} is gone"))?;
        if let Some(on) = &pod.spec.node_name {
            return bound_before(&pod, on, node);
        }
        let requests = requests(&pod)?;
        let term = self.lead(true).await?;
        // The choice and the count happen under one lock.
        let (parts, begun) = self.with(|state| {
            let ExtenderState { ledger, .. } = state.complete()?;
            let pending = Pending { uid, priority: pod.spec.priority, requests: &requests };
            let parts = ledger.place(node, pending, self.order).map_err(|refusal| refusal.why)?;
            let begun = ledger.begin(uid, node, parts.values().flatten());
            Ok::<_, String>((parts, begun))
        })?;
        let bound = self.write(&path, &pod, binding, parts, term.as_ref(), begun).await;
        if let Err(Unbound::Surely(_)) = bound {
            self.with(|state| state.ledger.give_up(uid, begun));
        }
        bound.map_err(|(Unbound::Surely(why) | Unbound::Maybe(why))| why)
    }

    /// Writes the parts on the pod, and then binds the pod.
    ///
    /// The annotation comes first: the kubelet may start a bound pod at once, and the agent then needs the parts. If the
    /// extender's term has ended since the choice, another extender may have given away the same room. The function then sends
    /// no binding, and removes the annotation.
    ///
    /// The binding names the version of the pod with the annotation. Example: the apiserver does not answer a binding to one
    /// node, and the scheduler tries a second node. Once the annotation for the second node is written, the apiserver refuses
    /// the first binding. Otherwise the pod could come to the first node with the parts of the second, and would never start.
    async fn write(
        &self,
        path: &str,
        pod: &Pod,
        binding: &Binding,
        parts: BTreeMap<String, Vec<Part>>,
        term: Option<&Term>,
        begun: Instant,
    ) -> Result<(), Unbound> {
        let Binding { pod: name, namespace, uid, node } = binding;
        let alloc = Alloc {
            v: ANNOTATION_VERSION,
            uid: uid.clone(),
            node: node.clone(),
            generation: 1,
            at: timestamp(),
            c: parts,
        };
        // The patch names the version of the pod. The apiserver refuses it if another client has changed the pod since that
        // version.
        let patch =
            |text: Value, before: &Metadata| json!({"metadata": before.guarded(&json!({ALLOC: text}))});
        let text = Value::String(json!(alloc).to_string());
        // If the annotation is not written, the extender sends no binding.
        let unwritten = |failure: Failure| Unbound::Surely(failure.to_string());
        let written = self.client.patch(path, &patch(text, &pod.metadata)).await.map_err(unwritten)?;
        self.with(|state| state.ledger.give_up_others(uid, begun));
        let object = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {
                "name": name, "namespace": namespace, "uid": uid, "resourceVersion": written.resource_version,
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        // The ledgers of all extenders count only bound pods. The annotation alone takes no room.
        let bound = match term.map_or(Ok(()), Term::check) {
            Ok(()) => self.client.post(&format!("{path}/binding"), &object).await.map_err(Unbound::from),
            Err(why) => Err(Unbound::Surely(why)),
        };
        // A pod that may be bound keeps the annotation, because it never starts without it.
        if let Err(Unbound::Surely(_)) = bound {
            // If another request has bound the pod, the pod has another version, and this patch changes nothing.
            let _gone_or_bound = self.client.patch(path, &patch(Value::Null, &written)).await;
        }
        bound
    }
}

/// Answers a request for a pod that is already bound. The scheduler repeats its request if the first answer was lost.
///
/// # Errors
/// The pod is bound to another node, or this extender has not placed it.
fn bound_before(pod: &Pod, on: &str, node: &str) -> Result<(), String> {
    let alloc = pod.metadata.annotations.get(ALLOC).ok_or("another client has bound the pod")?;
    let alloc = Alloc::parse(alloc)?;
    if on == node && alloc.node == node && alloc.uid == pod.metadata.uid {
        return Ok(());
    }
    Err(format!("the pod is bound to the node {on}"))
}
