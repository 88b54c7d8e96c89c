//! Publishes the node's devices in the apiserver. One `ResourceSlice` is the whole pool of the node.

use super::{Driver, device};
use crate::api::{Failure, List, Metadata, Node};
use crate::objects::{foreign, taken};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Instant;
use tracing::{info, warn};

const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
/// Name of NVIDIA's own DRA driver.
const NVIDIA: &str = "gpu.nvidia.com";

/// List of devices in the form of the apiserver.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Slice {
    metadata: Metadata,
    spec: ResourceSliceSpec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ResourceSliceSpec {
    pool: Pool,
    devices: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Pool {
    name: String,
    generation: i64,
}

/// State of the publication.
#[derive(Debug)]
struct Published {
    /// Devices that the driver wrote last, and the version that the apiserver gave them. If the version is the same, no client
    /// has changed the list. The content alone does not show this: the apiserver drops fields that it does not know, and fills
    /// in others.
    written: Option<(Value, String)>,
    /// False if the apiserver ignores taints.
    taints: bool,
    /// Resource or devices by which another plugin or driver gives away the GPUs of the node; none if there is no such plugin.
    foreign: Option<String>,
}

/// Publishes the devices until the future is dropped.
pub(super) async fn watch(driver: &Driver) {
    let mut state = Published { written: None, taints: true, foreign: None };
    loop {
        let (seen, at) = ((driver.gpus)(), Instant::now());
        if let Err(failure) = publish(driver, &mut state).await {
            warn!("the devices of the node are not in the apiserver: {failure}");
        }
        while (driver.gpus)() == seen && at.elapsed() < driver.config.interval {
            tokio::select! {
                () = tokio::time::sleep(driver.config.poll) => {}
                () = driver.registered.notified() => break,
            }
        }
    }
}

/// Writes the devices if the apiserver has other ones, and removes all other lists of this node. While another plugin gives
/// away the GPUs of the node, writes an empty list.
async fn publish(driver: &Driver, state: &mut Published) -> Result<(), Failure> {
    let (client, node) = (&driver.client, &driver.config.node);
    let Some(list) = client.get::<List<Slice>>(&of_driver(device::DRIVER, node)).await? else {
        let why = "it has no resource.k8s.io/v1, which Kubernetes 1.34 and newer have";
        return Err(Failure::Refused(404, why.to_owned()));
    };
    let (mut ours, mut stale): (Vec<_>, Vec<_>) =
        list.items.into_iter().partition(|slice| slice.spec.pool.name == *node);
    ours.sort_by_key(|slice| slice.spec.pool.generation);
    let kept = ours.pop();
    stale.extend(ours);
    let found = other(driver).await?;
    if let Some(resource) = found.as_ref().filter(|_| found != state.foreign) {
        warn!("the node {node} is offered to no claim: {}", taken(resource));
    }
    state.foreign = found;
    write(driver, state, kept.as_ref()).await?;
    for slice in stale {
        info!(slice = slice.metadata.name, "removed a list of devices that is not this driver's");
        client.delete(&format!("{SLICES}/{}", slice.metadata.name)).await?;
    }
    Ok(())
}

/// Returns the path of the lists that a driver has for the node.
fn of_driver(driver: &str, node: &str) -> String {
    format!("{SLICES}?fieldSelector=spec.driver%3D{driver}%2Cspec.nodeName%3D{node}")
}

/// Returns the resource or devices by which another plugin or driver gives away the GPUs of the node; none if there is no such
/// plugin.
async fn other(driver: &Driver) -> Result<Option<String>, Failure> {
    let (client, node) = (&driver.client, &driver.config.node);
    let resource = client.get::<Node>(&format!("/api/v1/nodes/{node}")).await?.as_ref().and_then(foreign);
    if resource.is_some() {
        return Ok(resource);
    }
    let lists = client.get::<List<Slice>>(&of_driver(NVIDIA, node)).await?;
    let has_devices = |slice: Slice| slice.spec.devices.as_array().is_some_and(|devices| !devices.is_empty());
    let is_there = lists.is_some_and(|lists| lists.items.into_iter().any(has_devices));
    Ok(is_there.then(|| format!("devices of the driver {NVIDIA}")))
}

async fn write(driver: &Driver, state: &mut Published, kept: Option<&Slice>) -> Result<(), Failure> {
    let inventory = (driver.gpus)();
    let gpu_locations = driver.locations.of(inventory.uuids(), &driver.config.machine).await;
    let offered = || device::devices(&inventory, &gpu_locations, state.taints);
    let wanted = if state.foreign.is_some() { json!([]) } else { offered() };
    let is_there = |slice: &Slice| {
        let version = &slice.metadata.resource_version;
        let is_as_written =
            state.written.as_ref().is_some_and(|written| (&written.0, &written.1) == (&wanted, version));
        is_as_written || slice.spec.devices == wanted
    };
    if kept.is_some_and(is_there) {
        return Ok(());
    }
    let answer = put(driver, kept, &wanted).await?;
    state.written = Some((wanted.clone(), answer.metadata.resource_version.clone()));
    if state.taints && has(&wanted, "taints") && !has(&answer.spec.devices, "taints") {
        warn!("the apiserver keeps no taints of devices: those that do not work are left out");
        state.taints = false;
        return Box::pin(write(driver, state, Some(&answer))).await;
    }
    if has(&wanted, "allowMultipleAllocations") && !has(&answer.spec.devices, "allowMultipleAllocations") {
        warn!("the apiserver's gate DRAConsumableCapacity is off: each GPU goes to one claim as a whole");
    }
    Ok(())
}

fn has(devices: &Value, field: &str) -> bool {
    devices.as_array().into_iter().flatten().any(|device| device.get(field).is_some())
}

/// Writes the devices into an existing list, or into a new one. The API demands a larger generation of the pool for each
/// change. A new list belongs to the node's object, so the node must exist.
async fn put(driver: &Driver, kept: Option<&Slice>, devices: &Value) -> Result<Slice, Failure> {
    let (client, node) = (&driver.client, &driver.config.node);
    let pool = |generation: i64| json!({"name": node, "generation": generation, "resourceSliceCount": 1});
    if let Some(slice) = kept {
        let generation = slice.spec.pool.generation.saturating_add(1);
        let patch = json!({
            "metadata": {"resourceVersion": slice.metadata.resource_version},
            "spec": {"pool": pool(generation), "devices": devices},
        });
        return client.merge(&format!("{SLICES}/{}", slice.metadata.name), &patch).await;
    }
    let Some(owner) = client.get::<Node>(&format!("/api/v1/nodes/{node}")).await? else {
        return Err(Failure::Refused(404, format!("there is no node {node}")));
    };
    let slice = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {
            "generateName": format!("{node}-{}-", device::DRIVER),
            // The apiserver removes the list when it removes the node.
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Node", "name": node, "uid": owner.metadata.uid, "controller": true,
            }],
        },
        "spec": {"driver": device::DRIVER, "nodeName": node, "pool": pool(1), "devices": devices},
    });
    client.create(SLICES, &slice).await
}
