//! Leases of the test apiserver. A client may write a Lease only if it has read its last version.

use super::{Answer, Apiserver, conflict, merge};
use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

impl Apiserver {
    /// Returns the specification of a Lease; null if the Lease does not exist.
    pub(crate) fn lease(&self, name: &str) -> Value {
        self.with(|stored| stored.leases.get(name).map_or(Value::Null, |lease| lease["spec"].clone()))
    }

    /// Makes writes of Leases by this process wait. None lets waiting writes go on.
    pub(crate) fn hold_leases_of(&self, identity: Option<&str>) {
        self.with(|stored| stored.stopped = identity.map(str::to_owned));
    }
}

pub(super) fn routes() -> Router<Apiserver> {
    let all = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases";
    Router::new().route(all, post(make)).route(&format!("{all}/{{name}}"), get(read).patch(write))
}

async fn make(State(server): State<Apiserver>, Json(lease): Json<Value>) -> Response {
    let name = lease["metadata"]["name"].as_str().unwrap().to_owned();
    if !server.lease(&name).is_null() {
        return conflict("leases already exists");
    }
    server.answer(|stored| Some(stored.keep(&name, lease))).into_response()
}

async fn read(State(server): State<Apiserver>, Path((_, name)): Path<(String, String)>) -> Answer {
    server.answer(|stored| stored.leases.get(&name).cloned())
}

async fn write(
    State(server): State<Apiserver>,
    Path((_, name)): Path<(String, String)>,
    Json(patch): Json<Value>,
) -> Response {
    let by = patch["spec"]["holderIdentity"].as_str();
    while by.is_some() && server.with(|stored| stored.stopped.as_deref() == by) {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
    let is_last =
        server.with(|stored| stored.leases.get(&name).is_some_and(|lease| version(lease) == version(&patch)));
    if !is_last {
        return conflict("the object has been modified");
    }
    let written = server.answer(|stored| {
        let mut lease = stored.leases.get(&name)?.clone();
        merge(&mut lease, &patch);
        Some(stored.keep(&name, lease))
    });
    written.into_response()
}

impl super::Stored {
    fn keep(&mut self, name: &str, mut lease: Value) -> Value {
        self.version += 1;
        lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
        lease["metadata"]["uid"] = json!(format!("uid-{name}"));
        self.leases.insert(name.to_owned(), lease.clone());
        lease
    }
}
