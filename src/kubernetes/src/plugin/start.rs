//! Finds the container that is about to start, and makes its slice.

use super::owners::{Holder, holders};
use super::slots::{Owner, Slots};
use super::{Plugin, PluginConfig};
use crate::api::Pod;
use crate::metrics::Cause;
use crate::objects::{ALLOC, Alloc, Inventory, Part, Request, requests, taken};
use crate::placement::{Order, Room, Used, place, take};
use std::collections::BTreeSet;
use std::time::Instant;

/// The reason why a container has to wait: the cause for the metrics, and a text for its user.
#[derive(Debug)]
pub(super) struct Wait {
    pub(super) cause: Cause,
    pub(super) why: String,
}

impl Cause {
    /// Returns a function that turns an error into a wait with this cause.
    fn of(self) -> impl FnOnce(String) -> Wait {
        move |why| Wait { cause: self, why }
    }
}

/// Answer of the apiserver about a pod.
enum PodAnswer {
    Pod(Box<Pod>),
    /// The pod does not exist.
    Gone,
    /// The apiserver does not answer.
    Silent(String),
}

impl Plugin {
    /// Makes the files of the container that has `slots`.
    ///
    /// The kubelet's call names only the slots, not the container. So the function looks for the first slot in the kubelet's
    /// list of containers. The list may have several containers for that slot, because old kubelets list ended pods too. The
    /// apiserver shows which of these pods have not ended. A wrong choice would give one container the memory of another. So
    /// unless exactly one container is left, the function returns an error, and the kubelet tries again.
    pub(super) async fn start(&self, slots: &[String]) -> Result<(), Wait> {
        let nameless = || Cause::Kubelet.of()("the kubelet names no slot".to_owned());
        let first = slots.iter().min().ok_or_else(nameless)?;
        let asked = Instant::now();
        let listed = holders(&self.config.pod_resources()).await.map_err(Cause::Kubelet.of())?;
        let mut living = Vec::new();
        for holder in listed.iter().filter(|holder| holder.slots.contains(first)) {
            match self.pod(holder).await {
                PodAnswer::Pod(pod) if !pod.is_ended() => living.push((holder.clone(), pod)),
                PodAnswer::Pod(_) | PodAnswer::Gone => {}
                PodAnswer::Silent(why) => return self.start_again(holder.clone(), why).await,
            }
        }
        let Some((holder, pod)) = living.pop() else {
            let why = format!("the kubelet lists no living container that has {first}");
            return Err(Cause::Kubelet.of()(why));
        };
        if let Some((other, _)) = living.pop() {
            let why = format!(
                "{first} belongs to {}/{} and to {}/{}",
                holder.namespace, holder.pod, other.namespace, other.pod
            );
            return Err(Cause::Kubelet.of()(why));
        }
        let used: BTreeSet<String> = listed.into_iter().flat_map(|holder| holder.slots).collect();
        let (inventory, config) = ((self.gpus)(), self.config.clone());
        let foreign = self.foreign.borrow().clone();
        let started = self.with_slots(move |known| {
            let mut owner = owner(&holder, &pod, &config.node).map_err(Cause::Refused.of())?;
            // An owner that the kubelet does not list is gone, unless the plugin has added it since it asked for the list.
            let others = known.known().filter(|known| {
                let is_listed = known.owner.slots.iter().any(|slot| used.contains(slot));
                (is_listed || known.since >= asked) && !known.owner.is(&owner)
            });
            let rooms = Used::of(others.flat_map(|known| &known.owner.parts)).left(&inventory);
            let asked = request(&pod, &owner).map_err(Cause::Refused.of())?;
            let of_all = |each: u64| each.saturating_mul(asked.slices);
            owner.asked = Some((of_all(asked.mem_mib), of_all(asked.core.into())));
            let parts = match pod.metadata.annotations.get(ALLOC) {
                Some(text) => {
                    Alloc::parse(text).and_then(|alloc| checked(&alloc, &owner, &pod, &config, rooms))
                }
                None if config.auto_alloc => {
                    decided(known, &owner, &pod, foreign.as_deref(), &inventory, rooms)
                }
                None => {
                    let why = format!("{}: gpuslice's scheduler has not placed it", missing(&owner));
                    return Err(Cause::Unplaced.of()(why));
                }
            };
            owner.parts = parts.map_err(Cause::Refused.of())?;
            known.give(&owner).map_err(Cause::Files.of())
        });
        started.await.map_err(Cause::Files.of())?
    }

    async fn pod(&self, holder: &Holder) -> PodAnswer {
        let path = format!("/api/v1/namespaces/{}/pods/{}", holder.namespace, holder.pod);
        match self.client.get_within(self.config.patience, &path).await {
            Ok(Some(pod)) => PodAnswer::Pod(Box::new(pod)),
            Ok(None) => PodAnswer::Gone,
            Err(failure) => PodAnswer::Silent(failure.to_string()),
        }
    }

