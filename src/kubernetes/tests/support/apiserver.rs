//! An apiserver for tests, over real HTTP. It has pods, nodes, disruption budgets, claims and lists of devices.

mod leases;
mod lists;
mod pods;
mod resources;

pub(crate) use pods::Mishap;

use axum::extract::{Path, Request, State};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use lists::list;
use pods::{bind_pod, get_pod, patch_pod};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;

type Objects = BTreeMap<String, Value>;
type Answer = (StatusCode, Json<Value>);

/// Kinds of objects that clients list and watch.
const PODS: &str = "pods";
const NODES: &str = "nodes";
const BUDGETS: &str = "poddisruptionbudgets";

#[derive(Debug, Default)]
struct Stored {
    /// Pods by `namespace/name`.
    pods: Objects,
    nodes: Objects,
    /// Disruption budgets by `namespace/name`.
    budgets: Objects,
    is_down: bool,
    /// Kind whose lists the apiserver answers with an error.
    unlisted: Option<&'static str>,
    node_writes: u32,
    /// Number of requests of any kind that change something.
    writes: u32,
    /// Version of the last change.
    version: u64,
    /// Mishap that the next binding meets.
    mishap: Option<Mishap>,
    /// Mishap that the next patch of a pod meets.
    patch_mishap: Option<Mishap>,
    /// A pod and a binding. The apiserver applies the binding just after the next patch of the pod.
    overtaken: Option<(String, Value)>,
    /// Watchers, each with the kind of its objects.
    watchers: Vec<(&'static str, mpsc::UnboundedSender<Value>)>,
    resources: resources::Resources,
    /// Changes, each with its version and the kind of the object.
    history: Vec<(u64, &'static str, Value)>,
    /// Version up to which changes are forgotten.
    forgotten: u64,
    /// Most objects on a page of a list.
    page: Option<usize>,
    /// Queries of lists and watches of pods.
    queries: Vec<HashMap<String, String>>,
    /// Pod whose patches wait while this field names it.
    held: Option<String>,
    /// True if changes are not sent to watchers.
    is_mute: bool,
    leases: Objects,
    events: Vec<Value>,
    /// Process whose writes of Leases wait while this field names it.
    stopped: Option<String>,
}

/// The apiserver; its clones share one state.
#[derive(Debug, Clone, Default)]
pub(crate) struct Apiserver(Arc<Mutex<Stored>>);

impl Apiserver {
    /// Serves on a port that the system chooses.
    pub(crate) async fn serve(&self) -> SocketAddr {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(axum::serve(listener, self.routes()).into_future());
        address
    }

    pub(crate) fn routes(&self) -> Router {
        let routes = Router::new()
            .route("/api/v1/pods", list(PODS))
            .route("/apis/policy/v1/poddisruptionbudgets", list(BUDGETS))
            .route("/api/v1/namespaces/{namespace}/pods/{name}", get(get_pod).patch(patch_pod))
            .route("/api/v1/namespaces/{namespace}/pods/{name}/binding", axum::routing::post(bind_pod))
            .merge(leases::routes())
            .route("/api/v1/namespaces/{namespace}/events", axum::routing::post(tell))
            .route("/api/v1/nodes", list(NODES))
            .route("/api/v1/nodes/{name}", get(get_node).patch(patch_node))
            .route("/api/v1/nodes/{name}/status", axum::routing::patch(patch_node));
        let counted = axum::middleware::from_fn_with_state(self.clone(), count_writes);
        resources::add(routes).layer(counted).with_state(self.clone())
    }

    fn with<T>(&self, act: impl FnOnce(&mut Stored) -> T) -> T {
        act(&mut self.0.lock().unwrap())
    }

    pub(crate) fn put(&self, pod: &Value) {
        self.add(PODS, &key(pod), pod);
    }

    /// Makes a disruption budget, or changes it.
    pub(crate) fn put_budget(&self, budget: &Value) {
        self.add(BUDGETS, &key(budget), budget);
    }

    fn add(&self, kind: &'static str, key: &str, object: &Value) {
        self.with(|stored| {
            stored.objects(kind).insert(key.to_owned(), object.clone());
            stored.changed(kind, key, "ADDED");
        });
    }

    fn remove(&self, kind: &'static str, key: &str) {
        self.with(|stored| {
            stored.changed(kind, key, "DELETED");
            stored.objects(kind).remove(key);
        });
    }

    pub(crate) fn delete_budget(&self, key: &str) {
        self.remove(BUDGETS, key);
    }

    pub(crate) fn delete_node(&self, name: &str) {
        self.remove(NODES, name);
    }

    pub(crate) fn annotate(&self, key: &str, alloc: &Value) {
        let text = alloc.to_string();
        self.change(key, |pod| pod["metadata"]["annotations"] = json!({"gpuslice.dev/alloc": text}));
    }

    pub(crate) fn change(&self, key: &str, change: impl FnOnce(&mut Value)) {
        self.with(|stored| {
            change(stored.pods.get_mut(key).unwrap());
            stored.changed(PODS, key, "MODIFIED");
        });
    }

    pub(crate) fn delete(&self, key: &str) {
        self.remove(PODS, key);
    }

    pub(crate) fn add_node(&self, name: &str) {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": format!("uid-{name}")}});
        self.add(NODES, name, &node);
    }

    pub(crate) fn node(&self, name: &str) -> Value {
        self.with(|stored| stored.nodes[name].clone())
    }

    pub(crate) fn change_node(&self, name: &str, change: impl FnOnce(&mut Value)) {
        self.with(|stored| {
            change(stored.nodes.get_mut(name).unwrap());
            stored.changed(NODES, name, "MODIFIED");
        });
    }

    pub(crate) fn node_writes(&self) -> u32 {
        self.with(|stored| stored.node_writes)
    }

    /// Returns the number of requests that have changed something, or have tried to.
    pub(crate) fn writes(&self) -> u32 {
        self.with(|stored| stored.writes)
    }

    /// Makes the apiserver answer every request with an error, or ends that.
    pub(crate) fn fail(&self, is_down: bool) {
        self.with(|stored| stored.is_down = is_down);
    }

    /// Makes the apiserver answer lists of this kind, `pods` or `nodes`, with an error. None ends that.
    pub(crate) fn fail_lists_of(&self, kind: Option<&'static str>) {
        self.with(|stored| stored.unlisted = kind);
    }

    pub(crate) fn pod(&self, key: &str) -> Value {
        self.with(|stored| stored.pods[key].clone())
    }

    pub(crate) fn next_binding(&self, mishap: Mishap) {
        self.with(|stored| stored.mishap = Some(mishap));
    }

    pub(crate) fn next_patch(&self, mishap: Mishap) {
        self.with(|stored| stored.patch_mishap = Some(mishap));
    }

    /// Returns true until a patch has met the mishap.
    pub(crate) fn awaits_mishap(&self) -> bool {
        self.with(|stored| stored.patch_mishap.is_some())
    }

    /// Ends all watches.
    pub(crate) fn end_watches(&self) {
        self.with(|stored| stored.watchers.clear());
    }

    /// Forgets all changes so far. A client with an older version must list again.
    pub(crate) fn forget(&self) {
        self.with(|stored| (stored.history.clear(), stored.forgotten = stored.version));
    }

    /// Returns the version of the last change.
    pub(crate) fn version(&self) -> String {
        self.with(|stored| stored.version.to_string())
    }

    /// Counts a change of an object that nobody watches, and sends the new version to all watchers.
    pub(crate) fn bookmark(&self) {
        self.with(|stored| {
            stored.version += 1;
            let version = stored.version.to_string();
            let mark = json!({"type": "BOOKMARK", "object": {"kind": "Pod", "metadata": {"resourceVersion": version}}});
            stored.watchers.retain(|(_, watcher)| watcher.send(mark.clone()).is_ok());
        });
    }

    /// Limits lists to `most` objects on a page.
    pub(crate) fn page(&self, most: usize) {
        self.with(|stored| stored.page = Some(most));
    }

    /// Returns the queries of lists and watches of pods since the last call.
    pub(crate) fn queries(&self) -> Vec<HashMap<String, String>> {
        self.with(|stored| std::mem::take(&mut stored.queries))
    }

    /// Stops or resumes sending changes of pods to watchers.
    pub(crate) fn mute(&self, is_mute: bool) {
        self.with(|stored| stored.is_mute = is_mute);
    }

    /// Returns the messages of the events with this reason.
    pub(crate) fn events(&self, reason: &str) -> Vec<String> {
        self.with(|stored| {
            let of_it = stored.events.iter().filter(|event| event["reason"] == reason);
            of_it.map(|event| event["message"].as_str().unwrap().to_owned()).collect()
        })
    }

    /// Writes an annotation on a pod.
    pub(crate) fn write_on(&self, key: &str, name: &str, value: &Value) {
        let text = value.to_string();
        self.change(key, |pod| pod["metadata"]["annotations"][name] = json!(text));
    }

    /// Returns the number of requests for pods.
    pub(crate) fn looks(&self) -> usize {
        self.with(|stored| stored.queries.len())
    }

    /// Makes patches of a pod wait. None lets waiting patches go on.
    pub(crate) fn hold(&self, key: Option<&str>) {
        self.with(|stored| stored.held = key.map(str::to_owned));
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

async fn count_writes(State(server): State<Apiserver>, request: Request, next: Next) -> Response {
    if request.method() != Method::GET {
        server.with(|stored| stored.writes += 1);
    }
    next.run(request).await
}

impl Stored {
    fn objects(&mut self, kind: &str) -> &mut Objects {
        match kind {
            PODS => &mut self.pods,
            NODES => &mut self.nodes,
            _ => &mut self.budgets,
        }
    }

    /// Gives an object a new version, and sends it to all watchers of its kind.
    fn changed(&mut self, kind: &'static str, key: &str, change: &str) {
        self.version += 1;
        let (version, is_mute) = (self.version, self.is_mute);
        if let Some(object) = self.objects(kind).get_mut(key) {
            object["metadata"]["resourceVersion"] = json!(version.to_string());
            let change = json!({"type": change, "object": object});
            self.history.push((version, kind, change.clone()));
            if !is_mute {
                self.watchers.retain(|(of, watcher)| *of != kind || watcher.send(change.clone()).is_ok());
            }
        }
    }
}

/// Returns `namespace/name` of an object.
fn key(object: &Value) -> String {
    let of = |field: &str| object["metadata"][field].as_str().unwrap();
    format!("{}/{}", of("namespace"), of("name"))
}

fn conflict(why: &str) -> Response {
    (StatusCode::CONFLICT, Json(json!({"kind": "Status", "message": why}))).into_response()
}

async fn tell(State(server): State<Apiserver>, Json(event): Json<Value>) -> Answer {
    server.answer(|stored| {
        let (about, metadata) = (&event["involvedObject"], &event["metadata"]);
        // The apiserver refuses an event of another namespace than that of its object.
        assert_eq!((&about["namespace"], metadata["name"].is_null()), (&metadata["namespace"], true));
        stored.events.push(event.clone());
        Some(event)
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
        let patched = node.clone();
        stored.changed(NODES, &name, "MODIFIED");
        Some(patched)
    })
}

/// Merges a patch into an object, by RFC 7386.
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
