//! Gives running containers the parts that the extender has changed, and takes back limits that a tenant has raised itself.

use super::Plugin;
use super::slots::{Owner, Slots};
use crate::api::{Event, Pod};
use crate::objects::{ALLOC, Alloc, Inventory, Part};
use crate::placement::{Used, take};
use std::cmp::Reverse;
use std::collections::HashMap;
use tracing::{info, warn};

/// Applies the annotations of the node's pods.
pub(super) async fn apply(plugin: &Plugin, pods: Vec<Pod>) -> Result<(), String> {
    let (inventory, node) = ((plugin.gpus)(), plugin.config.node.clone());
    let pods: HashMap<String, Pod> = pods.into_iter().map(|pod| (pod.metadata.uid.clone(), pod)).collect();
    let (pods, resized) = plugin
        .with_slots(move |slots| {
            let resized = resize(slots, &pods, &node, &inventory);
            (pods, resized)
        })
        .await?;
    for owner in resized {
        let message = message(&owner);
        info!(pod = %format!("{}/{}", owner.namespace, owner.pod), "{message}");
        let Some(pod) = pods.get(&owner.uid) else { continue };
        let event =
            Event { is_warning: false, reason: "Resized", message: &message, component: "gpuslice-agent" };
        if let Err(failure) = plugin.client.tell(&pod.metadata, event).await {
            warn!("an event: {failure}");
        }
    }
    Ok(())
}

fn message(owner: &Owner) -> String {
    let part = |part: &Part| {
        let time = if part.core == 0 { "all".to_owned() } else { format!("{} %", part.core) };
        format!("{} MiB and {time} of the time of {}", part.mem_mib, part.uuid)
    };
    let parts: Vec<String> = owner.parts.iter().map(part).collect();
    format!("container {} has {}", owner.container, parts.join(", "))
}

/// Resizes the slices that have room, and returns their owners. Slices that shrink come first, because they make room for the
/// others.
fn resize(slots: &mut Slots, pods: &HashMap<String, Pod>, node: &str, inventory: &Inventory) -> Vec<Owner> {
    let owners: Vec<Owner> = slots.known().map(|known| known.owner.clone()).collect();
    let wanted =
        |owner: &Owner| Some(Owner { parts: wanted(owner, pods.get(&owner.uid)?, node)?, ..owner.clone() });
    let mut changed: Vec<(Owner, Owner)> =
        owners.iter().filter_map(|owner| Some((owner.clone(), wanted(owner)?))).collect();
    let memory = |owner: &Owner| owner.parts.iter().map(|part| part.mem_mib).fold(0, u64::saturating_add);
    changed.sort_by_key(|(has, gets)| Reverse(memory(has).saturating_sub(memory(gets))));
    let mut resized = Vec::new();
    for (_, gets) in changed {
        let others = slots.known().map(|known| &known.owner).filter(|known| !known.is(&gets));
        let mut rooms = Used::of(others.flat_map(|known| &known.parts)).left(inventory);
        let has_room = gets.parts.iter().all(|part| take(&mut rooms, part).is_ok());
        if !has_room {
            warn!(pod = %format!("{}/{}", gets.namespace, gets.pod), "no room yet: {}", message(&gets));
            continue;
        }
        match slots.resize(&gets) {
            Ok(()) => resized.push(gets),
            Err(why) => warn!(pod = %format!("{}/{}", gets.namespace, gets.pod), "not resized yet: {why}"),
        }
    }
    for problem in slots.hold() {
        warn!("a region may have more than its limits: {problem}");
    }
    resized
}

/// Returns the new parts of the container, if they differ from its present parts. They are on the same GPUs.
fn wanted(owner: &Owner, pod: &Pod, node: &str) -> Option<Vec<Part>> {
    let alloc = Alloc::parse(pod.metadata.annotations.get(ALLOC)?).ok()?;
    let parts = alloc.c.get(&owner.container)?;
    let gpus = |parts: &[Part]| parts.iter().map(|part| part.uuid.clone()).collect::<Vec<_>>();
    let is_its = alloc.uid == owner.uid && alloc.node == node && gpus(parts) == gpus(&owner.parts);
    (is_its && alloc.generation > 1 && *parts != owner.parts).then(|| parts.clone())
}
