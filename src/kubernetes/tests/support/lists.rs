//! Lists and watches of the test apiserver.

use super::{Apiserver, PODS, Stored};
use axum::body::Body;
use axum::extract::{Query, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, get};
use serde_json::{Value, json};
use std::collections::HashMap;
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::UnboundedReceiverStream;

/// Sends the changes of one kind after a version, one JSON object in each line, until the watch ends.
fn watch(server: &Apiserver, kind: &'static str, query: &HashMap<String, String>) -> Response {
    let (sender, receiver) = mpsc::unbounded_channel();
    let from: u64 = query["resourceVersion"].parse().unwrap();
    server.with(|stored| {
        if from < stored.forgotten {
            let status = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"});
            sender.send(json!({"type": "ERROR", "object": status})).unwrap();
            return;
        }
        for (.., change) in stored.history.iter().filter(|(version, of, _)| *version > from && *of == kind) {
            sender.send(change.clone()).unwrap();
        }
        stored.watchers.push((kind, sender));
    });
    let lines =
        UnboundedReceiverStream::new(receiver).map(|change| Ok::<_, std::io::Error>(format!("{change}\n")));
    Body::from_stream(lines).into_response()
}

/// Lists or watches the objects of a kind.
pub(super) fn list(kind: &'static str) -> MethodRouter<Apiserver> {
    get(move |State(server): State<Apiserver>, Query(query): Query<HashMap<String, String>>| async move {
        if kind == PODS {
            server.with(|stored| stored.queries.push(query.clone()));
        }
        if query.contains_key("watch") {
            return watch(&server, kind, &query);
        }
        server.answer(|stored| page(stored, kind, &query)).into_response()
    })
}

/// Returns a page of the objects of a kind. Returns none if the apiserver fails lists of this kind.
fn page(stored: &mut Stored, kind: &'static str, query: &HashMap<String, String>) -> Option<Value> {
    let node = query.get("fieldSelector").and_then(|fields| fields.strip_prefix("spec.nodeName="));
    let is_on = |object: &&Value| node.is_none_or(|node| object["spec"]["nodeName"] == json!(node));
    if stored.unlisted == Some(kind) {
        return None;
    }
    let after = query.get("continue").map_or("", String::as_str);
    let asked = query.get("limit").map(|limit| limit.parse().unwrap());
    let most = asked.map_or(usize::MAX, |asked: usize| asked.min(stored.page.unwrap_or(asked)));
    let version = stored.version.to_string();
    let later = stored.objects(kind).iter().filter(|(key, _)| key.as_str() > after);
    let shown: Vec<_> = later.filter(|(_, object)| is_on(object)).take(most).collect();
    let next = shown.last().filter(|_| shown.len() == most).map(|(key, _)| key.as_str());
    let items: Vec<&Value> = shown.iter().map(|(_, object)| *object).collect();
    let metadata = json!({"resourceVersion": version, "continue": next});
    Some(json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items}))
}
