//! Chooses GPUs, and scores a node for a pod.

use super::used::Room;
use crate::objects::{Constraints, Part, Request, Topology};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Best score of a node on the scheduler's scale.
const BEST: u64 = 10;

/// Order in which pods fill GPUs and nodes with room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// The fullest first, so that other GPUs stay empty for large pods.
    #[default]
    Binpack,
    /// The emptiest first, so that pods disturb each other least.
    Spread,
}

/// Chooses the parts of a pod's containers on the GPUs of a node, and takes them from `rooms`. Containers with large slices
/// choose first.
///
/// # Errors
/// There is no room, and nothing is taken. The message names the container and the room that is left.
pub fn place(
    rooms: &mut [Room<'_>],
    requests: &[Request],
    order: Order,
) -> Result<BTreeMap<String, Vec<Part>>, String> {
    let mut requests: Vec<&Request> = requests.iter().collect();
    requests.sort_by_key(|request| Reverse((request.mem_mib, request.core, request.slices)));
    let mut left = rooms.to_vec();
    let mut placed = BTreeMap::new();
    for request in requests {
        let parts = container(&mut left, request, order).map_err(|found| refusal(&left, request, found))?;
        placed.insert(request.container.clone(), parts);
    }
    rooms.copy_from_slice(&left);
    Ok(placed)
}

/// Chooses the parts of a container, each on another GPU. If they do not fit, takes nothing, and returns the number of GPUs
/// with room for one part.
fn container(rooms: &mut [Room<'_>], request: &Request, order: Order) -> Result<Vec<Part>, usize> {
    let Request { slices, mem_mib, core, constraints: Constraints { topology, .. }, .. } = request;
    let is_fit = |room: &Room<'_>| room.has(*mem_mib, *core) && request.constraints.allow(&room.gpu.model);
    let mut fit: Vec<Room<'_>> = rooms.iter().copied().filter(is_fit).collect();
    let slices = usize::try_from(*slices).ok().filter(|slices| *slices <= fit.len()).ok_or(fit.len())?;
    fit.sort_by_key(|room| (room.mem_mib, room.core));
    if order == Order::Spread {
        fit.reverse();
    }
    let chosen = match topology {
        None => fit.get(..slices).map(<[Room<'_>]>::to_vec),
        Some(topology) => connected(&fit, slices, *topology),
    };
    let chosen = chosen.ok_or(fit.len())?;
    let part = |taken: &Room<'_>| {
        let room = rooms.iter_mut().find(|room| room.position == taken.position);
        room.map(|room| room.take(*mem_mib, *core));
        Part { uuid: taken.gpu.uuid.clone(), mem_mib: *mem_mib, core: *core }
    };
    Ok(chosen.iter().map(part).collect())
}

/// Returns `slices` GPUs of `fit` that are all connected with each other. Prefers the first GPUs in the order of `fit`. Returns
/// none if there are no such GPUs.
///
/// The function tries each GPU with all sets of the GPUs after it, so the time could grow exponentially. In real nodes, GPUs
/// form groups whose members are all connected. So the function needs only few tries.
fn connected<'a>(fit: &[Room<'a>], slices: usize, topology: Topology) -> Option<Vec<Room<'a>>> {
    let Some(more) = slices.checked_sub(1) else { return Some(Vec::new()) };
    if fit.len() < slices {
        return None;
    }
    fit.iter().enumerate().find_map(|(at, room)| {
        let later = fit.get(at.saturating_add(1)..).unwrap_or_default();
        let linked: Vec<Room<'a>> =
            later.iter().filter(|other| room.has_link(other, topology)).copied().collect();
        let rest = connected(&linked, more, topology)?;
        Some([*room].into_iter().chain(rest).collect())
    })
}

/// Returns the reason of a refusal. It has no percent sign, because kube-scheduler uses the text as a format when it writes an
/// event.
fn refusal(rooms: &[Room<'_>], request: &Request, found: usize) -> String {
    let Request { container, slices, mem_mib, core, constraints: Constraints { models, topology } } = request;
    if rooms.is_empty() {
        return "no GPU of the node works".to_owned();
    }
    let of = if models.is_empty() { String::new() } else { format!(" of the model {}", models.join(" or ")) };
    if u64::try_from(found).is_ok_and(|found| found >= *slices) {
        let linked = match topology {
            Some(Topology::Numa) => "on one NUMA node",
            _ => "connected by NVLink",
        };
        return format!(
            "container {container}: {found} GPUs{of} have {mem_mib} MiB and {core} percent of time left, and no {slices} of them are {linked}"
        );
    }
    let memory = rooms.iter().map(|room| room.mem_mib).max().unwrap_or(0);
    let most = rooms.iter().map(|room| room.core).max().unwrap_or(0);
    format!(
        "container {container}: {found} of {slices} GPUs{of} have {mem_mib} MiB and {core} percent of time left (at most {memory} MiB and {most} percent)"
    )
}

/// Returns the score of a node, from 0 to 10. `left` is the room that its GPUs have with the pod.
#[must_use]
pub fn score(left: &[Room<'_>], order: Order) -> u64 {
    let total = left.iter().map(|room| room.gpu.mem_mib).fold(0, u64::saturating_add);
    let free = left.iter().map(|room| room.mem_mib).fold(0, u64::saturating_add);
    let free = free.saturating_mul(BEST).checked_div(total).unwrap_or(0).min(BEST);
    match order {
        Order::Binpack => BEST.saturating_sub(free),
        Order::Spread => free,
    }
}
