//! Reads, patches and bindings of pods in the test apiserver, with their mishaps.

use super::{Answer, Apiserver, PODS, conflict, merge};
use axum::Json;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};

/// Mishap of a binding, or of a patch of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mishap {
    /// The apiserver refuses the binding.
    Refused,
    /// The pod is bound, and the answer is lost.
    Unheard,
    /// The answer is lost, and the pod is bound a while later.
    Late,
    /// The answer is 500, and the apiserver does the write a while later, as with a late etcd.
    Unsure,
    /// Neither the write nor its answer arrives.
    Lost,
    /// The answer is lost, and the pod is bound just after its next patch.
    Overtaken,
    /// The pod is deleted just before the request.
    Deleted,
}

pub(super) async fn get_pod(
    State(server): State<Apiserver>,
    Path((namespace, name)): Path<(String, String)>,
) -> Answer {
    server.answer(|stored| stored.pods.get(&format!("{namespace}/{name}")).cloned())
}

pub(super) async fn patch_pod(
    State(server): State<Apiserver>,
    Path((namespace, name)): Path<(String, String)>,
    Json(patch): Json<Value>,
) -> Response {
    let key = format!("{namespace}/{name}");
    match server.with(|stored| stored.patch_mishap.take()) {
        Some(Mishap::Lost) => cut_off(),
        Some(Mishap::Unsure) => {
            tokio::spawn(async move { patched(&server, &key, &patch).await });
            late()
        }
        _ => patched(&server, &key, &patch).await,
    }
}

/// Patches a pod. Waits first while the pod's patches are held.
async fn patched(server: &Apiserver, key: &str, patch: &Value) -> Response {
    while server.with(|stored| stored.held.as_deref() == Some(key)) {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let is_same = |pod: &Value| {
        let of = |field: &str| [patch, pod].map(|object| object["metadata"][field].clone());
        ["uid", "resourceVersion"].into_iter().map(of).all(|[said, is]| said.is_null() || said == is)
    };
    if server.with(|stored| stored.pods.get(key).is_some_and(|pod| !is_same(pod))) {
        return conflict("the object has been modified");
    }
    let patched = server.answer(|stored| {
        merge(stored.pods.get_mut(key)?, patch);
        stored.changed(PODS, key, "MODIFIED");
        stored.pods.get(key).cloned()
    });
    let overtaken = server.with(|stored| stored.overtaken.take_if(|(pod, _)| pod == key));
    if let Some((_, binding)) = overtaken {
        bound(server, key, &binding);
    }
    patched.into_response()
}

pub(super) async fn bind_pod(
    State(server): State<Apiserver>,
    Path((namespace, name)): Path<(String, String)>,
    Json(binding): Json<Value>,
) -> Response {
    let key = format!("{namespace}/{name}");
    let mishap = server.with(|stored| stored.mishap.take());
    match mishap {
        Some(Mishap::Refused) => return conflict("the binding is refused"),
        Some(Mishap::Deleted) => server.delete(&key),
        Some(Mishap::Late | Mishap::Unsure) => {
            tokio::spawn(async move {
                tokio::time::sleep(std::time::Duration::from_millis(200)).await;
                bound(&server, &key, &binding);
            });
            return if mishap == Some(Mishap::Late) { cut_off() } else { late() };
        }
        Some(Mishap::Lost) => return cut_off(),
        Some(Mishap::Overtaken) => {
            server.with(|stored| stored.overtaken = Some((key, binding)));
            return cut_off();
        }
        Some(Mishap::Unheard) | None => {}
    }
    let bound = bound(&server, &key, &binding);
    if mishap == Some(Mishap::Unheard) { cut_off() } else { bound }
}

fn bound(server: &Apiserver, key: &str, binding: &Value) -> Response {
    if server.with(|stored| stored.pods.get(key).is_some_and(|pod| !pod["spec"]["nodeName"].is_null())) {
        return conflict("the pod is already assigned to a node");
    }
    let version = &binding["metadata"]["resourceVersion"];
    let is_other = |pod: &Value| !version.is_null() && pod["metadata"]["resourceVersion"] != *version;
    if server.with(|stored| stored.pods.get(key).is_some_and(is_other)) {
        return conflict("the object has been modified");
    }
    let bound = server.answer(|stored| {
        let pod = stored.pods.get_mut(key)?;
        assert_eq!(pod["metadata"]["uid"], binding["metadata"]["uid"]);
        pod["spec"]["nodeName"] = binding["target"]["name"].clone();
        stored.changed(PODS, key, "MODIFIED");
        Some(json!({"kind": "Status"}))
    });
    bound.into_response()
}

/// Returns the answer of an apiserver with a late etcd.
fn late() -> Response {
    let status = json!({"kind": "Status", "message": "etcdserver: request timed out"});
    (StatusCode::INTERNAL_SERVER_ERROR, Json(status)).into_response()
}

/// Returns an answer during which the connection breaks.
fn cut_off() -> Response {
    let cut = tokio_stream::once(Err::<String, _>(std::io::Error::other("cut off")));
    Body::from_stream(cut).into_response()
}