    /// Starts a container again while the apiserver does not answer. The owner of the slots has not changed, so the kubelet has
    /// not called `Allocate` for them. So the slots still belong to the same container.
    async fn start_again(&self, holder: Holder, why: String) -> Result<(), Wait> {
        let started = self.with_slots(move |known| {
            let owner = holder.slots.first().and_then(|slot| known.owner(slot)).cloned();
            let is_it = |owner: &Owner| {
                let Holder { namespace, pod, container, slots } = &holder;
                (&owner.namespace, &owner.pod, &owner.container, &owner.slots)
                    == (namespace, pod, container, slots)
            };
            let owner = owner.filter(is_it).ok_or_else(|| Cause::Apiserver.of()(why))?;
            known.give(&owner).map_err(Cause::Files.of())
        });
        started.await.map_err(Cause::Files.of())?
    }
}

/// Returns the owner that a container becomes, without its parts.
fn owner(holder: &Holder, pod: &Pod, node: &str) -> Result<Owner, String> {
    let Holder { namespace, pod: name, container, slots } = holder.clone();
    let on = pod.spec.node_name.as_deref().unwrap_or_default();
    if on != node {
        return Err(format!("the pod {namespace}/{name} is on the node {on:?}, and this one is {node:?}"));
    }
    let uid = pod.metadata.uid.clone();
    Ok(Owner { namespace, pod: name, uid, container, slots, parts: Vec::new(), asked: None })
}

/// Returns the parts that the extender has chosen, if they are valid.
///
/// A tenant can write the annotation of its own pod. So the function refuses amounts for which the pod has not asked, and
/// amounts that do not fit.
fn checked(
    alloc: &Alloc,
    owner: &Owner,
    pod: &Pod,
    config: &PluginConfig,
    mut rooms: Vec<Room<'_>>,
) -> Result<Vec<Part>, String> {
    let Owner { uid, container, slots, .. } = owner;
    for (what, said, is) in [("uid", &alloc.uid, uid), ("node", &alloc.node, &config.node)] {
        if said != is {
            return Err(format!("the annotation {ALLOC} is of the {what} {said:?}, and this is {is:?}"));
        }
    }
    let Some(parts) = alloc.c.get(container) else {
        return Err(format!("the annotation {ALLOC} does not have the container {container}"));
    };
    let gpus: BTreeSet<&str> = parts.iter().map(|part| part.uuid.as_str()).collect();
    if parts.len() != slots.len() || gpus.len() != parts.len() {
        return Err(format!(
            "the annotation {ALLOC} has {} parts on {} GPUs for {container}, and the kubelet gave it {} slots",
            parts.len(),
            gpus.len(),
            slots.len()
        ));
    }
    let request = request(pod, owner)?;
    for part in parts {
        let Part { uuid, mem_mib, core } = part;
        // The extender writes later generations when it resizes a pod. A tenant can write them too, unless an admission policy
        // allows only the extender to do so.
        let may_differ = config.resize && alloc.generation > 1;
        if !may_differ && (*mem_mib, *core) != (request.mem_mib, request.core) {
            let key = if alloc.generation > 1 { "; kubernetes.resize is off on this node" } else { "" };
            return Err(format!(
                "the annotation {ALLOC} has {mem_mib} MiB and {core} % for {container}, which asks for {} MiB and {} %{key}",
                request.mem_mib, request.core
            ));
        }
        take(&mut rooms, part).map_err(|room| match room {
            None => format!("{container} is to be on {uuid}, which is no GPU of this node that works"),
            Some(room) => format!(
                "{container} is to have {mem_mib} MiB and {core} % of {uuid}, and {} MiB and {} % are left",
                room.mem_mib, room.core
            ),
        })?;
    }
    Ok(parts.clone())
}

/// Returns the reason why the parts of a container are not known.
fn missing(owner: &Owner) -> String {
    format!("the pod {}/{} has no annotation {ALLOC}", owner.namespace, owner.pod)
}

/// Chooses the parts of a container that no extender has placed. `foreign` is the resource of another plugin that gives away
/// the same GPUs.
fn decided(
    known: &Slots,
    owner: &Owner,
    pod: &Pod,
    foreign: Option<&str>,
    inventory: &Inventory,
    mut rooms: Vec<Room<'_>>,
) -> Result<Vec<Part>, String> {
    if inventory.gpus.len() != 1 {
        return Err(format!(
            "{}, and auto_alloc decides on nodes with one GPU only; this one has {}",
            missing(owner),
            inventory.gpus.len()
        ));
    }
    let before = owner.slots.first().and_then(|slot| known.owner(slot));
    if let Some(before) = before.filter(|before| before.is(owner)) {
        return Ok(before.parts.clone());
    }
    if let Some(resource) = foreign {
        return Err(format!("this node gives no slice away: {}", taken(resource)));
    }
    let mut placed = place(&mut rooms, &[request(pod, owner)?], Order::Binpack)?;
    placed.remove(&owner.container).ok_or_else(|| missing(owner))
}

/// Returns the request of the container.
fn request(pod: &Pod, owner: &Owner) -> Result<Request, String> {
    let request = requests(pod)?.into_iter().find(|request| request.container == owner.container);
    request.ok_or_else(|| format!("the container {} asks for no slice", owner.container))
}
