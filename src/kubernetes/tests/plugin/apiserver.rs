//! An apiserver with pods and nodes, over real HTTP.

use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

type Objects = BTreeMap<String, Value>;
type Answer = (StatusCode, Json<Value>);

#[derive(Debug, Default)]
struct Stored {
    /// By `namespace/name`.
    pods: Objects,
    nodes: Objects,
    is_down: bool,
    node_writes: u32,
}

/// The apiserver; its clones are the same one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Apiserver(Arc<Mutex<Stored>>);

impl Apiserver {
    /// Serves on a port that the system chooses.
    pub(crate) async fn serve(&self) -> SocketAddr {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let routes = Router::new()
            .route("/api/v1/pods", get(list_pods))
            .route("/api/v1/namespaces/{namespace}/pods/{name}", get(get_pod))
            .route("/api/v1/nodes/{name}", get(get_node).patch(patch_node))
            .route("/api/v1/nodes/{name}/status", axum::routing::patch(patch_node));
        tokio::spawn(axum::serve(listener, routes.with_state(self.clone())).into_future());
        address
    }

    fn with<T>(&self, act: impl FnOnce(&mut Stored) -> T) -> T {
        act(&mut self.0.lock().unwrap())
    }

    pub(crate) fn put(&self, pod: &Value) {
        let key = format!(
            "{}/{}",
            pod["metadata"]["namespace"].as_str().unwrap(),
            pod["metadata"]["name"].as_str().unwrap()
        );
        self.with(|stored| stored.pods.insert(key, pod.clone()));
    }

    pub(crate) fn annotate(&self, key: &str, alloc: &Value) {
        let text = alloc.to_string();
        self.change(key, |pod| pod["metadata"]["annotations"] = json!({"gpuslice.dev/alloc": text}));
    }

    pub(crate) fn change(&self, key: &str, change: impl FnOnce(&mut Value)) {
        self.with(|stored| change(stored.pods.get_mut(key).unwrap()));
    }

    pub(crate) fn delete(&self, key: &str) {
        self.with(|stored| stored.pods.remove(key));
    }

    pub(crate) fn add_node(&self, name: &str) {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        self.with(|stored| stored.nodes.insert(name.to_owned(), node));
    }

    pub(crate) fn node(&self, name: &str) -> Value {
        self.with(|stored| stored.nodes[name].clone())
    }

    pub(crate) fn change_node(&self, name: &str, change: impl FnOnce(&mut Value)) {
        self.with(|stored| change(stored.nodes.get_mut(name).unwrap()));
    }

    pub(crate) fn node_writes(&self) -> u32 {
        self.with(|stored| stored.node_writes)
    }

    /// Answers every request with an error from now on, or not any more.
    pub(crate) fn fail(&self, is_down: bool) {
        self.with(|stored| stored.is_down = is_down);
    }

    fn answer(&self, find: impl FnOnce(&mut Stored) -> Option<Value>) -> Answer {
        self.with(|stored| {
            let status = |code: StatusCode, reason: &str| {
                let text = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                    "reason": reason, "message": reason, "code": code.as_u16()});
                (code, Json(text))
            };
            if stored.is_down {
                return status(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable");
            }
            match find(stored) {
                Some(object) => (StatusCode::OK, Json(object)),
                None => status(StatusCode::NOT_FOUND, "NotFound"),
            }
        })
    }
}

async fn get_pod(State(server): State<Apiserver>, Path((namespace, name)): Path<(String, String)>) -> Answer {
    server.answer(|stored| stored.pods.get(&format!("{namespace}/{name}")).cloned())
}

async fn list_pods(
    State(server): State<Apiserver>,
    Query(query): Query<HashMap<String, String>>,
) -> Answer {
    let node = query.get("fieldSelector").and_then(|fields| fields.strip_prefix("spec.nodeName="));
    let node = node.map(str::to_owned);
    server.answer(|stored| {
        let is_on = |pod: &&Value| node.as_ref().is_none_or(|node| pod["spec"]["nodeName"] == json!(node));
        let items: Vec<&Value> = stored.pods.values().filter(is_on).collect();
        Some(json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}))
    })
}

async fn get_node(State(server): State<Apiserver>, Path(name): Path<String>) -> Answer {
    server.answer(|stored| stored.nodes.get(&name).cloned())
}

async fn patch_node(
    State(server): State<Apiserver>,
    Path(name): Path<String>,
    Json(patch): Json<Value>,
) -> Answer {
    server.answer(|stored| {
        stored.node_writes += 1;
        let node = stored.nodes.get_mut(&name)?;
        merge(node, &patch);
        Some(node.clone())
    })
}

/// As RFC 7386 says.
fn merge(object: &mut Value, patch: &Value) {
    match patch {
        Value::Object(fields) => {
            if !object.is_object() {
                *object = json!({});
            }
            for (key, value) in fields {
                if value.is_null() {
                    object.as_object_mut().unwrap().remove(key);
                } else {
                    merge(&mut object[key], value);
                }
            }
        }
        other => *object = other.clone(),
    }
}
