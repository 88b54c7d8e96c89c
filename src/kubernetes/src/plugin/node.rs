//! Checks the node every few seconds. Writes its GPUs to the apiserver, and releases the slots of deleted pods.

use super::owners::{holders, pods};
use super::slots::{Known, Owner};
use super::{Plugin, resize};
use crate::api::{Failure, Node, Pod, Resources};
use crate::objects::{CORE_PERCENT, INVENTORY, Inventory, MEMORY_MIB, Part, foreign, taken, whole};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use tracing::{info, warn};

/// Checks the node until the future is dropped.
pub(super) async fn watch(plugin: &Plugin) {
    let mut is_registered = plugin.is_registered.subscribe();
    loop {
        is_registered.mark_unchanged();
        plugin.show_devices().await;
        advertise_or_tell(plugin).await;
        if let Err(error) = release(plugin).await {
            warn!("slots of pods that are gone stay: {error}");
        }
        let _either = tokio::time::timeout(plugin.config.interval, is_registered.changed()).await;
    }
}

/// Advertises the GPUs, and logs a failure.
pub(super) async fn advertise_or_tell(plugin: &Plugin) {
    if let Err(error) = advertise(plugin).await {
        warn!("the GPUs of the node {} are not written to the apiserver: {error}", plugin.config.node);
    }
}

/// Writes the sums of memory and time, and the list of GPUs, if the node lacks them. Another client may have removed them.
///
/// While the kubelet does not know the plugin, the plugin writes no list. So the extender places no pod on the node, where the
/// pod would fail permanently. The plugin also writes no list while another plugin gives away the same GPUs.
async fn advertise(plugin: &Plugin) -> Result<(), Failure> {
    let (path, inventory) = (format!("/api/v1/nodes/{}", plugin.config.node), placed(plugin).await);
    let Some(node) = plugin.client.get::<Node>(&path).await? else {
        return Err(Failure::Refused(404, "there is no such node".to_owned()));
    };
    let found = foreign(&node);
    let is_offered = plugin.is_served() && found.is_none();
    note_foreign(plugin, found);
    let text = is_offered.then(|| json!(inventory).to_string());
    if node.metadata.annotations.get(INVENTORY) != text.as_ref() {
        plugin.client.patch(&path, &json!({"metadata": {"annotations": {INVENTORY: text}}})).await?;
    }
    let sums = sums(&inventory, &owners(plugin).await);
    if let Some(sums) = changed(&node, sums) {
        let patch = json!({"status": {"capacity": sums, "allocatable": sums}});
        plugin.client.patch(&format!("{path}/status"), &patch).await?;
    }
    Ok(())
}

/// Records the resource of another plugin. Logs it once.
fn note_foreign(plugin: &Plugin, found: Option<String>) {
    plugin.foreign.send_if_modified(|known| {
        let is_new = *known != found;
        match found.as_ref().filter(|_| is_new) {
            Some(resource) => {
                warn!("the node {} is offered to no pod: {}", plugin.config.node, taken(resource));
            }
            None if is_new => info!("no other plugin gives away the GPUs of the node {}", plugin.config.node),
            None => {}
        }
        *known = found;
        is_new
    });
}

/// Returns the GPUs with the numbers of their NUMA nodes, which the extender needs.
async fn placed(plugin: &Plugin) -> Inventory {
    let mut inventory = (plugin.gpus)();
    let gpu_locations = plugin.locations.of(inventory.uuids(), &plugin.config.machine).await;
    for gpu in &mut inventory.gpus {
        gpu.numa = gpu_locations.get(&gpu.uuid).and_then(|location| location.numa);
    }
    inventory
}

async fn owners(plugin: &Plugin) -> Vec<Owner> {
    let owners = plugin.with_slots(|slots| slots.known().map(|known| known.owner.clone()).collect());
    owners.await.unwrap_or_default()
}

/// Returns the sums of memory and time over the working GPUs. The scheduler subtracts the amounts for which pods have asked. So
/// the sums also contain the difference between request and present amounts of each resized pod.
fn sums(inventory: &Inventory, owners: &[Owner]) -> (u64, u64) {
    let sum = |parts: &[Part], of: fn(&Part) -> u64| parts.iter().map(of).fold(0, u64::saturating_add);
    let add = |(memory, core): (u64, u64), owner: &Owner| {
        let Some((asked_memory, asked_core)) = owner.asked else { return (memory, core) };
        let given = (sum(&owner.parts, |part| part.mem_mib), sum(&owner.parts, |part| part.core.into()));
        let shifted = |total: u64, asked: u64, given: u64| total.saturating_add(asked).saturating_sub(given);
        (shifted(memory, asked_memory, given.0), shifted(core, asked_core, given.1))
    };
    owners.iter().fold(inventory.sums(), add)
}

/// Returns a patch with the sums, if the node has other sums.
fn changed(node: &Node, (memory, core): (u64, u64)) -> Option<serde_json::Value> {
    let sums = [(MEMORY_MIB, memory), (CORE_PERCENT, core)];
    let is_there = |(resource, sum): &(&str, u64)| {
        let says = |list: &Resources| list.get(*resource).and_then(|text| whole(text)) == Some(*sum);
        says(&node.status.capacity) && says(&node.status.allocatable)
    };
    let [memory, core] = sums.map(|(_, sum)| sum.to_string());
    (!sums.iter().all(is_there)).then(|| json!({MEMORY_MIB: memory, CORE_PERCENT: core}))
}

/// Releases the slots of pods that have ended, and of pods that neither the apiserver nor the kubelet lists. Resizes the other
/// slots.
///
/// The kubelet's list alone is not enough: a kubelet that has just started answers with an empty list while containers run. The
/// apiserver's list alone is not enough either: a container may run on for a moment after a client has deleted its pod by
/// force. If the apiserver does not answer, all slots stay.
async fn release(plugin: &Plugin) -> Result<(), String> {
    let listed = holders(&plugin.config.pod_resources()).await?;
    let listed: BTreeSet<String> = listed.into_iter().flat_map(|holder| holder.slots).collect();
    let pods = pods(&plugin.client, &plugin.config.node).await;
    let pods = pods.inspect_err(|error| warn!("the pods of the node: {error}")).ok();
    let is_ended = |pod: &Pod| (pod.metadata.uid.clone(), pod.is_ended());
    let ends = pods.as_ref().map(|pods| pods.iter().map(is_ended).collect::<BTreeMap<String, bool>>());
    let grace = plugin.config.grace;
    let gone = plugin.with_slots(move |slots| {
        slots.note_list(&listed);
        let is_gone = |known: &&Known| match ends.as_ref().map(|ends| ends.get(&known.owner.uid)) {
            None => false,
            Some(Some(is_ended)) => *is_ended,
            Some(None) => known.unlisted.is_some_and(|since| since.elapsed() >= grace),
        };
        let gone: Vec<_> = slots.known().filter(is_gone).map(|known| known.owner.clone()).collect();
        gone.iter().flat_map(|owner| owner.slots.first()).for_each(|slot| slots.release(slot));
        gone
    });
    for owner in gone.await? {
        info!(pod = %format!("{}/{}", owner.namespace, owner.pod), container = owner.container, "released");
    }
    resize::apply(plugin, pods.unwrap_or_default()).await
}
