//! Makes room for another driver of the node's GPUs.

use super::owners::{holders, pods};
use super::slots::{Owner, owner_of};
use crate::api::{Client, Node};
use crate::files;
use crate::objects::{CORE_PERCENT, INVENTORY, MEMORY_MIB};
use gpuslice_slices::slot::{Name, Places};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::Path;
use tracing::warn;

/// Makes room for the mode `dra`: removes the files of slots, and the sums and the annotation of the node. `kubelet` is the
/// kubelet's folder.
///
/// # Errors
/// Pods have slots, or the kubelet does not answer, or slots have files and the apiserver does not answer. Without the error,
/// the node would give the memory of such pods away again.
pub async fn clear(places: &Places, kubelet: &Path, client: &Client, node: &str) -> Result<(), String> {
    let named = |namespace: &str, pod: &str| format!("{namespace}/{pod}");
    let listed = holders(&kubelet.join("pod-resources/kubelet.sock")).await?;
    let mut held: BTreeSet<String> =
        listed.iter().map(|holder| named(&holder.namespace, &holder.pod)).collect();
    let slots: Vec<Name> = files::names(places).into_iter().filter(Name::is_slot).collect();
    let owners: Vec<Owner> = slots.iter().filter_map(|slot| owner_of(places, slot)).collect();
    if !owners.is_empty() {
        // A kubelet that has just started does not list any pod yet.
        let pods = pods(client, node).await.map_err(|failure| format!("the pods of this node: {failure}"))?;
        let living: BTreeSet<&str> =
            pods.iter().filter(|pod| !pod.is_ended()).map(|pod| pod.metadata.uid.as_str()).collect();
        let owners = owners.iter().filter(|owner| living.contains(owner.uid.as_str()));
        held.extend(owners.map(|owner| named(&owner.namespace, &owner.pod)));
    }
    if !held.is_empty() {
        let pods: Vec<String> = held.into_iter().collect();
        return Err(format!(
            "this node has the pods {} with slots of the mode \"device-plugin\"; drain it before you change the mode",
            pods.join(", ")
        ));
    }
    for slot in &slots {
        files::remove(places, slot).unwrap_or_else(|problem| warn!("{problem}"));
    }
    // A failure here is harmless. The sums alone place no pod, because the kubelet offers no slots at this time.
    withdraw(client, node)
        .await
        .unwrap_or_else(|failure| warn!("the sums of the node {node} stay: {failure}"));
    Ok(())
}

/// Removes the annotation and the sums by which the extender could place pods on this node.
async fn withdraw(client: &Client, node: &str) -> Result<(), crate::api::Failure> {
    let path = format!("/api/v1/nodes/{node}");
    let Some(found) = client.get::<Node>(&path).await? else { return Ok(()) };
    if found.metadata.annotations.contains_key(INVENTORY) {
        client.patch(&path, &json!({"metadata": {"annotations": {INVENTORY: null}}})).await?;
    }
    if found.status.capacity.contains_key(MEMORY_MIB) || found.status.capacity.contains_key(CORE_PERCENT) {
        let none = json!({MEMORY_MIB: null, CORE_PERCENT: null});
        let patch = json!({"status": {"capacity": none, "allocatable": none}});
        client.patch(&format!("{path}/status"), &patch).await?;
    }
    Ok(())
}
