//! Claims of pods, and lists of devices, in the test apiserver.

use super::{Answer, Apiserver, Objects, conflict, merge};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use std::collections::HashMap;

#[derive(Debug, Default)]
pub(super) struct Resources {
    /// Claims by `namespace/name`.
    claims: Objects,
    slices: Objects,
    writes: u64,
    /// Fields of devices that the apiserver drops, like a real one without the features.
    dropped: Vec<&'static str>,
    /// True if the apiserver lacks the API.
    is_old: bool,
}

/// Adds the routes.
pub(super) fn add(routes: Router<Apiserver>) -> Router<Apiserver> {
    let slices = "/apis/resource.k8s.io/v1/resourceslices";
    routes
        .route("/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}", get(get_claim))
        .route(slices, get(list_slices).post(make_slice))
        .route(&format!("{slices}/{{name}}"), axum::routing::patch(patch_slice).delete(delete_slice))
}

impl Apiserver {
    fn resources<T>(&self, act: impl FnOnce(&mut Resources) -> T) -> T {
        self.with(|stored| act(&mut stored.resources))
    }

    pub(crate) fn put_claim(&self, claim: &Value) {
        let of = |field: &str| claim["metadata"][field].as_str().unwrap().to_owned();
        let key = format!("{}/{}", of("namespace"), of("name"));
        self.resources(|resources| resources.claims.insert(key, claim.clone()));
    }

    pub(crate) fn change_claim(&self, key: &str, change: impl FnOnce(&mut Value)) {
        self.resources(|resources| change(resources.claims.get_mut(key).unwrap()));
    }

    pub(crate) fn delete_claim(&self, key: &str) {
        self.resources(|resources| resources.claims.remove(key));
    }

    pub(crate) fn slices(&self) -> Vec<Value> {
        self.resources(|resources| resources.slices.values().cloned().collect())
    }

    pub(crate) fn slice_writes(&self) -> u64 {
        self.resources(|resources| resources.writes)
    }

    pub(crate) fn put_slice(&self, slice: &Value) {
        self.resources(|resources| resources.store(slice.clone()));
    }

    /// Removes all lists, like a starting kubelet.
    pub(crate) fn wipe_slices(&self) {
        self.resources(|resources| resources.slices.clear());
    }

    pub(crate) fn drop_fields(&self, fields: &[&'static str]) {
        self.resources(|resources| resources.dropped = fields.to_vec());
    }

    /// Removes the API `resource.k8s.io/v1`, or restores it.
    pub(crate) fn is_old(&self, is_old: bool) {
        self.resources(|resources| resources.is_old = is_old);
    }
}

impl Resources {
    fn store(&mut self, mut slice: Value) -> Value {
        self.writes += 1;
        for device in slice["spec"]["devices"].as_array_mut().into_iter().flatten() {
            let device = device.as_object_mut().unwrap();
            self.dropped.iter().for_each(|field| drop(device.remove(*field)));
            for taint in device.get_mut("taints").and_then(Value::as_array_mut).into_iter().flatten() {
                taint["timeAdded"] = json!("2026-01-01T00:00:00Z");
            }
        }
        slice["metadata"]["resourceVersion"] = json!(self.writes.to_string());
        self.slices.insert(slice["metadata"]["name"].as_str().unwrap().to_owned(), slice.clone());
        slice
    }
}

fn invalid(why: &str) -> Response {
    let status = json!({"kind": "Status", "message": why});
    (StatusCode::UNPROCESSABLE_ENTITY, Json(status)).into_response()
}

/// Checks some of the rules of the real apiserver, and returns a violation.
fn wrong(slice: &Value) -> Option<String> {
    let spec = &slice["spec"];
    if spec["driver"] != "gpuslice.dev" || spec["pool"]["resourceSliceCount"] != 1 {
        return Some(format!("spec: {spec}"));
    }
    let is_wrong = |device: &&Value| {
        let name = device["name"].as_str().unwrap();
        let is_label = name.len() <= 63
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !name.starts_with('-')
            && !name.ends_with('-');
        let attributes = device["attributes"].as_object().unwrap();
        let one_value = |value: &Value| {
            let (kind, value) = value.as_object().unwrap().iter().next().unwrap();
            match kind.as_str() {
                "int" => value.is_i64(),
                "string" => value.as_str().is_some_and(|text| text.len() <= 64),
                "version" => {
                    let parts: Vec<&str> = value.as_str().unwrap().split('.').collect();
                    parts.len() == 3 && parts.iter().all(|part| *part == "0" || !part.starts_with('0'))
                }
                _ => false,
            }
        };
        let has_default = |capacity: &Value| {
            let policy = &capacity["requestPolicy"];
            policy["validRange"].is_null() || policy["default"].is_string()
        };
        let effects = device["taints"].as_array().into_iter().flatten().map(|taint| taint["effect"].as_str());
        !is_label
            || !attributes.values().all(one_value)
            || !device["capacity"].as_object().unwrap().values().all(has_default)
            || !effects.flatten().all(|effect| matches!(effect, "None" | "NoSchedule" | "NoExecute"))
    };
    let devices = spec["devices"].as_array().unwrap();
    devices.iter().find(is_wrong).map(|device| format!("spec.devices: {device}"))
}

async fn get_claim(
    State(server): State<Apiserver>,
    Path((namespace, name)): Path<(String, String)>,
) -> Answer {
    server.answer(|stored| stored.resources.claims.get(&format!("{namespace}/{name}")).cloned())
}

async fn list_slices(
    State(server): State<Apiserver>,
    Query(query): Query<HashMap<String, String>>,
) -> Answer {
    let fields = query.get("fieldSelector").cloned().unwrap_or_default();
    server.answer(|stored| {
        let is_it = |slice: &&Value| {
            fields.split(',').filter(|field| !field.is_empty()).all(|field| {
                let (field, value) = field.split_once('=').unwrap();
                slice["spec"][field.strip_prefix("spec.").unwrap()] == value
            })
        };
        let resources = &stored.resources;
        let items: Vec<&Value> = resources.slices.values().filter(is_it).collect();
        (!resources.is_old).then(|| json!({"kind": "ResourceSliceList", "metadata": {}, "items": items}))
    })
}

async fn make_slice(State(server): State<Apiserver>, Json(mut slice): Json<Value>) -> Response {
    if let Some(why) = wrong(&slice) {
        return invalid(&why);
    }
    let made = server.answer(|stored| {
        let prefix = slice["metadata"]["generateName"].as_str().unwrap();
        slice["metadata"]["name"] = json!(format!("{prefix}{:05}", stored.resources.writes));
        Some(stored.resources.store(slice))
    });
    made.into_response()
}

async fn patch_slice(
    State(server): State<Apiserver>,
    Path(name): Path<String>,
    Json(patch): Json<Value>,
) -> Response {
    let Some(mut slice) = server.resources(|resources| resources.slices.get(&name).cloned()) else {
        return server.answer(|_| None).into_response();
    };
    let [said, is] = [&patch, &slice].map(|object| object["metadata"]["resourceVersion"].clone());
    if !said.is_null() && said != is {
        return conflict("the object has been modified");
    }
    merge(&mut slice, &patch);
    if let Some(why) = wrong(&slice) {
        return invalid(&why);
    }
    server.answer(|stored| Some(stored.resources.store(slice))).into_response()
}

async fn delete_slice(State(server): State<Apiserver>, Path(name): Path<String>) -> Answer {
    server.answer(|stored| stored.resources.slices.remove(&name))
}
