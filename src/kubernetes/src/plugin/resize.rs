//! Gives running containers the parts that the extender has changed.

use super::Plugin;
use super::slots::{Owner, Slots};
use crate::api::{Event, Pod};
use crate::objects::{ALLOC, Alloc, Inventory, Part};
use crate::placement::{Used, take};
use std::cmp::Reverse;
use std::collections::HashMap;
use tracing::{info, warn};

/// Reason why a container keeps its amounts. The pod's user and the operator of the node read it.
const KEPT: &str = "the annotation gpuslice.dev/alloc has other amounts, and the agent of this node does not apply them. \
    If the admission policies of gpuslice are installed, set kubernetes.resize = true in its configuration";

/// Gives the containers of the node the parts in their pods' annotations, and reports each change to the pod's user as an
/// event.
///
/// Without the setting `resize`, a tenant could have written a later annotation itself. So the function then changes nothing,
/// and reports once that the container keeps its amounts.
pub(super) async fn apply(plugin: &Plugin, pods: Vec<Pod>) -> Result<(), String> {
    let (inventory, config) = ((plugin.gpus)(), plugin.config.clone());
    let pods: HashMap<String, Pod> = pods.into_iter().map(|pod| (pod.metadata.uid.clone(), pod)).collect();
    let (pods, resized, kept) = plugin
        .with_slots(move |slots| {
            let changed = changed(slots, &pods, &config.node);
            let (resized, kept) = if config.resize {
                (resize(slots, changed, &inventory), Vec::new())
            } else {
                (Vec::new(), changed.into_iter().map(|(has, _)| has).filter(|has| slots.tell(has)).collect())
            };
            (pods, resized, kept)
        })
        .await?;
    for owner in resized {
        let message = message(&owner);
        info!(pod = %format!("{}/{}", owner.namespace, owner.pod), "{message}");
        let event =
            Event { is_warning: false, reason: "Resized", message: &message, component: "gpuslice-agent" };
        tell(plugin, pods.get(&owner.uid), event).await;
    }
    for owner in kept {
        let message = format!("{}: {KEPT}", message(&owner));
        warn!(pod = %format!("{}/{}", owner.namespace, owner.pod), "{message}");
        let event = Event {
            is_warning: true,
            reason: "ResizeRefused",
            message: &message,
            component: "gpuslice-agent",
        };
        tell(plugin, pods.get(&owner.uid), event).await;
    }
    Ok(())
}

/// Reports an event of a pod, if the apiserver's list has the pod.
async fn tell(plugin: &Plugin, pod: Option<&Pod>, event: Event<'_>) {
    let Some(pod) = pod else { return };
    if let Err(failure) = plugin.client.tell(&pod.metadata, event).await {
        warn!("an event: {failure}");
    }
}

fn message(owner: &Owner) -> String {
    let part = |part: &Part| {
        let time = if part.core == 0 { "all".to_owned() } else { format!("{} %", part.core) };
        format!("{} MiB and {time} of the time of {}", part.mem_mib, part.uuid)
    };
    let parts: Vec<String> = owner.parts.iter().map(part).collect();
    format!("container {} has {}", owner.container, parts.join(", "))
}

/// Returns the owners whose annotations have other parts, as pairs: first with the present parts, then with those of the
/// annotation.
fn changed(slots: &Slots, pods: &HashMap<String, Pod>, node: &str) -> Vec<(Owner, Owner)> {
    let wanted =
        |owner: &Owner| Some(Owner { parts: wanted(owner, pods.get(&owner.uid)?, node)?, ..owner.clone() });
    let owners = slots.known().map(|known| &known.owner);
    owners.filter_map(|owner| Some((owner.clone(), wanted(owner)?))).collect()
}

/// Resizes the slices that have room, and returns their owners. Slices that shrink come first, because they make room for the
/// others.
fn resize(slots: &mut Slots, mut changed: Vec<(Owner, Owner)>, inventory: &Inventory) -> Vec<Owner> {
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
    resized
}

/// Returns the new parts of the container, if the annotation has other amounts on the same GPUs.
fn wanted(owner: &Owner, pod: &Pod, node: &str) -> Option<Vec<Part>> {
    let alloc = Alloc::parse(pod.metadata.annotations.get(ALLOC)?).ok()?;
    let parts = alloc.c.get(&owner.container)?;
    let gpus = |parts: &[Part]| parts.iter().map(|part| part.uuid.clone()).collect::<Vec<_>>();
    let is_its = alloc.uid == owner.uid && alloc.node == node && gpus(parts) == gpus(&owner.parts);
    (is_its && alloc.generation > 1 && *parts != owner.parts).then(|| parts.clone())
}
